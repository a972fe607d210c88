"""Number coders against slow, obvious implementations and values computed by hand."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fclseg.errors import FCLSegError
from fclseg.federation.codecs.entropy import expand, shrink
from fclseg.federation.codecs.exact import Exact, to_float16
from fclseg.federation.codecs.numbers import Numbers, pack, packed_size, unpack
from fclseg.federation.codecs.steps import LEVELS, Steps
from fclseg.federation.codecs.uniform import Uniform

CODERS = [Exact(), Uniform(8), Uniform(4), Uniform(2), Steps(1.4), Steps(4)]


def floats(count, seed=0, kind=np.float32):
    return np.random.default_rng(seed).standard_normal(count).astype(kind)


def through(coder, values, numbers=None):
    """What arrives, with the sizes checked against the plan."""
    numbers = numbers or Numbers(values.size, np.full(min(1, values.size), values.size))
    parts = coder.encode(values.copy(), numbers)
    limits = coder.limits(numbers)
    assert list(parts) == list(limits)
    assert all(len(parts[name]) <= limit for name, limit in limits.items())
    return coder.decode(parts, numbers)


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
    assert Exact().encode(values, Numbers(2))["bits"] == bytes.fromhex("0000 0000 8000 3fc0")


def test_float16_by_hand():
    found = to_float16(np.array([1 / 3, 1e6, -1e6, 1e-9], np.float32))
    assert found.dtype == np.float16 and found.tolist() == [0.333251953125, 65504.0, -65504.0, 0.0]


def test_uniform_by_hand():
    values = np.array([12.7, -6.4, 0.04, 0.0, 0.5, 0.25, -0.5, 0.1], np.float32)
    found = through(Uniform(8), values, Numbers(8, np.array([4, 4])))
    steps = [0.1] * 4 + [0.5 / 127] * 4
    assert found == pytest.approx([12.7, -6.4, 0.0, 0.0, 0.5, 64 * 0.5 / 127, -0.5, 25 * 0.5 / 127], rel=1e-6)
    assert np.all(np.abs(found - values) <= np.array(steps) / 2 * 1.0001)
    parts = Uniform(4).encode(np.array([7, -7, 3.4, -0.4], np.float32), Numbers(4, np.array([4])))
    assert struct.unpack("<f", parts["scales"]) == (1.0,)
    assert parts["codes"] == bytes([14 | 0 << 4, 10 | 7 << 4])  # q + 7 of 7, -7, 3, 0


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_uniform_equals_a_loop(bits):
    channels, values = np.array([9, 1, 30, 60]), floats(100, bits)
    expected, top, start = [], 2 ** (bits - 1) - 1, 0
    for length in channels:
        part = [float(value) for value in values[start : start + length]]
        outer = max(abs(value) for value in part)
        if bits == 2:
            outer = min(outer, 1.224 * math.sqrt(sum(value**2 for value in part) / len(part)))
        scale = outer / top
        expected += [max(-top, min(top, round(value / scale))) * scale for value in part]
        start += length
    assert through(Uniform(bits), values, Numbers(100, channels)) == pytest.approx(expected, rel=1e-5)


def test_uniform_again_changes_nothing():
    """What the server decoded and sends on is not rounded twice."""
    values = floats(960, 3)
    once = through(Uniform(4), values, Numbers(960, np.full(10, 96)))
    assert through(Uniform(4), once, Numbers(960, np.full(10, 96))) == pytest.approx(once, rel=1e-6)


def test_steps_keep_to_their_bits_and_use_them():
    values = floats(200_000) ** 3  # a few large among many small ones, like an update
    errors = []
    for bits in (0.3, 0.7, 1.4, 2.5):
        parts = Steps(bits).encode(values, Numbers(values.size))
        assert (0.97 if bits < 2 else 0.5) < 8 * len(parts["codes"]) / values.size / bits <= 1.01
        found = Steps(bits).decode(parts, Numbers(values.size))
        errors.append(np.square(found - values).sum() / np.square(values).sum())
        # each level stands at the mean of the numbers that have it
        for level in np.unique(found[found > 0]):
            assert np.abs(values[np.abs(found) == level]).mean() == pytest.approx(level, rel=1e-4)
        assert np.all(found * values >= 0) and len(np.unique(np.abs(found))) <= LEVELS + 1
    assert errors == sorted(errors, reverse=True)
    uniform = through(Uniform(2), values)
    assert errors[2] < np.square(uniform - values).sum() / np.square(values).sum()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Uniform(3), "2, 4 or 8 bits"),
        (lambda: Steps(0), "0.01 to 4"),
        (lambda: Uniform(8).limits(Numbers(10)), "choose a coder without scales"),
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
