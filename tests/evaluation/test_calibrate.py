"""Calibrations on made-up patients whose errors are known."""

import numpy as np
import pytest

from fclseg.anatomy.registry import get_anatomy
from fclseg.errors import DataError
from fclseg.evaluation.calibrate import _outer, calibrate, check
from fclseg.evaluation.known import Known
from fclseg.inference import risk
from fclseg.inference.calibration import load_calibration
from fclseg.inference.function import NO_HEART, patient_result
from fclseg.inference.measure import Measurement
from fclseg.inference.values import Body, Value

ANATOMY = get_anatomy("acdc")


def people(count, seed):
    """Patients whose views agree as well as they are right, and whose volumes are off by up to their 1 - Dice."""
    source = np.random.default_rng(seed)
    known = []
    for number in range(count):
        dice = float(source.uniform(0.7, 0.95))
        true = {"ED": {"LV": source.uniform(80, 200), "RV": source.uniform(80, 200), "MYO": source.uniform(80, 160)}}
        true["ES"] = {name: ml * (0.45 if name != "MYO" else 1) for name, ml in true["ED"].items()}
        found = []
        for phase in ("ED", "ES"):
            ml = {name: value * (1 + (1 - dice) * source.uniform(-1, 1)) for name, value in true[phase].items()}
            part = dict.fromkeys(ml, (dice + 0.02, dice + 0.04))
            found.append(
                Measurement("p", phase, "", ml, {"MYO": ml["MYO"] * 1.05}, slices_ml={}, reliability=part, search=0.9)
            )
        measured = [Measurement("p", phase, "", ml, {"MYO": ml["MYO"] * 1.05}) for phase, ml in true.items()]
        truth = {value.name: value.number for value in patient_result("p", measured, ANATOMY, Body()).values}
        each = dict.fromkeys(ANATOMY.names, dice)
        known.append(Known(f"p{number}", "AB"[number % 2], "", found, [each, each], truth, dice < 0.8))
    return known


@pytest.fixture(scope="module")
def calibration():
    return calibrate(people(200, seed=1), ANATOMY, "digest")


def test_the_predicted_dice_is_the_true_one_where_it_can_be_known(calibration):
    assert calibration.predicted_dice({"LV": (0.82, 0.84)})["LV"] == pytest.approx(0.8, abs=0.02)


def test_intervals_cover_other_patients_as_often_as_they_say(calibration):
    checked = check(people(400, seed=2), ANATOMY, calibration)
    for hospital in ("A", "B"):
        for name, part in checked.coverage[hospital].items():
            assert 0.84 <= part <= 0.97, name
    assert checked.spearman > 0.99
    flags = checked.flags["all"]
    assert flags["bad_flagged"] > 0.95 * flags["bad"] and flags["good_flagged"] < 0.25 * flags["good"]


def test_hard_images_have_wide_intervals(calibration):
    values = [Value("LV end-diastolic volume", 100.0, "ml"), Value("LV ejection fraction", 52.0, "%")]
    easy, hard = (calibration.with_intervals(values, {"LV": dice}) for dice in (0.95, 0.65))
    for one, other in zip(easy, hard, strict=True):
        assert other.interval[0] < one.interval[0] < one.number < one.interval[1] < other.interval[1]
    assert str(easy[1]).startswith("52 % (") and " to " in str(easy[1])


def test_values_per_surface_and_output_have_the_interval_of_what_they_come_from(calibration):
    values = [
        Value("LV end-diastolic volume", 100.0, "ml"),
        Value("LV end-diastolic volume per body surface", 50.0, "ml/m²"),
        Value("LV stroke volume", 60.0, "ml"),
        Value("LV cardiac output", 4.2, "l/min"),
    ]
    filled, per_surface, stroke, output = calibration.with_intervals(values, {"LV": 0.8})
    assert per_surface.interval == pytest.approx([end / 2 for end in filled.interval])
    assert output.interval == pytest.approx([end * 0.07 for end in stroke.interval])


def test_implausible_and_unknown_values_get_none(calibration):
    values = [Value("LV ejection fraction", 95.0, "%", plausible=False), Value("LA volume", 60.0, "ml")]
    assert all(one.interval is None for one in calibration.with_intervals(values, {"LV": 0.8, "LA": 0.8}))


def test_the_order_statistics_are_those_of_conformal_prediction():
    # Of 19 errors, a further one is below the lowest with probability 1/20 and above the highest with 1/20.
    assert _outer(range(19), 0.9) == (0, 18)
    assert _outer(range(39), 0.9) == (1, 37)
    with pytest.raises(DataError, match="19"):
        calibrate(people(18, seed=3), ANATOMY, "digest")


def test_a_calibration_belongs_to_its_weights(calibration, tmp_path):
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"weights")
    calibration.write(tmp_path / "model_calibration.json")
    assert load_calibration(model) is None
    with pytest.raises(DataError, match="other weights"):
        load_calibration(model, tmp_path / "model_calibration.json")
    from dataclasses import replace

    from fclseg.inference.calibration import digest

    own = replace(calibration, model=digest(model))
    own.write(tmp_path / "model_calibration.json")
    assert load_calibration(model) == own


def test_remarks_are_flags_only_if_a_calibrated_result_is_probably_bad(calibration):
    good, bad = (next(one for one in people(50, seed=4) if one.bad == wanted) for wanted in (False, True))
    for one in (good, bad):
        one.found[0].remarks = ["the outlined area has holes"]
    assert patient_result("p", good.found, ANATOMY, Body()).flags
    calm = patient_result("p", good.found, ANATOMY, Body(), calibration)
    assert not calm.flags and calm.remarks
    flags = patient_result("p", bad.found, ANATOMY, Body(), calibration).flags
    assert any("predicted Dice" in flag for flag in flags) and "ED: the outlined area has holes" in flags


def test_without_anything_like_a_heart_there_are_no_numbers(calibration):
    (one,) = people(1, seed=5)
    one.found[1].reliability = dict.fromkeys(ANATOMY.names, (0.3, 0.6))
    result = patient_result("p", one.found, ANATOMY, Body(), calibration)
    assert result.values == [] and result.flags[0] == NO_HEART
    (one,) = people(1, seed=5)
    one.found[1].ml["LV"] = 0.0
    assert patient_result("p", one.found, ANATOMY, Body()).values == []


def test_the_regression_is_that_of_plain_gradient_descent():
    source = np.random.default_rng(0)
    rows = source.normal(size=(60, 2))
    bad = rows @ [2.0, -1.0] + source.normal(size=60) > 0.3
    weights = np.zeros(3)
    design = np.hstack([rows, np.ones((60, 1))])
    share = np.where(bad, 0.5 / bad.sum(), 0.5 / (~bad).sum())
    for _ in range(20000):
        sure = 1 / (1 + np.exp(-design @ weights))
        weights -= 0.5 * (design.T @ (share * (sure - bad)) + 0.05 / 60 * np.array([1, 1, 1e-6]) * weights)
    np.testing.assert_allclose(risk.fit(rows, bad), weights, atol=1e-3)
