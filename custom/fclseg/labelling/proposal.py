"""What to label next: slices of many patients and all places of the heart, drawn at random.

Twenty slices of twenty hearts teach more than twenty of one, and they should show base, middle and apex at ED and ES.
So the order goes through these places in turn. At each, the patients with the fewest slices so far come first, and one
of their slices is drawn. Slices of which the network is least sure taught it less, and so did slices that are far from
the labelled ones in its features (docs/results/labelled_slices.csv).
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np

PARTS = ("base", "middle", "apex")
TURNS = (("middle", "ED"), ("base", "ES"), ("apex", "ED"), ("middle", "ES"), ("base", "ED"), ("apex", "ES"))
"""The places of a heart in the order in which they are proposed. Any six consecutive slices show all of them."""

Key = tuple[str, int | None, int]
"""Patient, frame and slice (0 is the most basal one)."""


@dataclass(frozen=True)
class Candidate:
    """A slice that could be labelled."""

    patient: str
    frame: int | None
    slice: int
    part: str  # one of PARTS
    phase: str | None

    @property
    def key(self) -> Key:
        return self.patient, self.frame, self.slice


def parts_of(present: np.ndarray) -> list[str | None]:
    """For each slice, base first, its part of the organ; None for slices far from it.

    ``present`` says in which slices the network found something. One slice more on either side belongs to it, because
    where the ventricle ends is what networks learn last.
    """
    found = np.flatnonzero(present)
    first, last = (int(found[0]), int(found[-1])) if len(found) else (0, len(present) - 1)
    first, last = max(0, first - 1), min(len(present) - 1, last + 1)
    names: list[str | None] = [None] * len(present)
    for number in range(first, last + 1):
        names[number] = PARTS[min(2, 3 * (number - first) // (last - first + 1))]
    return names


def propose(candidates: Sequence[Candidate], labelled: Iterable[Key], count: int) -> list[Candidate]:
    """The next ``count`` slices to label, in order; fewer if there are not so many."""
    done = set(labelled)
    left = {candidate.key: candidate for candidate in candidates if candidate.key not in done}
    slices = Counter(patient for patient, _, _ in done)
    chosen: list[Candidate] = []
    for part, phase in _from_turn(len(done)):
        if len(chosen) == count or not left:
            break
        here = [one for one in left.values() if one.part == part and one.phase in (phase, None)]
        if not here:
            if not any(one.part == p and one.phase in (q, None) for one in left.values() for p, q in TURNS):
                break
            continue
        fewest = min(slices[one.patient] for one in here)
        here = [one for one in here if slices[one.patient] == fewest]
        drawn = min(here, key=_order)
        chosen.append(left.pop(drawn.key))
        slices[drawn.patient] += 1
    return chosen


def _order(candidate: Candidate) -> str:
    """A random order that is always the same, so that a page that is opened again proposes the same slices."""
    return hashlib.sha256(repr(candidate.key).encode()).hexdigest()


def _from_turn(labelled: int) -> Iterable[tuple[str, str]]:
    """The turns without end, continued after the slices that are labelled already."""
    start = labelled % len(TURNS)
    return cycle(TURNS[start:] + TURNS[:start])
