"""A run's codec as filters: the sender replaces networks by bytes, and the receiver decodes them.

The server decodes in its round loop (``fclseg.flare.coding``), where the reference for decoding is known.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

from nvflare.apis.fl_context import FLContext

from fclseg.errors import FCLSegError, PublicError
from fclseg.federation.codecs.codec import Codec
from fclseg.federation.codecs.features import decode_features, encode_features
from fclseg.federation.codecs.presets import RunCodec
from fclseg.federation.downlink import INITIAL, follow, message_seed, reference
from fclseg.federation.states import Arrays, to_arrays, to_tensors
from fclseg.flare.filters.base import MessageFilter
from fclseg.flare.messages import NEEDS_WHOLE, Message
from fclseg.flare.place import Place
from fclseg.flare.site import Site
from fclseg.flare.tensors import State, StateError


class SendEncoded(MessageFilter):
    """Server, outgoing, last filter: a network that the round loop has encoded leaves as bytes only."""

    def change(self, message: Message, fl_ctx: FLContext) -> Message:
        message.components = {name: part for name, part in message.components.items() if name not in message.encoded}
        return message


class DecodeDownload(MessageFilter):
    """Site, incoming, first filter: decodes the bytes into the same networks that the server decoded from them."""

    def change(self, message: Message, fl_ctx: FLContext) -> Message:
        site = Site.of(Place.of_site(fl_ctx), message)
        codec = site.codec
        if codec is None or not (message.encoded or message.others):
            return message
        initial = site.build_method()
        if message.encoded:
            start = {name: initial.send(name) for name in message.encoded}
            with site.memory.held():
                message.components |= self._networks(site, codec.networks, message, start)
            message.encoded = {}
        for name, states in message.others.items():
            like = to_arrays(initial.send(name))
            message.others[name] = {
                other: decode_features(codec.features, parts, like) for other, parts in states.items()
            }
        return message

    def _networks(self, site: Site, codec: Codec, message: Message, start: dict[str, State]) -> dict[str, Arrays]:
        """Decode against the newest networks of this site from which the server's can be reached. The learner stores
        the result, because nothing may be written before the gate has admitted the run."""
        reasons = []
        for number, held in chain(_kept(site, message.round_number), [(INITIAL, start)]):
            try:
                networks = {
                    name: follow(codec, site.settings.seed, name, to_arrays(held[name]), number, messages)
                    for name, messages in message.encoded.items()
                }
            except (FCLSegError, LookupError, ValueError) as error:
                reasons.append(str(error))
                continue
            return networks
        raise PublicError(
            f"{site.place.name} cannot decode the networks of round {message.round_number} ({reasons[0]}): "
            f"{NEEDS_WHOLE}"
        )


def _kept(site: Site, round_number: int) -> Iterator[tuple[int, dict[str, State]]]:
    """The networks of earlier rounds, up to the first damaged file."""
    with suppress(StateError):
        yield from site.memory.recall_globals(round_number)


class EncodeUpload(MessageFilter):
    """Site, outgoing, last filter: networks leave as bytes, corrected by earlier rounding errors (error feedback)."""

    def change(self, message: Message, fl_ctx: FLContext) -> Message:
        if not message.components and not message.others:
            return message
        site = Site.of(Place.of_site(fl_ctx), message)
        codec = site.codec
        if codec is None:
            return message
        with site.memory.held():
            self._encode_networks(site, codec, message)
        for name, states in message.others.items():
            message.others[name] = {owner: encode_features(codec.features, arrays) for owner, arrays in states.items()}
        return message

    def _encode_networks(self, site: Site, codec: RunCodec, message: Message) -> None:
        number, kept = message.round_number, {}
        came_down = {name: to_arrays(part) for name, part in site.memory.recall_global(number).items()}
        lost = {name: to_arrays(part) for name, part in site.memory.recall_feedback(number).items()}
        for flow in [flow for flow in site.settings.row.flows if flow.component in message.components]:
            name = flow.component
            arrays = message.components.pop(name)
            base = reference(name, came_down, arrays)
            if base is None:
                raise PublicError(
                    f"{site.place.name}: there is no network of round {number} to encode component '{name}' against"
                )
            seed = message_seed(site.settings.seed, site.place.name, number, name)
            sent = codec.of(flow).encode(arrays, base, seed=seed, memory=lost.get(name))
            message.encoded[name] = {f"{number:04d}": sent.message}
            if name in came_down:  # for other components the server needs the current state, not the sum of all changes
                kept[name] = to_tensors(sent.memory)
        site.memory.keep_feedback(number, kept)
