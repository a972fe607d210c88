"""The server's side of runs in which it learns only sums (``sums_only``): the steps around a task, and what is counted.

``docs/secure_sums.md`` describes the protocol. Answers are added up as they arrive, so the server needs one vector of
memory, however many sites there are.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fclseg.engine.attendance import reasons
from fclseg.engine.messages import SUM_TASK, Message
from fclseg.engine.place import Place, server_name
from fclseg.engine.run_settings import RunSettings
from fclseg.errors import PassingError
from fclseg.federation.codecs.codec import checksum
from fclseg.federation.states import Arrays
from fclseg.methods.exchange import ALWAYS, MEAN, Row
from fclseg.secure_sums.identity import RootTrust, SimulatedTrust, Trust
from fclseg.secure_sums.masks import Shape, Vector
from fclseg.secure_sums.occasion import Occasion, digest

SUM = "sum"
"""Entry of a message's metadata with what a step needs, and of its encoded components with the masked numbers."""

CONTEXT = "context"
"""Entry of the metadata of a masked answer: the name of what the site was sent."""
DISTANCE_SHAPE = Shape(narrow=0, wide=2, bits=1)
"""The sum of the sites' distances, and how many they are."""
DISTANCE_STEPS = 2.0**44

Ask = Callable[[str, dict[str, Message], int, Callable[[str, Message], None]], dict[str, str]]
"""(task, message per site, time-out, what to do with an answer) -> the sites that failed, and why."""


class RoundSum(Protocol):
    """The sum over the sites of what they answer to one task."""

    def prepare(self, sites: list[str]) -> dict[str, str]:
        """Before the task. Returns the sites that cannot take part, and why."""
        ...

    @property
    def members(self) -> int:
        """The number of sites that the modulus must have room for."""
        ...

    def start(self, shape: Shape, context: str) -> None: ...

    def addressed(self, site: str, message: Message) -> Message:
        """The task with what this site needs for the sum."""
        ...

    def accept(self, site: str, message: Message) -> None: ...

    def open(self, failures: Mapping[str, str]) -> tuple[Vector, list[str]]:
        """The sum and the sites in it. ``failures``: why others are not in it, for the error if there are too few."""
        ...


class MaskedSum:
    """With masks: five steps, of which the task itself is the third."""

    def __init__(self, settings: RunSettings, run: Mapping[str, Any], number: int, task: str, ask: Ask, trust: Trust):
        from fclseg.secure_sums.collector import (
            Collector,  # imports the library for shares, which other runs never need
        )

        # The attempt is the time, so that it also grows when the server is started again.
        self.occasion = Occasion(str(run["id"]), number, task, time.time_ns() // 10**6)
        self._collector = Collector(self.occasion, trust, settings.min_sites)
        self._run, self._ask, self._timeout = run, ask, settings.distance_timeout

    def prepare(self, sites: list[str]) -> dict[str, str]:
        collector = self._collector
        failures = self._step("keys", dict.fromkeys(sites), collector.accept_keys)
        self._check("keys", len(collector.roster.sites), failures)
        roster = collector.roster.to_dict()
        failures |= self._step("shares", dict.fromkeys(roster, roster), collector.accept_shares)
        self._check("shares", len(collector.sharing), failures)
        return failures

    @property
    def members(self) -> int:
        return len(self._collector.roster.sites)

    def start(self, shape: Shape, context: str) -> None:
        self._collector.start(shape, context)

    def addressed(self, site: str, message: Message) -> Message:
        message.meta[SUM] = {"attempt": self.occasion.attempt, "inbox": self._collector.inbox(site)}
        return message

    def accept(self, site: str, message: Message) -> None:
        self._collector.accept_vector(site, message.encoded.pop(SUM, None))

    def open(self, failures: Mapping[str, str]) -> tuple[Vector, list[str]]:
        collector = self._collector
        survivors = list(collector.survivors)
        self._check(self.occasion.task, len(survivors), failures)
        failed = self._step("agreement", dict.fromkeys(survivors, survivors), collector.accept_agreement)
        self._check("agreement", len(collector.signatures), failed)
        signatures = dict(collector.signatures)
        failed |= self._step("reveal", dict.fromkeys(signatures, signatures), collector.accept_reveal)
        self._check("reveal", collector.revealed, failed)
        return collector.result(), survivors

    def _step(self, step: str, asked: Mapping[str, Any], accept: Callable[[str, Any], None]) -> dict[str, str]:
        """One step at these sites, each with what it is given."""
        about = {"step": step, "task": self.occasion.task, "attempt": self.occasion.attempt}
        messages = {
            site: Message(meta={"round": self.occasion.round, "run": self._run, SUM: {**about, "given": given}})
            for site, given in asked.items()
        }
        return self._ask(SUM_TASK, messages, self._timeout, lambda site, answer: accept(site, answer.meta.get(SUM)))

    def _check(self, step: str, answered: int, failures: Mapping[str, str]) -> None:
        try:
            self._collector.check_enough(step, answered)
        except PassingError as error:
            raise PassingError(f"{error} ({reasons(failures)})") from None


class OpenSum:
    """Without masks: the same integers, in the open (``sum_masks: false``), to compare with."""

    def __init__(self) -> None:
        self._sites: list[str] = []
        self._counted: list[str] = []
        self._total: Vector | None = None

    def prepare(self, sites: list[str]) -> dict[str, str]:
        self._sites = sites
        return {}

    @property
    def members(self) -> int:
        return len(self._sites)

    def start(self, shape: Shape, context: str) -> None:
        self._total = Vector.zeros(shape)

    def addressed(self, site: str, message: Message) -> Message:
        message.meta[SUM] = {"members": self.members}
        return message

    def accept(self, site: str, message: Message) -> None:
        assert self._total is not None, "start comes first"
        self._total.add(Vector.unpack(self._total.shape, message.encoded.pop(SUM, None)))
        self._counted.append(site)

    def open(self, failures: Mapping[str, str]) -> tuple[Vector, list[str]]:
        if self._total is None or not self._counted:
            raise PassingError(f"no site answered, so there is nothing to sum ({reasons(failures)})")
        return self._total, sorted(self._counted)


def feedback(row: Row) -> frozenset[str]:
    """The components whose rounding errors are sent later: those that come down again."""
    return frozenset(flow.component for flow in row.flows if flow.down == ALWAYS and flow.combine == MEAN)


def sum_context(row: Row, received: Mapping[str, Arrays], *sent: Any) -> str:
    """A name for everything that all sites were sent for a sum. It is part of every mask, so that a server which sends
    one site something else, to tell its update from the others', gets noise."""
    names = sorted(feedback(row) & set(received))
    return digest({name: checksum(received[name]).hex() for name in names}, *sent)


def trust_of(place: Place) -> Trust:
    """Whose signatures a party accepts: those of the root certificate in its startup kit."""
    if place.simulated:
        return SimulatedTrust()
    return RootTrust(place.workspace / "startup" / "rootCA.pem", server_name(place.workspace))
