"""The phantom looks like patients: grey values and where the experts' outlines run in them.

Ranges are the medians of four hospitals (74 patients of ACDC and of M&Ms centres 1 to 3, one half of each hospital), a
little widened. Grey values are relative: 0 is the median of the wall, 1 the bright blood of the LV.
"""

from functools import cache

import numpy as np
import pytest
from scipy import ndimage

from fclseg.phantom.dataset import BREATH_HOLD, draw_heart, draw_scanner, patient_rng, scan, stack
from fclseg.phantom.heart import LV, MYO, RV

PATIENTS = range(1, 25)
ED, ES = 0, 1


@cache
def patient(number):
    """Images and labels [X, Y, Z, T], and the pixel size in mm."""
    heart, scanner, rng = draw_heart(7, number), draw_scanner(7, number), patient_rng(7, number)
    taken = scan(heart, scanner, rng, 2, stack(heart, scanner, rng), BREATH_HOLD)
    return taken.images.astype(float), taken.labels, scanner.pixel


def signed(mask, pixel):
    """Distance in mm to the outline of a mask [X, Y], negative inside."""
    return (ndimage.distance_transform_edt(~mask) - ndimage.distance_transform_edt(mask)) * pixel


def near(structure, phase, low, high):
    """Mean relative grey value between two distances from the outline, over the middle slices of all patients."""
    found = []
    for number in PATIENTS:
        images, labels, pixel = patient(number)
        image, label = images[..., phase], labels[..., phase]
        wall, blood = np.median(image[label == MYO]), np.percentile(image[label == LV], 85)
        slices = np.flatnonzero((label == LV).any(axis=(0, 1)))
        for z in slices[len(slices) // 4 : 3 * len(slices) // 4]:
            plane, heart = label[..., z], label[..., z] >= MYO
            distance = signed(plane == structure, pixel) if (plane == structure).any() else np.full(plane.shape, np.inf)
            where = (distance >= low) & (distance < high)
            where &= (heart & (plane != RV)) if structure == LV else signed(heart, pixel) > 6
            found.append((image[..., z][where].mean() - wall) / (blood - wall) if where.sum() > 5 else np.nan)
    return np.nanmean(found)


def ratio(structure):
    """Signal of a structure relative to the LV's blood, one per patient at end-diastole."""
    values = []
    for number in PATIENTS:
        images, labels, _ = patient(number)
        blood = np.percentile(images[labels == LV], 75)
        values.append(np.median(images[labels == structure]) / blood)
    return values


def test_the_wall_is_much_darker_than_blood_and_the_right_ventricle_a_little():
    assert 0.2 < np.median(ratio(MYO)) < 0.36 and max(ratio(MYO)) < 0.75
    assert 0.65 < np.median(ratio(RV)) < 0.95


@pytest.mark.parametrize(
    ("phase", "low", "high", "least", "most"),
    [
        (ED, -3, -1.5, 0.36, 0.56),  # patients .42 to .51
        (ED, 1.5, 3, -0.05, 0.08),  # -.01 to .04
        (ES, -3, -1.5, 0.2, 0.46),  # .30 to .41, in patches: trabeculae without blood count as cavity
        (ES, 1.5, 3, -0.05, 0.08),  # .03 to .05
    ],
)
def test_the_endocardium_is_outlined_where_experts_do(phase, low, high, least, most):
    assert least < near(LV, phase, low, high) < most


@pytest.mark.parametrize("phase", [ED, ES])
def test_the_right_ventricle_ends_at_a_dark_wall_not_at_bright_fat(phase):
    """Patients: .27 to .59 inside; -.06 to .15 outside."""
    assert 0.3 < near(RV, phase, -3, -1.5) < 0.6
    assert near(RV, phase, 1.5, 4.5) < 0.17


def test_the_right_ventricle_reaches_the_apex_in_most_patients():
    """In patients it is missing in 14 to 34 % of the slices of the LV's apical fifth, at end-diastole."""
    missing = []
    for number in PATIENTS:
        label = patient(number)[1][..., ED]
        slices = np.flatnonzero((label >= MYO).any(axis=(0, 1)))
        place = (slices - slices.min()) / (slices.max() - slices.min())
        missing += [not (label[..., z] == RV).any() for z in slices[place > 0.8]]
    assert 0.1 < np.mean(missing) < 0.42
