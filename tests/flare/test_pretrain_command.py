"""``fclseg pretrain`` before and after the simulator: refusals in one sentence, derived jobs, progress."""

import json
from pathlib import Path

import pytest

from fclseg.anatomy.folders import read_folder
from fclseg.api.pretraining import _places, settle
from fclseg.api.round_lines import RoundLines
from fclseg.cli import main
from fclseg.data.sites import Splits
from fclseg.engine.run_folder import RunFolder
from fclseg.engine.run_settings import RunSettings
from fclseg.errors import FCLSegError
from fclseg.flare.launch import derive_job, read_job, simulate
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.loading import save_network
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import get_preset
from fclseg.resources import shipped_model

JOB = Path(__file__).parents[2] / "jobs" / "fclopt_dp"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--job", "nowhere"], "there is no job 'nowhere': give a job folder, or one of fcl, fcl_fe, "),
        (["--job", str(JOB), "--data", "missing"], "missing does not exist"),
        (["--job", str(JOB), "--set", "rounds"], "not of the form NAME=VALUE"),
        (["--job", str(JOB), "--sites", "0"], "--sites must be at least 1"),
        (["--job", str(JOB), "--name", "../docs", "--fresh"], "'../docs' is not a valid run name"),
        (["--job", str(JOB), "--runs", "/dev/null", "--preset", "demo"], "/dev/null"),
        (["--job", str(JOB), "--set", "depth=3"], "no setting 'depth'"),
        (["--job", str(JOB), "--preset", "huge"], "no preset 'huge'"),
        (["--job", str(JOB), "--fraction", "0"], "fraction"),
        (["--job", str(JOB), "--set", "name=mine"], "no setting 'name'"),
        (["--job", str(JOB), "--splits", str(JOB / "meta.json")], "--splits needs the data folder"),
    ],
)
def test_wrong_arguments_are_one_sentence(arguments, complaint, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["pretrain", *arguments]) == 1
    error = capsys.readouterr().err
    assert complaint in error and error.startswith("fclseg: ") and "Traceback" not in error


def _run_folder(tmp_path, **changes):
    settings = RunSettings.read({**read_job(JOB)[1], "preset": "demo", "pickup_timeout": 180, **changes}, {})
    folder = RunFolder(tmp_path / "runs" / "fclopt_dp-demo")
    folder.open({"settings": settings.to_dict(), "sites": ["site-1", "site-2"], "data": None}, fresh=False)
    return folder


def test_a_complete_run_is_not_started_again(tmp_path, capsys):
    folder = _run_folder(tmp_path)
    (folder.path / "result.json").write_text('{"encoders": {"": "encoder.safetensors"}}')
    arguments = ["pretrain", "--job", str(JOB), "--preset", "demo", "--runs", str(tmp_path / "runs")]
    assert main(arguments) == 0
    assert "is complete; --fresh starts it over" in capsys.readouterr().out
    assert main([*arguments, "--seed", "1"]) == 1
    assert "different 'seed'" in capsys.readouterr().err
    assert main([*arguments, "--sites", "3"]) == 1
    assert "different 'sites'" in capsys.readouterr().err


def test_a_derived_job_keeps_what_its_owner_added(tmp_path):
    derived = derive_job(JOB, tmp_path / "first", {})
    path = derived / "app/config/config_fed_client.json"
    document = json.loads(path.read_text())
    document["task_result_filters"].append({"tasks": ["pretrain"], "filters": [{"path": "nvflare.x.Y", "args": {}}]})
    path.write_text(json.dumps(document))
    again = derive_job(derived, tmp_path / "second", {"seed": 5, "rounds": 9})
    assert json.loads((again / "app/config/config_fed_client.json").read_text()) == document
    assert read_job(again)[1] == {**read_job(JOB)[1], "seed": 5, "rounds": 9}
    with pytest.raises(FCLSegError, match="not an FCLSeg job"):
        read_job(tmp_path)


def test_a_job_in_its_own_run_folder_survives(tmp_path, capsys, monkeypatch):
    """``--job runs/X/job/fclopt_dp --name X``: source and derived job are one folder."""
    derived = derive_job(JOB, tmp_path / "runs" / "X" / "job", {})
    assert derive_job(derived, derived.parent, {"seed": 5}) == derived
    assert read_job(derived)[1]["seed"] == 5 and (derived / "meta.json").exists()
    (tmp_path / "runs" / "X" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert main(["pretrain", "--job", "runs/X/job/fclopt_dp", "--name", "X", "--fresh"]) == 1
    assert "which contains the job runs/X/job/fclopt_dp: copy the job elsewhere first" in capsys.readouterr().err
    assert (derived / "meta.json").exists()


@pytest.fixture
def hospitals(tmp_path):
    """A phantom, split across two hospitals with their own names."""
    write_phantom(tmp_path / "data", patients=4, frames=2)
    patients = sorted({volume.patient for volume in read_folder(tmp_path / "data")})
    owner = {patient: ("north", "south_2")[number % 2] for number, patient in enumerate(patients)}
    Splits.make(patients, owner, folds=2).save(tmp_path / "splits.json")
    return ["--data", str(tmp_path / "data"), "--splits", str(tmp_path / "splits.json")]


def test_sites_are_those_of_the_split(hospitals, tmp_path, capsys):
    _, data, _, splits = hospitals
    assert _places(data, splits, None, None, tmp_path, 0, 0)[1] == ["north", "south_2"]
    assert _places(data, splits, None, 2, tmp_path, 0, 0)[1] == ["north", "south_2"]
    assert _places(None, None, None, None, tmp_path, 0, 0)[1] == ["site-1", "site-2"]
    assert main(["pretrain", "--job", str(JOB), *hospitals, "--sites", "3"]) == 1
    assert "--sites 3 contradicts" in (error := capsys.readouterr().err) and "2 sites (north, south_2)" in error


def test_a_site_that_nvflare_cannot_name_is_refused(tmp_path):
    with pytest.raises(FCLSegError, match=r"'St. Mary' is not a valid NVFlare site name"):
        simulate(JOB, tmp_path, ["site-1", "St. Mary"], {})


@pytest.mark.simulator
def test_hospitals_keep_their_names_in_the_simulator(hospitals, tmp_path, monkeypatch):
    monkeypatch.setenv("FCLSEG_CACHE", str(tmp_path / "cache"))
    arguments = ["pretrain", "--job", str(JOB.with_name("fedbyol")), *hospitals, "--preset", "demo", "--rounds", "1"]
    assert main([*arguments, "--set", "batch_size=8", "--runs", str(tmp_path / "runs")]) == 0
    folder = RunFolder(tmp_path / "runs" / "fedbyol-demo")
    (record,) = folder.rounds()
    assert {site: report["status"] for site, report in record["sites"].items()} == {"north": "ok", "south_2": "ok"}
    assert all(record["bytes"][site]["up"]["wire"] > 0 for site in ("north", "south_2"))


def settled(job, changes=(), network=None, **given):
    """The settings of a run of a job with the preset small."""
    return settle({"job": job, **given}, "small", dict(changes), network, None, {})


def test_a_labelled_job_takes_the_budget_of_the_preset_it_is_given():
    changes = {"finetuning_batch_size": 4}
    assert settled("finetune_federated", changes).changes == {
        "pretraining.rounds": 10,
        "pretraining.local_epochs": 30,
        "pretraining.batch_size": 4,
        "finetuning.batch_size": 4,
    }
    assert settled("fedbyol", changes).changes == {"finetuning.batch_size": 4}


def test_fine_tuning_from_a_network_takes_the_settings_of_networks_that_segment(tmp_path):
    small = get_preset("small").finetuning
    for network in ("shipped", str(shipped_model("acdc_unet"))):
        settings = settled("finetune_federated", network=network)
        changes = settings.changes
        assert settings.network == network
        assert (changes["finetuning.lr"], changes["finetuning.start_share"]) == (
            small.model_lr,
            small.model_start_share,
        )
        assert changes["pretraining.rounds"] * changes["pretraining.local_epochs"] == small.model_steps
    own = settled("finetune_federated", {"finetuning.start_share": 0}, "shipped")
    assert own.changes["finetuning.start_share"] == 0
    other = settled("fcl", network="shipped")
    assert (other.network, other.changes) == ("shipped", {})
    save_network(tmp_path / "motion.safetensors", FreezableUNet((2, 4), 1), {})
    with pytest.raises(FCLSegError, match=r"motion\.safetensors does not segment: give a model\.safetensors"):
        settled("finetune_federated", network=tmp_path / "motion.safetensors")


def test_a_job_keeps_its_own_start():
    settings = settled("mean_teacher")
    assert (settings.network, settings.rounds) == ("shipped", get_preset("small").pretraining.adaptation_rounds)
    assert settled("fcl", network=None, **{"preset": "demo"}).network is None
    assert settle({"job": "fcl", "network": "/own"}, "small", {}, None, None, {}).network == "/own"


def test_one_line_per_round(tmp_path, capsys):
    folder = _run_folder(tmp_path)
    site = {"samples": 4, "status": "ok"}
    record = {"round": 0, "loss": 0.5, "d": None, "d_predicted": 0.25, "seconds": 2.0, "sites": {"a": site, "b": site}}
    progress = RoundLines(folder.path, rounds=2)
    with open(folder.path / "rounds.jsonl", "w") as file:
        file.write(json.dumps(record) + "\n" + '{"round": 1, ')
        file.flush()
        progress()
        progress()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 and lines[0].startswith("round 1/2  loss 0.5000  d 2.500e-01  sites 2/2  2.0 s  eta 0:00:0")


def test_starting_over_removes_runs_only(tmp_path):
    folder = _run_folder(tmp_path)
    first = folder.config["id"]
    (folder.path / "checkpoints").mkdir()
    folder.open(folder.config, fresh=True)
    assert folder.config["id"] != first and [path.name for path in folder.path.iterdir()] == ["config.json"]
    assert [path.name for path in folder.path.parent.iterdir()] == [folder.path.name]
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to a friend").touch()
    RunFolder(tmp_path / "letters").forget()
    assert (tmp_path / "letters" / "to a friend").exists()
