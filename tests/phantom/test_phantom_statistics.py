"""The hearts of the phantom have the sizes of people: statistics of its labels against published ranges.

Adults in Kawel-Boehm et al., J Cardiovasc Magn Reson 2020 (mean -+ 2 SD, both sexes), and the definitions of ACDC's
groups in Bernard et al., IEEE TMI 2018. Cavity volumes in ml, wall in mm, ejection fractions as fractions.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from fclseg.phantom.dataset import draw_heart
from fclseg.phantom.heart import LV, MYO, RV, Heart, beat

STEP = 3.0
X, Y = np.meshgrid(*[np.arange(-110, 110, STEP, dtype=np.float32)] * 2, indexing="ij")


class Labels(NamedTuple):
    """Volumes in ml at end-diastole and end-systole, and the highest labelled slice (mm above the apex)."""

    heart: Heart
    lv: np.ndarray
    myo: np.ndarray
    rv: np.ndarray
    lv_top: np.ndarray
    rv_top: np.ndarray


@cache
def labels(patient: int) -> Labels:
    heart = draw_heart(7, patient)
    heights = np.arange(heart.length + 8, -heart.wall, -STEP)
    found = beat(heart, X, Y, heights, np.zeros((len(heights), 2)), 2).labels()
    ml = [(found == value).sum(axis=(1, 2, 3)) * STEP**3 / 1000 for value in (LV, MYO, RV)]
    tops = [[heights[(frame == value).any(axis=(1, 2))].max() for frame in found] for value in (LV, RV)]
    return Labels(heart, *ml, *map(np.asarray, tops))


def cohort(group: str) -> list[Labels]:
    found = [labels(patient) for patient in range(1, 61)]
    return [one for one in found if one.heart.group == group]


@pytest.mark.parametrize("patient", range(1, 7))
def test_the_volumes_of_the_right_ventricle_are_those_that_were_drawn(patient):
    one = labels(patient)
    assert one.rv[0] == pytest.approx(one.heart.rv.volume / 1000, rel=0.08)
    assert 1 - one.rv[1] / one.rv[0] == pytest.approx(one.heart.rv.fraction, abs=0.04)


def test_healthy_hearts_have_healthy_volumes():
    normal = cohort("NOR")
    assert 80 < np.median([one.lv[0] for one in normal]) < 190  # mean 149 men, 121 women; range of both 75 to 215
    assert 0.9 < np.median([one.rv[0] / one.lv[0] for one in normal]) < 1.3
    assert 0.5 < np.median([one.myo[0] / one.lv[0] for one in normal]) < 0.95
    assert 0.52 < np.median([1 - one.rv[1] / one.rv[0] for one in normal]) < 0.64


def test_diseases_are_what_their_names_say():
    ratio = {group: np.median([one.rv[0] / one.lv[0] for one in cohort(group)]) for group in ("NOR", "DCM", "RV")}
    assert ratio["DCM"] < 0.9 < ratio["NOR"] < 1.5 < ratio["RV"]
    volume = {group: np.median([one.lv[0] for one in cohort(group)]) for group in ("NOR", "DCM")}
    assert volume["DCM"] > 1.5 * volume["NOR"]
    wall = {group: np.median([one.myo[0] / one.lv[0] for one in cohort(group)]) for group in ("NOR", "HCM")}
    assert wall["HCM"] > 1.7 * wall["NOR"]


def test_all_hearts_together_span_what_people_have():
    ratios = [one.rv[0] / one.lv[0] for group in ("NOR", "DCM", "HCM", "MINF", "RV") for one in cohort(group)]
    walls = [draw_heart(7, patient).wall for patient in range(1, 200)]
    assert 0.3 < min(ratios) < 0.55 and 2.2 < max(ratios) < 3.3
    assert 4 < min(walls) < 6 and 17 < max(walls) <= 20


def test_the_valves_move_towards_the_apex():
    """By 8 to 15 mm in healthy hearts (mitral), and farther on the right; some experts keep the slices."""
    normal = cohort("NOR")
    mitral = [one.lv_top[0] - one.lv_top[1] for one in normal]
    tricuspid = [one.rv_top[0] - one.rv_top[1] for one in normal]
    assert 6 < np.median(mitral) < 15 and max(mitral) < 21
    assert np.median(mitral) < np.median(tricuspid) < 24
