"""Pre-trainings that start from the shipped weights, and the whole networks that fine-tuning then starts from."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from study_cells import DATA

from fclseg.cli import main
from fclseg.data.sites import Splits
from fclseg.methods.registry import build_method
from fclseg.networks.loading import HEAD, PREFIX, read_tensors, save_encoder, save_network
from fclseg.networks.model_file import load_model
from fclseg.presets import get_preset
from fclseg.resources import shipped_model
from fclseg.study.cells import Pretraining
from fclseg.study.federated import run_here
from fclseg.study.job_options import JobOptions
from fclseg.study.plan import Request, plan
from fclseg.study.pretraining import COMPLETED, complete
from fclseg.study.tables import TABLES, table_rows

PRESET = get_preset("demo")
FROM_SHIPPED = JobOptions.make({"network": "shipped"}, ())


@pytest.fixture
def cells(tmp_path):
    """The cells of a table by row, with labels 0 and 1."""
    path = tmp_path / "splits.json"
    Splits.make([f"patient{n:03d}" for n in range(8)], 2, 3, seed=0).save(path)
    data = replace(DATA, splits=Path(path))

    def make(*methods, plain=False):
        rows = tuple(table_rows(TABLES["local"], methods, PRESET, FROM_SHIPPED, plain))
        request = Request(TABLES["local"], rows, (0, 1), 1, 1, 1, ("full", "frozen"), data, data, rows[0].key)
        found = {}
        for one in plan(request):
            found.setdefault(one.row.title, []).append(one.cell)
        return found

    return make


def test_rows_say_so_and_jobs_that_always_do_stay_what_they_are():
    methods = ("random", "shipped", "fcl", "motion", "mean_teacher")
    assert [row.title for row in table_rows(TABLES["local"], methods, PRESET, FROM_SHIPPED, plain=True)] == [
        "Random init", "Shipped weights", "FCL", "FCL, from shipped weights", "Motion",
        "Motion, from shipped weights", "Mean teacher",
    ]  # fmt: skip


def test_fine_tuning_starts_from_a_network_that_segments(cells):
    """A network that was trained to predict motion no longer segments, so it is fine-tuned like any other."""
    found = cells("shipped", "fcl", "motion", plain=True)
    shipped = next(cell for cell in found["Shipped weights"] if cell.labels == 1)
    for method, labels, settings in (("FCL", {0, 1}, shipped.preset), ("Motion", {1}, PRESET)):
        plain, started = found[method], found[f"{method}, from shipped weights"]
        full = [cell for cell in started if cell.mode == "full"]
        assert {cell.labels for cell in full} == labels and all(cell.whole_network for cell in full)
        assert {cell.preset for cell in full if cell.labels} == {settings}
        frozen = next(cell for cell in started if cell.mode == "frozen")
        assert not frozen.whole_network and frozen.labels == 1
        assert {cell.labels for cell in plain} == {1}
        first, other = plain[0].pretraining, full[0].pretraining
        assert first.key != other.key and first.preset == other.preset, "the same budget"


@pytest.mark.parametrize("job", ["fcl", "motion"])
def test_what_a_run_did_not_train_is_that_of_its_start(tmp_path, job):
    method = build_method(job, PRESET, seed=3)
    if job == "fcl":
        save_encoder(tmp_path / "trained.safetensors", method.online.encoder, {})
    else:
        save_network(tmp_path / "trained.safetensors", method.online, {})
    cell = Pretraining(job, 0, PRESET, DATA, FROM_SHIPPED)
    path = complete(cell, tmp_path / "trained.safetensors")
    made, shipped = (read_tensors(one)[0] for one in (path, shipped_model("acdc_unet", "demo")))
    trained, _ = read_tensors(tmp_path / "trained.safetensors")
    assert set(made) == set(shipped)
    for name, tensor in made.items():
        learnt = name.startswith(PREFIX) if job == "fcl" else not name.startswith(HEAD)
        assert torch.equal(tensor, (trained if learnt else shipped)[name]), name
    assert load_model(path, "acdc").about.startswith(f"{job}, from shipped weights: ")


def test_the_start_reaches_the_run(tmp_path, monkeypatch):
    Splits.make([f"patient{n:03d}" for n in range(8)], 2, 3, seed=0).save(tmp_path / "splits.json")
    data, seen = replace(DATA, splits=tmp_path / "splits.json"), []
    monkeypatch.setattr("fclseg.study.federated.run_in_process", lambda settings, *rest, **more: seen.append(settings))
    for options in (FROM_SHIPPED, JobOptions.make({"fraction": 0.5}, ())):
        run_here("fcl", tmp_path / "run", data, PRESET, 0, options)
    assert [(one.network, one.fraction) for one in seen] == [("shipped", 1.0), (None, 0.5)]


@pytest.mark.nightly
@pytest.mark.simulator
def test_a_study_from_the_shipped_weights(tmp_path, monkeypatch):
    """At a learning rate of almost zero the runs hand over the shipped network itself."""
    monkeypatch.setenv("FCLSEG_CACHE", str(tmp_path / "cache"))
    command = "study local --preset demo --sites 2 --patients 5 --rounds 1 --folds 1 --labels 0,1 --jobs 1"
    command += " --methods shipped,motion,fcl,fclopt_dp --job-set network=shipped --set pretraining.lr=1e-9"
    assert main([*command.split(), "--set", "finetuning.epochs=2", "--out", str(tmp_path / "out")]) == 0
    shipped, _ = read_tensors(shipped_model("acdc_unet", "demo"))
    runs = sorted((tmp_path / "out" / "runs").glob(f"*/{COMPLETED}"))
    assert [run.parent.name.partition("-")[0] for run in runs] == ["fcl", "fclopt_dp", "motion"]
    for run in runs:
        network, _ = read_tensors(run)
        weights = [name for name in shipped if name.endswith("weight")]
        assert all(torch.allclose(network[name], shipped[name], atol=1e-5) for name in weights), run
    table = (tmp_path / "out" / "local" / "table.md").read_text()
    assert "FCL, from shipped weights" in table and "FCLOpt-PTNU-DP, from shipped weights" in table
