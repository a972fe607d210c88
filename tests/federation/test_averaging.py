from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fclseg.errors import FCLSegError
from fclseg.federation.averaging import BLOCK, WeightedMean


def mean_of(states, weights, order=None, **options):
    mean = WeightedMean("online", **options)
    for index in order or range(len(states)):
        mean.add(states[index], weights[index], f"site-{index + 1}")
    return mean.result()


def random_states(count, seed=0, shape=(5, 7)):
    rng = np.random.default_rng(seed)
    return [{"w": rng.standard_normal(shape).astype(np.float32)} for _ in range(count)]


def test_the_mean_by_hand():
    states = [{"w": np.array([1.0, 2.0], np.float32)}, {"w": np.array([4.0, -1.0], np.float32)}]
    assert mean_of(states, [1, 2])["w"].tolist() == [3.0, 0.0]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_mean_is_the_exact_one_rounded_and_any_order_gives_the_same_bits(data):
    """The float64 sum adds at most 2^-50 of the largest term to the rounding to float32."""
    count = data.draw(st.integers(1, 6))
    values = st.floats(-1e3, 1e3, width=32).map(lambda x: x if abs(x) > 1e-6 else 0.0)
    stack = data.draw(arrays(np.float32, (count, 4), elements=values))
    weights = data.draw(st.lists(st.integers(1, 10**6), min_size=count, max_size=count))
    states = [{"w": row} for row in stack]
    result = mean_of(states, weights)["w"]
    for column, value in enumerate(result):
        exact = sum(Fraction(float(x)) * n for x, n in zip(stack[:, column], weights, strict=True)) / sum(weights)
        most = max(abs(Fraction(float(x)) * n) for x, n in zip(stack[:, column], weights, strict=True)) / sum(weights)
        rounding = Fraction(float(np.spacing(np.abs(value)))) / 2
        assert abs(Fraction(float(value)) - exact) <= rounding + most / 2**50
    for order in data.draw(st.lists(st.permutations(range(count)), min_size=3, max_size=3)):
        assert mean_of(states, weights, order)["w"].tobytes() == result.tobytes()


def test_all_orders_of_five_sites_agree_where_plain_sums_do_not():
    states, weights = random_states(5, shape=(300,)), [3, 1000, 17, 401, 77]
    results = {mean_of(states, weights, order)["w"].tobytes() for order in permutations(range(5))}
    plain = {
        sum(np.float32(weights[i] / 1498) * states[i]["w"] for i in order).tobytes() for order in permutations(range(5))
    }
    assert len(results) == 1 and len(plain) > 1


def test_sites_are_summed_in_the_order_of_their_names_where_float64_depends_on_it():
    """2^80 + 1 is 2^80 in float64, so the order decides whether the 1 is lost."""
    states = [{"w": np.array([value], np.float32)} for value in (2.0**80, 1.0, -(2.0**80))]
    assert {float(mean_of(states, [1, 1, 1], order)["w"][0]) for order in permutations(range(3))} == {0.0}


def test_equal_networks_average_to_themselves_bit_for_bit():
    state = random_states(1)[0]
    assert mean_of([state] * 7, [3, 10, 7, 1, 999, 12345, 2])["w"].tobytes() == state["w"].tobytes()


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_any_numbers_give_the_bits_of_a_sum_in_python(data):
    """In the order of the sites' names."""
    count = data.draw(st.integers(1, 5))
    stack = data.draw(arrays(np.float32, (count, 3), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
    weights = data.draw(st.lists(st.integers(1, 10**8), min_size=count, max_size=count))
    result = mean_of([{"w": row} for row in stack], weights)["w"]
    for column, value in enumerate(result):
        total = float(stack[0, column]) * weights[0]
        for x, weight in zip(stack[1:, column], weights[1:], strict=True):
            total += float(x) * weight
        assert value.tobytes() == np.float32(total / sum(weights)).tobytes()


def test_tensors_of_all_sizes_and_kinds_keep_their_places():
    """Against a mean of each number by itself; the second tensor is longer than a block."""
    rng = np.random.default_rng(4)
    shapes = {"a": (3, 2), "long": (2 * BLOCK + 5,), "scalar": (), "none": (0, 4), "b": (7,)}
    states = []
    for _ in range(3):
        state = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        state = {name: state[name] for name in ("a", "long")} | {"n": rng.integers(0, 50, (), np.int64)} | state
        state["half"] = rng.standard_normal(4).astype(np.float16)
        states.append(state)
    weights = [3, 10, 4]
    result = mean_of(states, weights)
    assert list(result) == list(states[0])
    for name, array in result.items():
        assert (array.shape, array.dtype) == (states[0][name].shape, states[0][name].dtype)
        assert type(array) is np.ndarray, "a single number, too: the wire carries arrays"
        exact = sum(state[name].astype(np.longdouble) * n for state, n in zip(states, weights, strict=True)) / 17
        np.testing.assert_array_equal(array, np.round(exact) if name == "n" else exact.astype(array.dtype))


def test_counters_become_the_rounded_mean():
    states = [{"n": np.array(count, np.int64)} for count in (10, 11)]
    for weights, expected in (([2, 1], 10), ([1, 1], 11), ([1, 2], 11)):
        result = mean_of(states, weights)["n"]
        assert (result.dtype, result.shape, int(result)) == (np.int64, (), expected)


def test_the_mean_keeps_what_it_was_given_without_a_copy():
    """The server holds the results of a round anyway, to find outliers."""
    mean, states = WeightedMean("online"), random_states(3)
    for state in states:
        mean.add(state, 5)
    assert all(kept["w"] is state["w"] for (_, kept, _), state in zip(mean._added, states, strict=True))
    first = mean.result()["w"]
    assert mean.result()["w"].tobytes() == first.tobytes() and not np.shares_memory(first, states[0]["w"])


def test_a_refused_contribution_changes_nothing():
    good, other = random_states(2)
    mean = WeightedMean("target", like=good)
    mean.add(good, 3, "site-1")
    damaged = {"w": other["w"].copy()}
    damaged["w"][4, 4] = np.nan
    with pytest.raises(FCLSegError, match="site-2: component 'target' has values in tensor 'w' that are not finite"):
        mean.add(damaged, 2, "site-2")
    for weight in (0, -1, 1.5):
        with pytest.raises(FCLSegError, match=r"site-2: .* is not a number of samples"):
            mean.add(other, weight, "site-2")
    assert mean.total_weight == 3 and mean.result()["w"].tobytes() == good["w"].tobytes()


def test_nothing_to_average_is_said():
    with pytest.raises(FCLSegError, match="no site sent component 'bank'"):
        WeightedMean("bank").result()
