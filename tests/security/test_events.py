"""What a site can make the server's process do with an event: draw a point of a curve, and nothing else."""

import math
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from nvflare.apis.analytix import AnalyticsDataType
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FedEventHeader, FLContextKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.apis.utils.analytix_utils import create_analytic_dxo
from nvflare.fuel.utils import fobs
from nvflare.widgets.fed_event import ClientFedEventRunner, FedEventRunner, ServerFedEventRunner

from fclseg.flare.curves import FED_EVENT, SiteCurves, send_curves
from fclseg.flare.patches.known_events import accept_known_events
from fclseg.flare.tensorboard import RunCurves

SCALAR, SCALARS = AnalyticsDataType.SCALAR, AnalyticsDataType.SCALARS


@pytest.fixture(autouse=True)
def patched(monkeypatch):
    monkeypatch.setattr(FedEventRunner, "_receive", FedEventRunner._receive)
    accept_known_events()
    accept_known_events()  # once is enough


class Server:
    """NVFlare's own receiver of events and our receiver of curves, in a job's process."""

    def __init__(self, folder):
        self.runner, self.curves, self.fired = ServerFedEventRunner(), RunCurves("controller"), []
        self.folder, self.handlers = folder, {}
        self.controller = SimpleNamespace(run_path=lambda fl_ctx: folder)
        with self.new_context() as fl_ctx:
            self.runner.handle_event(EventType.START_RUN, fl_ctx)
            self.curves.handle_event(EventType.START_RUN, fl_ctx)

    @contextmanager
    def new_context(self):
        fl_ctx = FLContext()
        fl_ctx.set_prop(ReservedKey.ENGINE, self, private=True)
        fl_ctx.set_prop(ReservedKey.RUN_ABORT_SIGNAL, Signal(), private=True, sticky=True)
        yield fl_ctx

    def get_component(self, name):
        return self.controller

    def register_aux_message_handler(self, topic, message_handle_func):
        self.handlers[topic] = message_handle_func

    def fire_event(self, event_type, fl_ctx):
        self.curves.handle_event(event_type, fl_ctx)
        self.fired.append(event_type)

    def receive(self, request):
        request = fobs.loads(request if isinstance(request, bytes) else fobs.dumps(request))
        request.set_peer_props({ReservedKey.IDENTITY_NAME: "site-1"})
        (handle,) = self.handlers.values()
        with self.new_context() as fl_ctx:
            return handle(self.runner.topic, request, fl_ctx).get_return_code()

    def end(self):
        """Every accepted event has been fired, and every file written."""
        while self.runner.in_events:
            time.sleep(0.01)
        with self.new_context() as fl_ctx:
            self.runner.handle_event(EventType.END_RUN, fl_ctx)
            self.curves.handle_event(EventType.END_RUN, fl_ctx)


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path / "run" / "name")
    server.runner.grace_period = 0.1
    yield server
    server.end()


def message(event=FED_EVENT, tag="loss", value=1.5, kind=SCALAR, **more):
    request = create_analytic_dxo(tag=tag, value=value, data_type=kind, **{"global_step": 3, **more}).to_shareable()
    request.set_header(FedEventHeader.EVENT_TYPE, event)
    request.set_header(FedEventHeader.TIMESTAMP, time.time())
    return request


def without_data():
    request = Shareable()
    request.set_header(FedEventHeader.EVENT_TYPE, FED_EVENT)
    request.set_header(FedEventHeader.TIMESTAMP, time.time())
    return request


def test_what_a_site_sends_arrives(server, tmp_path):
    """From our own sender, through NVFlare's components of a site."""
    sent, components = [], [SiteCurves(), ClientFedEventRunner()]
    components[1].fire_and_forget_request = lambda request, **about: sent.append(fobs.dumps(request))
    engine = SimpleNamespace(
        fire_event=lambda event_type, fl_ctx: [component.handle_event(event_type, fl_ctx) for component in components]
    )
    fl_ctx = FLContext()
    fl_ctx.set_prop(ReservedKey.ENGINE, engine, private=True)
    fl_ctx.set_prop(FLContextKey.EVENT_SCOPE, "local", private=True, sticky=False)
    send_curves(components[0], fl_ctx, 3, loss=0.5, feature_std=1)
    answers = [server.receive(request) for request in sent]  # NVFlare also sends each as an event that nobody wants
    assert answers.count(ReturnCode.OK) == 2
    server.end()
    assert server.fired == [FED_EVENT] * 2 and list((server.folder / "tensorboard" / "site-1").iterdir())


ATTACKS = {
    "the end of the run": message(EventType.FATAL_SYSTEM_ERROR),
    "the end of the server": message(EventType.SYSTEM_END),
    "a job that ended": message(EventType.JOB_COMPLETED),
    "folders anywhere": message(kind=SCALARS, value={"/../../../../outside": 1.0}),
    "a picture": message(kind=AnalyticsDataType.IMAGE, value=[[0.0]]),
    "a text": message(kind=AnalyticsDataType.TEXT, value="text"),
    "a parameter": message(kind=AnalyticsDataType.PARAMETER),
    "another curve": message(tag="../loss"),
    "a number that is none": message(value=math.nan),
    "a large step": message(global_step=2**63),
    "a path": message(path="../../outside"),
    "more arguments": message(walltime=1.0),
    "no data": without_data(),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_everything_else_is_refused(server, tmp_path, attack):
    before = set(tmp_path.rglob("*"))
    assert server.receive(ATTACKS[attack]) == ReturnCode.BAD_REQUEST_DATA
    server.end()
    assert not server.fired and set(tmp_path.rglob("*")) == before
