"""Pre-training in one process gives the same result as with NVFlare and follows the exchange plan exactly."""

import subprocess
import sys

import numpy as np
import pytest

from fclseg.anatomy.folders import read_folder
from fclseg.api import pretrain, write_phantom
from fclseg.api.pretraining import gather
from fclseg.data.sites import Splits
from fclseg.errors import FCLSegError
from fclseg.federation.exchange import get_row
from fclseg.local.federation import LocalFederation, LocalSite
from fclseg.methods.registry import build_method
from fclseg.methods.training import RoundResult
from fclseg.networks.loading import read_tensors
from fclseg.presets import get_preset
from fclseg.privacy.settings import PrivacySettings

PRESET = get_preset("demo", rounds=3, bank_size=24, batch_size=8)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A phantom of two sites."""
    folder = tmp_path_factory.mktemp("api")
    write_phantom(folder / "data", patients=4, sites=2, frames=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCLSEG_CACHE", str(folder / "cache"))
        yield folder / "data"


@pytest.mark.nightly
@pytest.mark.simulator
@pytest.mark.parametrize("job", ["fclopt_ptnu", "fclopt_dp", "fcl", "fedu", "local_cl"])
def test_one_process_and_nvflare_give_the_same_encoders(data, tmp_path, job):
    here = pretrain(job, data, tmp_path / "here", preset=PRESET)
    there = pretrain(job, data, tmp_path / "there", preset=PRESET, nvflare=True)
    assert here.losses == there.losses and list(here.encoders) == list(there.encoders)
    for site, path in here.encoders.items():
        ours, theirs = read_tensors(path)[0], read_tensors(there.encoders[site])[0]
        assert list(ours) == list(theirs) and all((ours[name] == theirs[name]).all() for name in ours)


def test_local_cl_keeps_an_encoder_per_site(data, tmp_path):
    run = pretrain("local_cl", data, tmp_path / "run", preset=get_preset("demo", rounds=1))
    assert list(run.encoders) == ["site-1", "site-2"]
    first, second = (read_tensors(path)[0] for path in run.encoders.values())
    assert any((first[name] != second[name]).any() for name in first)
    with pytest.raises(FCLSegError, match="every site has its own encoder"):
        _ = run.encoder


@pytest.fixture
def adding(monkeypatch):
    """Makes a federation whose sites 'train' by adding a number to every weight: site = (number, slices)."""

    def make(**sites):
        def add(method, sampler, optimizer, *, site, **more):
            shift, slices = sites[site]
            for parameter in method.online.parameters():
                parameter.data += shift
            return RoundResult(loss=shift, samples=slices, steps=1, seconds=0.0, feature_std=1.0)

        monkeypatch.setattr("fclseg.local.federation.train_round", add)
        members = [LocalSite.start(name, build_method("fedsimclr", PRESET, 0), sampler=None) for name in sites]
        return LocalFederation(get_row("fedsimclr"), members, seed=0)

    return make


@pytest.mark.parametrize(
    ("slices", "step"),
    [((30, 10), 1.5), ((1000, 10), (100 * 1.0 + 10 * 3.0) / 110)],
    ids=["by slices", "at most ten times the median"],
)
def test_the_average_is_weighted_by_slices(adding, slices, step):
    """Sites that add 1 and 3, with 30 and 10 slices, meet at + 1.5. As at the server, no site has all the weight."""
    federation = adding(a=(1.0, slices[0]), b=(3.0, slices[1]))
    before = federation.means["online"]
    federation.round(0)
    federation.round(1)
    for name, _ in federation.sites[0].method.online.named_parameters():
        np.testing.assert_allclose(federation.means["online"][name], before[name] + 2 * step, rtol=1e-5)
    assert federation.losses == pytest.approx([step, step])


def test_an_update_that_a_server_would_refuse_ends_the_run(adding):
    with pytest.raises(FCLSegError, match="round 0: c: the norm of its update of 'online' is 100 times the median"):
        adding(a=(1.0, 10), b=(1.0, 10), c=(100.0, 10)).round(0)


def federation(data, job="fcl", fold=None, **protections):
    volumes = read_folder(data)
    split = Splits.make(sorted({volume.patient for volume in volumes}), 2, folds=2)
    made = gather(get_row(job), volumes, split, PRESET, 0, privacy=PrivacySettings(**protections), fold=fold)
    return made, split


def test_features_are_protected_before_other_sites_get_them(data):
    made, _ = federation(data, prototypes=1)
    made.round(0)
    made.round(1)
    for site in made.sites:
        assert len(made.others["bank"][site.name]["features"]) <= 4 < len(site.method.bank.shared()["features"])
        assert len(site.method.remote.entries()[0]) <= 4, "the other site's prototypes, one per partition"


def test_updates_are_clipped(data):
    """The mean of updates of norm 0.1 is at most 0.1 long, over both networks together; without clipping it is not."""
    lengths = []
    for protections in ({}, {"clip": 0.1}):
        made, _ = federation(data, "fcl_own", **protections)
        before = dict(made.means)
        made.round(0)
        moved = [
            (made.means[name][key].astype(float) - array).ravel()
            for name, arrays in before.items()
            for key, array in arrays.items()
            if array.dtype.kind == "f"
        ]
        lengths.append(np.linalg.norm(np.concatenate(moved)))
    assert lengths[0] > 0.5 and lengths[1] < 0.1001, lengths


def test_a_fold_is_left_out(data):
    made, split = federation(data, fold=0)
    for site in made.sites:
        assert site.sampler.store.patients == sorted(split.training(site.name, 0))


def test_nvflare_is_not_imported_where_it_is_not_used():
    code = "import sys, fclseg.api; sys.exit('nvflare' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("job", "options", "complaint"),
    [
        ("fclop", {}, "there is no job 'fclop'"),
        ("finetune_federated", {}, "trains on labels"),
        ("fclopt", {"nvflare": True, "encoder": len}, "leave out 'encoder' or 'nvflare'"),
        ("fclopt", {"sites": 3}, "fewer than the 2 folds"),
        ("fclopt", {"privacy": PrivacySettings(perturb=0.5)}, "sends no features"),
        ("fcl", {"privacy": PrivacySettings(perturb=2.0)}, "'perturb' as 2.0"),
    ],
)
def test_what_cannot_be_trained_is_refused(data, tmp_path, job, options, complaint):
    with pytest.raises(FCLSegError, match=complaint):
        pretrain(job, data, tmp_path / "run", preset=PRESET, **options)


def test_the_folder_of_an_nvflare_run_is_left_alone(data, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FCLSegError, match="belongs to a run with NVFlare"):
        pretrain("fclopt", data, tmp_path, preset=PRESET)
