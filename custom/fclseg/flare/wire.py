"""A message as NVFlare carries it, and what a party's process knows about itself from NVFlare's context.

A message is a COLLECTION with one entry per component: WEIGHTS for a network that is averaged, a COLLECTION of
APP_DEFINED by site for what is passed on between sites (features, which NVFlare's filters must not treat as weights),
METRICS for the distance.
"""

import math
from pathlib import Path

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import JobMetaKey
from nvflare.apis.shareable import Shareable

from fclseg.engine.messages import Message
from fclseg.engine.place import Place, check_site_name
from fclseg.errors import FCLSegError, PublicError
from fclseg.federation.distance import check_distance
from fclseg.federation.states import Arrays
from fclseg.methods.exchange import DISTANCE
from fclseg.text import one_line

ENCODED = ":encoded"
"""Suffix of a component's name if it is sent as bytes. NVFlare's filters do not see these as WEIGHTS, either."""
REASON = "fclseg_reason"
"""Header of a failed result: one sentence for the server's log."""
SIMULATED_JOB = "simulate_job"
"""The job id that NVFlare's simulator gives to every job. Ids of real jobs come from the NVFlare server."""


def to_dxo(message: Message) -> DXO:
    data = {name: DXO(DataKind.WEIGHTS, data=arrays) for name, arrays in message.components.items()}
    for name, states in message.others.items():
        by_site = {site: DXO(DataKind.APP_DEFINED, data=arrays) for site, arrays in states.items()}
        data[name] = DXO(DataKind.COLLECTION, data=by_site)
    for name, messages in message.encoded.items():
        data[name + ENCODED] = DXO(DataKind.APP_DEFINED, data=messages)
    if message.distance is not None:
        data[DISTANCE] = DXO(DataKind.METRICS, data={"d": float(message.distance)})
    return DXO(DataKind.COLLECTION, data=data, meta=dict(message.meta))


def to_shareable(message: Message) -> Shareable:
    return to_dxo(message).to_shareable()


def from_dxo(dxo: DXO) -> Message:
    number = dxo.meta.get("round")
    if dxo.data_kind != DataKind.COLLECTION or type(number) is not int or not isinstance(dxo.data, dict):
        raise PublicError("a message is not a collection of components with a round: run the same version everywhere")
    message = Message(meta=dict(dxo.meta))
    for name, entry in dxo.data.items():
        if not isinstance(entry, DXO) or not isinstance(entry.data, dict):
            raise PublicError(f"a message has no component in '{name!s:.40}': run the same version everywhere")
        if name == DISTANCE:
            message.distance = check_distance(entry.data.get("d", math.nan), "the message")
        elif str(name).endswith(ENCODED):
            message.encoded[name.removesuffix(ENCODED)] = _arrays(entry)
        elif entry.data_kind == DataKind.COLLECTION:
            message.others[name] = {str(site): _arrays(part) for site, part in entry.data.items()}
        else:
            message.components[name] = _arrays(entry)
    return message


def _arrays(part: object) -> Arrays:
    if not isinstance(part, DXO) or not isinstance(part.data, dict):
        raise PublicError("a message has a component without tensors: run the same version everywhere")
    return dict(part.data)


def read_task(shareable: Shareable) -> Message:
    """The message of a task, at its site."""
    return from_dxo(from_shareable(shareable))


def read_result(result: Shareable) -> Message:
    """The message of a result, on the server. Raises with the site's reason if its task failed."""
    code = result.get_return_code()
    if code != ReturnCode.OK:
        fallback = f"the site answered {code}; see the site's own log for the reason"
        raise FCLSegError(one_line(result.get_header(REASON) or fallback))
    return from_dxo(from_shareable(result))


def site_place(fl_ctx: FLContext) -> Place:
    """A site detects a simulation by the flag that NVFlare's simulator sets in its own process."""
    return _place(fl_ctx, fl_ctx.get_identity_name(), fl_ctx.get_prop(FLContextKey.SIMULATE_MODE, False) is True)


def server_place(fl_ctx: FLContext) -> Place:
    return _place(fl_ctx, "server", fl_ctx.get_job_id() == SIMULATED_JOB)


def _place(fl_ctx: FLContext, name: str, simulated: bool) -> Place:
    meta = fl_ctx.get_prop(FLContextKey.JOB_META) or {}
    root = Path(fl_ctx.get_workspace().get_root_dir())
    submitter = str(meta.get(JobMetaKey.SUBMITTER_NAME, ""))
    return Place(check_site_name(name), root, fl_ctx.get_job_id(), simulated, submitter)
