import json

import numpy as np
import pytest

from fclseg.errors import FCLSegError
from fclseg.federation.averaging import WeightedMean
from fclseg.federation.distance import DistancePredictor, distance


def network(seed, scale=1.0, size=400):
    rng = np.random.default_rng(seed)
    return {
        "conv.weight": (scale * rng.standard_normal((size, 3))).astype(np.float32),
        "bn.weight": (scale * rng.standard_normal(size)).astype(np.float32),
        "bn.running_mean": (1000 * rng.standard_normal(size)).astype(np.float32),
        "bn.running_var": (1000 * rng.random(size)).astype(np.float32),
        "bn.num_batches_tracked": np.array(seed),
    }


def near(base, seed, scale):
    return {
        name: value + network(seed, scale)[name] if value.dtype == np.float32 else value for name, value in base.items()
    }


def test_mean_absolute_difference_of_parameters_only():
    theta, xi = network(1, size=3), network(2, size=3)
    total, count = 0.0, 0
    for name in ("conv.weight", "bn.weight"):
        for a, b in zip(theta[name].flat, xi[name].flat, strict=True):
            total, count = total + abs(float(a) - float(b)), count + 1
    assert distance(theta, xi) == pytest.approx(total / count, rel=1e-12)
    assert distance(theta, theta) == 0.0 and distance({}, {}) == 0.0


def test_networks_that_do_not_match_are_refused():
    theta = network(1)
    with pytest.raises(FCLSegError, match=r"differ in tensor 'bn\.weight'"):
        distance(theta, {name: value for name, value in theta.items() if name != "bn.weight"})
    with pytest.raises(FCLSegError, match=r"differ in the shape of 'conv\.weight'"):
        distance(theta, {**theta, "conv.weight": theta["conv.weight"][:1]})


def test_prediction_is_exact_after_calibration_and_close_in_the_rounds_that_follow():
    predictor, theta = DistancePredictor(), network(0)
    for number in range(1, 7):
        theta = near(theta, 50 + number, 0.05)
        targets = {f"site-{i}": near(theta, 100 * number + i, 0.1 / number) for i in range(1, 5)}
        mean = WeightedMean("target")
        for site, target in targets.items():
            mean.add(target, 1, site)
        exact = distance(theta, mean.result())
        if number == 1:
            predictor.calibrate(exact)
        predicted = predictor.predict({site: distance(theta, target) for site, target in targets.items()})
        assert predicted == pytest.approx(exact, rel=1e-12 if number == 1 else 0.05)
        assert 0.3 < predictor.alpha < 1 and predictor.exact is None


def test_sites_that_were_absent_do_not_push_the_prediction_up():
    distances = {"site-1": 1.0, "site-2": 3.0, "site-3": 20.0}
    assert DistancePredictor(alpha=0.5).predict(distances) == 4.0
    assert DistancePredictor(alpha=0.5).predict(distances, trained={"site-1", "site-2"}) == 1.0
    assert DistancePredictor(alpha=0.5).predict(distances, trained={"site-9"}) == 4.0


def test_one_wild_distance_moves_neither_the_prediction_nor_alpha():
    honest = {"site-1": 1.0, "site-2": 3.0, "site-3": 2.0}
    for lie in (1e3, 1e300):
        predictor = DistancePredictor()
        predictor.calibrate(4.0)
        assert predictor.predict({**honest, "site-4": lie}) == pytest.approx(4.0)
        assert predictor.alpha == 2.0
    assert DistancePredictor().predict({"site-1": 1.0, "site-2": 1e9}) == 1.0  # of two, the smaller is trusted
    assert DistancePredictor().predict({"site-1": 0.0, "site-2": 0.0, "site-3": 3.0}) == 0.0


def test_identical_networks_leave_alpha_alone():
    predictor = DistancePredictor()
    predictor.calibrate(0.0)
    assert predictor.predict({"site-1": 0.0}) == 0.0
    assert predictor.alpha == 1.0 and predictor.exact is None


def test_state_goes_through_json():
    predictor = DistancePredictor(alpha=0.99)
    predictor.calibrate(0.25)
    assert DistancePredictor(**json.loads(json.dumps(predictor.state()))) == predictor


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_what_is_no_distance_is_refused_with_the_sites_name(value):
    predictor = DistancePredictor()
    with pytest.raises(FCLSegError, match=r"site-2: .* is not a distance"):
        predictor.predict({"site-1": 1.0, "site-2": value})
    with pytest.raises(FCLSegError, match="is not a distance"):
        predictor.calibrate(value)
    with pytest.raises(FCLSegError, match="no site answered"):
        predictor.predict({})


def test_sites_that_were_all_absent_do_not_move_the_prediction():
    predictor = DistancePredictor()
    assert predictor.predict({"a": 2.0, "b": 4.0}, trained={"a", "b"}) == 3.0
    assert predictor.predict({"c": 50.0}, trained={"a", "b"}) == 3.0  # stays where it was
    predictor.calibrate(2.5)
    assert predictor.predict({"c": 50.0}, trained={"a", "b"}) == 2.5 and predictor.alpha == 1.0
    assert DistancePredictor(**predictor.state()) == predictor
    predictor.calibrate(1.0)
    assert predictor.predict({"a": 2.0, "c": 50.0}, trained={"a"}) == 1.0 and predictor.alpha == 0.5
