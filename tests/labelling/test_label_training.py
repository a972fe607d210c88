"""Training from the page: in a process of its own, with progress, from the same start every time."""

import time

import numpy as np
import pytest

from fclseg.anatomy.registry import ANATOMIES
from fclseg.labelling.records import DONE
from fclseg.labelling.serve import serving
from fclseg.labelling.session import Slice
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.model_file import TrainedModel, load_model, write_model
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import get_preset

PATIENCE = 1800


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Three patients without labels, and a small network that knows nothing."""
    folder = tmp_path_factory.mktemp("training")
    write_phantom(folder / "data", "acdc", patients=3, seed=4, frames=2)
    for label in (folder / "data").rglob("*_gt.nii.gz"):
        label.unlink()
    preset, anatomy = get_preset("demo"), ANATOMIES["acdc"]
    network = FreezableUNet(preset.networks.channels, anatomy.classes, seed=1)
    model = TrainedModel(network, anatomy, preset.images.size, preset.images.spacing(anatomy), "demo")
    write_model(folder / "start.safetensors", model)
    return folder


def until(true):
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def dice(one, other):
    """Mean over the structures that are in one of the label maps, voxel by voxel."""
    values = {*one.ravel().tolist(), *other.ravel().tolist()} - {0}
    pairs = list(zip(one.ravel().tolist(), other.ravel().tolist(), strict=True))
    counts = [
        (sum(p == (v, v) for p in pairs), sum(v == a for a, _ in pairs), sum(v == b for _, b in pairs)) for v in values
    ]
    return np.mean([2 * both / (a + b) for both, a, b in counts]) if counts else 1.0


@pytest.mark.nightly
def test_train_now(place):
    silent = {"who": "anna", "tell": lambda text: None}
    with serving(place / "data", place / "labels", place / "start.safetensors", **silent) as server:
        answers = server.answers
        session = answers.session
        until(lambda: len(session.background.done) == 3)
        shape = session.folder.shape(session.volumes[0])
        disc = np.zeros(shape[:2], np.uint8)
        disc[shape[0] // 2 - 9 : shape[0] // 2 + 9, shape[1] // 2 - 9 : shape[1] // 2 + 9] = 3
        for number in (2, 4):
            session.save(Slice(0, number, 0, DONE, 5, disc))
        answers.train({}, b"")
        steps = set()
        until(lambda: steps.add(answers.training.status["step"]) or not answers.training.status["running"])
        assert answers.training.status["error"] == "" and len(steps) > 1
        trained = place / "labels" / "models" / "1" / "model.safetensors"
        before, after = load_model(place / "start.safetensors"), load_model(trained)
        assert not np.array_equal(*(m.network.decoder.head.weight.detach().numpy() for m in (before, after)))
        until(lambda: len(session.background.done) == 3)
        answer = answers.state({}, b"")
        assert answer["model"] == "training 1"
        assert {one["patient"] for one in answer["changes"]} == {"patient002", "patient003"}  # those without labels
        assert session.before.folder != session.outliner.folder  # outlines of two different networks
        for one in answer["changes"]:
            volumes = [session.volumes[index] for index in session.patients[one["patient"]]]
            sides = [[network.known(volume) for volume in volumes] for network in (session.before, session.outliner)]
            assert one["agreement"] == pytest.approx(
                np.mean([dice(a.labels, b.labels) for a, b in zip(*sides, strict=True)])
            )
        assert (session.labels(0)[:, :, 4] == disc).all()  # labels are not replaced by the new outlines
    with serving(place / "data", place / "labels", place / "start.safetensors", **silent) as server:
        assert server.answers.session.outliner.path == trained  # goes on with the trained network
        assert server.answers.session.start == place / "start.safetensors"  # and trains from the same start again
