"""A bundle in a tool that runs its config by itself, as MONAI Label does: no metadata, and its own loop."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser
from monai.inferers import Inferer, SliceInferer

from fclseg.inference.cases import find_cases
from fclseg.inference.patients import Inference
from fclseg.inference.segment import Segmenter
from fclseg.networks.model_file import load_model
from fclseg.phantom.dataset import write_phantom
from fclseg.resources import bundle_folder, shipped_model

KEYS = ("preprocessing", "inferer", "network_def", "postprocessing")
SHORT_AXIS = np.array([[-0.56, -0.42, -0.71], [0.10, -0.89, 0.44], [-0.82, 0.18, 0.54]])
"""Directions of a double-oblique stack, nearly at right angles."""
FLIPPED, SLICES_FIRST = [[0, -1], [1, 1], [2, -1]], [[2, 1], [0, 1], [1, -1]]


def oblique(image: nib.Nifti1Image) -> nib.Nifti1Image:
    directions = np.linalg.qr(SHORT_AXIS)[0]
    directions *= np.sign((directions * SHORT_AXIS).sum(axis=0))
    affine = np.eye(4)
    affine[:3, :3] = directions * nib.affines.voxel_sizes(image.affine)
    return nib.Nifti1Image(np.asarray(image.dataobj), affine)


STORED = {
    "as it is": lambda image: image,
    "flipped": lambda image: image.as_reoriented(np.array(FLIPPED)),
    "slices first": lambda image: image.as_reoriented(np.array(SLICES_FIRST)),
    "double-oblique": oblique,
}


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> dict[str, nib.Nifti1Image]:
    found = {}
    for anatomy in ("acdc", "hvsmr"):
        folder = tmp_path_factory.mktemp(anatomy)
        write_phantom(folder, anatomy, patients=1, seed=1, frames=2)
        path = min(path for path in folder.rglob("*.nii.gz") if nib.load(path).ndim == 3 and "gt" not in path.name
                   and "label" not in path.name)  # fmt: skip
        image = nib.load(path)
        found[anatomy] = nib.Nifti1Image(np.asarray(image.dataobj), image.affine)
    return found


@pytest.mark.parametrize(("anatomy", "stored"), [("hvsmr", "as it is"), *(("acdc", stored) for stored in STORED)])
def test_it_gets_the_labels_of_inference(images, tmp_path, anatomy, stored):
    path, weights = tmp_path / "scan.nii.gz", shipped_model(f"{anatomy}_unet")
    nib.save(STORED[stored](images[anatomy]), path)
    parser = ConfigParser()
    parser.read_config(str(bundle_folder(f"{anatomy}_unet") / "configs" / "inference.json"))
    parser["checkpoint"] = str(weights)
    prepare, inferer, network, finish = (parser.get_parsed_content(key) for key in KEYS)
    assert isinstance(inferer, Inferer) and isinstance(parser.get_parsed_content("slice_inferer"), SliceInferer)
    data = prepare({"image": str(path)})
    with torch.inference_mode():
        data["pred"] = inferer(data["image"][None], network)[0]
    labels = np.asarray(finish(data)["pred"])[0]
    Inference(Segmenter(load_model(weights)), find_cases(str(path)), tmp_path / "out").run()
    expected = np.asarray(nib.load(tmp_path / "out" / "scan_seg.nii.gz").dataobj)
    assert len(np.unique(expected)) == load_model(weights).anatomy.classes, "every structure is found"
    np.testing.assert_array_equal(labels, expected)


def test_nothing_in_the_config_needs_the_metadata():
    text = Path(bundle_folder("acdc_unet") / "configs" / "inference.json").read_text()
    assert "_meta_" not in text
