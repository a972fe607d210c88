"""The weights that come with the bundles: what they are, that they match the model card, and that they segment."""

import hashlib
import re
import shutil

import numpy as np
import pytest
import torch

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.records import read_images
from fclseg.data.windows import REACH_MM
from fclseg.finetune.weights import RECIPES
from fclseg.inference.segment import Segmenter
from fclseg.networks.interface import widths
from fclseg.networks.model_file import load_model
from fclseg.networks.plain_weights import plain_weights
from fclseg.phantom.dataset import write_phantom
from fclseg.phantom.slices import SEED
from fclseg.presets import get_preset
from fclseg.resources import BUNDLES, bundle_folder, resource_names, shipped_model

OTHER_SEED = 77
LEAST_DICE = {"acdc": 0.8, "acdc_small": 0.7, "hvsmr": 0.8}


def test_every_bundle_with_a_phantom_has_weights():
    with_weights = {name for name in resource_names(BUNDLES) if shipped_model(name).is_file()}
    assert with_weights == {f"{recipe.anatomy}_unet" for recipe in RECIPES.values()}
    assert all(recipe.path.is_file() for recipe in RECIPES.values())


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_weights_are_those_of_the_card(recipe):
    card = (bundle_folder(f"{recipe.anatomy}_unet") / "docs" / "weights.md").read_text()
    digests = dict(re.findall(r"`models/(model\S*)`, [\d.]+ MB, SHA-256 `([0-9a-f]{64})`", card))
    assert hashlib.sha256(recipe.path.read_bytes()).hexdigest() == digests[recipe.path.name]
    assert recipe.path.stat().st_size < 20_000_000
    model, preset = load_model(recipe.path, recipe.anatomy), get_preset(recipe.preset)
    assert widths(model.network.encoder) == preset.networks.channels and model.preset == recipe.preset
    assert model.image_size == preset.images.size and model.spacing == preset.images.spacing(model.anatomy)
    assert "computer-made phantoms and on no patient" in model.about


@pytest.mark.parametrize("anatomy", ["acdc", "hvsmr"])
def test_weights_for_other_tools_are_the_same(anatomy, tmp_path):
    """MONAI's commands and MONAI Label read models/model.pt, which is made on first use and after an update."""
    path = tmp_path / "model.safetensors"
    shutil.copy(shipped_model(f"{anatomy}_unet"), path)
    known = load_model(path).network.state_dict()
    for stale in (None, b"damaged", {name: tensor + 1 for name, tensor in known.items()}):
        if isinstance(stale, bytes):
            path.with_suffix(".pt").write_bytes(stale)
        elif stale:
            torch.save(stale, path.with_suffix(".pt"))
        weights = torch.load(plain_weights(path), weights_only=True)
        assert weights.keys() == known.keys() and all(torch.equal(weights[name], known[name]) for name in known)
    written = path.with_suffix(".pt").stat().st_mtime_ns
    assert plain_weights(path).stat().st_mtime_ns == written, "the right file is left alone"


@pytest.mark.parametrize("name", RECIPES)
def test_they_segment_a_phantom_that_they_have_not_seen(name, tmp_path):
    assert SEED != OTHER_SEED
    write_phantom(tmp_path / "data", RECIPES[name].anatomy, patients=1, seed=OTHER_SEED, frames=2)
    volume = next(one for one in read_folder(tmp_path / "data") if one.label is not None)
    found = Segmenter(load_model(RECIPES[name].path))(next(read_images([volume]))[1], volume).labels
    truth = volume.read_label()
    overlaps = [
        2 * np.sum((found == value) & (truth == value)) / (np.sum(found == value) + np.sum(truth == value))
        for value in np.unique(truth)[1:]
    ]
    assert np.mean(overlaps) > LEAST_DICE[name]


def test_cropping_leaves_the_labels_of_the_heart_as_they_were(tmp_path):
    """Exactly, as long as the image shows what the network is shown: REACH_MM around the middle of the heart."""
    write_phantom(tmp_path / "data", patients=1, seed=OTHER_SEED, frames=2)
    volume = next(one for one in read_folder(tmp_path / "data") if one.label is not None)
    voxels = next(read_images([volume]))[1]
    segmenter = Segmenter(load_model(shipped_model("acdc_unet")))
    whole = segmenter(voxels, volume)
    reach = [round(REACH_MM / size) + 2 for size in volume.spacing[:2]]
    box = tuple(slice(max(0, at - far), at + far + 1) for at, far in zip(whole.centre, reach, strict=True))
    cropped = segmenter(voxels[box], volume)
    assert voxels[box].size < 0.95 * voxels.size, "something was cropped"
    assert tuple(at + part.start for at, part in zip(cropped.centre, box, strict=True)) == whole.centre
    np.testing.assert_array_equal(cropped.labels, whole.labels[box])
