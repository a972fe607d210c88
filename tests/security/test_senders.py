"""A site is who its token says, whatever its messages claim: tasks, answers, curves and heartbeats."""

from types import SimpleNamespace

import pytest
from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.message import Message as CellMessage
from nvflare.private.defs import CellMessageHeaderKeys
from nvflare.private.fed.server.fed_server import FederatedServer
from nvflare.private.fed.server.server_command_agent import ServerCommandAgent

from fclseg.flare.patches.authenticated import trust_tokens

CLIENTS = {f"token-{number}": SimpleNamespace(name=f"site-{number}") for number in (1, 2)}
ENTRANCES = [
    (ServerCommandAgent, "_execute_command"),
    (ServerCommandAgent, "_aux_communicate"),
    (FederatedServer, "client_heartbeat"),
]


@pytest.fixture(params=ENTRANCES, ids=lambda entrance: entrance[1])
def names(request, monkeypatch):
    """The names that NVFlare's own code would see in a message with this token and claim."""
    owner, entrance = request.param
    seen = []

    def original(receiver, message):
        seen.append(message.payload.get_peer_prop(ReservedKey.IDENTITY_NAME, None))
        seen.append(message.payload.get_peer_context().get_identity_name())

    for place, name in ENTRANCES:
        monkeypatch.setattr(place, name, original)
    trust_tokens()
    trust_tokens()
    manager = SimpleNamespace(clients=CLIENTS)
    receiver = SimpleNamespace(
        engine=SimpleNamespace(server=SimpleNamespace(client_manager=manager)), client_manager=manager
    )

    def names(token, claim):
        context, payload = FLContext(), Shareable()
        context.set_public_props({ReservedKey.IDENTITY_NAME: claim, "other": 1})
        payload.set_peer_context(context)
        payload.set_peer_props({ReservedKey.IDENTITY_NAME: claim})
        getattr(owner, entrance)(receiver, CellMessage({CellMessageHeaderKeys.TOKEN: token}, payload))
        assert payload.get_peer_context().get_prop("other") == 1
        return {seen.pop(), seen.pop()}

    return names


@pytest.mark.parametrize("claim", ["site-1", "site-2", "server", "../../outside", ""])
def test_the_name_is_that_of_the_token(names, claim):
    assert names("token-2", claim) == {"site-2"}


def test_without_a_token_nobody_is_a_site(names):
    assert names("forged", "site-1") == {""}
    assert names(None, "server") == {"server"}
