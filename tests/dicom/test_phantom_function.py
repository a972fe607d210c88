"""A cine phantom through DICOM: the network sees it as ACDC stores it, and its ejection fraction is the true one.

The network is an oracle: the blood of the LV is painted bright, and what is bright is LV. So whatever differs from the
phantom's own label maps comes from reading, resampling, measuring or finding the phases."""

from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
import torch
from torch import nn

from fclseg.anatomy.base import EjectionFraction
from fclseg.anatomy.families.plain import from_labels
from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.records import read_images
from fclseg.inference.cases import find_cases
from fclseg.inference.patients import Inference
from fclseg.inference.segment import Segmenter
from fclseg.networks.model_file import TrainedModel
from fclseg.phantom.dataset import draw_heart, draw_scanner, scan
from fclseg.phantom.heart import LV

pytest.importorskip("pydicom"), pytest.importorskip("highdicom")

from series_writer import write_series  # noqa: E402

from fclseg.dicom.importing import import_folder  # noqa: E402

FRAMES, POINTS = 8, 1.0
SPACING = (1.5, 1.5, 10.0)


class BrightIsLV(nn.Module):
    def forward(self, images):
        return torch.cat([0.5 - images, images - 0.5], dim=1) * 40


@pytest.fixture(scope="module")
def phantom():
    """A phantom's heart cycle, seen from above the valve to below the apex."""
    heart = draw_heart(seed=5, patient=1)
    scanner = replace(draw_scanner(seed=5, site=0), matrix=(96, 96), pixel=SPACING[0], slice_spacing=SPACING[2])
    heights = np.arange(heart.length + SPACING[2], -SPACING[2], -SPACING[2])
    return scan(heart, scanner, np.random.default_rng(0), FRAMES, heights)


def paint(phantom):
    """The phantom's own picture, with the LV brighter than everything else."""
    grey = phantom.images.astype(np.float64) / phantom.images.max()
    return (100 + 100 * grey + 800 * (phantom.labels == LV)).astype(np.uint16)


def true_fraction(phantom):
    amounts = (phantom.labels == LV).sum(axis=(0, 1, 2))
    return 100 * (amounts[0] - amounts[phantom.end_systole]) / amounts[0]


def test_the_ejection_fraction_of_a_phantom_is_the_true_one_through_dicom_and_nifti(phantom, tmp_path):
    voxels = paint(phantom)
    write_series(tmp_path / "dicom", voxels[:, :, ::-1], SPACING)
    nifti = nib.Nifti1Image(voxels.astype(np.int32), np.diag([-SPACING[0], -SPACING[1], SPACING[2], 1.0]))
    nib.save(nifti, tmp_path / "scan.nii.gz")
    anatomy = replace(
        from_labels({"structures": {"1": "LV"}}, "the test"), compact=True, measurements=(EjectionFraction("LV"),)
    )
    segmenter = Segmenter(TrainedModel(BrightIsLV(), anatomy, 64, SPACING[0], "demo"))
    import_folder(tmp_path / "dicom", tmp_path / "images")
    found = []
    for name in ("images", "scan.nii.gz"):
        (result,) = Inference(segmenter, find_cases(str(tmp_path / name)), tmp_path / f"out_{name}").run()
        assert (result.phases["ED"].frame, result.phases["ES"].frame) == (1, phantom.end_systole + 1)
        found.append(result.value("LV ejection fraction").number)
    assert found[0] == pytest.approx(found[1], abs=1e-6)
    assert found[0] == pytest.approx(true_fraction(phantom), abs=POINTS)


def test_the_network_sees_a_dicom_heart_as_acdc_stores_it(phantom, tmp_path):
    """From base to apex, right way up and not mirrored. Reading the rows upside down would go unnoticed by an oracle
    that looks at brightness only."""
    write_series(tmp_path / "dicom", phantom.images[:, :, ::-1].astype(np.uint16), SPACING)
    import_folder(tmp_path / "dicom", tmp_path / "images")
    frames = [voxels for _, voxels in read_images(read_folder(tmp_path / "images"))]
    np.testing.assert_array_equal(np.stack(frames, axis=-1), phantom.images)
