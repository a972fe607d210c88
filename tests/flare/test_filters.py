"""What a site makes of a task (PTNU), messages as NVFlare carries them, and filters that let nothing pass unchecked."""

import numpy as np
import pytest
from contexts import site_context
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply

from fclseg.engine.gate import OpenGate
from fclseg.engine.memory import SiteState
from fclseg.engine.messages import FORMAT, PRETRAIN_TASK, Message
from fclseg.engine.place import Place
from fclseg.engine.run_settings import RunSettings
from fclseg.engine.site import Site
from fclseg.engine.site_work import answer
from fclseg.errors import FCLSegError
from fclseg.federation.distance import distance
from fclseg.federation.ptnu import predict_target
from fclseg.federation.states import to_arrays, to_tensors
from fclseg.flare.filters import ClipAndNoise
from fclseg.flare.wire import read_task, to_shareable
from fclseg.methods.registry import build_method

SETTINGS = RunSettings.read({"job": "fclopt_dp", "changes": {"channels": [2, 4], "hidden": 4}}, {})


@pytest.fixture
def site(tmp_path):
    return Site(Place("site-1", tmp_path, "job"), SETTINGS, "run-1", ["site-1"])


def _meta(round_number):
    return {
        "round": round_number,
        "run": {"id": "run-1", "format": FORMAT, "settings": SETTINGS.to_dict(), "sites": ["site-1"]},
    }


def _received(site, message):
    """A task as the site's training gets it."""
    found = []
    with pytest.raises(StopIteration):
        answer(OpenGate(site, PRETRAIN_TASK, message), lambda site, task: next(iter(found.append(task) or ())))
    return found[0]


def _network(seed, component="online"):
    return to_arrays(build_method("fclopt_dp", SETTINGS.build_preset(), seed).send(component))


def test_a_message_survives_the_way_through_dxo():
    message = Message({"online": _network(0)}, {"bank": {"b": _network(1)}}, 0.25, _meta(3))
    again = read_task(to_shareable(message))
    assert again.distance == 0.25 and again.round_number == 3 and list(again.others["bank"]) == ["b"]
    assert all(np.array_equal(again.components["online"][key], value) for key, value in _network(0).items())
    size = sum(array.nbytes for array in _network(0).values())
    assert again.payload() == {"online": size, "bank": size, "distance": 8}


def _train(site, round_number, seed):
    method = build_method("fclopt_dp", SETTINGS.build_preset(), seed)
    site.memory.save(SiteState(round_number, method.state_dict(), {}))


@pytest.mark.parametrize("cached", [False, True], ids=["online in the message", "online from the distance task"])
def test_the_site_predicts_the_target_from_its_own(site, cached):
    online, own = _network(0), _network(1, "target")
    _train(site, 4, seed=1)
    d = 0.5 * distance(online, own)
    if cached:
        site.memory.keep_global(7, {"online": to_tensors(online)})
    message = Message({} if cached else {"online": online}, distance=d, meta=_meta(7))
    received = _received(site, message)
    expected = predict_target(online, own, d, SETTINGS.build_preset().pretraining.ptnu_momentum)
    assert received.distance is None
    assert all(np.array_equal(received.components["target"][key], value) for key, value in expected.items())


def test_a_site_that_never_trained_starts_from_the_initial_network(site):
    online, initial = _network(9), _network(SETTINGS.seed, "target")
    message = Message({"online": online}, distance=2.0 * distance(online, initial), meta=_meta(5))
    received = _received(site, message)
    assert all(np.array_equal(received.components["target"][key], value) for key, value in initial.items())


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (Message({"online": _network(0)}, meta=_meta(1)), "the task contains no distance"),
        (Message(distance=0.5, meta=_meta(1)), "contained the online network"),
    ],
)
def test_without_a_distance_or_a_network_there_is_no_target(site, message, complaint):
    with pytest.raises(FCLSegError, match=complaint):
        _received(site, message)


def _with_distance(value):
    return to_shareable(Message({"online": _network(0)}, distance=value, meta=_meta(1)))


FAULTY = [
    (_with_distance(float("nan")), "nan is not a distance"),
    (_with_distance(-1.0), "-1.0 is not a distance"),
    (DXO(DataKind.WEIGHTS, data=_network(0)).to_shareable(), "not a collection of components"),
    (DXO(DataKind.COLLECTION, data={}).to_shareable(), "collection of components with a round"),
]


@pytest.mark.parametrize(("message", "complaint"), FAULTY)
def test_messages_and_filters_refuse_what_they_cannot_read(message, complaint, tmp_path):
    with pytest.raises(FCLSegError, match=complaint):
        read_task(message)
    with pytest.raises(FCLSegError, match=complaint):
        ClipAndNoise(1.0, 0.0).process(message, site_context(tmp_path))


def test_failed_results_pass_as_they_are(tmp_path):
    failed = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    assert ClipAndNoise(1.0, 0.0).process(failed, site_context(tmp_path)) is failed


def test_what_a_filter_trips_over_stays_at_the_site(tmp_path):
    """An unexpected error may contain a file name, and NVFlare logs what is raised, so only its type is raised."""
    with pytest.raises(FCLSegError, match=r"^ValueError, see problems.log in the site's folder of runs$"):
        ClipAndNoise(1.0, 0.0).process(Shareable(), site_context(tmp_path))
