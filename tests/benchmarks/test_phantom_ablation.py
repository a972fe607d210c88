"""The benchmark's phantoms lack what it says, and the phantom itself is unchanged afterwards."""

import importlib.util
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from fclseg.phantom import body, dataset
from fclseg.phantom.dataset import draw_scanner, write_phantom

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "phantom_ablation.py"
SEED = 7


@pytest.fixture(scope="module")
def ablation():
    spec = importlib.util.spec_from_file_location("phantom_ablation", SCRIPT)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def written(ablation, tmp_path):
    def write(**lacking):
        folder = tmp_path / "phantom"
        ablation.write(folder, ablation.Without(**{"patients": 2, "scanners": 2} | lacking), SEED)
        return folder

    return write


def _image(folder, patient=1):
    return nib.load(folder / f"patient{patient:03d}" / f"patient{patient:03d}_frame01.nii.gz")


def test_nothing_left_out_is_the_phantom(written, tmp_path):
    before = {module: dict(vars(module)) for module in (dataset, body)}
    texture = body.Plane.texture
    folder = written()
    write_phantom(tmp_path / "plain", "acdc", 2, SEED, sites=2, frames=2)
    for patient in (1, 2):
        np.testing.assert_array_equal(_image(folder, patient).dataobj, _image(tmp_path / "plain", patient).dataobj)
    assert {module: dict(vars(module)) for module in before} == before
    assert body.Plane.texture is texture


def test_one_group_and_one_geometry(written):
    folder = written(group="NOR", scanner={"pixel": 1.5, "slice_spacing": 9.0}, patients=4)
    for number in range(1, 5):
        assert "Group: NOR" in (folder / f"patient{number:03d}" / "Info.cfg").read_text()
        assert _image(folder, number).header.get_zooms() == (1.5, 1.5, 9.0)


def test_flat_tissue_without_its_surroundings(written):
    """Without noise, texture and neighbours, the lung has one grey value: the most frequent one of the image."""
    quiet = {"noise": 0.0, "blur": 0.0, "bias": 0.0}
    folder = written(flat=True, scanner=quiet, painters=("_clutter", "_abdomen", "_pericardium"))
    values, counts = np.unique(np.asarray(_image(folder).dataobj), return_counts=True)
    assert counts.max() > 0.2 * counts.sum()
    assert values[counts.argmax()] < 0.3 * values.max()


def test_every_variant_names_what_a_heart_or_scanner_has(ablation):
    heart, scanner = dataset.draw_heart(SEED, 1), draw_scanner(SEED, 0)
    for without in ablation.VARIANTS.values():
        assert all(hasattr(heart, name) for name in without.heart)
        assert all(hasattr(scanner, name) for name in without.scanner)
        assert all(callable(getattr(body, name)) for name in without.painters)


def test_the_difference_is_paired_by_patient(ablation):
    """By hand: differences of -.1, -.1, -.2 (means of two seeds) have mean -.133 and standard error .0333."""
    names = ("a", "b", "c")
    whole = [0.9, 0.8, 0.7]
    known = {f"{ablation.WHOLE} {seed}": {"patients": dict(zip(names, whole, strict=True)), "structures": {"LV": 0.8}}
             for seed in range(2)}  # fmt: skip
    for seed, lost in enumerate(([0.0, 0.1, 0.2], [0.2, 0.1, 0.2])):
        dice = [before - less for before, less in zip(whole, lost, strict=True)]
        known[f"texture {seed}"] = {"patients": dict(zip(names, dice, strict=True)), "structures": {"LV": 0.6}}
    assert ablation.line("texture", known, 2) == (
        "texture: 0.667, 0.600, 0.700 / 0.633, -0.133 (-0.277 to +0.010, p 0.250)"
    )
