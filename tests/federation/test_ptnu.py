import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fclseg.errors import FCLSegError
from fclseg.federation.distance import distance
from fclseg.federation.ptnu import predict_target, steps_needed


def loop(theta, xi, d, momentum):
    """Algorithm 2 as the paper writes it."""
    steps = 0
    while distance(theta, xi) > d:
        xi = {name: momentum * xi[name] + (1 - momentum) * theta[name] for name in xi}
        steps += 1
    return xi, steps


def networks(seed, shapes, kind=np.float64):
    rng = np.random.default_rng(seed)
    return [{f"w{i}": rng.standard_normal(shape).astype(kind) for i, shape in enumerate(shapes)} for _ in range(2)]


def assert_close(one, other, **tolerances):
    assert set(one) == set(other)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], **tolerances)


@given(
    seed=st.integers(0, 2**31),
    shapes=st.lists(st.lists(st.integers(1, 4), max_size=4).map(tuple), min_size=1, max_size=4),
    share=st.floats(1e-3, 1.2),
    momentum=st.floats(0.3, 0.999),
)
@settings(max_examples=150, deadline=None)
def test_closed_form_is_the_papers_loop(seed, shapes, share, momentum):
    theta, xi = networks(seed, shapes)
    d = share * distance(theta, xi)
    exact_steps = max(0.0, math.log(share) / math.log(momentum))
    assume(abs(exact_steps - round(exact_steps)) > 1e-6)  # where rounding decides the loop's last step, see below
    expected, steps = loop(theta, xi, d, momentum)
    assert steps_needed(d, distance(theta, xi), momentum) == steps
    assert_close(predict_target(theta, xi, d, momentum), expected, rtol=1e-9, atol=1e-12)


@given(seed=st.integers(0, 1000), share=st.floats(0.01, 0.99))
@settings(max_examples=25, deadline=None)
def test_float32_networks_end_where_the_float32_loop_ends(seed, share):
    theta, xi = networks(seed, [(5, 3), (7,)], np.float32)
    d = share * distance(theta, xi)
    expected, steps = loop(theta, xi, d, 0.995)
    assert abs(steps_needed(d, distance(theta, xi), 0.995) - steps) <= 1
    predicted = predict_target(theta, xi, d)
    assert_close(predicted, expected, atol=0.02 * d + 1e-5)
    assert all(array.dtype == np.float32 for array in predicted.values())
    assert 0.995 * d * (1 - 1e-4) < distance(theta, predicted) <= d * (1 + 1e-4)


@pytest.mark.parametrize("momentum", [0.5, 0.9, 0.995])
def test_a_distance_that_a_step_hits_exactly_needs_no_step_more(momentum):
    for steps in range(60):
        assert steps_needed(0.37 * momentum**steps, 0.37, momentum) == steps


def test_zero_distance_is_the_online_network_itself():
    theta, xi = networks(0, [(3, 4), (5,)], np.float32)
    predicted = predict_target(theta, xi, 0.0)
    assert_close(predicted, theta, rtol=0)
    predicted["w0"][0, 0] = 9
    assert theta["w0"][0, 0] != 9


def test_a_target_that_is_near_enough_stays_as_it_is():
    theta, xi = networks(0, [(3, 4), (5,)], np.float32)
    for share in (1.0, 1.5):
        assert_close(predict_target(theta, xi, share * distance(theta, xi)), xi, rtol=0)
    assert_close(predict_target(theta, theta, 0.1), theta, rtol=0)
    assert predict_target({}, {}, 0.1) == {}


def test_statistics_move_along_without_being_measured_and_counters_are_the_online_networks():
    theta = {"w": np.zeros(4, np.float32), "running_var": np.zeros(4, np.float32), "num_batches_tracked": np.array(8)}
    xi = {"w": np.ones(4, np.float32), "running_var": np.full(4, 400, np.float32), "num_batches_tracked": np.array(3)}
    predicted = predict_target(theta, xi, 0.125, momentum=0.5)
    assert predicted["w"].tolist() == [0.125] * 4 and predicted["running_var"].tolist() == [50.0] * 4
    assert predicted["num_batches_tracked"] == 8 and predicted["num_batches_tracked"].shape == ()


def test_a_stale_target_comes_closer_to_the_true_one():
    rng = np.random.default_rng(0)
    drift = rng.standard_normal(500)
    theta, xi, history = np.zeros(500), np.zeros(500), []
    for _ in range(300):
        theta = theta + 0.01 * drift + 0.02 * rng.standard_normal(500)
        xi = 0.98 * xi + 0.02 * theta
        history.append(xi)
    stale = {"w": history[-100]}
    predicted = predict_target({"w": theta}, stale, distance({"w": theta}, {"w": xi}))
    error, own_error = (np.linalg.norm(state["w"] - xi) for state in (predicted, stale))
    assert error < 0.25 * own_error


@pytest.mark.parametrize("d", [math.nan, math.inf, -0.5])
def test_what_is_no_distance_is_refused(d):
    theta, xi = networks(0, [(3,)], np.float32)
    with pytest.raises(FCLSegError, match="is not a distance"):
        predict_target(theta, xi, d)
    with pytest.raises(FCLSegError, match="this site: nan is not a distance"):
        predict_target(theta, {"w0": np.full(3, np.nan, np.float32)}, 0.1)
    with pytest.raises(FCLSegError, match=r"momentum m_d is 1\.0"):
        predict_target(theta, xi, 0.1, momentum=1.0)
