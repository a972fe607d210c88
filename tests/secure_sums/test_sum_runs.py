"""Whole runs in which the server learns only sums, against the same runs without masks."""

import numpy as np
import pytest

from fclseg.engine.in_process import open_in_process
from fclseg.engine.messages import PRETRAIN_TASK, SUM_TASK
from fclseg.engine.run_folder import RunFolder
from fclseg.engine.run_settings import RunSettings
from fclseg.engine.sums import SUM
from fclseg.errors import FCLSegError, PassingError
from fclseg.phantom.dataset import write_phantom

TINY = {"channels": [4, 16, 16], "hidden": 8, "batch_size": 64, "calibration_rounds": 2}
SITES = ["site-1", "site-2", "site-3", "site-4"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sums")
    write_phantom(folder / "data", patients=8, frames=2, seed=3)
    return {"data": str(folder / "data"), "cache": str(folder / "cache"), "device": "cpu"}


class Run:
    """A run in this process whose server records every answer; ``gone`` are sites that miss a step of a round."""

    def __init__(self, folder, shared, job="fclopt_dp", sites=SITES, **settings):
        given = {"job": job, "changes": TINY, "rounds": 4, "sums_only": True, **settings}
        self.folder, self.shared, self.sites = folder, shared, sites
        self.settings = RunSettings.read(given, {})
        self.gone, self.dies, self.seen = set(), None, []

    def complete(self):
        """Opened anew each time: everything that is remembered is on disk."""
        run = open_in_process(self.settings, RunFolder(self.folder), self.sites, self.shared)
        real = run.ask

        def ask(task, messages, timeout, accept):
            number = next(iter(messages.values())).round_number
            steps = {site: message.meta.get(SUM, {}).get("step", task) for site, message in messages.items()}
            if self.dies in {(step, number) for step in steps.values()}:
                self.dies = None
                raise KeyboardInterrupt
            absent = {site for site in messages if (site, steps[site], number) in self.gone}

            def recorded(site, answer):
                parts = {name: np.array(part) for name, part in answer.encoded.get(SUM, {}).items()}
                self.seen.append((task, site, dict(answer.meta), set(answer.components), answer.distance, parts))
                accept(site, answer)

            present = {site: message for site, message in messages.items() if site not in absent}
            return real(task, present, timeout, recorded) | dict.fromkeys(absent, "gone")

        run.ask = ask
        run.run()
        self.model = run.loop.model
        return run.loop.folder.rounds()


def same(one, other):
    return all(
        np.array_equal(array, other.model.means[name][key])
        for name, arrays in one.model.means.items()
        for key, array in arrays.items()
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory, shared):
    """PTNU and DP: networks, calibrations and distances are sums."""
    run = Run(tmp_path_factory.mktemp("whole") / "run", shared)
    run.records = run.complete()
    return run


def test_masks_change_no_bit_of_the_networks(tmp_path, shared, whole):
    plain = Run(tmp_path / "plain", shared, sum_masks=False)
    records = plain.complete()
    assert same(whole, plain) and whole.model.scales.ranges["online"].size
    assert [one["loss"] for one in records] == [one["loss"] for one in whole.records]
    assert [one["d_predicted"] for one in records] == [one["d_predicted"] for one in whole.records]
    assert all(one["sites"] == {site: {"status": "ok"} for site in SITES} for one in whole.records)


@pytest.mark.nightly
def test_a_server_that_dies_at_any_step_continues_to_the_same_bits(tmp_path, shared, whole):
    run = Run(tmp_path / "run", shared)
    for moment in (("shares", 0), (PRETRAIN_TASK, 1), ("agreement", 2), ("reveal", 3)):
        run.dies = moment
        with pytest.raises(KeyboardInterrupt):
            run.complete()
    run.complete()
    assert same(run, whole)


def test_a_site_that_misses_any_step_is_repaired(tmp_path, shared):
    """With a coarse codec on the way down, too."""
    settings = {"sum_bits": 4, "codec": "8bit"}
    masked, plain = (
        Run(tmp_path / str(masks), shared, "fedbyol", sum_masks=masks, **settings) for masks in (True, False)
    )
    masked.gone = {
        ("site-2", "keys", 0),
        ("site-2", "shares", 1),
        ("site-2", PRETRAIN_TASK, 2),
        ("site-3", "reveal", 3),
    }
    plain.gone = {("site-2", PRETRAIN_TASK, number) for number in range(3)}
    records, others = masked.complete(), plain.complete()
    assert [one["sites"]["site-2"]["status"] for one in records] == ["gone", "gone", "gone", "ok"]
    assert [one["sites"] for one in records] == [one["sites"] for one in others]
    assert same(masked, plain)


@pytest.mark.nightly
def test_sums_end_near_the_plain_run(tmp_path, shared, whole):
    plain = Run(tmp_path / "plain", shared, sums_only=False)
    plain.complete()
    start = open_in_process(plain.settings, RunFolder(tmp_path / "start"), SITES, shared).loop.model
    key = max(plain.model.means["online"], key=lambda name: plain.model.means["online"][name].size)
    one, other, first = (model.means["online"][key].astype(float) for model in (whole.model, plain.model, start))
    assert np.abs(one - other).mean() < 0.1 * np.abs(other - first).mean()


def test_too_few_sites_end_the_round_and_the_run_continues_later(tmp_path, shared):
    run = Run(tmp_path / "run", shared, "fedbyol", rounds=2)
    run.gone = {("site-2", PRETRAIN_TASK, 0), ("site-4", PRETRAIN_TASK, 0)}
    with pytest.raises(PassingError, match="needs 3"):
        run.complete()
    run.gone = set()
    run.complete()


def test_after_a_death_the_round_is_not_opened_for_other_sites(tmp_path, shared):
    """All four signed the list; a sum without site 4 would show its update by the difference."""
    run = Run(tmp_path / "run", shared, "fedbyol", rounds=1)
    run.dies = ("reveal", 0)
    with pytest.raises(KeyboardInterrupt):
        run.complete()
    run.gone = {("site-4", PRETRAIN_TASK, 0)}
    with pytest.raises(PassingError, match="same sites"):
        run.complete()
    run.gone = set()
    run.complete()


def test_nothing_but_masked_numbers_and_steps_leaves_a_site(whole):
    run = whole
    trained = [one for one in run.seen if one[0] != SUM_TASK]
    assert len(trained) == 2 * 4 * len(SITES)
    for _task, _site, meta, components, distance, parts in trained:
        assert set(meta) == {"round", "run", "context"} and not components and distance is None
        assert set(parts) == {"narrow", "wide"}
    for one in [one for one in run.seen if one[0] == SUM_TASK]:
        assert set(one[2]) == {"round", "run", SUM} and not one[3] and one[4] is None and not one[5]


def test_a_site_that_is_sent_another_network_is_not_in_the_sum(tmp_path, shared):
    """One weight differs. An honest server leaves the site out; for any other its update stays noise, because the masks
    of site 1 are not those of the others (``test_sum_attacks.py``)."""
    run = open_in_process(
        RunSettings.read({"job": "fedbyol", "changes": TINY, "rounds": 1, "sums_only": True}, {}),
        RunFolder(tmp_path / "run"),
        SITES,
        shared,
    )
    real = run.ask

    def ask(task, messages, timeout, accept):
        if task == PRETRAIN_TASK:
            online = messages["site-1"].components["online"]
            key = next(iter(online))
            messages["site-1"].components["online"] = {**online, key: online[key] + np.float32(1e-3)}
        return real(task, messages, timeout, accept)

    run.ask = ask
    run.run()
    assert run.loop.model.trained == SITES[1:]


@pytest.mark.parametrize(
    ("job", "settings"),
    [("fcl", {}), ("local_cl", {}), ("fedbyol", {"aggregation": "median"}), ("fedbyol", {"sum_bits": 3})],
)
def test_what_sums_cannot_do_is_refused(job, settings):
    with pytest.raises(FCLSegError):
        RunSettings.read({"job": job, "sums_only": True, **settings}, {})


def test_the_sites_of_a_sum_add_its_noise_together(tmp_path, shared):
    """Four sites of at least three: each adds sigma / sqrt(3), so the mean has sigma clip sqrt(4 / 3) / 4."""
    run = Run(tmp_path / "run", shared, "fedbyol", rounds=1, clip=0.01, sigma=2.0)
    before = open_in_process(run.settings, RunFolder(tmp_path / "start"), SITES, shared).loop.model.means["online"]
    run.complete()
    changes = [(run.model.means["online"][key] - before[key]).reshape(-1) for key in before if key.endswith("weight")]
    noise = np.concatenate(changes)
    assert noise.size > 5000
    assert np.std(noise) == pytest.approx(2.0 * 0.01 * np.sqrt(4 / 3) / 4, rel=0.05)
