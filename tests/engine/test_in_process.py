"""The transport in this process: weights by hand, protections, absences, and the same bits as with NVFlare's parts."""

import numpy as np
import pytest
import torch
from inprocess import SITES, TINY
from inprocess import InProcess as OverNVFlare

from fclseg.anatomy.folders import read_folder
from fclseg.data.sites import Splits
from fclseg.engine.in_process import InProcess, open_in_process, open_unsaved
from fclseg.engine.job_defaults import completed
from fclseg.engine.memory import SiteState, VolatileMemory
from fclseg.engine.place import Place
from fclseg.engine.run_folder import RunFolder
from fclseg.engine.run_settings import RunSettings
from fclseg.engine.site import Site
from fclseg.engine.state_files import read_state
from fclseg.errors import FCLSegError
from fclseg.methods.exchange import get_row
from fclseg.methods.training import RoundResult
from fclseg.phantom.dataset import write_phantom


@pytest.fixture(scope="session")
def hospitals(tmp_path_factory):
    """Three small hospitals of different sizes."""
    folders = {site: tmp_path_factory.mktemp(site) / "data" for site in SITES}
    for number, folder in enumerate(folders.values()):
        write_phantom(folder, patients=1 + number, frames=2, seed=number)
    return folders


@pytest.fixture
def cpu(monkeypatch, tmp_path):
    monkeypatch.setenv("FCLSEG_DEVICE", "cpu")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def adding(monkeypatch):
    """Makes a run whose sites 'train' by adding a number to every weight: site = (number, slices)."""

    def make(rounds=2, **sites):
        def add(method, sampler, optimizer, *, site, **more):
            shift, slices = sites[site]
            for parameter in method.online.parameters():
                parameter.data += shift
            return RoundResult(loss=shift, samples=slices, steps=1, seconds=0.0, feature_std=1.0)

        monkeypatch.setattr("fclseg.methods.training.train_round", add)
        settings = RunSettings.read(
            {"job": "fedsimclr", "changes": TINY, "rounds": rounds, "min_sites": len(sites)}, {}
        )
        return open_unsaved(settings, dict.fromkeys(sites), "cpu")

    return make


@pytest.mark.parametrize(
    ("slices", "step"),
    [((30, 10), 1.5), ((1000, 10), (100 * 1.0 + 10 * 3.0) / 110)],
    ids=["by slices", "at most ten times the median"],
)
def test_the_average_is_weighted_by_slices(adding, slices, step):
    """Sites that add 1 and 3, with 30 and 10 slices, meet at + 1.5. As at a server, no site has all the weight."""
    run = adding(a=(1.0, slices[0]), b=(3.0, slices[1]))
    before = run.loop.model.means["online"]
    run.run()
    for name, _ in run.loop.method.online.named_parameters():
        np.testing.assert_allclose(run.loop.model.means["online"][name], before[name] + 2 * step, rtol=1e-5)
    assert [record["loss"] for record in run.loop.folder.records] == pytest.approx([step, step])


def test_a_run_that_needs_all_sites_ends_with_an_update_that_is_refused(adding):
    with pytest.raises(FCLSegError, match=r"round 0 has 2 .* needs 3 .c: .*the norm of its update .* is 100 times"):
        adding(a=(1.0, 10), b=(1.0, 10), c=(100.0, 10)).run()


def test_an_error_that_is_not_for_users_ends_the_run_as_it_is(adding, monkeypatch):
    run = adding(a=(1.0, 10), b=(1.0, 10))
    run.sites["b"].place = Place("c", run.sites["b"].place.workspace, simulated=True)  # unknown to the training above
    with pytest.raises(KeyError, match="'c'"):
        run.run()


def test_a_volatile_memory_keeps_copies_of_the_last_two_rounds():
    memory, weight = VolatileMemory(), torch.zeros(2)
    assert memory.load_before(0) is None
    for number in range(4):
        weight += 1
        memory.save(SiteState(number, {"w": weight}, {}))
    assert memory.load_before(4).method["w"].tolist() == [4, 4]
    assert memory.load_before(3).method["w"].tolist() == [3, 3]
    with pytest.raises(FCLSegError, match="no state from before round 2"):
        memory.load_before(2)


CASES = {
    "fclopt_dp_tiny": ({"rounds": 3, "changes": {**TINY, "calibration_rounds": 2}}, {"site-2": {1}}),
    "fcl": ({"rounds": 2, "fraction": 0.6}, {}),
    "fclopt_ptnu": ({"rounds": 2, "codec": "8bit"}, {}),
    "fedbyol": ({"rounds": 2, "aggregation": "median", "outliers": "off"}, {}),
}


@pytest.mark.parametrize("job", CASES)
def test_one_process_and_nvflares_parts_give_the_same_bits(hospitals, tmp_path, cpu, job):
    """Codecs, fractions, absences and robust rules: the same lines, checkpoints and site states."""
    values, absent = CASES[job]
    there = OverNVFlare(tmp_path / "there", hospitals, job, **values)
    there.absent = absent
    folder = RunFolder(tmp_path / "here" / there.settings.run)
    folder.start(there.settings, list(SITES), {})
    places = {site: Place(site, tmp_path / "there" / site, shared={"runs": str(tmp_path / "here")}) for site in SITES}
    sites = {site: Site(place, there.settings, folder.config["id"], list(SITES)) for site, place in places.items()}
    here = InProcess(there.settings, folder, sites)
    here.absent = absent
    here.run()
    ours, theirs = folder.rounds(), there.complete()
    for record in (*ours, *theirs):
        record.pop("seconds")
        for report in record["sites"].values():
            report.pop("seconds", None)
    assert ours == theirs
    last = f"round-{values['rounds'] - 1:04d}.safetensors"
    pairs = [(folder.path / "checkpoints" / last, there.run / "checkpoints" / last)]
    pairs += [(sites[site].memory.folder / last, there.memory(site) / last) for site in SITES if job != "fcl"]
    for mine, other in pairs:
        (a, _), (b, _) = read_state(mine), read_state(other)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[part][name], b[part][name]) for part in a for name in a[part])


@pytest.fixture
def shared(hospitals, tmp_path, cpu):
    """Opens a run on one folder whose patients are split across two sites."""
    data = hospitals["site-3"].parent / "together"
    if not data.exists():
        write_phantom(data, patients=4, sites=2, frames=2)
    split = Splits.make(sorted({volume.patient for volume in read_folder(data)}), 2, folds=2)
    split.save(tmp_path / "splits.json")
    folders = {"data": str(data), "splits": str(tmp_path / "splits.json"), "cache": str(tmp_path / "cache")}

    def start(job, **values):
        settings = RunSettings.read({"job": job, "changes": TINY, "rounds": 2, "run": "run", **values}, {})
        return open_in_process(settings, RunFolder(tmp_path / job / settings.run), list(split.sites), folders)

    start.split = split
    return start


def test_features_are_protected_before_other_sites_get_them(shared):
    run = shared("fcl", prototypes=1)
    run.run()
    for name, site in run.sites.items():
        assert len(run.loop.model.others["bank"][name]["features"]) <= 4 < len(site.method.bank.shared()["features"])
        assert len(site.method.remote.entries()[0]) <= 4, "the other site's prototypes, one per partition"


def test_updates_are_clipped(shared):
    """The mean of updates of norm 0.01 is at most that long, over both networks; without clipping it is longer."""
    lengths = []
    for protections in ({}, {"clip": 0.01}):
        run = shared("fcl_own", rounds=1, run=f"run{len(lengths)}", **protections)
        before = dict(run.loop.model.means)
        run.run()
        moved = [
            (run.loop.model.means[name][key].astype(float) - array).ravel()
            for name, arrays in before.items()
            for key, array in arrays.items()
            if array.dtype.kind == "f"
        ]
        lengths.append(np.linalg.norm(np.concatenate(moved)))
    assert lengths[0] > 0.02 and lengths[1] < 0.01001, lengths


def test_a_fold_is_left_out_and_a_complete_run_is_not_repeated(shared):
    run = shared("fedbyol", fold=0, rounds=1)
    run.run()
    for name, site in run.sites.items():
        assert site.sampler.store.patients == sorted(shared.split.training(name, 0))
    told = []
    shared("fedbyol", fold=0, rounds=1).run(log=told.append)
    assert len(told) == 1 and "is complete (1 rounds)" in told[0]


def test_every_site_trains_as_many_steps_as_local_finetuning(hospitals, tmp_path, cpu):
    """Three hospitals with one, two and three labelled patients, 12 steps and at least 2 epochs, in 2 rounds."""
    limits = {"finetuning.steps": 12, "finetuning.fewest_epochs": 2, "finetuning.rounds": 2}
    job = {"job": "finetune_federated", "preset": "demo", "changes": {**limits, "finetuning.batch_size": 8}}
    settings = RunSettings.read(completed(get_row("finetune_federated"), job) | {"run": "run"}, {})
    places = {site: Place(site, tmp_path / site, shared={"data": str(hospitals[site])}) for site in SITES}
    sites = {site: Site(place, settings, "id", list(SITES)) for site, place in places.items()}
    folder = RunFolder(tmp_path / "run")
    folder.start(settings, list(SITES), {})
    InProcess(settings, folder, sites).run()
    for name, site in sites.items():
        per_epoch = sum(1 for one in site.sampler.store.labelled if one) // 8
        epochs = max(round(max(2, 12 // per_epoch) / 2), 1)
        assert [record["sites"][name]["steps"] for record in folder.rounds()] == [epochs * per_epoch] * 2
    assert len({site.sampler.steps_per_epoch for site in sites.values()}) == 3
