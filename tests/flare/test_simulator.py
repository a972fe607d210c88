"""Real NVFlare simulators, each with its own time-out: what a user of the README's commands gets."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from harness import Simulation, identical, misbehave

from fclseg.engine.run_folder import GLOBAL, RunFolder
from fclseg.engine.state_files import read_state
from fclseg.federation.codecs.presets import PLAIN, get_codec
from fclseg.federation.payload import component_arrays, mean_traffic
from fclseg.methods.exchange import OTHERS, ROWS
from fclseg.methods.registry import build_method
from fclseg.networks.loading import load_encoder
from fclseg.networks.unet import UNet
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import get_preset

pytestmark = pytest.mark.simulator

SETTINGS = {"preset": "demo", "rounds": 3, "seed": 3, "changes": {"batch_size": 8}}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "phantom"
    write_phantom(folder, patients=8, frames=2)
    return folder


@pytest.fixture(
    scope="module",
    params=["fclopt_dp", *(pytest.param(job, marks=pytest.mark.nightly) for job in ("fclopt_dp_tiny", "fcl"))],
)
def reference(request, tmp_path_factory, cache, data):
    """Never interrupted, one process per site. In all jobs more than networks is sent: a distance, bytes, banks."""
    simulation = Simulation(tmp_path_factory.mktemp("reference"), cache, request.param, SETTINGS, data)
    assert simulation.complete("-n", "2", "-t", "2") == 0, simulation.log[-3000:]
    return simulation


@pytest.mark.parametrize("reference", ["fclopt_dp"], indirect=True)
def test_the_run_folder_tells_what_happened(reference):
    assert [record["round"] for record in reference.rounds] == [0, 1, 2]
    first, second, third = reference.rounds
    assert first["d"] == 0 and first["d_predicted"] == 0
    assert second["d"] > 0 and second["d_predicted"] == pytest.approx(
        second["d"], rel=1e-12
    )  # calibrated after round 0
    assert third["d"] is None and third["d_predicted"] > 0 and third["alpha"] == second["alpha"]
    for record in reference.rounds:
        calibration = record["round"] % 2 == 0
        for site in ("site-1", "site-2"):
            assert record["sites"][site]["status"] == "ok" and record["sites"][site]["feature_std"] > 0
            up, down = record["bytes"][site]["up"], record["bytes"][site]["down"]
            assert set(up["payload"]) == {"online", "predictor", "distance"} | ({"target"} if calibration else set())
            assert set(down["payload"]) == {"online", "predictor", "distance"}
            for way in (up, down):  # the network crosses once: a second copy would nearly double this
                assert 1.0 < way["wire"] / sum(way["payload"].values()) < 1.3
    report = load_encoder(UNet(get_preset("demo").networks.channels, classes=4), reference.run / "encoder.safetensors")
    assert not report.missing and not report.unexpected
    assert list((reference.run / "tensorboard" / "site-1").glob("events*"))
    last = reference.log.splitlines()[-4:]
    assert f"encoder: {reference.run / 'encoder.safetensors'}" in last, last
    assert any(line.startswith("next: fclseg finetune LABELLED --out my_model --encoder ") for line in last), last


@pytest.mark.nightly
def test_a_new_process_for_every_task_gives_the_same_bits(tmp_path, cache, data, reference):
    simulation = Simulation(tmp_path, cache, reference.job.name, SETTINGS, data)
    assert simulation.complete() == 0, simulation.log[-3000:]  # bare: two sites, one thread
    assert identical(simulation.final(), reference.final())


def test_killed_in_a_round_and_continued_gives_the_same_bits(tmp_path, cache, data, reference):
    """The first process is stuck in the second of three rounds, where one site has trained already."""
    simulation = Simulation(tmp_path, cache, reference.job.name, SETTINGS, data)
    misbehave(simulation, {"site-2": "stuck"})
    process = simulation.start("-n", "2", "-t", "2")
    while not (simulation.run / "sites" / "site-1" / "round-0001.safetensors").exists():
        assert process.poll() is None, simulation.log[-3000:]
        time.sleep(0.02)
    simulation.kill(process)
    simulation.behave()
    assert len(simulation.rounds) == 1
    checkpoint = simulation.final()
    assert simulation.complete("-n", "2", "-t", "2") == 0, simulation.log[-3000:]
    assert "continues with round 2 of 3" in simulation.log
    assert identical(simulation.final(), reference.final())
    assert [record["round"] for record in simulation.rounds] == [0, 1, 2]
    if reference.job.name == "fcl":  # the first round after the kill took the others' banks from the checkpoint
        states, _ = read_state(simulation.run / "sites" / "site-1" / "round-0001.safetensors")
        shared = torch.nn.functional.normalize(checkpoint["others:bank:site-2/features"], dim=1)
        assert torch.equal(states["method"]["remote.features"], shared)
        assert torch.equal(states["method"]["remote.partitions"], checkpoint["others:bank:site-2/partitions"])


@pytest.mark.nightly
def test_sites_that_fail_do_not_stop_the_others(tmp_path, cache, data):
    settings = {**SETTINGS, "rounds": 2, "pretrain_timeout": 120}  # of which a loaded machine needs much
    simulation = Simulation(tmp_path, cache, "fclopt", settings, data)
    misbehave(simulation, {"site-2": "nan", "site-3": "raise", "site-4": "hang"})
    assert simulation.complete("-n", "4", "-t", "4") == 0, simulation.log[-3000:]
    for record in simulation.rounds:
        status = {site: report["status"] for site, report in record["sites"].items()}
        assert status["site-1"] == "ok"
        assert "site-2" in status["site-2"] and "not finite" in status["site-2"]
        assert "ZeroDivisionError" in status["site-3"] and "fire" not in status["site-3"]
    assert "did not finish task pretrain" in simulation.rounds[0]["sites"]["site-4"]["status"]
    assert "the result of site-2 is not used in this round" in simulation.log
    assert "left out until it asks for work again" in simulation.log


@pytest.mark.nightly
def test_a_run_in_which_every_site_fails_says_why_and_fails(tmp_path, cache, data):
    simulation = Simulation(tmp_path, cache, "fedbyol", {**SETTINGS, "rounds": 1}, data)
    misbehave(simulation, {"site-1": "raise", "site-2": "raise"})
    assert simulation.complete("-n", "2", "-t", "2") == 2
    assert "round 0 has 0 valid answers but needs 1 (site-1: ZeroDivisionError" in simulation.log


@pytest.mark.nightly
def test_a_privacy_filter_bounds_what_a_round_can_change(tmp_path, cache, data):
    """As docs/privacy.md says."""
    simulation = Simulation(tmp_path, cache, "fclopt_dp", {**SETTINGS, "rounds": 1}, data)
    path = simulation.job / "app/config/config_fed_client.json"
    document = json.loads(path.read_text())
    clip = {"path": "fclseg.flare.filters.ClipAndNoise", "args": {"clip": 0.01, "sigma": 0.0}}
    document["task_result_filters"] = [{"tasks": ["pretrain"], "filters": [clip]}]
    path.write_text(json.dumps(document))
    assert simulation.complete("-n", "2", "-t", "2") == 0, simulation.log[-3000:]
    assert {report["status"] for report in simulation.rounds[0]["sites"].values()} == {"ok"}
    method = build_method("fclopt_dp", get_preset("demo", **SETTINGS["changes"]), SETTINGS["seed"])
    initial = {
        f"mean:{name}/{k}": t for name in ("online", "predictor", "target") for k, t in method.send(name).items()
    }
    final = simulation.final()
    assert final.keys() == initial.keys()
    floating = [name for name, tensor in initial.items() if tensor.is_floating_point()]
    change = sum((final[name].double() - initial[name]).square().sum() for name in floating) ** 0.5
    assert 0.001 < change < 0.0101  # a mean of two updates of 0.01


@pytest.mark.nightly
def test_federated_fine_tuning_gives_a_network_that_the_bundle_segments_with(tmp_path, cache, data):
    simulation = Simulation(tmp_path, cache, "finetune_federated", {**SETTINGS, "rounds": 1}, data)
    assert simulation.complete("-n", "2", "-t", "2") == 0, simulation.log[-3000:]
    model = RunFolder(simulation.run).model
    bundle = Path(__file__).parents[2] / "bundles" / "acdc_unet"
    command = [sys.executable, "-m", "monai.bundle", "run", "--config_file", str(bundle / "configs" / "inference.json")]
    command += ["--bundle_root", str(bundle), "--checkpoint", str(model), "--output_dir", str(tmp_path / "eval")]
    done = subprocess.run([*command, "--dataset_dir", str(data)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "eval").glob("*_seg.nii.gz"))) >= 8


@pytest.mark.nightly
@pytest.mark.parametrize("job", list(ROWS))
def test_every_job_runs_and_moves_the_bytes_of_its_plan(job, tmp_path, cache, data):
    row = ROWS[job]
    passed_on = {flow.component for flow in row.flows if flow.combine == OTHERS}
    sites = [f"site-{number}" for number in range(1, 4 if passed_on else 3)]  # of three, each gets what two sent
    simulation = Simulation(tmp_path, cache, job, {**SETTINGS, "rounds": 2}, data)
    assert simulation.complete("-n", str(len(sites)), "-t", str(len(sites))) == 0, simulation.log[-3000:]
    encoders = RunFolder(simulation.run).encoders
    assert list(encoders) == ([GLOBAL] if row.shares_online else sites)
    assert all(path.exists() for path in encoders.values())

    preset = get_preset(SETTINGS["preset"], rounds=2, **SETTINGS["changes"])
    components = component_arrays(row, preset)
    for record in simulation.rounds:
        assert {site: report["status"] for site, report in record["sites"].items()} == dict.fromkeys(sites, "ok")
        plan = mean_traffic(
            row,
            components,
            sites=len(sites),
            rounds=[record["round"]],
            calibration_rounds=preset.pretraining.calibration_rounds,
            codec=get_codec(row.codec),
        )
        if record["round"] == 0:  # nobody has sent anything yet
            plan.down = {name: size for name, size in plan.down.items() if name not in passed_on}
        for site in sites:
            measured = {way: counts["payload"] for way, counts in record["bytes"][site].items()}
            planned = {"up": plan.up, "down": plan.down}
            if row.codec == PLAIN:
                assert measured == planned, (site, record["round"])
            for way, sizes in measured.items():  # with a codec the plan is a bound
                assert sizes.keys() == planned[way].keys()
                assert all(0 < size <= planned[way][name] for name, size in sizes.items()), (site, record["round"])
