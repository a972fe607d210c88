"""End-diastole and end-systole of noisy cycles."""

import numpy as np

from fclseg.anatomy.registry import get_anatomy
from fclseg.inference.cycle import smooth_cycle
from fclseg.inference.function import name_phases
from fclseg.inference.measure import Measurement

ANATOMY = get_anatomy("acdc")


def beat(frames=25, start=0):
    """A cycle whose volume falls from 120 to 50 ml in the first third and comes back."""
    time = (np.arange(frames) - start) % frames / frames
    return 50 + 70 * np.where(time < 0.35, np.cos(np.pi * time / 0.7), np.sin(np.pi * (time - 0.35) / 1.3)) ** 2


def phases(amounts):
    volumes = [Measurement("p", None, "", {name: float(ml) for name in ANATOMY.names}) for ml in amounts]
    name_phases(volumes, ANATOMY)
    return {one.phase: number for number, one in enumerate(volumes) if one.phase}


def test_a_smooth_cycle_stays_as_it_is():
    times = np.arange(20) / 20
    slow = 80 + 30 * np.cos(2 * np.pi * times) + 8 * np.sin(2 * np.pi * 3 * times)
    np.testing.assert_allclose(smooth_cycle(slow), slow)
    assert np.array_equal(smooth_cycle(slow[:11]), slow[:11]), "too few frames"


def test_noise_does_not_stretch_the_stroke():
    """The extremes of noisy volumes are too far apart; the volumes at the extremes of the smooth curve are not."""
    errors = {"smooth": [], "raw": []}
    for seed in range(60):
        true = beat(start=seed % 25)
        noisy = true + np.random.default_rng(seed).normal(scale=6, size=25)
        found = phases(noisy)
        errors["smooth"].append(noisy[found["ED"]] - noisy[found["ES"]] - np.ptp(true))
        errors["raw"].append(np.ptp(noisy) - np.ptp(true))
    assert abs(np.mean(errors["smooth"])) < 0.6 * abs(np.mean(errors["raw"]))


def test_phases_are_found_wherever_the_cycle_starts():
    for start in range(25):
        found = phases(beat(start=start))
        assert min((found["ED"] - start) % 25, (start - found["ED"]) % 25) <= 1
