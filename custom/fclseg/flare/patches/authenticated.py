"""The name of a site comes from its authenticated connection, not from what its messages claim.

NVFlare checks the token of every message against the certificate with which a site has registered. But its events give
the name in the message's own properties, which a site can set to anything. ``trust_tokens`` replaces that name by the
one that the token belongs to, so that a site can neither answer, nor send curves or heartbeats, for another one.
"""

import functools
from collections.abc import Callable, Collection
from typing import Any

from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.message import Message as CellMessage
from nvflare.private.defs import CellMessageHeaderKeys
from nvflare.private.fed.server.fed_server import FederatedServer
from nvflare.private.fed.server.server_command_agent import ServerCommandAgent

NAME = ReservedKey.IDENTITY_NAME


def trust_tokens() -> None:
    """For this process, once: in the server's own process and in that of each job."""
    for owner, name, clients in (
        (ServerCommandAgent, "_execute_command", lambda agent: agent.engine.server.client_manager.clients),
        (ServerCommandAgent, "_aux_communicate", lambda agent: agent.engine.server.client_manager.clients),
        (FederatedServer, "client_heartbeat", lambda server: server.client_manager.clients),
    ):
        original = getattr(owner, name)
        if not hasattr(original, "__wrapped__"):
            setattr(owner, name, _with_true_name(original, clients))


def _with_true_name(original: Callable[..., Any], clients: Callable[[Any], dict[str, Any]]) -> Callable[..., Any]:
    @functools.wraps(original)
    def handle(receiver: Any, request: CellMessage) -> CellMessage:
        known = clients(receiver)
        sender = known.get(request.get_header(CellMessageHeaderKeys.TOKEN))
        set_name(request.payload, sender.name if sender else None, {client.name for client in known.values()})
        return original(receiver, request)

    return handle


def set_name(payload: object, name: str | None, sites: Collection[str]) -> None:
    """Replace the sender's name in a message. A sender without a token (the server) has no site's name."""
    if not isinstance(payload, Shareable):
        return
    props, context = payload.get_peer_props(), payload.get_peer_context()
    if isinstance(props, dict) and (name is not None or props.get(NAME) in sites):
        props[NAME] = name or ""
    if isinstance(context, FLContext) and (name is not None or context.get_identity_name() in sites):
        named = FLContext()
        named.set_public_props({**context.get_all_public_props(), NAME: name or ""})
        payload.set_peer_context(named)
