"""Clipping and noise on an update: what changes, what stays, and that the server takes the result."""

import math

import numpy as np
import pytest
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.filters import ExcludeVars, PercentilePrivacy

from fclseg.engine.aggregator import Aggregator
from fclseg.engine.messages import Message
from fclseg.engine.model import GlobalModel
from fclseg.engine.run_settings import RunSettings
from fclseg.errors import FCLSegError
from fclseg.federation.states import to_arrays
from fclseg.flare.wire import read_task, to_shareable
from fclseg.methods.registry import build_method
from fclseg.privacy.update_noise import clip_and_noise

NAMES = ("online", "predictor")
SETTINGS = RunSettings.read({"job": "fedbyol", "changes": {"channels": [4, 8], "hidden": 16}}, {})
META = {"round": 1, "samples": 7}


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


def aggregator_for(start):
    return Aggregator(GlobalModel(SETTINGS.row, start, {}, next_round=1), 2, start, 4)


@pytest.mark.parametrize(("size", "expected"), [(20.0, 0.5), (0.25, 0.25)])
def test_a_large_update_is_shortened_and_a_small_one_passes(size, expected):
    start = networks(0)
    result = moved(start, size)
    sent = clip_and_noise(result, start, 0.5, 0.0, np.random.default_rng(0))
    step, wanted = floats(sent, start), floats(result, start)
    assert np.linalg.norm(step) == pytest.approx(expected, rel=1e-3)
    assert step @ wanted / np.linalg.norm(step) / np.linalg.norm(wanted) == pytest.approx(1.0, abs=1e-3)


def test_noise_is_as_large_as_said():
    start, random = networks(0), np.random.default_rng(0)
    steps = [floats(clip_and_noise(start, start, 2.0, 0.05, random), start) for _ in range(2)]
    assert all(step.std() == pytest.approx(0.1, rel=0.05) for step in steps)
    assert abs(np.corrcoef(*steps)[0, 1]) < 0.1


def test_the_server_takes_what_is_left_of_an_update():
    """Every tensor is there with its shape and kind, counters as they were, and no variance is negative."""
    start = networks(0)
    result = moved(start, 1.0)
    sent = clip_and_noise(result, start, 1.0, 5.0, np.random.default_rng(0))
    for component, arrays in sent.items():
        for name, array in arrays.items():
            if name.endswith("num_batches_tracked"):
                assert array == result[component][name]
            assert not name.endswith("running_var") or array.min() >= 0
    aggregator = aggregator_for(start)
    aggregator.accept("site-1", Message(sent, meta=META))
    assert aggregator.sites == ["site-1"]


@pytest.mark.parametrize(
    ("stock", "complaint"),
    [(PercentilePrivacy(), "instead of int64"), (ExcludeVars(["encoder.stem.conv_0.conv.weight"]), "lacks tensor")],
)
def test_filters_of_nvflare_do_not_fit(stock, complaint):
    """Why we clip updates ourselves: the server would refuse what NVFlare's filters let through."""
    message = read_task(stock.process(to_shareable(Message(networks(0), meta=META)), FLContext()))
    with pytest.raises(FCLSegError, match=complaint):
        aggregator_for(networks(0)).accept("site-1", message)
