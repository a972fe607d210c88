"""Updates as integers: the sum of what sites round is the weighted mean, and what rounding loses is sent later."""

import numpy as np
import pytest

from fclseg.errors import FCLSegError
from fclseg.federation.averaging import WeightedMean
from fclseg.secure_sums.integers import HEADROOM, REPORTED, Scales, SumPlan, Update
from fclseg.secure_sums.masks import Vector

SAMPLES = {"a": 30, "b": 10, "c": 25}
REPORT = dict.fromkeys(REPORTED, 0.5)


def network(seed, spread=1.0):
    random = np.random.default_rng(seed)
    return {
        "conv.weight": (spread * random.standard_normal((8, 200))).astype(np.float32),
        "conv.bias": (spread * random.standard_normal(8)).astype(np.float32),
        "norm.running_mean": (10 * spread * random.standard_normal(8)).astype(np.float32),
        "norm.running_var": np.abs(100 * spread * random.standard_normal(8)).astype(np.float32),
        "norm.num_batches_tracked": np.array(7 + seed),
    }


def moved(base, seed, size=0.01):
    change = network(seed, size)
    return {
        key: np.asarray(np.abs(base[key] + change[key]) if key.endswith("var") else base[key] + change[key])
        for key in base
    }


def sent_by(base, number):
    return {site: moved(base, 10 * number + index) for index, site in enumerate(SAMPLES)}


def summed(plan, base, networks, lost):
    total = Vector.zeros(plan.shape)
    for site, net in networks.items():
        update = Update({"online": net}, {"online": base}, SAMPLES[site], REPORT)
        vector, lost[site] = plan.encode(update, lost.get(site, {}))
        total.add(vector)
    return plan.decode(total, {"online": base}, len(networks))


def plain_mean(networks, base):
    mean = WeightedMean("online", base)
    for site, net in networks.items():
        mean.add(net, SAMPLES[site], site)
    return mean.result()


def feedback_plan(base, scales):
    return SumPlan({"online": base}, scales, len(SAMPLES), frozenset({"online"}))


def test_the_first_round_is_the_weighted_mean():
    base = network(0)
    networks = sent_by(base, 1)
    plan = feedback_plan(base, Scales())
    mean = summed(plan, base, networks, {})
    assert plan.shape.narrow == 0 and mean.samples == 65
    expected = plain_mean(networks, base)
    for key, array in mean.networks["online"].items():
        assert array.dtype == base[key].dtype
        np.testing.assert_allclose(array, expected[key], rtol=1e-6, atol=1e-6)
    assert mean.report == pytest.approx(REPORT)


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_later_rounds_differ_by_less_than_a_step_per_site(bits):
    base = network(0)
    first = summed(feedback_plan(base, Scales(bits)), base, sent_by(base, 1), {})
    networks = sent_by(base, 2)
    plan = feedback_plan(base, first.scales)
    mean = summed(plan, base, networks, {})
    assert plan.shape.narrow == 1600 and plan.shape.bits == bits + 2
    steps = first.scales.ranges["online"] / (2 ** (bits - 1) - 1)
    error = np.abs(mean.networks["online"]["conv.weight"] - plain_mean(networks, base)["conv.weight"])
    clipped = error > (steps * 3 * first.scales.weight / 65 / 2)[:, None] + 1e-6
    assert clipped.mean() < 0.03, "only numbers beyond the range of the last round may be further off"
    for key in ("conv.bias", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"):
        np.testing.assert_allclose(mean.networks["online"][key], plain_mean(networks, base)[key], rtol=1e-5, atol=1e-5)


def test_what_rounding_loses_arrives_later():
    """Without feedback the error of the sum of all rounds grows; with it, it stays that of one round."""
    base, lost, scales = network(0), {}, Scales(4)
    exact, coded, blind = (np.zeros((8, 200)) for _ in range(3))
    for number in range(1, 31):
        networks = sent_by(base, number)
        exact += plain_mean(networks, base)["conv.weight"] - base["conv.weight"]
        blind += (
            summed(feedback_plan(base, scales), base, networks, {}).networks["online"]["conv.weight"]
            - base["conv.weight"]
        )
        mean = summed(feedback_plan(base, scales), base, networks, lost)
        coded += mean.networks["online"]["conv.weight"] - base["conv.weight"]
        scales = mean.scales
    assert np.abs(coded - exact).mean() < 0.4 * np.abs(blind - exact).mean()


def test_the_ranges_of_the_next_round_are_means_of_the_largest_changes():
    base = network(0)
    networks = sent_by(base, 1)
    scales = summed(feedback_plan(base, Scales()), base, networks, {}).scales
    assert scales.weight == pytest.approx(65 / 3)
    largest = [
        SAMPLES[site] * np.abs(net["conv.weight"].astype(np.float64) - base["conv.weight"]).max(1)
        for site, net in networks.items()
    ]
    np.testing.assert_allclose(scales.ranges["online"], HEADROOM * sum(largest) / 65, rtol=1e-6)
    assert Scales.read(scales.to_dict()).name == scales.name


def test_no_values_overflow_the_sum():
    """All sites send far more than the range: the sum is the sum of the limits, not a wrapped number."""
    base = network(0)
    scales = Scales(4, 1.0, {"online": np.full(8, 1e-6)})
    far = {site: {**base, "conv.weight": base["conv.weight"] + np.float32(5)} for site in SAMPLES}
    mean = summed(feedback_plan(base, scales), base, far, {})
    change = mean.networks["online"]["conv.weight"] - base["conv.weight"]
    np.testing.assert_allclose(change, 3e-6 / 65, atol=1e-7)


def test_a_site_shortens_its_own_outlier():
    base = network(0)
    usual = summed(feedback_plan(base, Scales(16)), base, sent_by(base, 1), {}).scales
    networks = sent_by(base, 2)
    networks["a"] = moved(base, 5, size=1000.0)
    mean = summed(feedback_plan(base, usual), base, networks, {})
    change = mean.networks["online"]["norm.running_mean"] - base["norm.running_mean"]
    assert np.abs(change).max() < 200, "10,000 without shortening"


@pytest.mark.parametrize("bits", [3, 17])
def test_bits_out_of_range_are_refused(bits):
    with pytest.raises(FCLSegError, match="sum_bits"):
        Scales(bits)


@pytest.mark.parametrize(
    "change", [{"weight": 0.0}, {"weight": float("nan")}, {"ranges": {"online": [-1.0]}}, {"norms": {"online": -1.0}}]
)
def test_damaged_scales_are_refused(change):
    with pytest.raises(FCLSegError):
        Scales.read({**Scales().to_dict(), **change})


def test_a_lying_site_cannot_end_the_run_with_scales_that_nobody_reads():
    """It adds a large negative number where the norms and the largest changes are summed."""
    base = network(0)
    plan = feedback_plan(base, Scales())
    total = Vector.zeros(plan.shape)
    total.wide[:] = np.int64(-(2**50)).view(np.uint64)
    total.wide[0] = 65
    scales = plan.decode(total, {"online": base}, 3).scales
    assert not scales.ranges["online"].any() and scales.norms == {"online": 0.0}
    assert Scales.read(scales.to_dict()).name == scales.name
