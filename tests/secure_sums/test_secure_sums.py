"""The sum is exact whoever is missing, and below the threshold there is none."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sum_parties import SHAPE, Federation, occasion, plain_sum, random_vectors

from fclseg.errors import PassingError
from fclseg.secure_sums.keys import commitment
from fclseg.secure_sums.masks import Shape, Vector
from fclseg.secure_sums.occasion import SumError, needed, threshold

STEPS = ("keys", "shares", "masked", "agreement", "reveal")


def assert_sum(collector, vectors, names):
    for found, expected in zip(collector.result().signed(), plain_sum(vectors, names), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("bits", [4, 12, 16, 23])
def test_the_masked_sum_is_the_plain_sum(tmp_path, bits):
    federation = Federation(tmp_path, 3)
    vectors = random_vectors(federation.names, Shape(501, 3, bits))
    assert_sum(federation.run_sum(occasion(), vectors), vectors, federation.names)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("absent", range(1, 5))
def test_a_site_that_disappears_at_any_step_is_repaired(tmp_path, step, absent):
    federation, gone = Federation(tmp_path, 4), f"site-{absent}"
    vectors = random_vectors(federation.names, SHAPE)
    collector = federation.run_sum(occasion(), vectors, gone={gone: step})
    counted = federation.names if step in ("agreement", "reveal") else [n for n in federation.names if n != gone]
    assert collector.survivors == counted
    assert_sum(collector, vectors, counted)


def test_any_two_of_seven_sites_may_be_missing(tmp_path):
    federation = Federation(tmp_path, 7)
    vectors = random_vectors(federation.names, SHAPE)
    assert threshold(7) == 5
    for number, absent in enumerate(combinations(federation.names, 2)):
        collector = federation.run_sum(occasion(number), vectors, dict.fromkeys(absent, "masked"))
        assert_sum(collector, vectors, [name for name in federation.names if name not in absent])


@pytest.mark.parametrize("step", STEPS)
def test_below_the_threshold_there_is_no_sum(tmp_path, step):
    federation = Federation(tmp_path, 4)
    gone = dict.fromkeys(("site-2", "site-4"), step)
    with pytest.raises(PassingError):
        federation.run_sum(occasion(), random_vectors(federation.names, SHAPE), gone).result()


def test_the_threshold_of_the_paper():
    """Bonawitz et al. 2017, section 6.2: t >= floor(2n/3) + 1."""
    assert [threshold(sites) for sites in (3, 4, 5, 6, 9, 10, 100)] == [3, 3, 4, 5, 7, 7, 67]
    assert needed(4, 2) == 3 and needed(4, 4) == 4


def test_wrong_shares_of_one_site_are_found_and_left_out(tmp_path):
    federation = Federation(tmp_path, 7)
    vectors = random_vectors(federation.names, SHAPE)
    collector = federation.run_sum(occasion(), vectors, {"site-7": "masked"})
    for shares in collector._reveals["site-1"].values():
        for owner in shares:
            shares[owner] = bytes(16)
    assert_sum(collector, vectors, federation.names[:6])


def test_a_site_that_made_useless_shares_is_named(tmp_path):
    federation = Federation(tmp_path, 4)
    collector = federation.run_sum(occasion(), random_vectors(federation.names, SHAPE))
    for number, reveal in enumerate(collector._reveals.values()):  # shares of no polynomial, but those it committed to
        reveal["own"]["site-2"] = bytes([number]) * 16
        collector._names["site-2"]["own"][number] = commitment(bytes([number]) * 16)
    with pytest.raises(PassingError, match="start a run without site-2"):
        collector.result()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 32), st.integers(0, 200), st.integers(0, 2**32))
def test_packing_keeps_every_number(bits, count, seed):
    shape, random = Shape(count, 3, bits), np.random.default_rng(seed)
    vector = Vector.of(shape, random.integers(0, 2**bits, count), random.integers(-(2**62), 2**62, 3))
    parts = vector.pack()
    assert parts["narrow"].nbytes == bits * -(-count // 8)
    again = Vector.unpack(shape, parts)
    np.testing.assert_array_equal(again.narrow, vector.narrow)
    np.testing.assert_array_equal(again.wide, vector.wide)


@pytest.mark.parametrize(
    "parts",
    [None, {}, {"narrow": np.zeros(3, np.uint8), "wide": np.zeros(7, np.uint64)}, {"narrow": b"", "wide": b""}],
)
def test_an_update_of_another_size_is_refused(parts):
    with pytest.raises(SumError):
        Vector.unpack(SHAPE, parts)
