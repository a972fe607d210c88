"""A real cell of a study against its split file and against scores counted pixel by pixel."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from ignite.engine import Events

from fclseg.anatomy.registry import ANATOMIES
from fclseg.data.sites import Splits
from fclseg.finetune.train import FinetuneSpec, training_config
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.loading import read_tensors, save_encoder
from fclseg.networks.model_file import TrainedModel, write_model
from fclseg.networks.unet import Encoder
from fclseg.presets import get_preset
from fclseg.study import execute
from fclseg.study.cache import Cache
from fclseg.study.cells import Dataset, Finetuning, Pretraining

PRESET = get_preset("demo", channels=(4, 8), finetuning_epochs=2)
SITES = {"site-1": ["patient001", "patient002", "patient003"], "site-2": ["patient004", "patient005", "patient006"]}
FOLDS = {"site-1": [["patient001"], ["patient002", "patient003"]], "site-2": [["patient006"], ["patient004"]]}


@pytest.fixture
def study(shared_folder, tmp_path):
    """A study folder with three finished pre-trainings: a shared one, and one with an encoder per site."""
    Splits(SITES, FOLDS).save(tmp_path / "splits.json")
    data = Dataset(shared_folder, ANATOMIES["acdc"], tmp_path / "splits.json", "fingerprint")
    cache = Cache(tmp_path / "study")
    torch.manual_seed(4)
    for name in ("global", "site-1", "site-2"):
        encoder = Encoder(PRESET.networks.channels)
        encoder(torch.rand(4, 1, 48, 48))  # gives its BatchNorm statistics
        save_encoder(cache.root / f"{name}.safetensors", encoder, {})
    shared, own = (Pretraining(job, 0, PRESET, data) for job in ("fclopt", "local_cl"))
    cache.put(shared.key, {"encoders": {"": "global.safetensors"}})
    cache.put(own.key, {"encoders": {name: f"{name}.safetensors" for name in SITES}})
    return data, cache, {"fclopt": shared, "local_cl": own}


def cell_of(study, job="fclopt", **changes):
    data, _, pretrainings = study
    fields = {"protocol": "local", "labels": 1, "site": "site-2", "fold": 1, "seed": 0, "mode": "full"}
    return Finetuning(job=job, preset=PRESET, data=data, pretraining=pretrainings[job], **{**fields, **changes})


@pytest.fixture
def run(study, monkeypatch):
    """Run a cell; its result, and the evaluator with the trained network."""
    kept = []
    real = execute.finetune_here
    monkeypatch.setattr(execute, "finetune_here", lambda *arguments: kept.append(real(*arguments)) or kept[-1])

    def run(cell):
        return execute.run_cell(cell, study[1]), kept[-1].evaluator

    return run


@pytest.mark.parametrize("mode", ["frozen", "full"])
def test_only_full_fine_tuning_moves_the_encoder(study, run, mode):
    _, evaluator = run(cell_of(study, mode=mode))
    trained = evaluator.network.state_dict()
    pretrained, _ = read_tensors(study[1].root / "global.safetensors")
    moved = [name for name, tensor in pretrained.items() if not torch.equal(trained[name], tensor)]
    assert len(moved) == (0 if mode == "frozen" else len(pretrained))


@pytest.mark.parametrize(
    ("job", "changes", "file"),
    [
        ("fclopt", {}, "global"),
        ("local_cl", {"site": "site-1"}, "site-1"),
        ("local_cl", {"site": "site-2", "fold": 0}, "site-2"),
        ("local_cl", {"protocol": "centralised", "site": None, "fold": 0}, "site-1"),
        ("local_cl", {"protocol": "centralised", "site": None, "fold": 1}, "site-2"),
    ],
)
def test_the_encoder_that_a_fine_tuning_starts_from(study, job, changes, file):
    cache = study[1]
    path = execute.start_of(cell_of(study, job, **changes), cache)
    assert path == cache.root / f"{file}.safetensors"


def test_a_random_start_has_no_encoder(study):
    cache = study[1]
    assert execute.start_of(replace(cell_of(study), pretraining=None), cache) is None


def test_networks_of_single_sites_are_scored_on_their_own_patients_without_labels(study):
    """Site 1's network calls everything RV, site 2's everything LV. A volume's RV Dice tells which network saw it."""
    data, cache, pretrainings = study
    pretrainings["mean_teacher_local"] = alone = Pretraining("mean_teacher_local", 0, PRESET, data)
    anatomy = data.anatomy
    for name, structure in (("site-1", 1), ("site-2", 3)):
        network = FreezableUNet(PRESET.networks.channels, anatomy.classes, 0)
        torch.nn.init.zeros_(network.decoder.head.weight)
        network.decoder.head.bias.data = torch.eye(anatomy.classes)[structure]
        write_model(cache.root / f"{name}-model.safetensors", TrainedModel(network, anatomy, 48, 4.0, "demo"))
    networks = {name: f"{name}-model.safetensors" for name in SITES}
    cache.put(alone.key, {"encoders": {}, "networks": networks})
    result = execute.run_cell(cell_of(study, "mean_teacher_local", labels=0, site=None, fold=0), cache)
    found = {row["patient"]: (row["dice_RV"] > 0, row["dice_LV"] > 0) for row in result["volumes"]}
    assert found == {"patient001": (True, False), "patient006": (False, True)}
    tuned = cell_of(study, "mean_teacher_local", site="site-2")
    assert execute.start_of(tuned, cache) == cache.root / "site-2-model.safetensors"


@pytest.mark.parametrize(
    ("changes", "pool", "held_out"),
    [
        ({"site": "site-2", "fold": 1}, {"patient006"}, {"patient002", "patient003", "patient004"}),
        ({"site": "site-1", "fold": 0}, {"patient002", "patient003"}, {"patient001", "patient006"}),
        (
            {"protocol": "centralised", "site": None, "fold": 0, "labels": 3},
            {"patient002", "patient003", "patient004"},
            {"patient001", "patient006"},
        ),
    ],
)
def test_who_is_trained_on_and_who_is_scored(study, run, changes, pool, held_out):
    cell = cell_of(study, **changes)
    result, _ = run(cell)
    assert len(result["labelled"]) == len(set(result["labelled"])) == cell.labels
    assert set(result["labelled"]) <= pool
    assert {volume["patient"] for volume in result["volumes"]} == held_out


def counted_dice(prediction, truth, label):
    ours, theirs = prediction == label, truth == label
    return 1.0 if not (ours.any() or theirs.any()) else 2 * (ours & theirs).sum() / (ours.sum() + theirs.sum())


def test_scores_are_counted_per_structure_volume_and_patient(study, run):
    result, evaluator = run(cell_of(study))
    evaluator.network.eval()
    by_patient = {}
    for volume in evaluator.store.volumes:
        if volume.patient in ("patient002", "patient003", "patient004"):
            pixels = np.asarray(evaluator.store.images[volume.start : volume.stop], dtype=np.float32)
            with torch.no_grad():
                prediction = evaluator.network(torch.from_numpy(pixels)[:, None]).argmax(dim=1).numpy()
            truth = np.asarray(evaluator.store.labels[volume.start : volume.stop])
            scores = [counted_dice(prediction, truth, label) for label in (1, 2, 3)]
            by_patient.setdefault(volume.patient, []).append(scores)
    assert [len(scores) for scores in by_patient.values()] == [2, 2, 2]
    expected = np.mean([np.mean(scores, axis=0) for scores in by_patient.values()], axis=0)
    structures = {metric["name"]: metric["structures"] for metric in result["metrics"]}
    assert list(structures["dice"]) == ["RV", "MYO", "LV"] == list(structures["hd95"])
    assert list(structures["dice"].values()) == pytest.approx(expected, abs=1e-5)
    assert result["dice"] == pytest.approx(expected.mean(), abs=1e-5)
    assert len(result["losses"]) == 2
    assert json.dumps(result)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_the_labelled_patient_is_the_draw_of_the_cells_seed(study, run, seed):
    cell = cell_of(study, site="site-1", fold=0, seed=seed)
    expected = Splits(SITES, FOLDS).labelled("site-1", 0, 1, seed=seed)
    assert run(cell)[0]["labelled"] == expected


def test_the_draws_of_different_seeds_differ():
    assert len({Splits(SITES, FOLDS).labelled("site-1", 0, 1, seed=seed)[0] for seed in range(4)}) == 2


def test_the_rate_of_fine_tuning_is_a_cosine_over_its_epochs(study):
    spec = FinetuneSpec(study[0].root, ("patient001",), (), preset="demo", overrides={"settings": PRESET, "epochs": 4})
    parser = training_config(spec, None, progress=False)
    trainer, optimizer = (parser.get_parsed_content(name) for name in ("train#trainer", "optimizer"))
    rates = []
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: rates.append(optimizer.param_groups[1]["lr"]))
    trainer.run()
    steps = len(rates) // 4
    assert rates[::steps] == pytest.approx([2e-3 * (1 + math.cos(math.pi * epoch / 4)) / 2 for epoch in range(4)])
