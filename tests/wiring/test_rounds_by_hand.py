"""A whole run, all parts real except the network, against the same run written out by hand."""

import json
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from inprocess import SLICES, TINY
from inprocess import InProcess as AnyRun
from plain_federation import PlainSite, copied, federated_byol

from fclseg.methods.registry import build_method
from fclseg.methods.training import make_optimizer
from fclseg.networks.loading import read_tensors
from fclseg.presets import get_preset
from fclseg.resources import shipped_model

ROUNDS = 4
CHANGES = {
    **TINY,
    "local_epochs": 2,
    "optimizer": "sgd",
    "pretraining.lr": 0.02,
    "structural_positives": 0.0,
    "ema_momentum": 0.9,
    "ptnu_momentum": 0.8,
    "calibration_rounds": 2,
}


class InProcess(AnyRun):
    """Hospitals that allow a run to change these settings."""

    policy: ClassVar = {**AnyRun.policy, "changes": [*sorted(CHANGES), "pretraining.phantom_patients"]}


@pytest.fixture
def sites(hospitals):
    changes = {name: tuple(value) if isinstance(value, list) else value for name, value in CHANGES.items()}
    preset = get_preset("demo", **changes)
    return [PlainSite(name, folder, preset, Path(SLICES.name)) for name, folder in hospitals.items()]


def assert_same(ours, expected):
    """Everything except BatchNorm counters; in practice bit for bit."""
    for name, tensor in expected.items():
        if tensor.is_floating_point():
            torch.testing.assert_close(
                torch.as_tensor(ours[name]), tensor, rtol=1e-5, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}"
            )


BOTH = {"online", "predictor"}
PLAN = {
    "fclopt": (BOTH | {"target"}, BOTH | {"target"}),
    "fedbyol": (BOTH, BOTH),
    "fclopt_ptnu": (BOTH | {"target"}, BOTH | {"distance"}),
    "fclopt_dp": (BOTH | {"distance"}, BOTH | {"distance"}),
}
"""What goes up and what comes down: the paper's table of exchanged components."""


def assert_bytes(records, job, networks):
    """The meter counts the plan's components, each with the size of its tensors."""
    sizes = {part: sum(t.numel() * t.element_size() for t in state.values()) for part, state in networks.items()}
    sizes["distance"] = 8
    up, down = PLAN[job]
    for number, record in enumerate(records):
        calibrating = {"target"} if job == "fclopt_dp" and number % 2 == 0 else set()
        for counts in record["bytes"].values():
            assert counts["up"]["payload"] == {part: sizes[part] for part in up | calibrating}
            assert counts["down"]["payload"] == {part: sizes[part] for part in down}


@pytest.mark.parametrize("job", ["fclopt", "fedbyol", "fclopt_ptnu", "fclopt_dp"])
def test_a_run_is_the_papers_algorithm(hospitals, sites, tmp_path, job):
    run = InProcess(tmp_path / "run", hospitals, job, rounds=ROUNDS, changes=CHANGES, outliers="off")  # as in the paper
    records = run.complete()
    networks, used = federated_byol(job, sites, ROUNDS, ptnu_momentum=0.8, calibration_rounds=2)
    for part, state in networks.items():
        if part in run.loop.model.means and (part != "target" or job in ("fclopt", "fclopt_ptnu")):
            assert_same(run.loop.model.means[part], state)
    for site in sites:
        remembered = run.state(site.name, ROUNDS - 1)
        for part in networks:
            state = {f"{part}.{name}": tensor for name, tensor in copied(getattr(site, part)).items()}
            assert_same(remembered, state)
        assert {record["sites"][site.name]["samples"] for record in records} == {len(site.images)}
        steps = 2 * (len(site.images) // 8)
        assert {record["sites"][site.name]["steps"] for record in records} == {steps}
    known = [record["d_predicted"] if job == "fclopt_dp" else record["d"] for record in records]
    assert known[: len(used)] == pytest.approx(used, rel=1e-4)
    assert_bytes(records, job, networks)
    encoder, metadata = read_tensors(run.run / "encoder.safetensors")
    assert_same(encoder, {name: tensor for name, tensor in networks["online"].items() if name.startswith("encoder.")})
    assert (metadata["job"], metadata["round"]) == (job, str(ROUNDS - 1))


@pytest.mark.parametrize(("job", "lr"), [("fcl", 0.05), ("fedmoco", 0.05), ("fclopt", 0.5), ("fedbyol", 0.5)])
def test_the_papers_learning_rates(job, lr):
    (group,) = make_optimizer(build_method(job, get_preset("demo", optimizer="sgd"), 0)).param_groups
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (lr, 0.9, 1e-4)


def test_every_site_of_local_cl_keeps_its_own_encoder(hospitals, tmp_path):
    run = InProcess(tmp_path / "run", hospitals, "local_cl", rounds=2)
    records = run.complete()
    encoders = {}
    for site in run.sites:
        encoders[site], _ = read_tensors(run.memory(site) / "encoder.safetensors")
        state = run.state(site, 1)
        assert all(torch.equal(tensor, state[f"online.{name}"]) for name, tensor in encoders[site].items())
    first, second = encoders.values()
    assert not any(torch.equal(first[name], second[name]) for name in first if name.endswith("conv.weight"))
    assert json.loads((run.run / "result.json").read_text()) == {
        "encoders": {site: f"sites/{site}/encoder.safetensors" for site in run.sites}
    }
    for record in records:  # only metadata about the round is sent
        assert all(not counts[way]["payload"] for counts in record["bytes"].values() for way in ("up", "down"))


def test_sites_that_train_alone_start_from_the_shipped_weights(hospitals, tmp_path):
    """Nothing comes down, so each site takes them from its own installation and keeps a network of its own."""
    changes = {"pretraining.lr": 1e-7, "local_epochs": 1, "pretraining.phantom_patients": 2}
    run = InProcess(tmp_path / "run", hospitals, "mean_teacher_local", rounds=1, network="shipped", changes=changes)
    (record,) = run.complete()
    assert all(not counts[way]["payload"] for counts in record["bytes"].values() for way in ("up", "down"))
    shipped, _ = read_tensors(shipped_model("acdc_unet", "demo"))
    result = json.loads((run.run / "result.json").read_text())
    assert result["site_networks"] == {site: f"sites/{site}/model.safetensors" for site in run.sites}
    for site in run.sites:
        own, _ = read_tensors(run.memory(site) / "model.safetensors")
        for name, tensor in shipped.items():
            if name.endswith("conv.weight"):
                torch.testing.assert_close(own[name], tensor, rtol=0, atol=1e-4)
