"""The paper's communication table, computed from the exchange plan and the real components.

A component's size is that of what ``method.send`` returns, and the plan says when it is sent. The following rules
reproduce the paper's figures (1 MB = 10^6 bytes, per client and round, averaged over the run):

- floating-point tensors count: weights, BatchNorm's running statistics, features; integers do not: BatchNorm's
  counters and the bank's partition ids (1 byte per feature);
- the other sites' banks count as downloads, but not the upload of a site's own (``Flow.paper_counts_up``);
- every round counts the same, although the first round has no banks of other sites yet.

What is not counted is still listed under ``up_mb`` and ``down_mb``, so that nothing is hidden.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fclseg.anatomy.registry import DEFAULT, get_anatomy
from fclseg.federation.codecs.features import ROWS_BYTES, first_rows
from fclseg.federation.codecs.presets import PLAIN, RunCodec, get_codec
from fclseg.federation.states import SCALAR_BYTES, Arrays, array_bytes, to_arrays
from fclseg.methods.exchange import DISTANCE, OTHERS, ROWS, Flow, Row, crosses
from fclseg.methods.registry import build_method
from fclseg.presets import Preset

REFERENCE = "fcl"
"""The job whose payload is 1 in the paper's table."""


@dataclass
class Traffic:
    """Bytes of one client per round (or their mean over rounds), by component, and the part that the paper counts."""

    up: dict[str, float] = field(default_factory=dict)
    down: dict[str, float] = field(default_factory=dict)
    counted: float = 0.0

    @property
    def uncounted(self) -> float:
        return sum(self.up.values()) + sum(self.down.values()) - self.counted


def counted_bytes(arrays: Arrays) -> int:
    """The bytes of a component that the paper counts: those of its floating-point tensors."""
    return sum(array.nbytes for array in arrays.values() if array.dtype.kind == "f")


def component_arrays(row: Row, preset: Preset) -> dict[str, Arrays]:
    """Every component of the row's plan, as a newly built method would send it."""
    method = build_method(row, preset, seed=0)
    return {flow.component: to_arrays(method.send(flow.component)) for flow in row.flows if flow.component != DISTANCE}


def with_prototypes(row: Row, components: Mapping[str, Arrays], vectors: int) -> dict[str, Arrays]:
    """The components of a site that sends at most so many mean features instead of those of single slices."""
    passed_on = {flow.component for flow in row.flows if flow.combine == OTHERS}
    return {name: first_rows(part, vectors) if name in passed_on else part for name, part in components.items()}


def mean_traffic(
    row: Row,
    components: Mapping[str, Arrays],
    *,
    sites: int,
    rounds: Sequence[int],
    calibration_rounds: int,
    codec: RunCodec | None = None,
) -> Traffic:
    """What one of ``sites`` clients sends and receives per round, averaged over the given ``rounds``.

    With a codec it is an upper bound, because the actual size depends on the values.
    """
    traffic = Traffic()
    for flow in row.flows:
        size, counted = _sizes(flow, components, codec)
        copies = sites - 1 if flow.combine == OTHERS else 1
        up, down = (
            sum(crosses(when, number, calibration_rounds) for number in rounds) / len(rounds)
            for when in (flow.up, flow.down)
        )
        if up:
            traffic.up[flow.component] = up * size
            traffic.counted += up * counted * flow.paper_counts_up
        if down:
            traffic.down[flow.component] = down * copies * size
            traffic.counted += down * copies * counted
    return traffic


def communication_table(
    preset: Preset,
    *,
    sites: int = 10,
    rounds: int | None = None,
    codec: str | None = None,
    prototypes: int | None = None,
) -> dict[str, dict[str, Any]]:
    """The table by the paper's row names: ``payload_mb``, ``ratio`` (FCL = 1), ``up_mb`` and ``down_mb``...

    ``codec`` replaces each job's own, and ``prototypes`` per partition replace features. Ratios are relative to FCL
    without either, as in the paper.
    """
    components = {job: component_arrays(row, preset) for job, row in ROWS.items()}
    vectors = prototypes and prototypes * get_anatomy(DEFAULT).partitions

    def traffic(job: str, name: str, vectors: int | None = None) -> Traffic:
        row, plain = ROWS[job], components[job]
        return mean_traffic(
            row,
            with_prototypes(row, plain, vectors) if vectors else plain,
            sites=sites,
            rounds=range(rounds or preset.pretraining.rounds),
            calibration_rounds=preset.pretraining.calibration_rounds,
            codec=get_codec(name),
        )

    reference = traffic(REFERENCE, PLAIN).counted
    return {
        row.title: _entry(row, codec or row.codec, traffic(row.job, codec or row.codec, vectors), reference)
        for row in ROWS.values()
    }


def _entry(row: Row, codec: str, traffic: Traffic, reference: float) -> dict[str, Any]:
    return {
        "job": row.job,
        "codec": codec,
        "payload_mb": traffic.counted / 1e6,
        "ratio": traffic.counted / reference,
        "up_mb": {component: size / 1e6 for component, size in traffic.up.items()},
        "down_mb": {component: size / 1e6 for component, size in traffic.down.items()},
        "uncounted_mb": traffic.uncounted / 1e6,
    }


def _sizes(flow: Flow, components: Mapping[str, Arrays], codec: RunCodec | None) -> tuple[int, int]:
    """All bytes of one transfer of the flow's component, and those that the paper counts (all, if encoded)."""
    if flow.component == DISTANCE:
        return SCALAR_BYTES, SCALAR_BYTES
    arrays = components[flow.component]
    if codec:
        bound = codec.of(flow).bound(arrays) + (ROWS_BYTES if flow.combine == OTHERS else 0)
        return bound, bound
    return array_bytes(arrays), counted_bytes(arrays)
