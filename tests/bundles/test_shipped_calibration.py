"""The calibration that comes with the weights belongs to them and covers what is reported."""

import pytest

from fclseg.anatomy.registry import get_anatomy
from fclseg.inference.calibration import load_calibration
from fclseg.inference.values import Value
from fclseg.resources import shipped_model


def test_the_shipped_weights_are_calibrated():
    calibration = load_calibration(shipped_model(get_anatomy("acdc").bundle))
    assert calibration is not None, "the weights are new: run 'fclseg calibrate' again (docs/howto/evaluate.md)"
    (value,) = calibration.with_intervals([Value("LV ejection fraction", 52.0, "%")], {"LV": 0.9})
    low, high = value.interval
    assert 30 < low < 52 < high < 75
    assert calibration.predicted_dice({"LV": (0.98, 0.96)})["LV"] == pytest.approx(0.92, abs=0.05)
