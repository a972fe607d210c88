"""Each verb means the same on the command line and in Python: both give the same results, byte for byte."""

import json
from pathlib import Path

import numpy as np
import pytest

from fclseg import api
from fclseg.cli import main
from fclseg.networks.loading import read_tensors

EPOCHS = 2


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verbs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCLSEG_CACHE", str(folder / "cache"))
        patch.setenv("OMP_NUM_THREADS", "1")
        api.write_phantom(folder / "data", patients=4, sites=2, frames=2)
        yield folder


@pytest.fixture(scope="module")
def model(place):
    return api.finetune(place / "data", place / "model", preset="demo", epochs=EPOCHS)


@pytest.fixture
def ask(capsys):
    """What a command prints with ``--json``."""

    def ask(*arguments):
        capsys.readouterr()
        assert main([*map(str, arguments), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return ask


def contents(folder: Path, pattern: str) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob(pattern) if path.is_file()}
    assert found
    return found


def test_data_phantom(place, ask, tmp_path):
    told = ask("data", "phantom", "--out", tmp_path / "typed", "--patients", 2, "--sites", 2, "--seed", 5)
    written = api.data.phantom(tmp_path / "called", patients=2, sites=2, seed=5)
    assert contents(tmp_path / "typed", "*") == contents(tmp_path / "called", "*")
    assert [Path(path).name for path in told["patients"]] == [path.name for path in written]


def test_data_check(place, ask):
    told, report = ask("data", "check", place / "data"), api.data.check(place / "data")
    assert told["problems"] == report.problems == [] and told["labelled"] == report.labelled == 8
    assert [one["patient"] for one in told["patients"]] == [one.patient for one in report.patients]


def test_data_split(place, ask, tmp_path):
    told = ask("data", "split", place / "data", "--sites", 2, "--folds", 2, "--out", tmp_path / "typed.json")
    made = api.data.split(place / "data", tmp_path / "called.json", sites=2, folds=2)
    assert told["sites"] == made.sites and told["held_out"] == made.held_out
    assert (tmp_path / "typed.json").read_bytes() == (tmp_path / "called.json").read_bytes()


def test_pretrain(place, ask, tmp_path):
    """``tests/api/test_pretraining.py`` compares both ways to run, in one process and with NVFlare."""
    told = ask("pretrain", "--job", "fedsimclr", "--data", place / "data", "--preset", "demo", "--rounds", 1,
               "--set", "batch_size=8", "--runs", tmp_path, "--name", "typed", "--in-process")  # fmt: skip
    changes = {"batch_size": 8}
    run = api.pretrain("fedsimclr", place / "data", tmp_path / "called", preset="demo", rounds=1, changes=changes)
    assert told["losses"] == run.losses and told["networks"] == run.networks == {}
    typed, called = read_tensors(told["encoders"][""])[0], read_tensors(run.encoder)[0]
    assert all((typed[name] == tensor).all() for name, tensor in called.items())


def test_submit(ask, tmp_path, monkeypatch):
    """The job that would be submitted. ``tests/poc`` submits to real parties."""
    (tmp_path / "kit" / "startup").mkdir(parents=True)
    (tmp_path / "kit" / "startup" / "fed_admin.json").write_text("{}")
    jobs = []
    monkeypatch.setattr(
        "fclseg.api.submitting.submit_job", lambda job, kit: jobs.append(contents(job, "*.json")) or f"job-{len(jobs)}"
    )
    told = ask("submit", "fclopt_dp", "--kit", tmp_path / "kit", "--preset", "demo", "--rounds", 3, "--min-sites", 2,
               "--set", "local_epochs=2", "--name", "mine")  # fmt: skip
    submitted = api.submit("fclopt_dp", tmp_path / "kit", preset="demo", rounds=3, min_sites=2,
                           changes={"local_epochs": 2}, seed=0, run="mine")  # fmt: skip
    assert told == {"run": "mine", "job": "job-1"} and submitted == api.Submitted("mine", "job-2")
    typed, called = ({name: json.loads(text) for name, text in job.items()} for job in jobs)
    assert {name for name in typed if typed[name] != called[name]} <= {"meta.json"}, "which has the command"
    lines = [json.loads(line) for line in (tmp_path / "kit" / "submitted.jsonl").read_text().splitlines()]
    assert [line["job"] for line in lines] == ["job-1", "job-2"]


def test_finetune(place, model, ask, tmp_path):
    told = ask("finetune", place / "data", "--out", tmp_path / "typed", "--preset", "demo", "--epochs", EPOCHS)
    typed, called = read_tensors(told["model"]), read_tensors(model.model)
    assert typed[1] == called[1] and all((typed[0][name] == tensor).all() for name, tensor in called[0].items())
    assert told["losses"] == model.losses and told["dice"] == model.evaluation.mean_dice
    grids = [json.loads((folder / "evaluation.json").read_text()) for folder in (tmp_path / "typed", place / "model")]
    assert grids[0] == grids[1], "both are scored on the images' own grid"


def test_finetune_from_the_shipped_network(place, ask, tmp_path):
    told = ask("finetune", place / "data", "--out", tmp_path / "typed", "--network", "shipped", "--preset", "small",
               "--train-on-all", "--epochs", 1)  # fmt: skip
    tuned = api.finetune(
        place / "data", tmp_path / "called", network="shipped", preset="small", hold_out=False, epochs=1
    )
    typed, called = read_tensors(told["model"])[0], read_tensors(tuned.model)[0]
    assert all((typed[name] == tensor).all() for name, tensor in called.items())
    assert told["dice"] is None and not tuned.evaluation.rows
    record = json.loads((tmp_path / "called" / "training.json").read_text())
    assert len(record["train_patients"]) == 4 and Path(record["pretrained_network"]).name == "model_small.safetensors"


def test_finetune_from_random_weights_if_somebody_asks_for_them(place, ask, tmp_path):
    ask("finetune", place / "data", "--out", tmp_path, "--network", "none", "--preset", "small", "--train-on-all",
        "--epochs", 1)  # fmt: skip
    assert json.loads((tmp_path / "training.json").read_text())["pretrained_network"] is None


def test_segment_and_evaluate(place, model, ask, tmp_path):
    scan = place / "data" / "patient001"
    told = ask("segment", scan, "--out", tmp_path / "typed", "--model", model.model, "--height", 172, "--weight", 70)
    results = api.segment(scan, tmp_path / "called", model.model, height=172, weight=70)
    assert contents(tmp_path / "typed", "*_seg.nii.gz") == contents(tmp_path / "called", "*_seg.nii.gz")
    assert [one["patient"] for one in told["patients"]] == [one.patient for one in results] == ["patient001"]
    np.testing.assert_equal(told["patients"][0]["volumes"][0]["ml"], results[0].volumes[0].ml)

    scored = ask("evaluate", tmp_path / "typed", place / "data", "--out", tmp_path / "scores", "--no-hd95")
    figures = api.evaluate([(tmp_path / "called", place / "data")], hd95=False).figures()
    assert scored["all"] == json.loads(json.dumps(figures["all"]))


def test_batch(place, model, ask, tmp_path):
    (tmp_path / "exams").mkdir()
    image = place / "data" / "patient001" / "patient001_frame01.nii.gz"
    (tmp_path / "exams" / "one.nii.gz").write_bytes(image.read_bytes())
    told = ask("batch", tmp_path / "exams", "--out", tmp_path / "typed", "--model", model.model)
    rows = api.batch(tmp_path / "exams", tmp_path / "called", model.model)
    assert contents(tmp_path / "typed", "*_seg.nii.gz") == contents(tmp_path / "called", "*_seg.nii.gz")
    costs = {"seconds", "cpu_seconds", "memory_mb"}
    found = [[{key: row[key] for key in row.keys() - costs} for row in table] for table in (told["exams"], rows)]
    assert found[0] == found[1] and rows[0]["exam"] == "one.nii.gz" and rows[0]["patients"] == 1


def test_study_and_report(ask, tmp_path):
    told = ask("study", "components", "--out", tmp_path / "typed")
    studied = api.study("components", tmp_path / "called")
    assert told["study"]["components"] == studied.study["components"] and not studied.failures
    typed, called = ((tmp_path / name / "components" / "table.csv").read_bytes() for name in ("typed", "called"))
    assert typed == called
    page = Path(ask("report", tmp_path / "typed" / "components", "--out", tmp_path / "typed.html")["report"])
    other = api.report(tmp_path / "called" / "components", tmp_path / "called.html")
    bodies = [path.read_text().split("<tbody>")[1].split("</tbody>")[0] for path in (page, other)]
    assert bodies[0] == bodies[1]


def test_doctor(ask):
    told, health = ask("doctor"), api.doctor()
    assert told["versions"] == health.versions and told["versions"]["torch"].startswith("2.")
    assert told["devices"] == health.devices and told["folders"]["cache"]["free"] > 0
    assert set(told["weights"]) == {"acdc_unet", "hvsmr_unet", "nifti_unet"}
