"""A site's side of runs in which the server learns only sums: the steps of the protocol, and the masked answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fclseg.engine.messages import DISTANCE_TASK, PRETRAIN_TASK, Message
from fclseg.engine.sums import CONTEXT, DISTANCE_SHAPE, DISTANCE_STEPS, SUM, feedback, sum_context, trust_of
from fclseg.errors import PublicError
from fclseg.federation.codecs.codec import checksum
from fclseg.federation.downlink import reference
from fclseg.federation.states import Arrays, to_arrays, to_tensors
from fclseg.secure_sums.integers import REPORTED, Scales, SumPlan, Update
from fclseg.secure_sums.masks import Vector
from fclseg.secure_sums.occasion import Occasion, digest

if TYPE_CHECKING:
    from fclseg.engine.gate import OpenGate
    from fclseg.engine.site import Site
    from fclseg.secure_sums.member import Member

LARGEST_DISTANCE = 2.0**10
SUMMED_TASKS = (PRETRAIN_TASK, DISTANCE_TASK)
SUMMED = "summed"
"""In the site's folder of runs: with whom each of its updates was summed."""


def answer_step(gate: OpenGate) -> Message:
    """Keys, shares, agreement or reveal."""
    site, task = gate.site, gate.task
    asked = _asked(task)
    with site.memory.held():
        if asked.get("task") not in SUMMED_TASKS:  # it becomes a part of a file's name
            raise PublicError("a secure sum is for no known task: run the same version everywhere")
        member = _member(gate, asked["task"], asked)
        steps: dict[str, Callable[[Any], Any]] = {
            "keys": lambda given: member.keys(),
            "shares": member.shares,
            "agreement": member.agreement,
            "reveal": member.reveal,
        }
        if asked.get("step") not in steps:
            raise PublicError(f"a secure sum has no step {asked.get('step')!r:.20}: run the same version everywhere")
        reply = steps[asked["step"]](asked.get("given"))
    return _reply(task, {SUM: reply})


def distance_in_sum(gate: OpenGate, made: Message) -> Message:
    """dp_c as a part of a sum. Like an update, it is in one sum only; it is zero before a site has trained."""
    assert made.distance is not None
    whole = round(min(made.distance, LARGEST_DISTANCE) * DISTANCE_STEPS)
    context = sum_context(gate.site.settings.row, gate.task.components)
    name = digest(gate.site.name, DISTANCE_TASK, made.distance) if made.distance else ""
    return _hidden(gate, context, lambda sites: Vector.of(DISTANCE_SHAPE, np.zeros(0), np.array([whole, 1])), name)


def update_in_sum(gate: OpenGate, made: Message, told: float | None) -> Message:
    """The released networks as a part of a sum; ``told``: the distance that came down with the task."""
    site, task, settings = gate.site, gate.task, gate.site.settings
    number, keeps = task.round_number, feedback(settings.row)
    scales = read_scales(site, task)
    received = {name: arrays for name, arrays in gate.received().items() if name in keeps}  # not what it predicted
    context = sum_context(settings.row, received, told, scales.name, sorted(made.components))
    base: dict[str, Arrays] = {}
    for name, arrays in made.components.items():
        if (known := reference(name, received, arrays)) is None:
            raise PublicError(f"{site.name}: there is no network to compare component '{name}' with")
        base[name] = known

    def make(sites: int) -> Vector:
        plan = SumPlan(made.components, scales, sites, keeps)
        report = {name: float(made.meta[name]) for name in REPORTED}
        samples = 1 if settings.shares_noise else capped_samples(made.meta["samples"], scales, settings.weight_cap)
        lost = {name: to_arrays(part) for name, part in site.memory.recall_feedback(number).items()}
        vector, memory = plan.encode(Update(made.components, base, samples, report), lost)
        site.memory.keep_feedback(number, {name: to_tensors(part) for name, part in memory.items()})
        return vector

    update = digest(site.name, {name: checksum(arrays).hex() for name, arrays in made.components.items()})
    return _hidden(gate, context, make, update)


def read_scales(site: Site, task: Message) -> Scales:
    """The scales of a task; the number of bits is the run's."""
    try:
        scales = Scales.read(_asked(task)["scales"])
    except (LookupError, TypeError, ValueError, AttributeError):
        raise PublicError("the scales of a sum are damaged: run the same version everywhere") from None
    own = Scales(site.settings.sum_bits)
    # With common noise nothing may be rounded, clipped or cut off after it: one site's noise alone is too little.
    if scales.bits != own.bits or (site.settings.shares_noise and scales.name != own.name):
        raise PublicError("the scales of a sum are not those of the run: run the same version everywhere")
    return scales


def capped_samples(samples: int, scales: Scales, cap: float) -> int:
    """n_c, at most ``cap`` times the mean of the last round. The server cannot compare the sites' numbers itself."""
    return min(samples, math.floor(cap * scales.weight)) if scales.norms else samples


def _hidden(gate: OpenGate, context: str, make: Any, update: str = "") -> Message:
    """A message with nothing but the numbers, under masks if the run has masks."""
    asked = _asked(gate.task)
    with gate.site.memory.held():
        if gate.site.settings.sum_masks:
            parts = _member(gate, gate.task_name, asked).masked(asked.get("inbox") or {}, context, make, update)
        else:
            parts = make(int(asked["members"])).pack()
    message = _reply(gate.task, {CONTEXT: context})
    message.encoded = {SUM: parts}
    return message


def _asked(task: Message) -> dict[str, Any]:
    asked = task.meta.get(SUM)
    if not isinstance(asked, dict):
        raise PublicError("this run sums only, but the task has nothing for a sum: run the same version everywhere")
    return asked


def _member(gate: OpenGate, task: str, asked: dict[str, Any]) -> Member:
    from fclseg.secure_sums.member import Member
    from fclseg.secure_sums.records import SumRecords

    site = gate.site
    if type(asked.get("attempt")) is not int:
        raise PublicError("a secure sum has no attempt: run the same version everywhere")
    if not site.memory.on_disk:
        raise PublicError("secure sums need a run with a folder: a site's keys are on its disk")
    occasion = Occasion(site.run_id, gate.task.round_number, task, asked["attempt"])
    trust = trust_of(site.place)
    summed = None if site.place.simulated else site.place.runs / SUMMED
    return Member(site.identity, trust, occasion, SumRecords(site.memory.folder / "sums", summed), gate.fewest)


def members(gate: OpenGate) -> int:
    """The number of sites in this task's sum."""
    member = _member(gate, gate.task_name, _asked(gate.task))
    return len(member.records.current(member.occasion).adverts)


def _reply(task: Message, meta: dict[str, Any]) -> Message:
    return Message(meta={"round": task.round_number, "run": task.meta["run"], **meta})
