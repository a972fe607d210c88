"""From predicted pixels to the reported figures, with values computed by hand."""

from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
import torch
from torch import nn

from fclseg.anatomy.families.plain import from_labels
from fclseg.anatomy.registry import ANATOMIES
from fclseg.finetune.evaluation import Evaluation
from fclseg.finetune.metrics import METRICS
from fclseg.inference.body import Body
from fclseg.inference.cases import find_cases
from fclseg.inference.function import patient_result
from fclseg.inference.measure import measure
from fclseg.inference.patients import Inference
from fclseg.inference.segment import Segmentation, Segmenter
from fclseg.networks.model_file import TrainedModel


def test_a_patient_with_many_volumes_counts_as_much_as_one_with_a_single_volume():
    rows = [
        {"patient": "anna", "dice_LV": 0.9, "hd95_LV": 2.0},
        {"patient": "anna", "dice_LV": 0.7, "hd95_LV": 4.0},
        {"patient": "anna", "dice_LV": 0.8, "hd95_LV": 6.0},
        {"patient": "bert", "dice_LV": 0.2, "hd95_LV": 20.0},
    ]
    evaluation = Evaluation(("LV",), METRICS, rows)
    assert evaluation.dice == {"LV": pytest.approx(0.5)} and evaluation.mean_dice == pytest.approx(0.5)
    assert evaluation.mean("hd95") == {"LV": pytest.approx(12.0)}


class Threshold(nn.Module):
    """A network whose right answer is known: bright pixels are structure 1."""

    def forward(self, images):
        return torch.cat([0.5 - images, images - 0.5], dim=1) * 40


def test_a_bright_spot_far_from_the_organ_is_not_part_of_it(tmp_path):
    voxels = np.full((48, 48, 3), 100, np.int16)
    voxels[8:24, 8:24] = 900
    voxels[36:42, 36:42] = 900  # a second, smaller organ
    nib.save(nib.Nifti1Image(voxels, np.diag([1.25, 1.25, 10.0, 1.0])), tmp_path / "a.nii.gz")
    anatomy = replace(from_labels({"structures": {"1": "LV"}}, "the test"), one_organ=True)
    segmenter = Segmenter(TrainedModel(Threshold(), anatomy, 32, 1.25, "demo"))
    (result,) = Inference(segmenter, find_cases(str(tmp_path / "a.nii.gz")), tmp_path / "out").run()
    labels = np.asarray(nib.load(tmp_path / "out" / "a_seg.nii.gz").dataobj)
    expected = np.zeros_like(labels)
    expected[8:24, 8:24] = 1
    np.testing.assert_array_equal(labels, expected)
    assert result.volumes[0].ml == {"LV": pytest.approx(16 * 16 * 3 * 1.25 * 1.25 * 10 / 1000)}


def test_millilitres_grams_and_ejection_fraction():
    acdc = ANATOMIES["acdc"]
    diastole, systole = (np.zeros((10, 10, 2), np.uint8) for _ in range(2))
    diastole[:, :5], diastole[:, 5:7], diastole[:, 7:] = 3, 2, 1  # 100 voxels LV, 40 MYO, 60 RV
    systole[:, :2], systole[:, 2:4], systole[:, 4:5] = 3, 2, 1  # 40 LV, 40 MYO, 20 RV
    volumes = [
        measure(Segmentation(labels), (5.0, 10.0, 10.0), acdc, patient="anna", phase=phase, image="a.nii")
        for labels, phase in ((diastole, "ED"), (systole, "ES"))
    ]
    assert volumes[0].ml == {"RV": 30.0, "MYO": 20.0, "LV": 50.0}
    assert volumes[0].g == {"MYO": pytest.approx(20.0 * 1.05)}
    result = patient_result("anna", volumes, acdc, Body())
    fractions = {name: result.value(f"{name} ejection fraction").number for name in ("LV", "RV")}
    assert fractions == {"LV": pytest.approx(60.0), "RV": pytest.approx(100 * (30 - 10) / 30)}
