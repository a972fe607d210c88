"""Which updates the server takes for outliers: expectations by hand, with one weight and one running variance."""

import numpy as np
import pytest

from fclseg.federation.robust import find_outliers

BEFORE = {"0.weight": np.array([2.0]), "1.running_var": np.array([3.0, 4.0]), "1.num_batches_tracked": np.array(7)}


def change(weight: float, variance: float) -> dict[str, np.ndarray]:
    """A state whose weight and first variance have changed by this much. Counters never matter."""
    return {
        "0.weight": BEFORE["0.weight"] + weight,
        "1.running_var": BEFORE["1.running_var"] + np.array([variance, 0.0]),
        "1.num_batches_tracked": np.array(10**9),
    }


def test_a_poisoned_weight_is_not_hidden_by_statistics_that_change_far_more():
    sent = {"a": change(0.01, 6.0), "b": change(0.01, 6.0), "c": change(1.0, 6.0)}
    (found,) = find_outliers(sent, BEFORE, factor=10).items()
    assert (
        found[0] == "c" and found[1].medians == pytest.approx(100) and found[1].excess == pytest.approx(5)
    )  # 1.0 / (0.1 * 2.0)


@pytest.mark.parametrize("variance", [0.26, 4.9])
def test_statistics_that_settled_earlier_at_another_site_are_no_outlier(variance):
    """The norm of the statistics themselves is 5: sqrt(3^2 + 4^2)."""
    assert not find_outliers({"a": change(0.01, 0.01), "b": change(0.01, variance)}, BEFORE, factor=10)


def test_parameters_that_have_hardly_moved_at_another_site_are_no_outlier():
    """A tenth of the weight's norm of 2 is harmless, even if it is 19 times the median."""
    assert not find_outliers({"a": change(0.01, 1.0), "b": change(0.19, 1.0)}, BEFORE, factor=10)


def test_statistics_that_change_by_more_than_their_size_and_ten_times_the_median_are():
    (found,) = find_outliers({"a": change(0.01, 0.01), "b": change(0.01, 5.5)}, BEFORE, factor=10).items()
    assert found[0] == "b" and found[1].medians == pytest.approx(550) and found[1].excess == pytest.approx(1.1)


def test_the_larger_excess_counts_and_no_change_is_never_an_outlier():
    sent = {"a": change(0.01, 0.01), "b": change(0.2, 50.0)}
    assert find_outliers(sent, BEFORE, factor=10)["b"].excess == pytest.approx(10)  # 50 / 5, not 0.2 / 0.1
    assert not find_outliers({"a": change(0, 0), "b": change(5, 5)}, BEFORE, factor=10)  # there is no usual change
