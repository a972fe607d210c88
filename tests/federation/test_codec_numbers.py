"""Number coders against slow, obvious implementations and values computed by hand."""

import itertools
import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, stats

from fclseg.errors import FCLSegError
from fclseg.federation.codecs.entropy import expand, shrink
from fclseg.federation.codecs.exact import Exact, Float16
from fclseg.federation.codecs.numbers import Numbers, pack, packed_size, unpack
from fclseg.federation.codecs.rotation import CENTROIDS, Rotation, hadamard
from fclseg.federation.codecs.steps import LEVELS, Steps
from fclseg.federation.codecs.topk import TopK
from fclseg.federation.codecs.uniform import Uniform

CODERS = [
    Exact(),
    Float16(),
    Uniform(8),
    Uniform(4, 7),
    Uniform(2, 16),
    Rotation(1, 64),
    Rotation(3, 32, "unbiased"),
    Rotation(4, 128),
    Steps(1.4),
    Steps(4),
    TopK(0.1),
    TopK(0.5, Uniform(4, 8)),
    TopK(0.02, Rotation(2, 16)),
]


def floats(count, seed=0, kind=np.float32):
    return np.random.default_rng(seed).standard_normal(count).astype(kind)


def through(coder, values, numbers=None, seed=5):
    """What arrives, with the sizes checked against the plan."""
    numbers = numbers or Numbers(values.size, np.full(min(1, values.size), values.size))
    parts = coder.encode(values.copy(), numbers, seed)
    limits = coder.limits(numbers)
    assert list(parts) == list(limits)
    assert all(len(parts[name]) <= limit for name, limit in limits.items())
    return coder.decode(parts, numbers, seed)


@settings(deadline=None, max_examples=25)
@given(count=st.integers(0, 300), seed=st.integers(0, 10**6), scale=st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 1e6]))
def test_every_coder_keeps_length_sign_and_size(count, seed, scale):
    values = floats(count, seed) * np.float32(scale)
    for coder in CODERS:
        found = through(coder, values)
        assert found.dtype == np.float32 and found.shape == values.shape
        assert np.array_equal(found, through(coder, values)), "encoding is not deterministic"
        if count and np.abs(values).max() < 6e4:
            assert np.square(found - values, dtype=float).sum() <= 2.0 * np.square(values, dtype=float).sum() + 1e-9
    assert np.array_equal(through(Exact(), values).view(np.uint32), values.view(np.uint32))


@given(codes=st.lists(st.integers(0, 255), max_size=50), bits=st.sampled_from([1, 2, 4, 8]))
def test_packed_codes_come_back(codes, bits):
    codes = np.array(codes, np.uint8) & (2**bits - 1)
    data = pack(codes, bits)
    assert len(data) == packed_size(codes.size, bits) == math.ceil(codes.size * bits / 8)
    assert np.array_equal(unpack(np.frombuffer(data, np.uint8), bits, codes.size), codes)
    number = sum(int(code) << (bits * place) for place, code in enumerate(codes))  # all codes as one large number
    assert int.from_bytes(data, "little") == number


def test_exact_keeps_bits_by_significance():
    values = np.array([1.0, -2.0], np.float32)  # 3f800000, c0000000
    assert Exact().encode(values, Numbers(2), 0)["bits"] == bytes.fromhex("0000 0000 8000 3fc0")


def test_float16_by_hand():
    found = through(Float16(), np.array([1 / 3, 1e6, -1e6, 1e-9], np.float32))
    assert found.tolist() == [0.333251953125, 65504.0, -65504.0, 0.0]


def test_uniform_by_hand():
    values = np.array([12.7, -6.4, 0.04, 0.0, 0.5, 0.25, -0.5, 0.1], np.float32)
    found = through(Uniform(8), values, Numbers(8, np.array([4, 4])))
    steps = [0.1] * 4 + [0.5 / 127] * 4
    assert found == pytest.approx([12.7, -6.4, 0.0, 0.0, 0.5, 64 * 0.5 / 127, -0.5, 25 * 0.5 / 127], rel=1e-6)
    assert np.all(np.abs(found - values) <= np.array(steps) / 2 * 1.0001)
    parts = Uniform(4, 4).encode(np.array([7, -7, 3.4, -0.4], np.float32), Numbers(4), 0)
    assert struct.unpack("<f", parts["scales"]) == (1.0,)
    assert parts["codes"] == bytes([14 | 0 << 4, 10 | 7 << 4])  # q + 7 of 7, -7, 3, 0


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [0, 5, 64])
def test_uniform_equals_a_loop(bits, block):
    channels, values = np.array([9, 1, 30, 60]), floats(100, bits)
    expected, top, start = [], 2 ** (bits - 1) - 1, 0
    for length in channels if block == 0 else [min(block, 100 - s) for s in range(0, 100, block)]:
        part = [float(value) for value in values[start : start + length]]
        outer = max(abs(value) for value in part)
        if bits == 2:
            outer = min(outer, 1.224 * math.sqrt(sum(value**2 for value in part) / len(part)))
        scale = outer / top
        expected += [max(-top, min(top, round(value / scale))) * scale for value in part]
        start += length
    assert through(Uniform(bits, block), values, Numbers(100, channels)) == pytest.approx(expected, rel=1e-5)


def test_uniform_again_changes_nothing():
    """What the server decoded and sends on is not rounded twice."""
    values = floats(960, 3)
    once = through(Uniform(4, 96), values)
    assert through(Uniform(4, 96), once) == pytest.approx(once, rel=1e-6)


def test_hadamard_is_the_matrix():
    blocks = floats(3 * 64).reshape(3, 64)
    expected = blocks.astype(float) @ linalg.hadamard(64) / 8
    found = blocks.copy()
    hadamard(found)
    assert found == pytest.approx(expected, abs=1e-5)
    hadamard(found)
    assert found == pytest.approx(blocks, abs=1e-5)


@pytest.mark.parametrize("bits", CENTROIDS)
def test_centroids_are_those_of_the_normal_distribution(bits):
    levels = np.array([*(-level for level in reversed(CENTROIDS[bits])), *CENTROIDS[bits]])
    edges = np.concatenate([[-np.inf], (levels[1:] + levels[:-1]) / 2, [np.inf]])
    means = [stats.norm.expect(lambda x: x, lb=a, ub=b, conditional=True) for a, b in itertools.pairwise(edges)]
    assert levels == pytest.approx(means, abs=2e-5)  # every level is the mean of what falls to it (Lloyd and Max)


@pytest.mark.parametrize(("bits", "error"), [(1, 1 - 2 / math.pi), (2, 0.1175), (3, 0.03454), (4, 0.009497)])
def test_rotation_has_the_error_of_the_normal_distribution(bits, error):
    """Max (1960), table I. It holds for any numbers; here two thirds are zeros."""
    values = np.zeros(1 << 16, np.float32)
    values[::3] = np.random.default_rng(1).laplace(size=values[::3].size)
    found = through(Rotation(bits, 1 << 12), values)
    assert np.square(found - values).sum() / np.square(values).sum() == pytest.approx(error, rel=0.03)


def test_rotation_is_unbiased_over_seeds():
    values = floats(1024, 9)
    coder, trials = Rotation(1, 1024, "unbiased"), 400
    mean = np.mean([through(coder, values, seed=seed) for seed in range(trials)], axis=0)
    error = np.square(mean - values).sum() / np.square(values).sum()
    assert error == pytest.approx((math.pi / 2 - 1) / trials, rel=0.25)  # variance over trials, and no bias
    shrunk = np.mean([through(Rotation(1, 1024), values, seed=seed) for seed in range(trials)], axis=0)
    assert shrunk @ values / (values @ values) == pytest.approx(2 / math.pi, rel=0.02)


def test_topk_keeps_the_largest():
    values = np.array([0.1, -5, 0.2, 3, 0, 0, 4, -0.3, 0.1, 2], np.float32)
    assert through(TopK(0.3), values).tolist() == [0, -5, 0, 3, 0, 0, 4, 0, 0, 0]
    assert through(TopK(0.3), np.ones(10, np.float32)).tolist() == [1, 1, 1] + [0] * 7


@settings(deadline=None)
@given(count=st.integers(1, 5000), share=st.floats(0.001, 1), seed=st.integers(0, 99))
def test_topk_equals_a_sort(count, share, seed):
    values = floats(count, seed)
    kept = math.ceil(share * count)
    border = sorted(map(abs, values.tolist()), reverse=True)[kept - 1]
    assert np.array_equal(
        through(TopK(share, Exact()), values), np.where(np.abs(values) >= np.float32(border), values, 0)
    )


def test_topk_indices_are_compact():
    values = np.zeros(100_000, np.float32)
    values[[0, 1, 5, 261, 99_999]] = 1
    parts = TopK(5e-5).encode(values, Numbers(values.size), 0)
    last = 99_999 - 262  # numbers passed over before the last
    expected = [1, 0, 0, 3, 255, 0, *[255] * (last // 255), last % 255]
    assert list(parts["places"]) == expected
    dense = TopK(0.5).encode(floats(8000), Numbers(8000), 0)
    assert len(dense["places"]) == 1 + 1000 and dense["places"][0] == 0  # a bit per number


def test_steps_keep_to_their_bits_and_use_them():
    values = floats(200_000) ** 3  # a few large among many small ones, like an update
    errors = []
    for bits in (0.3, 0.7, 1.4, 2.5):
        parts = Steps(bits).encode(values, Numbers(values.size), 0)
        assert (0.97 if bits < 2 else 0.5) < 8 * len(parts["codes"]) / values.size / bits <= 1.01
        found = Steps(bits).decode(parts, Numbers(values.size), 0)
        errors.append(np.square(found - values).sum() / np.square(values).sum())
        # each level stands at the mean of the numbers that have it
        for level in np.unique(found[found > 0]):
            assert np.abs(values[np.abs(found) == level]).mean() == pytest.approx(level, rel=1e-4)
        assert np.all(found * values >= 0) and len(np.unique(np.abs(found))) <= LEVELS + 1
    assert errors == sorted(errors, reverse=True)
    rotated = through(Rotation(2), values)
    assert errors[2] < np.square(rotated - values).sum() / np.square(values).sum()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Uniform(3), "2, 4 or 8 bits"),
        (lambda: Rotation(5), "1 to 4 bits"),
        (lambda: Rotation(1, 100), "a power of two"),
        (lambda: Rotation(1, 64, "best"), "least squares"),
        (lambda: Steps(0), "0.01 to 4"),
        (lambda: TopK(0), "in \\(0, 1\\]"),
        (lambda: Uniform(8).limits(Numbers(10)), "give a block length"),
    ],
)
def test_impossible_coders_are_refused(make, text):
    with pytest.raises(FCLSegError, match=text):
        make()


def test_decompression_is_bounded():
    bomb = shrink(bytes(50_000_000))
    assert len(bomb) < 10_000
    with pytest.raises(FCLSegError, match="more than 1000 bytes"):
        expand(bomb, 1000)
    with pytest.raises(FCLSegError, match="cannot be decompressed"):
        expand(b"no frame at all", 1000)
    assert expand(shrink(b"abc"), 3) == b"abc"
