"""PTNU and DP as filters: a message before and after, and that nothing passes unchecked."""

import numpy as np
import pytest
from contexts import server_context, site_context
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply

from fclseg.errors import FCLSegError
from fclseg.federation.distance import distance
from fclseg.federation.ptnu import predict_target
from fclseg.federation.states import to_arrays, to_tensors
from fclseg.flare.filters.ptnu import PredictTarget, TargetToDistance
from fclseg.flare.memory import SiteState
from fclseg.flare.messages import Message
from fclseg.flare.place import Place
from fclseg.flare.settings import RunSettings
from fclseg.flare.site import Site
from fclseg.methods.registry import build_method

SETTINGS = RunSettings.read({"job": "fclopt_dp", "changes": {"channels": [2, 4], "hidden": 4}}, {})


@pytest.fixture
def site(tmp_path):
    return Site(Place("site-1", tmp_path, "job"), SETTINGS, "run-1", ["site-1"])


def _meta(round_number):
    return {"round": round_number, "run": {"id": "run-1", "settings": SETTINGS.to_dict(), "sites": ["site-1"]}}


def _apply(filter_, message, context=None):
    return Message.from_shareable(filter_.process(message.to_shareable(), context or FLContext()))


def _network(seed, component="online"):
    return to_arrays(build_method("fclopt_dp", SETTINGS.build_preset(), seed).send(component))


def test_a_message_survives_the_way_through_dxo():
    message = Message({"online": _network(0)}, {"bank": {"b": _network(1)}}, 0.25, _meta(3))
    again = Message.from_shareable(message.to_shareable())
    assert again.distance == 0.25 and again.round_number == 3 and list(again.others["bank"]) == ["b"]
    assert all(np.array_equal(again.components["online"][key], value) for key, value in _network(0).items())
    size = sum(array.nbytes for array in _network(0).values())
    assert again.payload() == {"online": size, "bank": size, "distance": 8}


def test_the_server_sends_a_distance_instead_of_the_target():
    online, target = _network(0), _network(1)
    sent = _apply(TargetToDistance(), Message({"online": online, "target": target}, meta=_meta(1)))
    assert set(sent.components) == {"online"} and sent.distance == distance(online, target)


def test_a_predicted_distance_is_left_alone():
    assert _apply(TargetToDistance(), Message(distance=0.5, meta=_meta(1))).distance == 0.5


def _train(site, round_number, seed):
    method = build_method("fclopt_dp", SETTINGS.build_preset(), seed)
    site.memory.save(SiteState(round_number, method.state_dict(), {}))


@pytest.mark.parametrize("cached", [False, True], ids=["online in the message", "online from the distance task"])
def test_the_site_predicts_the_target_from_its_own(site, cached, tmp_path):
    online, own = _network(0), _network(1, "target")
    _train(site, 4, seed=1)
    d = 0.5 * distance(online, own)
    if cached:
        site.memory.keep_global(7, {"online": to_tensors(online)})
    message = Message({} if cached else {"online": online}, distance=d, meta=_meta(7))
    received = _apply(PredictTarget(), message, site_context(tmp_path))
    expected = predict_target(online, own, d, SETTINGS.build_preset().pretraining.ptnu_momentum)
    assert received.distance is None
    assert all(np.array_equal(received.components["target"][key], value) for key, value in expected.items())


def test_a_site_that_never_trained_starts_from_the_initial_network(site, tmp_path):
    online, initial = _network(9), _network(SETTINGS.seed, "target")
    message = Message({"online": online}, distance=2.0 * distance(online, initial), meta=_meta(5))
    received = _apply(PredictTarget(), message, site_context(tmp_path))
    assert all(np.array_equal(received.components["target"][key], value) for key, value in initial.items())


INCOMPLETE = Message({"online": _network(0)}, meta=_meta(1)).to_shareable()  # neither target nor distance
SERVER, SITE = TargetToDistance, PredictTarget


def _with_distance(value):
    return Message({"online": _network(0)}, distance=value, meta=_meta(1)).to_shareable()


@pytest.mark.parametrize(
    ("filter_", "message", "complaint"),
    [
        (SERVER, INCOMPLETE, "needs the target network or its predicted distance"),
        (SITE, INCOMPLETE, "the task contains no distance"),
        (SITE, Message(distance=0.5, meta=_meta(1)).to_shareable(), "contained the online network"),
        *(
            (filter_, message, complaint)
            for filter_ in (SERVER, SITE)
            for message, complaint in (
                (_with_distance(float("nan")), "nan is not a distance"),
                (_with_distance(-1.0), "-1.0 is not a distance"),
                (DXO(DataKind.WEIGHTS, data=_network(0)).to_shareable(), "not a collection of components"),
                (
                    DXO(DataKind.COLLECTION, data={}).to_shareable(),
                    "collection of components with a round",
                ),
            )
        ),
    ],
)
def test_filters_refuse_what_they_cannot_handle(filter_, message, complaint, tmp_path):
    context = server_context(tmp_path) if filter_ is SERVER else site_context(tmp_path)
    with pytest.raises(FCLSegError, match=complaint):
        filter_().process(message, context)


def test_failed_results_pass_as_they_are(tmp_path):
    failed = make_reply(ReturnCode.EXECUTION_EXCEPTION)
    assert PredictTarget().process(failed, site_context(tmp_path)) is failed


def test_what_a_filter_trips_over_stays_at_the_site(tmp_path):
    """An unexpected error may contain a file name, and NVFlare logs what is raised, so only its type is raised."""
    with pytest.raises(FCLSegError, match=r"^ValueError, see problems.log in the site's folder of runs$"):
        PredictTarget().process(Shareable(), site_context(tmp_path))
    assert "not a valid DXO" in (tmp_path / "runs" / "problems.log").read_text()
