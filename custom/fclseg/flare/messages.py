"""The contents of a task or a result, as NVFlare's DXO and as plain Python.

A message is a COLLECTION with one entry per component: WEIGHTS for a network that is averaged, a COLLECTION of
APP_DEFINED by site for what is passed on between sites (features, which NVFlare's filters must not treat as weights),
METRICS for the distance. Its metadata state the run and the round it belongs to.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.shareable import Shareable

from fclseg import __version__
from fclseg.errors import PublicError
from fclseg.federation.distance import check_distance
from fclseg.federation.exchange import DISTANCE
from fclseg.federation.features import as_many_rows
from fclseg.federation.states import SCALAR_BYTES, Arrays, array_bytes, check_state

DISTANCE_TASK, PRETRAIN_TASK = "distance", "pretrain"
ENCODED = ":encoded"
"""Suffix of a component's name if it is sent as bytes. NVFlare's filters do not see these as WEIGHTS, either."""
NEEDS_WHOLE = "the whole networks are sent next time"
"""Part of the error of a site that could not decode what it was sent."""
CALIBRATES = "calibrates"
"""Meta data of a task: False if the server skips this round's calibration."""
REASON = "fclseg_reason"
"""Header of a failed result: one sentence for the server's log."""


@dataclass
class Message:
    """Averaged components by name, passed-on components by name and site, the distance, and metadata."""

    components: dict[str, Arrays] = field(default_factory=dict)
    others: dict[str, dict[str, Arrays]] = field(default_factory=dict)
    distance: float | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    encoded: dict[str, Arrays] = field(default_factory=dict)  # components as bytes, see fclseg.federation.downlink

    @property
    def round_number(self) -> int:
        return self.meta["round"]

    def to_dxo(self) -> DXO:
        data = {name: DXO(DataKind.WEIGHTS, data=arrays) for name, arrays in self.components.items()}
        for name, states in self.others.items():
            by_site = {site: DXO(DataKind.APP_DEFINED, data=arrays) for site, arrays in states.items()}
            data[name] = DXO(DataKind.COLLECTION, data=by_site)
        for name, messages in self.encoded.items():
            data[name + ENCODED] = DXO(DataKind.APP_DEFINED, data=messages)
        if self.distance is not None:
            data[DISTANCE] = DXO(DataKind.METRICS, data={"d": float(self.distance)})
        return DXO(DataKind.COLLECTION, data=data, meta=dict(self.meta))

    def to_shareable(self) -> Shareable:
        return self.to_dxo().to_shareable()

    @classmethod
    def from_dxo(cls, dxo: DXO) -> "Message":
        number = dxo.meta.get("round")
        if dxo.data_kind != DataKind.COLLECTION or type(number) is not int or not isinstance(dxo.data, dict):
            raise PublicError(
                "a message is not a collection of components with a round: run the same version everywhere"
            )
        message = cls(meta=dict(dxo.meta))
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

    @classmethod
    def from_shareable(cls, shareable: Shareable) -> "Message":
        return cls.from_dxo(from_shareable(shareable))

    def payload(self) -> dict[str, int]:
        """All bytes by component, integers included."""
        sizes = {name: array_bytes(arrays) for name, arrays in self.components.items()}
        for name, states in self.others.items():
            sizes[name] = sum(array_bytes(arrays) for arrays in states.values())
        for name, messages in self.encoded.items():
            sizes[name] = sizes.get(name, 0) + array_bytes(messages)
        if self.distance is not None:
            sizes[DISTANCE] = SCALAR_BYTES
        return sizes


def _arrays(part: object) -> Arrays:
    if not isinstance(part, DXO) or not isinstance(part.data, dict):
        raise PublicError("a message has a component without tensors: run the same version everywhere")
    return dict(part.data)


def check_message(message: Message, like: Mapping[str, Arrays], sender: str) -> None:
    """Refuse unknown components, wrong shapes and values that are not finite. The error names the sender."""
    parts = [(name, arrays) for name, arrays in message.components.items()]
    features = [(name, arrays) for name, states in message.others.items() for arrays in states.values()]
    for name, _ in (*parts, *features):
        if name not in like:
            raise PublicError(f"{sender}: unknown component '{name}': run the same version and job at every site")
    for name, arrays in parts:
        check_state(arrays, like[name], sender, name)
    for name, arrays in features:
        check_state(arrays, as_many_rows(like[name], arrays), sender, name)


def check_version(server: object) -> None:
    """Refuse the tasks of a server of another version: the same settings may mean something else there.

    Servers of the first version do not say theirs.
    """
    if server is not None and server != __version__:
        raise PublicError(
            f"the server runs version {server!s:.20} of fclseg but this site {__version__}: install the same version"
        )
