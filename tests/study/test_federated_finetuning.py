"""Federated fine-tuning of a study: its budget, and the same network as with NVFlare."""

from dataclasses import replace

import pytest
import torch

from fclseg.anatomy.registry import reference
from fclseg.api import write_phantom
from fclseg.data.sites import Splits
from fclseg.finetune.dataset import open_labelled, training_slices
from fclseg.finetune.protocols import draw
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.loading import read_tensors, save_encoder
from fclseg.networks.model_file import load_model
from fclseg.presets import get_preset
from fclseg.resources import shipped_model
from fclseg.study.cells import FEDERATED_JOB, FROZEN, FULL, Finetuning
from fclseg.study.datasets import prepare_dataset
from fclseg.study.federated_finetuning import finetune_federated, finetuning_preset

PRESET = get_preset("demo", finetuning_epochs=4, finetuning_rounds=2, frozen_epochs=2, finetuning_batch_size=8)


@pytest.mark.parametrize("rounds", [1, 7, 20])
@pytest.mark.parametrize("steps_per_epoch", [1, 2, 4, 8, 40])
def test_a_site_takes_as_many_steps_as_local_finetuning(rounds, steps_per_epoch):
    preset = get_preset("small", finetuning_rounds=rounds, finetuning_epochs=400, finetuning_steps=400)
    federated = finetuning_preset(preset, FULL, steps_per_epoch)
    local = preset.finetuning.epochs_for(steps_per_epoch)
    assert federated.pretraining.rounds == min(rounds, local)
    # Rounds have whole epochs, so each may be half an epoch too long or too short.
    assert (
        abs(federated.pretraining.rounds * federated.pretraining.local_epochs - local)
        <= federated.pretraining.rounds / 2
    )


def test_the_frozen_reading_never_releases_the_encoder():
    preset = get_preset("small", finetuning_rounds=20, frozen_epochs=3)
    frozen, full = (finetuning_preset(preset, mode, 2) for mode in (FROZEN, FULL))
    assert frozen.finetuning.frozen_epochs == frozen.pretraining.rounds * frozen.pretraining.local_epochs
    assert full.finetuning.frozen_epochs == 3


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Three phantom patients at each of two sites, with frames between ED and ES that have no labels."""
    folder = tmp_path_factory.mktemp("federated")
    write_phantom(folder / "data", patients=6, sites=2, frames=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCLSEG_CACHE", str(folder / "cache"))
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        yield prepare_dataset(folder / "data", folder / "studies", sites=2)
        torch.set_num_threads(before)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    path = tmp_path_factory.mktemp("encoder") / "encoder.safetensors"
    save_encoder(path, FreezableUNet(PRESET.networks.channels, 4, seed=5).encoder, {"preset": "demo"})
    return path


def cell_of(data, start, mode=FULL, labels=2, share=0.5):
    job = "shipped" if start == "network" else "random"
    preset = PRESET.changed({"finetuning.start_share": share}) if start == "network" else PRESET
    return Finetuning("federated", job, labels, None, 1, 0, mode, preset, data, None)


def drawn(cell):
    return draw("federated", Splits.load(cell.data.splits), None, cell.fold, cell.labels, cell.seed)


def start_file(start, data, encoder):
    return {"random": None, "network": shipped_model(data.anatomy.bundle, "demo"), "encoder": encoder}[start]


def network_of(cell, path):
    evaluator, losses = finetune_federated(cell, path, drawn(cell))
    return evaluator.network.state_dict(), losses


@pytest.mark.nightly
@pytest.mark.simulator
@pytest.mark.parametrize(
    ("start", "mode"), [("random", FULL), ("network", FULL), ("encoder", FULL), ("encoder", FROZEN)]
)
def test_nvflare_trains_the_same_network(data, encoder, tmp_path, start, mode):
    from fclseg.study.federated import run_job

    cell, path = cell_of(data, start, mode), start_file(start, data, encoder)
    ours, losses = network_of(cell, path)
    images, batch = PRESET.images, PRESET.finetuning.batch_size
    store = open_labelled(str(data.root), data.anatomy, images.size, images.spacing(data.anatomy), progress=False)
    longest = max(training_slices(store, one, batch).steps_per_epoch for one in drawn(cell).training.values())
    more = {"fold": cell.fold, "labels": cell.labels, "anatomy": reference(data.anatomy)}
    more |= {} if path is None else {start: str(path)}
    preset = finetuning_preset(cell.preset, mode, longest)
    run = run_job(FEDERATED_JOB, tmp_path / "run", data, preset, cell.seed, **more)
    theirs = load_model(run.model, data.anatomy.name).network.state_dict()
    assert list(ours) == list(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert losses == pytest.approx([one["loss"] for one in run.rounds()], rel=1e-12)


def test_a_frozen_encoder_is_the_one_that_was_given(data, encoder):
    network, losses = network_of(cell_of(data, "encoder", FROZEN), encoder)
    given = read_tensors(encoder)[0]
    weights = [name for name in given if name.endswith("weight") and given[name].ndim == 4]
    assert weights and all(torch.equal(network[name], given[name]) for name in weights)
    assert len(losses) == PRESET.finetuning.rounds


def test_a_whole_network_starts_better_than_random_weights(data, encoder):
    first = {}
    for start in ("random", "network"):
        cell = cell_of(data, start, labels=1)
        cell = replace(cell, preset=PRESET.changed({"finetuning.epochs": 1, "finetuning.frozen_epochs": 0}))
        _, (first[start],) = network_of(cell, start_file(start, data, encoder))
    assert first["network"] < first["random"] - 0.3, first


def test_the_start_has_its_share_in_the_result(data, encoder):
    path = start_file("network", data, encoder)
    trained, averaged = (network_of(cell_of(data, "network", labels=1, share=share), path)[0] for share in (0.0, 0.25))
    start, moved = read_tensors(path)[0], 0
    for name, end in trained.items():
        if end.is_floating_point():
            torch.testing.assert_close(averaged[name], 0.25 * start[name] + 0.75 * end)
            moved += not torch.equal(end, start[name])
    assert moved > 40
