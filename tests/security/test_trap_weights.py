"""Weights that a dishonest server prepares so that one step reveals single images: the attack works on a site without a
gate, and a hospital's gate refuses to answer."""

import json

import numpy as np
import pytest
import torch
from contexts import site_context

from fclseg.attacks.trap import read_trap, revealed, set_trap
from fclseg.engine.gate import OpenGate
from fclseg.engine.messages import FORMAT, Message
from fclseg.engine.place import LOCAL_FILE
from fclseg.engine.run_settings import RunSettings
from fclseg.engine.site import Site
from fclseg.engine.site_work import answer, train
from fclseg.federation.states import to_arrays
from fclseg.flare.wire import site_place
from fclseg.hospital.gate import Gate
from fclseg.hospital.plausible import MOST_PARALLEL, parallel_rows
from fclseg.hospital.policy import PolicyError
from fclseg.methods.exchange import get_row
from fclseg.methods.registry import build_method
from fclseg.networks.loading import read_tensors
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import get_preset
from fclseg.resources import shipped_model


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    write_phantom(folder / "data", patients=1, frames=2, seed=5)
    return folder


@pytest.fixture
def gate(images, tmp_path, monkeypatch):
    """The gate of a site with one patient, in the round and with the networks that a server likes."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("FCLSEG_DEVICE", "cpu")
    context = site_context(tmp_path)

    def make(received, kind=Gate, number=0, job="fclopt", **policy):
        own = {"data": str(images / "data"), "cache": str(images / "cache"), "policy": policy}
        (tmp_path / LOCAL_FILE).write_text(json.dumps(own))
        settings = RunSettings.read({"job": job, "preset": "demo"}, {})
        run = {"id": "run-1", "settings": settings.to_dict(), "sites": ["site-1"], "shared": {}, "format": FORMAT}
        copied = {name: {key: array.copy() for key, array in part.items()} for name, part in received.items()}
        message = Message(copied, meta={"round": number, "run": run})
        return kind(Site.of(site_place(context), message), "pretrain", message)

    return make


@pytest.fixture(scope="module")
def networks():
    method = build_method("fclopt", get_preset("demo"), 0)
    return {name: to_arrays(method.send(name)) for name in ("online", "predictor", "target")}


def what_it_shows(gate, trap):
    """The number of views whose features a server reads from the site's update, and of all views of the round."""
    site, batches = gate.site, []
    views = site.method.views
    site.method.views = lambda images, generator: batches.append(views(images, generator)) or batches[-1]
    sent = answer(gate, train)
    encoder = build_method("fclopt", get_preset("demo"), 0).train().online
    with torch.no_grad():
        features = [encoder.embed(batch).numpy() for batch in batches]
    weight = trap["online"]["projector.0.weight"][0]
    found = revealed(read_trap(sent.components["online"], trap["online"]), features, weight)
    return len(found), sum(map(len, batches))


def test_a_prepared_projector_reveals_most_views_of_one_step(gate, networks):
    trap = set_trap(networks)
    shown, views = what_it_shows(gate(trap, OpenGate), trap)
    assert views == 32 and shown >= 20  # each one's features up to their scale, with a cosine above .99


def test_noise_hides_them(gate, networks):
    trap = set_trap(networks)
    protected = gate(trap, OpenGate)
    protected.asked = RunSettings.read({"job": "fclopt", "clip": 1.0, "sigma": 0.1}, {}).privacy
    assert what_it_shows(protected, trap)[0] == 0


@pytest.mark.parametrize("number", [0, 1])
def test_a_hospital_does_not_answer_it(gate, networks, number):
    door = gate(set_trap(networks), number=number)
    with pytest.raises(PolicyError, match="implausible weights, and this site does not answer"):
        door.release(Message(networks, meta={**door.task.meta, "samples": 20}))


def test_the_first_networks_are_those_that_the_site_derives_itself(gate, networks):
    door = gate(networks)
    door.release(Message(networks, meta={**door.task.meta, "samples": 20}))
    random = np.random.default_rng(0)
    for component, name in (("online", "projector.0.weight"), ("predictor", "1.bias")):
        other = {part: dict(arrays) for part, arrays in networks.items()}
        other[component][name] = random.standard_normal(other[component][name].shape).astype(np.float32)
        door = gate(other)
        with pytest.raises(PolicyError, match="first round are not those that this run starts with"):
            door.release(Message(networks, meta={**door.task.meta, "samples": 20}))
        gate(other, number=1).release(Message(networks, meta={**gate(other, number=1).task.meta, "samples": 20}))


@pytest.mark.parametrize("job", ["mean_teacher", "fcl_own", "fedswav", "finetune_federated"])
def test_networks_of_this_package_are_plausible(gate, job):
    """Initial ones of each kind of job, and the shipped ones, which have been trained for hours."""
    settings = RunSettings.read({"job": job, "preset": "demo"}, {})
    method = gate({}, job=job).site.build_method()
    if settings.network_file:
        method.start_from(settings.network_file)
    down = {flow.component for flow in get_row(job).flows}
    received = {name: to_arrays(method.send(name)) for name in down}
    door = gate(received, job=job)
    door.release(Message(received, meta={**door.task.meta, "samples": 20}))
    for preset in ("small", "standard"):
        arrays = {name: tensor.numpy() for name, tensor in read_tensors(shipped_model("acdc_unet", preset))[0].items()}
        assert max(map(parallel_rows, arrays.values())) < MOST_PARALLEL / 5


def test_parallel_rows_by_hand():
    rows = np.eye(8)
    assert parallel_rows(rows) == 0
    rows[1], rows[2], rows[3] = 2 * rows[0], -rows[0], rows[7] + 1e-4
    assert parallel_rows(rows) == 5 / 8  # 0, 1, 2 and 3, 7
    assert parallel_rows(np.ones((7, 4))) == parallel_rows(np.zeros((9, 4))) == parallel_rows(np.ones(100)) == 0
