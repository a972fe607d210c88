"""What a curious server learns by the way it asks: the same round again, prepared networks, names and long texts."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from contexts import server_context, site_context
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply

from fclseg.engine.messages import FORMAT, Message
from fclseg.engine.place import LOCAL_FILE
from fclseg.engine.run_settings import RESERVED, RunSettings
from fclseg.engine.site import Site
from fclseg.engine.site_sums import SUMMED
from fclseg.environment import COMMAND
from fclseg.errors import FCLSegError, PublicError
from fclseg.federation.states import to_arrays
from fclseg.flare.controller import _command, check_start
from fclseg.flare.references import check_references
from fclseg.flare.wire import REASON, read_result, server_place, site_place
from fclseg.hospital import admission, audit, budget, ledger, problems
from fclseg.hospital.gate import Gate
from fclseg.hospital.policy import EVERYTHING, PolicyError
from fclseg.methods.exchange import DISTANCE, get_row
from fclseg.methods.registry import build_method
from fclseg.privacy.protections import NO_PROTECTION, PrivacySettings

TINY = {"channels": [2, 4], "hidden": 4, "bank_size": 8}


@pytest.fixture
def door(tmp_path):
    """The gate of a site for one task, and networks of the run."""
    context = site_context(tmp_path)

    def make(task="pretrain", number=0, received=None, run_id="run-1", policy=None, asked=NO_PROTECTION, **settings):
        (tmp_path / LOCAL_FILE).write_text(json.dumps({"policy": {"changes": list(TINY), **(policy or {})}}))
        chosen = RunSettings.read({"job": "fclopt_dp", "changes": TINY, **settings}, {})
        run = {"id": run_id, "settings": chosen.to_dict(), "sites": ["site-1"], "shared": {}, "format": FORMAT}
        message = Message(received or {}, meta={"round": number, "run": run})
        return Gate(Site.of(site_place(context), message), task, message, asked)

    make.audit = lambda: audit.Audit(tmp_path / "runs").entries()
    return make


@pytest.fixture(scope="module")
def networks():
    row = get_row("fclopt_dp")
    method = build_method(row, RunSettings.read({"job": row.job, "changes": TINY}, {}).build_preset(), 0)
    names = {flow.component for flow in row.flows} - {DISTANCE}
    return {name: to_arrays(method.send(name)) for name in names}


def shifted(networks, by):
    return {
        name: {key: array + by if array.dtype == np.float32 else array for key, array in part.items()}
        for name, part in networks.items()
    }


def answer(gate, parts):
    return Message(dict(parts), meta={**gate.task.meta, "loss": 1.5, "feature_std": 0.5, "samples": 3})


def test_a_round_is_answered_once_and_the_same_question_gets_the_same_answer(door, networks):
    sent = [
        door(number=1, received=networks).release(answer(door(number=1, received=networks), shifted(networks, 0.1)))
        for _ in range(24)
    ]
    assert all(
        np.array_equal(sent[0].components["online"][k], sent[-1].components["online"][k]) for k in networks["online"]
    )
    accepted = 0
    for step in range(24):
        asked = shifted(networks, step / 100)
        for run_id in ("run-1", f"started-over-{step}"):
            try:
                door(number=1, received=asked, run_id=run_id).release(
                    answer(door(number=1, received=asked), shifted(asked, 0.1))
                )
                accepted += 1
            except PolicyError as error:
                assert "has already answered task pretrain of round 1" in str(error)
    assert accepted == 2 + 5 * 2  # the first question and five repeats, each also resent under another id
    door(number=2, received=networks).release(answer(door(number=2, received=networks), shifted(networks, 0.1)))


@pytest.mark.parametrize("change", [{"weight_cap": 11.0}, {"run": "another-name"}, {"tracking": "mlflow"}])
def test_another_run_with_the_same_training_has_the_same_noise(door, networks, change):
    """Otherwise a server that changes what no site computes with could average the noise away."""
    sent, policy = [], {"clip": 0.5, "sigma": 1.0}
    for settings in ({}, change):
        gate = door(number=1, received=networks, policy=policy, **settings)
        sent.append(gate.release(answer(gate, shifted(networks, 0.001))).components["online"])
    assert all(np.array_equal(sent[0][key], sent[1][key]) for key in networks["online"])


@pytest.mark.parametrize("by", ["the job", "the hospital"])
def test_the_same_noise_is_never_sent_in_two_amounts(door, networks, by):
    """Noise z once as x + z and once as x + 2z: twice the first less the second would be x."""
    sent, more = [], {"clip": 0.5}
    for sigma in (1.0, 2.0, 1.0):
        protections = {**more, "sigma": sigma}
        asked = PrivacySettings(**protections) if by == "the job" else NO_PROTECTION
        policy = {"repeats": 1, **({} if by == "the job" else protections)}
        gate = door(number=1, received=networks, policy=policy, asked=asked)
        sent.append(gate.release(answer(gate, shifted(networks, 0.001))).components["online"])
    key = max(networks["online"], key=lambda name: networks["online"][name].size)
    once, twice, again = (part[key].astype(float) - networks["online"][key] for part in sent)
    assert np.array_equal(once, again)
    assert np.std(2 * once - twice) > 0.5 * np.std(once), "the noise has cancelled"
    gate = door(number=1, received=networks, policy={"repeats": 1, "clip": 0.5, "sigma": 3.0})
    with pytest.raises(PolicyError, match="has already answered"):  # other amounts count as other questions
        gate.release(answer(gate, shifted(networks, 0.001)))


def test_one_weight_of_a_thousand_measures_no_target(door, networks):
    asked = shifted(networks, 0.0)
    name = next(key for key in asked["online"] if key.endswith("weight"))
    for value in (1000.0, -1000.0, np.inf, np.nan):
        asked["online"][name].flat[0] = value
        gate = door("distance", received=asked)
        with pytest.raises(PolicyError, match="implausible weights"):
            gate.release(Message(distance=0.5, meta=gate.task.meta))
    allowed = {"repeats": 1}
    for step in range(3):
        gate = door("distance", number=2, received=shifted(networks, step / 10), policy=allowed)
        if step < 2:
            gate.release(Message(distance=0.5, meta=gate.task.meta))
        else:
            with pytest.raises(PolicyError, match="task distance of round 2"):
                gate.release(Message(distance=0.5, meta=gate.task.meta))


@pytest.mark.parametrize("kept", ["target", "online", "distance"])
def test_a_run_that_needs_what_must_stay_is_refused_before_it_trains(door, kept):
    for task in ("distance", "pretrain"):
        with pytest.raises(PolicyError, match=f"does not let component '{kept}' leave"):
            door(task, policy={"components": sorted(EVERYTHING - {kept})}).admit()


def test_numbers_leave_after_the_gate_and_only_if_the_policy_lets_them(door, networks):
    gate = door(received=networks)
    gate.release(answer(gate, networks))
    assert gate.curves == {"loss": 1.5, "feature_std": 0.5}
    entry = door.audit()[-1]
    assert entry["report"] == {"loss": 1.5, "feature_std": 0.5, "samples": 3} and entry["curves"]
    gate = door(number=1, received=networks, policy={"curves": False})
    gate.release(answer(gate, networks))
    assert gate.curves == {} and not door.audit()[-1]["curves"]
    gate = door(number=2, received=networks, policy={"components": ["online"]})
    with pytest.raises(PolicyError):
        gate.release(answer(gate, networks))
    assert gate.curves == {}


def test_no_run_takes_the_place_of_a_sites_files():
    files = {audit.FILE, "audit.lock", budget.LOCK, problems.FILE, f"{problems.FILE}.1", ledger.SECRET}
    assert files | {ledger.FOLDER, admission.FOLDER, SUMMED} == set(RESERVED)
    for name in (
        *RESERVED,
        "AUDIT.jsonl",
        "an\u017fwered",
        "x" * 101,
        "a\nb",
        "a\x1b[2Jb",
        "leak-{$HOME}",
        "$x",
        "a/b",
        "..",
    ):
        with pytest.raises(FCLSegError, match=r"is not a valid run name|is not a short text on one line"):
            RunSettings.read({"job": "fclopt", "run": name}, {})
    assert RunSettings.read({"job": "fclopt", "run": "Herz 2026 größer"}, {}).run == "Herz 2026 größer"


@pytest.mark.parametrize("run_id", ["x" * 70_000, "a\nb", "", 7, None, ["a"]])
def test_a_run_is_identified_by_a_short_word(door, run_id):
    with pytest.raises(PublicError, match="the task names no run"):
        door(run_id=run_id)


@pytest.mark.parametrize("field", ["network", "codec", "preset", "tracking"])
def test_texts_of_a_job_are_short_and_on_one_line(field):
    for text in ("x" * 501, "a\nINFO forged line"):
        with pytest.raises(FCLSegError) as error:
            RunSettings.read({"job": "finetune_federated" if field == "network" else "fclopt", field: text}, {})
        assert "\n" not in str(error.value) and len(str(error.value)) < 800


def test_a_reason_of_five_megabytes_is_one_short_line():
    reply = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    reply.set_header(REASON, "spoiled\n2026-11-18 INFO all sites are fine \x1b[2J" + "x" * 5_000_000)
    with pytest.raises(FCLSegError) as error:
        read_result(reply)
    shown = str(error.value)
    assert len(shown) < 400 and "\n" not in shown and "\x1b" not in shown
    assert shown.startswith("spoiled\\n2026") and shown.endswith("characters)")


@pytest.mark.parametrize("text", ["leak-{$WANDB_API_KEY}", "{x.__class__}", "${secret:a}", "}"])
def test_references_are_refused_before_the_run_has_a_folder(text):
    with pytest.raises(FCLSegError, match="contains a reference"):
        check_references({"workflows": [{"args": {"settings": {"run": text}}}]})


def test_a_lead_cannot_ask_which_files_the_server_has(tmp_path):
    place = server_place(server_context(tmp_path / "kit"))
    (tmp_path / "kit" / "runs" / "first").mkdir(parents=True)
    (tmp_path / "kit" / "runs" / "out").symlink_to("/etc")
    inside = tmp_path / "kit" / "runs" / "first" / "network.safetensors"
    for path in (inside, "shipped", None):
        check_start(SimpleNamespace(network=path and str(path), encoder=None), place)
    said = set()
    for path in ("/etc/passwd", "/etc/no-such-file", f"{inside}/../../../../x", f"{tmp_path}/kit/runs/out/passwd", "x"):
        with pytest.raises(FCLSegError) as error:
            check_start(SimpleNamespace(network=path, encoder=None), place)
        said.add(str(error.value))
    assert len(said) == 1  # the same sentence, whether the file exists or not
    (tmp_path / "kit" / LOCAL_FILE).write_text(json.dumps({"networks": str(tmp_path / "shelf")}))
    check_start(SimpleNamespace(network=None, encoder=str(tmp_path / "shelf" / "a.safetensors")), place)


def test_a_patient_who_comes_during_a_run_waits_for_the_next_one(door, monkeypatch, caplog):
    caplog.set_level("INFO")

    def patients(*names, **run):
        site = door(**run).site
        return [one.patient for one in site._from_the_start([SimpleNamespace(patient=name) for name in names])]

    assert patients("a", "b") == ["a", "b"]
    assert patients("a", "b", "c") == ["a", "b"] and "1 patients were added during the run" in caplog.text
    assert patients("a", "b", "c", run_id="run-2") == ["a", "b", "c"]
    with pytest.raises(PublicError, match="a patient of this run is no longer at this site"):
        patients("a", "c", run_id="run-2")


@pytest.mark.parametrize(
    ("props", "recorded"),
    [
        ({"FCLSEG_COMMAND": "fclseg submit fclopt"}, "fclseg submit fclopt"),
        ({"FCLSEG_COMMAND": "x" * 10**6}, "x" * 2000 + "... (1000000 characters)"),
        ({"FCLSEG_COMMAND": "a\n\x1b[2Jb"}, r"a\n\x1b[2Jb"),
        (["no object"], ""),
        (None, ""),
    ],
)
def test_the_command_that_a_job_claims_is_bounded_and_on_one_line(monkeypatch, props, recorded):
    monkeypatch.delenv(COMMAND, raising=False)
    assert COMMAND == "FCLSEG_COMMAND"
    job = SimpleNamespace(get_prop=lambda name: {"custom_props": props})
    assert _command(job) == recorded
