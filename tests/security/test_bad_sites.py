"""One of four sites lies to the server. Its result is refused with a reason, and the mean of the others is unchanged.

The sites are real ones that have trained; their answers are recorded once, and each attack changes one of them.
"""

import copy
import json

import numpy as np
import pytest
from inprocess import InProcess
from nvflare.apis.dxo import DXO, DataKind

from fclseg.engine.rounds import RunLoop
from fclseg.engine.run_folder import RunFolder
from fclseg.engine.run_settings import RunSettings
from fclseg.errors import FCLSegError
from fclseg.federation.robust import MEDIAN_RULE, OFF, TRIMMED_RULE
from fclseg.flare.wire import from_dxo
from fclseg.phantom.dataset import write_phantom

SITES = ("site-1", "site-2", "site-3", "site-4")
BAD = "site-3"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """{job: ({task: {site: answer}}, the run)} of the first round of four honest sites."""
    folder, patch = tmp_path_factory.mktemp("honest"), pytest.MonkeyPatch()
    patch.setattr("tempfile.tempdir", str(folder))
    patch.setenv("FCLSEG_DEVICE", "cpu")
    data = {site: folder / site for site in SITES}
    for number, path in enumerate(data.values()):
        write_phantom(path, patients=1, frames=2, seed=number)
    found = {}
    for job in ("fclopt_dp", "fcl"):
        run, answers = InProcess(folder / job, data, job, rounds=1), {}

        def ask(task, messages, timeout, accept, run=run, answers=answers):
            return run.ask(
                task,
                messages,
                timeout,
                lambda site, m: (answers.setdefault(task, {}).update({site: m})) or accept(site, copy.deepcopy(m)),
            )

        run.loop.run(ask, lambda text: None)
        found[job] = (answers, run)
    patch.undo()
    return found


@pytest.fixture
def play(recorded, tmp_path):
    """The server's round with the recorded answers, one of them changed; returns its record and its model."""

    def play(job, change=lambda message: message, task="pretrain", without=(), **settings):
        answers, run = recorded[job]
        chosen = RunSettings.read({**run.settings.to_dict(), **settings}, {})
        folder = RunFolder(tmp_path / f"{job}-{len(list(tmp_path.iterdir()))}")
        folder.open({"settings": chosen.to_dict()}, fresh=False)
        loop = RunLoop(chosen, folder, run.sites, run.meter)
        loop.run_info["id"] = run.loop.run_info["id"]  # of the recorded answers

        def ask(asked, messages, timeout, accept):
            failures = {}
            for site in messages:
                message = copy.deepcopy(answers[asked][site])
                try:
                    if site in without:
                        raise FCLSegError("absent")
                    if site == BAD and asked == task:
                        message = change(message) or message
                    accept(site, message)
                except Exception as error:
                    failures[site] = str(error)
            return failures

        return loop._round(0, ask), loop.model

    return play


def same(a, b):
    """Whether two global models are the same to the last bit."""
    assert a.means.keys() == b.means.keys() and a.others.keys() == b.others.keys()
    pairs = [(a.means[name][key], b.means[name][key]) for name in a.means for key in a.means[name]]
    for name in a.others:
        assert a.others[name].keys() == b.others[name].keys()
        pairs += [(a.others[name][s][key], b.others[name][s][key]) for s in a.others[name] for key in a.others[name][s]]
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


def scaled(factor):
    def change(message):
        for part in message.components.values():
            for name, array in part.items():
                if array.dtype == np.float32:
                    part[name] = (array * factor).astype(np.float32)

    return change


def meta(**values):
    return lambda message: message.meta.update(values)


def first(message, component="online"):
    return message.components[component]


def tensor(name, value, component="online"):
    def change(message):
        found = next(key for key in first(message, component) if key.endswith(name))
        first(message, component)[found] = np.full_like(first(message, component)[found], value)

    return change


def bank(name, value):
    def change(message):
        message.others["bank"][BAD][name] = np.full_like(message.others["bank"][BAD][name], value)

    return change


def speak_for_another(message):
    message.others["bank"]["site-1"] = message.others["bank"][BAD]


def not_a_message(message):
    return from_dxo(DXO(DataKind.COLLECTION, data={"online": "text"}, meta=message.meta))


def oversized(message):
    message.components["online"]["encoder.huge"] = np.zeros(10**7, np.float32)


def another_shape(message):
    key = next(iter(first(message)))
    first(message)[key] = np.zeros((*first(message)[key].shape, 100), np.float32)


ATTACKS = {
    "a text as loss": (meta(loss="<script>"), "'loss' cannot be"),
    "loss nan": (meta(loss=float("nan")), "'loss' cannot be"),
    "loss of 10^300": (meta(loss=1e300), "'loss' cannot be"),
    "samples 10^19": (meta(samples=10**19), "'samples' cannot be"),
    "samples 10^12": (meta(samples=10**12), "'samples' cannot be"),
    "samples -5": (meta(samples=-5), "'samples' cannot be"),
    "samples 2.5": (meta(samples=2.5), "'samples' cannot be"),
    "samples true": (meta(samples=True), "'samples' cannot be"),
    "seconds missing": (lambda m: m.meta.pop("seconds") and None, "'seconds' cannot be"),
    "a report of a megabyte": (meta(steps="x" * 10**6), "'steps' cannot be"),
    "weights x 10^6": (scaled(1e6), "times the median"),
    "weights x 10^3": (scaled(1e3), "times the median"),
    "weights of 3e38": (tensor(".weight", 3e38), "times the median"),
    "weights nan": (tensor(".weight", np.nan), "not finite"),
    "negative variance": (tensor("running_var", -1.0), "negative variances"),
    "a counter of 10^18": (tensor("num_batches_tracked", 10**18), "not counts"),
    "a counter below 0": (tensor("num_batches_tracked", -1), "not counts"),
    "wrong round": (meta(round=7), "belongs to round 7"),
    "a text as round": (meta(round="0"), "belongs to round '0'"),
    "wrong run": (lambda m: m.meta.update(run={**m.meta["run"], "id": "another"}), "belongs to another run"),
    "no run": (lambda m: m.meta.pop("run") and None, "belongs to another run"),
    "unknown component": (lambda m: m.components.update(images={}), "unknown component 'images'"),
    "missing component": (lambda m: m.components.pop("online") and None, "lacks component 'online'"),
    "oversized": (oversized, "brings an unknown tensor 'encoder.huge'"),
    "another shape": (another_shape, "instead of"),
    "not a message": (not_a_message, "no component in 'online'"),
}
FEATURE_ATTACKS = {
    "partitions of 200": (bank("partitions", 200), "partition numbers beyond the 4"),
    "zero features": (bank("features", 0.0), "not unit vectors"),
    "huge features": (bank("features", 1e6), "not unit vectors"),
    "features nan": (bank("features", np.nan), "not finite"),
    "features of another site": (speak_for_another, "contains data of another site"),
}


@pytest.mark.parametrize(
    ("job", "attack"), [("fclopt_dp", name) for name in ATTACKS] + [("fcl", name) for name in FEATURE_ATTACKS]
)
def test_a_bad_result_is_refused_and_the_others_mean_is_untouched(play, job, attack):
    change, complaint = {**ATTACKS, **FEATURE_ATTACKS}[attack]
    record, model = play(job, change)
    assert complaint in record["sites"][BAD]["status"] and len(record["sites"][BAD]["status"]) < 300
    assert {record["sites"][site]["status"] for site in SITES if site != BAD} == {"ok"}
    expected, without = play(job, without=(BAD,))
    assert same(model, without) and record["loss"] == expected["loss"]
    json.dumps(record)  # it can be written down


def test_honest_answers_pass_bit_for_bit_with_and_without_protection(play):
    for job in ("fclopt_dp", "fcl"):
        guarded, model = play(job)
        free, unguarded = play(job, outliers=OFF, weight_cap=1e9)
        assert {report["status"] for report in guarded["sites"].values()} == {"ok"}
        assert same(model, unguarded) and guarded["loss"] == free["loss"]


@pytest.mark.parametrize("number", [10**7, 10**8])
def test_a_site_that_claims_to_be_large_counts_ten_times_the_median_at_most(play, recorded, number):
    record, model = play("fclopt_dp", meta(samples=number))
    samples = {site: answer.meta["samples"] for site, answer in recorded["fclopt_dp"][0]["pretrain"].items()}
    samples[BAD] = number
    usual = sorted(samples.values())[1]  # the lower of the two in the middle
    honest = {**samples, BAD: 10 * usual}
    states = {site: answer.components["online"] for site, answer in recorded["fclopt_dp"][0]["pretrain"].items()}
    for key, mean in model.means["online"].items():
        if mean.dtype == np.float32:
            exact = sum(states[s][key].astype(np.float64) * honest[s] for s in SITES) / sum(honest.values())
            assert np.allclose(mean, exact, rtol=1e-6, atol=1e-9)
    assert record["sites"][BAD]["samples"] == number  # what it claimed is written down


@pytest.mark.parametrize("rule", [MEDIAN_RULE, TRIMMED_RULE])
def test_robust_means_stay_within_the_honest_values(play, recorded, rule):
    _, model = play("fclopt_dp", scaled(1e6), outliers=OFF, aggregation=rule)
    honest = [recorded["fclopt_dp"][0]["pretrain"][site].components["online"] for site in SITES if site != BAD]
    for key, mean in model.means["online"].items():
        stack = np.stack([state[key] for state in honest])
        if mean.dtype == np.float32:
            assert (mean >= stack.min(axis=0) - 1e-6).all() and (mean <= stack.max(axis=0) + 1e-6).all()


@pytest.mark.parametrize("lie", [1e3, 1e300, float("inf"), float("nan"), -1.0, "0.5", None])
def test_one_wild_distance_does_not_move_the_prediction(play, lie):
    def change(message):
        message.distance = lie

    record, _ = play("fclopt_dp", change, task="distance")
    expected = play("fclopt_dp", without=(BAD,))[0]
    assert (record["d_predicted"], record["alpha"]) == (expected["d_predicted"], expected["alpha"]) == (0.0, 1.0)


def test_an_answer_of_an_earlier_round_is_refused(play, recorded):
    """A replay: the same message again, one round later."""
    answers, _ = recorded["fclopt_dp"]
    record, _ = play("fclopt_dp", lambda m: m.meta.update(round=-1))
    assert "belongs to round -1" in record["sites"][BAD]["status"]
    again = answers["distance"][BAD]
    assert again.meta["run"]["id"] and again.round_number == 0  # the distance answer names its run and round, too
    for change, complaint in ((meta(round=4), "belongs to round 4"), (meta(run={"id": "x"}), "another run")):
        record, _ = play("fclopt_dp", change, task="distance")
        assert complaint in record["sites"][BAD]["status"]
