"""The site's side of a run's codec: decodes what arrives and encodes what leaves (``coding.py`` is the server's)."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain

from fclseg.engine.messages import NEEDS_WHOLE, Message
from fclseg.engine.site import Site
from fclseg.engine.state_files import StateError
from fclseg.errors import FCLSegError, PublicError
from fclseg.federation.codecs.codec import Codec
from fclseg.federation.codecs.features import decode_features, encode_features
from fclseg.federation.codecs.presets import RunCodec
from fclseg.federation.downlink import INITIAL, follow, reference
from fclseg.federation.states import Arrays, to_arrays, to_tensors
from fclseg.networks.loading import State


def decode_download(site: Site, codec: RunCodec, task: Message) -> None:
    """Decode the bytes of a task, in place, into the same networks that the server decoded from them."""
    if not (task.encoded or task.others):
        return
    initial = site.build_method()
    if task.encoded:
        start = {name: initial.send(name) for name in task.encoded}
        with site.memory.held():
            task.components |= _networks(site, codec.networks, task, start)
        task.encoded = {}
    for name, states in task.others.items():
        like = to_arrays(initial.send(name))
        task.others[name] = {other: decode_features(codec.features, parts, like) for other, parts in states.items()}


def _networks(site: Site, codec: Codec, task: Message, start: dict[str, State]) -> dict[str, Arrays]:
    """Decode against the newest networks of this site from which the server's can be reached."""
    reasons = []
    for number, held in chain(_kept(site, task.round_number), [(INITIAL, start)]):
        try:
            return {
                name: follow(codec, to_arrays(held[name]), number, messages) for name, messages in task.encoded.items()
            }
        except (FCLSegError, LookupError, ValueError) as error:
            reasons.append(str(error))
    raise PublicError(
        f"{site.name} cannot decode the networks of round {task.round_number} ({reasons[0]}): {NEEDS_WHOLE}"
    )


def _kept(site: Site, round_number: int) -> Iterator[tuple[int, dict[str, State]]]:
    """The networks of earlier rounds, up to the first damaged file."""
    with suppress(StateError):
        yield from site.memory.recall_globals(round_number)


def encode_upload(site: Site, codec: RunCodec, result: Message) -> None:
    """Encode a result in place. Networks are corrected by earlier rounding errors (error feedback)."""
    if not (result.components or result.others):
        return
    with site.memory.held():
        _encode_networks(site, codec, result)
    for name, states in result.others.items():
        result.others[name] = {owner: encode_features(codec.features, arrays) for owner, arrays in states.items()}


def _encode_networks(site: Site, codec: RunCodec, result: Message) -> None:
    number, kept = result.round_number, {}
    came_down = {name: to_arrays(part) for name, part in site.memory.recall_global(number).items()}
    lost = {name: to_arrays(part) for name, part in site.memory.recall_feedback(number).items()}
    for flow in [flow for flow in site.settings.row.flows if flow.component in result.components]:
        name = flow.component
        arrays = result.components.pop(name)
        base = reference(name, came_down, arrays)
        if base is None:
            raise PublicError(
                f"{site.name}: there is no network of round {number} to encode component '{name}' against"
            )
        sent = codec.of(flow).encode(arrays, base, memory=lost.get(name))
        result.encoded[name] = {f"{number:04d}": sent.message}
        if name in came_down:  # for other components the server needs the current state, not the sum of all changes
            kept[name] = to_tensors(sent.memory)
    site.memory.keep_feedback(number, kept)
