"""Curves in MLflow and Weights & Biases: chosen by a run's settings, stored where the server's operator says."""

import glob
import importlib.util
import json
from pathlib import Path

import pytest

from fclseg.cli import main
from fclseg.flare.classes import SERVER_CLASSES
from fclseg.flare.jobs import client, server
from fclseg.flare.launch import derive_job
from fclseg.flare.tracking import TRACKERS
from fclseg.methods.exchange import ROWS

ROOT = Path(__file__).parents[2]
ROUNDS = 3


def _added(document, name):
    plain = server(ROWS["fclopt_dp"], {"preset": "demo"})
    return [entry for entry in document["components"] if entry not in plain["components"]] == [
        {"id": name, "path": TRACKERS[name].receiver, "args": {"controller_id": "controller"}}
    ]


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_is_one_more_component_of_the_server_only(name, tmp_path):
    settings = {"preset": "demo", "tracking": name}
    assert TRACKERS[name].receiver in SERVER_CLASSES
    assert _added(server(ROWS["fclopt_dp"], settings), name)
    assert client(ROWS["fclopt_dp"], settings) == client(ROWS["fclopt_dp"], {"preset": "demo"})
    job = ROOT / "jobs" / "fclopt_dp"
    for _ in range(2):  # a run is continued from the job in its own folder
        job = derive_job(job, tmp_path, settings)
        assert _added(json.loads((job / "app/config/config_fed_server.json").read_text()), name)


def test_a_tracker_that_is_unknown_or_not_installed_is_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name, sentence in (
        ("comet", "there is no tracker 'comet': choose one of mlflow, wandb"),
        ("mlflow", 'mlflow is not installed: run pip install "fclseg[mlflow]"'),
    ):
        assert main(["pretrain", "--job", "fclopt_dp", "--preset", "demo", "--tracking", name]) == 1
        assert capsys.readouterr().err.strip() == f"fclseg: {sentence}"


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A run with a tracker, and what its sites reported: {site: {name: [value of each round]}}."""

    def run(name):
        pytest.importorskip(TRACKERS[name].package)
        monkeypatch.setenv("FCLSEG_CACHE", str(tmp_path / "cache"))
        arguments = ["--job", "fclopt_dp", "--preset", "demo", "--rounds", ROUNDS, "--tracking", name]
        assert main(["pretrain", *map(str, arguments), "--runs", str(tmp_path / "runs"), "--name", "tracked"]) == 0
        folder = tmp_path / "runs" / "tracked"
        records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
        values = {
            site: {key: [record["sites"][site][key] for record in records] for key in ("loss", "feature_std")}
            for site in ("site-1", "site-2")
        }
        return folder, values

    return run


@pytest.mark.nightly
def test_mlflow_has_every_round_of_every_site(trained):
    folder, values = trained("mlflow")
    from mlflow.tracking.client import MlflowClient

    tracker = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    (experiment,) = [one for one in tracker.search_experiments() if one.name == "fclseg"]
    found = {}
    for run in tracker.search_runs([experiment.experiment_id]):
        site = "-".join(run.info.run_name.split("-")[:2])
        histories = {name: tracker.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        assert all([entry.step for entry in history] == list(range(ROUNDS)) for history in histories.values())
        found[site] = {name: [entry.value for entry in history] for name, history in histories.items()}
    assert found == values


@pytest.mark.nightly
def test_wandb_keeps_every_round_of_every_site_offline(trained):
    folder, values = trained("wandb")
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    found = {}
    for path in glob.glob(f"{folder}/wandb/offline-run-*/*.wandb"):
        store, rows, name = DataStore(), [], ""
        store.open_for_scan(path)
        while data := store.scan_data():
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            name = record.run.display_name or name
            if record.WhichOneof("record_type") == "history":
                rows.append({item.key or item.nested_key[0]: item.value_json for item in record.history.item})
        site = "-".join(name.split("-")[:2])
        found[site] = {key: [json.loads(row[key]) for row in rows] for key in ("loss", "feature_std")}
    assert found == values
