"""Pre-training in one process gives the same result as with NVFlare and follows the exchange plan exactly."""

import subprocess
import sys

import pytest

from fclseg.api import pretrain, write_phantom
from fclseg.data.sites import Splits
from fclseg.errors import FCLSegError
from fclseg.methods.training import train_round
from fclseg.networks.loading import read_tensors
from fclseg.presets import get_preset
from fclseg.privacy.protections import PrivacySettings
from fclseg.resources import shipped_model

ROWS_TO_COMPARE = ("fclopt_dp", "fclopt_ptnu", "fcl", "fedu", "local_cl")
PRESET = get_preset("demo", rounds=3, bank_size=24, batch_size=8)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A phantom of two sites."""
    folder = tmp_path_factory.mktemp("api")
    write_phantom(folder / "data", patients=4, sites=2, frames=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCLSEG_CACHE", str(folder / "cache"))
        yield folder / "data"


JOBS = [pytest.param(job, marks=() if job == "fclopt_dp" else pytest.mark.nightly) for job in ROWS_TO_COMPARE]


@pytest.mark.simulator
@pytest.mark.parametrize("job", JOBS)
def test_one_process_and_nvflare_give_the_same_encoders(data, tmp_path, job):
    here = pretrain(job, data, tmp_path / "here", preset=PRESET)
    there = pretrain(job, data, tmp_path / "there", preset=PRESET, nvflare=True)
    assert here.losses == there.losses and list(here.encoders) == list(there.encoders)
    for site, path in here.encoders.items():
        ours, theirs = read_tensors(path)[0], read_tensors(there.encoders[site])[0]
        assert list(ours) == list(theirs) and all((ours[name] == theirs[name]).all() for name in ours)


def test_without_images_the_sites_get_phantoms_of_their_own(tmp_path, monkeypatch, capsys):
    """As in NVFlare's simulator: three patients per site, and every patient at one site."""
    monkeypatch.setenv("FCLSEG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FCLSEG_DATA", raising=False)
    run = pretrain("fedu", out=tmp_path / "run", sites=2, preset=get_preset("demo", rounds=1, local_epochs=1))
    assert run.encoder.is_file() and "using 6 phantom patients" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "run" / "sites").iterdir()} == {"site-1", "site-2"}
    owners = Splits.load(next((tmp_path / "cache").glob("*.splits.json"))).sites
    assert sorted(map(len, owners.values())) == [3, 3] and not set(owners["site-1"]) & set(owners["site-2"])


def test_local_cl_keeps_an_encoder_per_site(data, tmp_path):
    run = pretrain("local_cl", data, tmp_path / "run", preset=get_preset("demo", rounds=1))
    assert list(run.encoders) == ["site-1", "site-2"]
    first, second = (read_tensors(path)[0] for path in run.encoders.values())
    assert any((first[name] != second[name]).any() for name in first)
    with pytest.raises(FCLSegError, match="every site has its own encoder"):
        _ = run.encoder


def test_nvflare_is_not_imported_where_it_is_not_used():
    code = "import sys, fclseg.api; sys.exit('nvflare' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("job", "options", "complaint"),
    [
        ("fclop", {}, "there is no job 'fclop'"),
        ("fclopt", {"nvflare": True, "architecture": len}, "leave out 'architecture'"),
        ("fclopt", {"splits": "nowhere.json"}, "nowhere.json does not exist"),
        ("fclopt", {"sites_by": "colour"}, "no Info.cfg has an entry 'colour'"),
        ("fclopt", {"privacy": PrivacySettings(perturb=0.5)}, "sends no features"),
        ("fcl", {"privacy": PrivacySettings(perturb=2.0)}, "'perturb' as 2.0"),
    ],
)
def test_what_cannot_be_trained_is_refused(data, tmp_path, job, options, complaint):
    with pytest.raises(FCLSegError, match=complaint):
        pretrain(job, data, tmp_path / "run", preset=PRESET, **options)


def test_an_interrupted_run_continues_and_ends_with_the_same_encoder(data, tmp_path, monkeypatch):
    whole = pretrain("fclopt_dp", data, tmp_path / "whole", preset=PRESET)
    honest, rounds = train_round, []

    def interrupted(*given, **more):
        rounds.append(more["round_number"])
        if rounds == [0, 0, 1]:
            raise KeyboardInterrupt
        return honest(*given, **more)

    monkeypatch.setattr("fclseg.methods.training.train_round", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pretrain("fclopt_dp", data, tmp_path / "run", preset=PRESET)
    again = pretrain("fclopt_dp", data, tmp_path / "run", preset=PRESET)
    assert rounds == [0, 0, 1, 1, 1, 2, 2] and again.losses == whole.losses
    ours, theirs = read_tensors(again.encoder)[0], read_tensors(whole.encoder)[0]
    assert all((ours[name] == theirs[name]).all() for name in theirs)


def test_the_whole_network_of_a_method_that_trains_one_is_returned(data, tmp_path):
    """From the shipped network, for the few rounds that adapt it; the decoder comes from there, too."""
    preset = get_preset("small", local_epochs=1, epoch_share=0.2, adaptation_rounds=1, phantom_patients=2)
    run = pretrain("mean_teacher", data, tmp_path / "run", preset=preset)
    assert len(run.losses) == 1, "adaptation_rounds, not the preset's forty"
    trained, shipped = read_tensors(run.network)[0], read_tensors(shipped_model("acdc_unet", "small"))[0]
    assert set(trained) == set(shipped)
    head = "decoder.head.weight"
    assert (trained[head] - shipped[head]).abs().max() < 0.1 * shipped[head].abs().max(), "it starts from its decoder"
    plain = pretrain("fedsimclr", data, tmp_path / "plain", preset=get_preset("demo", rounds=1))
    with pytest.raises(FCLSegError, match="trains an encoder only: use encoder"):
        _ = plain.network


def test_hospitals_of_a_table_are_the_sites(data, tmp_path):
    table = tmp_path / "sites.csv"
    table.write_text("patient,site\n" + "".join(f"patient00{n},{'north' if n < 3 else 'south'}\n" for n in range(1, 5)))
    run = pretrain("local_cl", data, tmp_path / "run", preset=get_preset("demo", rounds=1), sites_by=str(table))
    assert list(run.encoders) == ["north", "south"]


def test_hospitals_of_one_patient_each_train_together(data, tmp_path):
    """Nobody is held out of such a run, so nothing has to be divided into folds."""
    table = tmp_path / "sites.csv"
    table.write_text("patient,site\n" + "".join(f"patient00{n},hospital-{n}\n" for n in range(1, 5)))
    asked = {"preset": get_preset("demo", rounds=1), "sites_by": str(table)}
    for name, sites in (("run", asked), ("numbered", {**asked, "sites_by": None, "sites": 4})):
        run = pretrain("finetune_federated", data, tmp_path / name, **sites)
        assert run.losses and run.network.is_file() and len(list((tmp_path / name / "sites").iterdir())) == 4
    with pytest.raises(FCLSegError, match="hospital-1 has 1 patient, fewer than the 2 folds"):
        pretrain("finetune_federated", data, tmp_path / "fold", fold=0, **asked)
