"""ClipAndNoise: what it does to an update, what it leaves alone, and what it does not let pass."""

import math

import numpy as np
import pytest
from contexts import site_context
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.filters import ExcludeVars, PercentilePrivacy

from fclseg.errors import FCLSegError
from fclseg.federation.states import to_arrays, to_tensors
from fclseg.flare.aggregator import Aggregator
from fclseg.flare.filters.privacy import ClipAndNoise
from fclseg.flare.messages import PRETRAIN_TASK, Message
from fclseg.flare.model import GlobalModel
from fclseg.flare.place import Place
from fclseg.flare.settings import RunSettings
from fclseg.flare.site import Site
from fclseg.methods.registry import build_method

NAMES = ("online", "predictor")
SETTINGS = RunSettings.read({"job": "fedbyol", "changes": {"channels": [4, 8], "hidden": 16}}, {})
META = {
    "round": 1,
    "samples": 7,
    "run": {"id": "run-1", "settings": SETTINGS.to_dict(), "sites": ["site-1"], "shared": {}},
}


def networks(seed):
    method = build_method("fedbyol", SETTINGS.build_preset(), seed)
    return {name: to_arrays(method.send(name)) for name in NAMES}


def moved(start, size, seed=5):
    """Networks whose distance from ``start`` is ``size``, with counters that have advanced."""
    random = np.random.default_rng(seed)
    steps = {c: {n: random.standard_normal(a.shape) for n, a in arrays.items()} for c, arrays in start.items()}
    length = math.sqrt(
        sum((s**2).sum() for c, part in steps.items() for n, s in part.items() if start[c][n].dtype == np.float32)
    )
    return {
        c: {
            n: (a + steps[c][n] * size / length).astype(a.dtype) if a.dtype == np.float32 else np.asarray(a + 9)
            for n, a in arrays.items()
        }
        for c, arrays in start.items()
    }


def floats(a, b):
    """The difference of two sets of networks as one vector, counters left out."""
    pairs = [(a[c][n], b[c][n]) for c in b for n in b[c] if b[c][n].dtype == np.float32]
    return np.concatenate([(x.astype(np.float64) - y).ravel() for x, y in pairs])


def make(tmp_path, clip=1.0, sigma=0.0):
    filter_ = ClipAndNoise(clip, sigma)
    filter_.context = site_context(tmp_path)
    return filter_


def aggregator_for(start):
    return Aggregator(GlobalModel(SETTINGS.row, start, {}, next_round=1), 2, start, 4)


def announce(filter_, received, meta=META):
    """What NVFlare does before it executes a task."""
    context = FLContext()
    context.set_prop(FLContextKey.TASK_NAME, PRETRAIN_TASK)
    context.set_prop(FLContextKey.TASK_DATA, Message(received, meta=meta).to_shareable())
    filter_.handle_event(EventType.BEFORE_TASK_EXECUTION, context)


def send(filter_, components, meta=META, **more):
    shareable = filter_.process(Message(components, meta=meta, **more).to_shareable(), filter_.context)
    return Message.from_shareable(shareable)


def test_a_large_update_is_shortened_and_a_small_one_passes(tmp_path):
    start = networks(0)
    filter_ = make(tmp_path, clip=0.5)
    for size, expected in ((20.0, 0.5), (0.25, 0.25)):
        announce(filter_, start)
        result = moved(start, size)
        sent = send(filter_, result).components
        step, wanted = floats(sent, start), floats(result, start)
        assert np.linalg.norm(step) == pytest.approx(expected, rel=1e-3)
        assert step @ wanted / np.linalg.norm(step) / np.linalg.norm(wanted) == pytest.approx(1.0, abs=1e-3)


def test_noise_is_as_large_as_said_and_never_the_same(tmp_path):
    start = networks(0)
    steps = []
    for _ in range(2):
        np.random.seed(0)
        filter_ = make(tmp_path, clip=2.0, sigma=0.05)
        announce(filter_, start)
        steps.append(floats(send(filter_, start).components, start))
    assert all(step.std() == pytest.approx(0.1, rel=0.05) for step in steps)
    assert abs(np.corrcoef(*steps)[0, 1]) < 0.1


def test_the_server_takes_what_the_filter_lets_out(tmp_path):
    """Every tensor is there with its shape and kind, counters as they were, and no variance is negative."""
    start = networks(0)
    filter_ = make(tmp_path, clip=1.0, sigma=5.0)
    announce(filter_, start)
    result = moved(start, 1.0)
    message = send(filter_, result)
    for component, arrays in message.components.items():
        for name, array in arrays.items():
            if name.endswith("num_batches_tracked"):
                assert array == result[component][name]
            assert not name.endswith("running_var") or array.min() >= 0
    aggregator = aggregator_for(start)
    aggregator.accept("site-1", message)
    assert aggregator.sites == ["site-1"]


@pytest.mark.parametrize(
    ("stock", "complaint"),
    [(PercentilePrivacy(), "instead of int64"), (ExcludeVars(["encoder.stem.conv_0.conv.weight"]), "lacks tensor")],
)
def test_filters_of_nvflare_do_not_fit(stock, complaint):
    """Why we have our own filter: the server would refuse what NVFlare's filters let through."""
    message = Message.from_shareable(stock.process(Message(networks(0), meta=META).to_shareable(), FLContext()))
    with pytest.raises(FCLSegError, match=complaint):
        aggregator_for(networks(0)).accept("site-1", message)


def test_what_the_distance_task_brought_counts_as_received(tmp_path):
    start = networks(0)
    site = Site(Place("site-1", tmp_path, "job"), SETTINGS, "run-1", ["site-1"])
    site.memory.keep_global(1, {name: to_tensors(arrays) for name, arrays in start.items()})
    filter_ = make(tmp_path, clip=0.5)
    announce(filter_, {})
    sent = send(filter_, moved(start, 3.0)).components
    assert np.linalg.norm(floats(sent, start)) == pytest.approx(0.5, rel=1e-3)


def test_nothing_passes_that_has_no_beginning(tmp_path):
    filter_, start = make(tmp_path), networks(0)
    with pytest.raises(FCLSegError, match="'online' was not received in round 1"):
        send(filter_, start)
    announce(filter_, start, {**META, "round": 0})
    with pytest.raises(FCLSegError, match="'online' was not received in round 1"):
        send(filter_, start)
    announce(filter_, start, {**META, "run": {**META["run"], "id": "another"}})
    with pytest.raises(FCLSegError, match="'online' was not received in round 1"):
        send(filter_, start)
    announce(filter_, {"online": start["online"]})
    with pytest.raises(FCLSegError, match="'predictor' was not received"):
        send(filter_, start)


def test_features_are_not_let_out_as_if_they_were_protected(tmp_path):
    filter_, start = make(tmp_path), networks(0)
    announce(filter_, start)
    with pytest.raises(FCLSegError, match="'bank' are features"):
        send(filter_, start, others={"bank": {"site-1": {"features": np.ones((2, 2), np.float32)}}})


@pytest.mark.parametrize(("clip", "sigma"), [(0, 1), (-1, 1), (math.inf, 1), (1, -1), (1, math.nan), ("{$HOME}", 1)])
def test_values_that_protect_nothing_are_refused(tmp_path, clip, sigma):
    with pytest.raises(FCLSegError, match="give numbers clip > 0 and sigma >= 0"):
        make(tmp_path, clip, sigma)
