"""Families of phantom patients: which hearts there are, and which scanners.

Networks that come with the package were trained on the family ``seen``. Demos and studies use ``unseen``, so that a
good result on a phantom is not just a network that recognises its own training data.
"""

from dataclasses import dataclass

from fclseg.errors import DataError
from fclseg.phantom.heart import GROUPS, Group
from fclseg.phantom.scanner import Protocol


@dataclass(frozen=True)
class Family:
    groups: dict[str, Group]
    protocol: Protocol


UNSEEN_GROUPS: dict[str, Group] = {
    "ATHLETE": Group(
        (0.52, 0.66), (32, 36), (12, 15), (0.9, 1.2), (0.5, 0.65)
    ),  # large and thick; all seen hearts are one or the other
    "AMYLOID": Group((0.30, 0.50), (20, 26), (12, 17), (0.8, 1.2), (0.25, 0.45)),  # thick walls that contract weakly
    "BIV": Group((0.12, 0.35), (33, 39), (6, 9), (1.25, 1.8), (0.1, 0.35)),  # both ventricles dilated
}

UNSEEN_PROTOCOL = Protocol(
    pixel=(1.65, 1.85),
    slice_spacing=(6.0, 7.5),
    myocardium=(0.43, 0.5),
    noise=(0.046, 0.055),
    blur=(0.68, 0.85),
    bias=(0.95, 1.2),
)
"""Coarser pixels, thinner slices, less contrast of the wall, more noise and shading than any seen scanner has."""

SEEN, UNSEEN = "seen", "unseen"
FAMILIES = {SEEN: Family(GROUPS, Protocol()), UNSEEN: Family(UNSEEN_GROUPS, UNSEEN_PROTOCOL)}


def get_family(name: str) -> Family:
    if name not in FAMILIES:
        raise DataError(f"there is no phantom family '{name}': choose one of {', '.join(FAMILIES)}")
    return FAMILIES[name]
