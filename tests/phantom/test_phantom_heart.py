"""How the phantom's heart contracts: like the label maps of patients (docs/phantom.md), counted in its own labels."""

from dataclasses import replace

import numpy as np
import pytest

from fclseg.phantom import body
from fclseg.phantom.dataset import draw_heart, draw_scanner, scan
from fclseg.phantom.heart import LV, MYO, beat

SEED, HEARTS = 0, range(1, 41)
X, Y = np.meshgrid(*[np.arange(-75, 75, 1.5, dtype=np.float32)] * 2, indexing="ij")


def areas(heart, structure) -> tuple[np.ndarray, np.ndarray]:
    """Label pixels of each slice, base first, at end-diastole and end-systole. No slice is above the valve."""
    still = replace(heart, shortening=0, tilt=(0, 0), centre=(0, 0))
    heights = np.arange(heart.length - 1, 0, -8)
    counts = (beat(still, X, Y, heights, np.zeros((len(heights), 2)), 2).labels() == structure).sum(axis=(2, 3))
    return counts[0], counts[1]


@pytest.mark.parametrize("patient", [1, 2, 3, 4])
def test_the_wall_gains_what_was_drawn(patient):
    heart = draw_heart(SEED, patient)
    end_diastole, end_systole = areas(heart, MYO)
    assert end_systole.sum() / end_diastole.sum() == pytest.approx(1 + heart.wall_gain, abs=0.02)
    assert 0 <= heart.wall_gain <= 0.24


def test_the_apex_of_a_strong_heart_closes_and_that_of_a_weak_one_does_not():
    remaining: dict[str, list[float]] = {"strong": [], "weak": []}
    for heart in (draw_heart(SEED, patient) for patient in HEARTS):
        end_diastole, end_systole = areas(heart, LV)
        apical = (end_systole[-2] / end_diastole[-2]) / (end_systole[0] / end_diastole[0])
        if not 0.3 < heart.ejection_fraction < 0.6:
            remaining["strong" if heart.ejection_fraction > 0.3 else "weak"].append(apical)
    assert np.mean(remaining["strong"]) < 0.6 < 0.8 < np.mean(remaining["weak"])


def test_contracted_cavities_show_as_much_blood_as_those_of_patients():
    """Experts outline trabeculae and papillary muscles as cavity. In 37 patients of four hospitals (ACDC, M&Ms), half
    of the slices with a cavity of 8 to 16 mm radius at end-systole show blood in 31 to 55 % of it, and those with more
    than 20 mm at end-diastole in 65 to 82 %. Blood is what is brighter than halfway between wall and blood pool."""
    contracted, relaxed = [], []
    for patient in HEARTS[:24]:
        heart, scanner = draw_heart(SEED, patient), draw_scanner(SEED, patient)
        taken = scan(heart, scanner, np.random.default_rng(patient), 2, np.arange(heart.length - 1, 0, -10))
        for frame, shares, least, most in ((taken.end_systole, contracted, 8, 16), (0, relaxed, 20, 40)):
            for labels, shown in zip(taken.labels[..., frame].T, taken.images[..., frame].T, strict=True):
                if least < np.sqrt((labels == LV).sum() / np.pi) * scanner.pixel < most:
                    wall, pool = np.median(shown[labels == MYO]), np.percentile(shown[labels == LV], 95)
                    shares.append((shown[labels == LV] > (wall + pool) / 2).mean())
    assert len(contracted) > 20 and len(relaxed) > 20
    assert 0.31 < np.median(contracted) < 0.55 and 0.6 < np.median(relaxed) < 0.82


def test_the_slanted_mitral_plane_shows_in_the_base_only(monkeypatch):
    """Labels and slices far below the valve are the same as with a plane that is parallel to the slices."""
    heart, scanner = draw_heart(SEED, 1), draw_scanner(SEED, 1)

    def taken():
        return scan(heart, scanner, np.random.default_rng(1), 1, np.array([0.99, 0.4]) * heart.length)

    slanted = taken()
    monkeypatch.setattr(body, "VALVE_TILT", (0.0, 0.0))
    monkeypatch.setattr(body, "VALVE_MARGIN", (0.0, 0.0))
    parallel = taken()
    np.testing.assert_array_equal(slanted.labels, parallel.labels)
    base, middle = (np.abs(slanted.images[:, :, z, 0] - parallel.images[:, :, z, 0].astype(float)) for z in (0, 1))
    within = slanted.labels[:, :, 0, 0] > 0
    assert base[within].mean() > 10 * max(middle.mean(), 0.1)
