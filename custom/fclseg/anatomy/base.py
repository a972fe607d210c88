"""The description of one family of images, used by all other packages: structures, geometry, measurements, bundle."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fclseg.anatomy.normals import Normal, Range

if TYPE_CHECKING:
    from fclseg.anatomy.records import Scan

Tree = Mapping[Path, list[Path]]
"""The files of every folder below a root."""


@dataclass(frozen=True)
class Structure:
    """One label value. Colours also differ in brightness, for colour-blind readers."""

    value: int
    name: str  # short name for tables: "RV"
    title: str  # full name: "right ventricle"
    colour: str  # "#rrggbb"


@dataclass(frozen=True)
class Mass:
    """The mass of a structure from its volume."""

    structure: str
    g_per_ml: float
    plausible: Range = (0.0, float("inf"))  # g; a value outside is marked as implausible
    caution: str = field(default="", repr=False)


@dataclass(frozen=True)
class EjectionFraction:
    """100 (EDV - ESV) / EDV of a cavity, if both phases are available."""

    structure: str
    plausible: Range = (0.0, 100.0)  # %
    plausible_ml: Range = (0.0, float("inf"))  # at end-diastole
    caution: str = field(default="", repr=False)  # what measurements on held-out patients say about its accuracy


@dataclass(frozen=True)
class Wall:
    """A cavity that is surrounded by a wall in every slice."""

    cavity: str
    wall: str


@dataclass(frozen=True, kw_only=True)
class Anatomy:
    """One family of images. Label values are 1, 2, ... in the order of ``structures``; 0 is background."""

    name: str
    title: str
    structures: tuple[Structure, ...]
    spacing_mm: float  # in-plane pixel size that slices are resampled to, before the preset's scale
    bundle: str  # folder below bundles/
    slice_axis: int = 2  # used if neither the affine nor the voxel sizes determine it
    one_organ: bool = field(default=True, repr=False)  # False if the structures may lie apart, in several components
    compact: bool = False  # True if the structures fit into a network's window: located first and then segmented
    partitions: int = 4  # S: ordered groups of slices along the slice axis
    measurements: tuple[
        Mass | EjectionFraction | Wall, ...
    ] = ()  # the first cavity determines which frames are ED and ES
    normals: tuple[Normal, ...] = ()
    recognises: Callable[[Tree], bool] = field(repr=False, compare=False)
    read: Callable[["Scan", Tree], None] = field(repr=False, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the structures, in the order of their label values."""
        return tuple(structure.name for structure in self.structures)

    @property
    def classes(self) -> int:
        """Channels of a segmentation network: the structures and the background."""
        return len(self.structures) + 1

    def structure(self, name: str) -> Structure:
        return next(one for one in self.structures if one.name == name)

    def legend(self) -> list[dict[str, Any]]:
        """The structures as plain values, for files."""
        return [vars(structure) for structure in self.structures]

    def describe_values(self) -> str:
        """For messages: "1 RV, 2 MYO, 3 LV"."""
        return ", ".join(f"{structure.value} {structure.name}" for structure in self.structures)
