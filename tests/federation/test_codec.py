"""Whole networks through codecs: what arrives, what is remembered, how large it is, and what is refused."""

import tracemalloc

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fclseg.errors import FCLSegError
from fclseg.federation.codecs.codec import ChecksumError, Codec, checksum
from fclseg.federation.codecs.exact import Exact
from fclseg.federation.codecs.features import decode_features, encode_features, first_rows
from fclseg.federation.codecs.presets import CODECS, get_codec
from fclseg.federation.codecs.steps import Steps
from fclseg.federation.codecs.uniform import Uniform

ALL = {
    **{name: pair.networks for name, pair in CODECS.items()},
    "4bit": Codec(Uniform(4), halves=True),
    "raw": Codec(Exact(), compress=False),
}


def network(seed, scale=1.0):
    random = np.random.default_rng(seed)
    return {
        "conv.weight": (scale * random.standard_normal((16, 8, 3, 3))).astype(np.float32),
        "conv.bias": (scale * random.standard_normal(16)).astype(np.float32),
        "bn.running_mean": (scale * random.standard_normal(2000)).astype(np.float32),
        "bn.running_var": np.square(random.standard_normal(16)).astype(np.float32),
        "bn.num_batches_tracked": np.array(seed, np.int64),
        "linear.weight": (scale * random.standard_normal((40, 100)) ** 3).astype(np.float32),
    }


def plus(a, b, factor=1.0):
    return {name: a[name] + (factor * b[name]).astype(a[name].dtype) for name in a}


def square(a, b=None):
    return sum(float(np.square(a[n] - (b[n] if b else 0), dtype=float).sum()) for n in a if a[n].dtype.kind == "f")


def identical(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[n], b[n]) and a[n].dtype == b[n].dtype for n in a)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("with_reference", [True, False])
def test_both_ends_hold_the_same_network(name, with_reference):
    codec, arrays = ALL[name], network(2)
    reference = plus(arrays, network(1), 0.01) if with_reference else None
    sent = codec.encode(arrays, reference)
    assert identical(codec.decode(sent.message, arrays, reference), sent.decoded)
    assert sent.message.dtype == np.uint8 and sent.message.size <= codec.bound(arrays)
    assert identical(arrays, network(2)), "the sender's network was changed"
    assert np.array_equal(codec.encode(arrays, reference).message, sent.message)
    error = square(arrays, sent.decoded) / square(arrays, reference)
    assert error < {"4bit": 0.06, "tiny": 0.3}.get(name, 0.02)
    for small in ("conv.bias", "bn.running_mean", "bn.running_var"):
        exact = 0 if not codec.halves else 2**-11 if with_reference else 2**-10
        assert np.all(np.abs(sent.decoded[small] - arrays[small]) <= exact * np.abs(arrays[small]) + exact)
    assert sent.decoded["bn.num_batches_tracked"] == 2


def test_sizes_by_hand():
    arrays = network(0)
    header, part, coded, small = 28, 9, 16 * 72 + 4000, 4 * (16 + 2000 + 16) + 8
    assert Codec(Exact(), compress=False).encode(arrays).message.size == header + 2 * part + small + 4 * coded
    assert Codec(Uniform(4), compress=False).encode(arrays).message.size == (
        header + 3 * part + small + 4 * (16 + 40) + coded // 2
    )
    tiny = CODECS["tiny"].networks
    assert tiny.bound(arrays) == header + 3 * part + 2 * (2032) + 8 + 4 * 7 + int(coded * 1.4 / 8) + 64


@pytest.mark.parametrize("name", ["lossless", "raw"])
def test_lossless_means_every_bit(name):
    arrays = network(3, 1e-20)
    arrays["linear.weight"][0, :3] = [-0.0, 1e-45, 3e38]
    sent = ALL[name].encode(arrays, network(4, 1e5))
    for key, array in arrays.items():
        assert array.tobytes() == sent.decoded[key].tobytes()
        assert array.tobytes() == ALL[name].decode(sent.message, arrays, network(4, 1e5))[key].tobytes()
    assert sent.memory == {}


def test_a_small_change_is_a_short_lossless_message():
    before = network(1)
    after = {
        name: array + array.astype(array.dtype) // 2**14 if array.dtype.kind == "f" else array
        for name, array in before.items()
    }
    assert CODECS["lossless"].networks.encode(before, before).message.size < 200 + 4 * 2032
    assert CODECS["lossless"].networks.encode(after).message.size > 20_000


@pytest.mark.parametrize("name", ["8bit", "tiny", "4bit"])
def test_error_feedback_sums_to_the_truth(name):
    """What arrived in all rounds plus what is still to be sent equals everything that there was to send."""
    codec, reference, memory = ALL[name], network(0), {}
    wanted = {key: np.zeros(array.shape) for key, array in reference.items()}
    arrived, without = ({key: np.zeros(array.shape) for key, array in reference.items()} for _ in range(2))
    for number in range(1, 30):
        update = plus(network(100), network(number), 0.3)
        arrays = plus(reference, update, 0.01)
        sent = codec.encode(arrays, reference, memory=memory)
        alone = codec.encode(arrays, reference)
        memory = sent.memory
        for key in reference:
            wanted[key] += arrays[key].astype(float) - reference[key]
            arrived[key] += sent.decoded[key].astype(float) - reference[key]
            without[key] += alone.decoded[key].astype(float) - reference[key]
    for key, lost in memory.items():
        if key.endswith("running_var"):
            continue  # never below 0 at the receiver
        assert arrived[key] + lost == pytest.approx(wanted[key], abs=2e-5)
    large = ("conv.weight", "linear.weight")
    with_memory, alone = (square({k: wanted[k] - x[k] for k in large}) for x in (arrived, without))
    assert with_memory < alone


def test_a_variance_never_arrives_negative():
    arrays, reference = network(1), network(2)
    arrays["bn.running_var"][:] = 0
    sent = CODECS["tiny"].networks.encode(arrays, reference)
    assert sent.decoded["bn.running_var"].min() >= 0


def test_other_reference_other_codec_other_network():
    arrays, reference = network(2), network(1)
    for codec in ALL.values():
        message = codec.encode(arrays, reference).message
        with pytest.raises(ChecksumError, match="not the one that was sent"):
            codec.decode(message, arrays, plus(reference, network(5), 1e-3))
        with pytest.raises(FCLSegError, match="another codec"):
            Codec(Steps(3.3)).decode(message[:3000], arrays, reference)
        with pytest.raises(FCLSegError):
            codec.decode(message, {**arrays, "more": arrays["conv.weight"]}, None)
        with pytest.raises(FCLSegError, match="reference has different tensors"):
            codec.decode(message, arrays, {"conv.weight": arrays["conv.weight"]})


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_network_that_is_not_finite_is_not_coded(value):
    arrays = network(1)
    arrays["conv.weight"][0, 0, 0, 0] = value
    with pytest.raises(FCLSegError, match="not finite"):
        CODECS["tiny"].networks.encode(arrays, network(2))


@pytest.mark.parametrize("message", [None, b"x", np.zeros(100), np.zeros((5, 50), np.uint8), np.zeros(3, np.uint8)])
def test_what_is_no_message_is_refused(message):
    for codec in ALL.values():
        with pytest.raises(FCLSegError, match="encoded message"):
            codec.decode(message, network(1))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), name=st.sampled_from(sorted(ALL)))
def test_damage_is_refused_or_harmless(data, name):
    """Flipped bits, cuts, repeats and random bytes give a one-sentence error, or exactly the network that was sent."""
    codec, arrays, reference = ALL[name], network(2), network(1)
    good = codec.encode(arrays, reference)
    message = bytearray(good.message.tobytes())
    kind = data.draw(st.sampled_from(["flip", "cut", "grow", "noise"]))
    place = data.draw(st.one_of(st.integers(0, 60), st.integers(0, len(message) - 1)))
    if kind == "flip":
        message[place] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del message[place:]
    elif kind == "grow":
        message[place:place] = bytes(message[: data.draw(st.integers(1, 40))])
    else:
        message[place : place + 40] = np.random.default_rng(place).bytes(min(40, len(message) - place))
    try:
        found = codec.decode(np.frombuffer(bytes(message), np.uint8), arrays, reference)
    except FCLSegError as error:
        assert str(error)
    else:
        assert identical(found, good.decoded)


def test_a_bomb_takes_no_memory():
    """A part that would decompress to a gigabyte, and one that claims to be huge."""
    codec, arrays = CODECS["8bit"].networks, network(1)
    good = codec.encode(arrays, arrays).message.tobytes()
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(1 << 30))[:1000]
    bombs = [good[:28] + b"\x01" + len(bomb).to_bytes(8, "little") + good[37:55] + bomb]
    bombs += [good[:29] + (1 << 62).to_bytes(8, "little") + good[37:]]
    for message in bombs:
        tracemalloc.start()
        with pytest.raises(FCLSegError):
            codec.decode(np.frombuffer(message, np.uint8), arrays, arrays)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 20


def test_checksums_see_names_shapes_kinds_and_bits():
    base = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(1, np.int64)}
    others = [
        {"b": base["b"], "a": base["a"].reshape(3, 2)},
        {"a": base["a"], "c": base["b"]},
        {"a": base["a"].view(np.int32), "b": base["b"]},
        {"a": -base["a"], "b": base["b"]},
    ]
    assert checksum(base) == checksum({"b": base["b"], "a": base["a"]}) and len(checksum(base)) == 16
    assert len({checksum(base), *map(checksum, others)}) == 5


def test_presets_have_names():
    assert (
        get_codec("plain") is None
        and get_codec("tiny") is CODECS["tiny"]
        and isinstance(CODECS["tiny"].networks.numbers, Steps)
    )
    with pytest.raises(FCLSegError, match="there is no codec 'zip': choose one of plain, lossless, 8bit, tiny"):
        get_codec("zip")


def test_features_travel_with_their_number():
    """Prototypes are fewer than a bank has; a number that no bank has is refused before anything is decoded."""
    rng, codec = np.random.default_rng(3), CODECS["8bit"].features
    bank = {"features": rng.standard_normal((64, 32)).astype(np.float32), "partitions": np.arange(64, dtype=np.uint8)}
    for rows in (64, 40, 5, 1):
        sent = encode_features(codec, first_rows(bank, rows))
        found = decode_features(codec, sent, bank)
        assert found["features"].shape == (rows, 32) and np.array_equal(found["partitions"], bank["partitions"][:rows])
        assert np.abs(found["features"] - bank["features"][:rows]).max() < 0.05
    for claim in (
        np.array([0], np.uint32),
        np.array([65], np.uint32),
        np.array([5]),
        np.array(5, np.uint32),
        "5",
        None,
    ):
        with pytest.raises(FCLSegError, match="how many features of at most 64"):
            decode_features(codec, {**sent, "rows": claim}, bank)
    with pytest.raises(FCLSegError, match="not used"):
        decode_features(codec, {**sent, "rows": np.array([64], np.uint32)}, bank)
