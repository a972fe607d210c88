"""Measurements of one label map: volumes in ml and mass in g, per structure and per slice."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import ndimage

from fclseg.anatomy.base import Anatomy, EjectionFraction, Mass, Wall
from fclseg.inference.segment import Segmentation

FEWEST_WALL = 0.8
LEAST_PART = 0.5
FEWEST_STABLE = 0.8
LEAST_CONTRAST = 3.0
"""Below these values a result is flagged for review: the part of a cavity's outline that borders on its wall, the
heart's part of all that the search took for one, the overlap of labels from turned and scaled images, and the contrast
between cavity and wall relative to the noise. The last one was chosen on phantoms: it is at least 6.0 in 12 clean ones
and at most 1.5 in the same ones with strong noise (40 ACDC patients, experts' label maps: at least 8.4)."""
MOST_HOLES = 0.01
MOST_CUT = 0.45
MOST_JUMP = 1.75
FARTHEST_MM = 80.0
BRIGHTEST_MEDIAN = 0.5
"""Above these values a result is flagged, too. In brackets, the largest value in 40 ACDC patients:

- holes as a fraction of what is outlined;
- the smaller of a cavity's areas in the first and last slice as a fraction of its largest area (.42). Chosen on 40
  phantoms: 15 of 17 stacks without their three basal and apical slices exceed it, and 7 of 40 complete ones;
- the LV's area in a slice relative to the larger one of the two slices beside it (experts' label maps: 1.54 in patients
  with odd numbers, by which it was chosen, and 1.68 in the others);
- the distance of the heart from the image's centre (66 mm);
- the median grey value, which is low wherever blood and fat are the brightest tissues (.26, and .39 if images are
  cropped to 10 mm around the heart)."""


@dataclass
class Measurement:
    """One volume: millilitres and, if the anatomy asks for it, grams per structure, and what to check."""

    patient: str
    phase: str | None
    image: str
    ml: dict[str, float]
    g: dict[str, float] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    frame: int | None = None
    slices_ml: dict[str, list[float]] = field(default_factory=dict)
    off_centre_mm: Sequence[float] | None = None
    voxel_mm: Sequence[float] = ()
    reliability: dict[str, tuple[float, float]] = field(default_factory=dict)  # agreement and expected Dice
    search: float | None = None  # the heart's part of all that the search took for one
    remarks: list[str] = field(default_factory=list)
    mirrored: bool = False  # it looks more like a heart if left and right are exchanged

    @property
    def likeness(self) -> float:
        """How much like a heart it looks to the network, 0 to 1."""
        return float(np.mean([min(one) for one in self.reliability.values()])) if self.reliability else 1.0


def millilitres(labels: np.ndarray, spacing: Sequence[float], anatomy: Anatomy) -> dict[str, float]:
    """Count the voxels of every structure. 1000 mm3 are one millilitre."""
    count = np.bincount(labels.ravel(), minlength=anatomy.classes)
    voxel_ml = float(np.prod(spacing)) / 1000
    return {one.name: float(count[one.value]) * voxel_ml for one in anatomy.structures}


def measure(found: Segmentation, spacing: Sequence[float], anatomy: Anatomy, **who: str | int | None) -> Measurement:
    """All measurements of one volume, with flags; ``who`` is patient, phase, image and frame."""
    ml = millilitres(found.labels, spacing, anatomy)
    masses = [one for one in anatomy.measurements if isinstance(one, Mass)]
    per_slice = [millilitres(found.labels[..., s], spacing, anatomy) for s in range(found.labels.shape[2])]
    slices_ml = {name: [one[name] for one in per_slice] for name in anatomy.names}
    g = {one.structure: ml[one.structure] * one.g_per_ml for one in masses}
    place = found.off_centre_mm
    return Measurement(
        ml=ml,
        g=g,
        flags=_flags(found, ml),
        remarks=_remarks(found, anatomy, slices_ml),
        slices_ml=slices_ml,
        off_centre_mm=place,
        voxel_mm=spacing,
        reliability={one.structure: (one.agreement, one.expected) for one in found.reliability},
        search=found.agreement,
        **who,  # type: ignore[arg-type]
    )


def _flags(found: Segmentation, ml: dict[str, float]) -> list[str]:
    """What makes a result useless, whatever else it looks like."""
    flags = [f"no {name} found" for name, value in ml.items() if value == 0]
    if found.contrast is not None and found.contrast < LEAST_CONTRAST:
        flags.append("blood hardly differs from the wall around it: the image may be too noisy")
    if found.median_grey is not None and found.median_grey > BRIGHTEST_MEDIAN:
        flags.append("most of the image is bright: its grey values may be inverted")
    return flags


def _remarks(found: Segmentation, anatomy: Anatomy, slices_ml: dict[str, list[float]]) -> list[str]:
    """What is unusual in a heart. Without a calibration it is all there is to judge a result by (``risk.py``)."""
    remarks = []
    for one in anatomy.measurements:
        if isinstance(one, EjectionFraction) and _has_gap(slices_ml[one.structure]):
            remarks.append(f"{one.structure} is missing in a slice although the slices around it have it")
        if isinstance(one, Wall) and (share := wall_share(found.labels, anatomy, one)) < FEWEST_WALL:
            remarks.append(f"{100 * (1 - share):.0f} % of the {one.cavity}'s outline has no {one.wall} behind it")
    for one in cavities(anatomy)[:1]:
        if _is_cut(slices_ml[one.structure]):
            remarks.append(f"{one.structure} is large in the first and in the last slice: slices may be missing")
        if _has_jump(slices_ml[one.structure]):
            remarks.append(f"{one.structure} is much larger in one slice than in the slices beside it")
    if hole_share(found.labels) > MOST_HOLES:
        remarks.append("the outlined area has holes")
    if found.off_centre_mm is not None and math.hypot(*found.off_centre_mm) > FARTHEST_MM:
        remarks.append(f"the heart was found {math.hypot(*found.off_centre_mm):.0f} mm from the middle of the image")
    if found.agreement is not None and found.agreement < LEAST_PART:
        remarks.append("the heart was hard to find")
    if found.stability is not None and found.stability < FEWEST_STABLE:
        remarks.append("the outlines change a lot when the image is turned slightly")
    return remarks


def wall_share(labels: np.ndarray, anatomy: Anatomy, one: Wall) -> float:
    """The fraction of the cavity's outline, within slices, that borders on its wall; 1 if there is no cavity."""
    cavity = labels == anatomy.structure(one.cavity).value
    wall = anatomy.structure(one.wall).value
    neighbours = []
    for axis in (0, 1):
        for step in (1, -1):
            beside = np.roll(labels, step, axis)
            neighbours.append(beside[cavity & ~np.roll(cavity, step, axis)])
    outline = np.concatenate(neighbours)
    return float((outline == wall).mean()) if len(outline) else 1.0


def _has_gap(amounts: Sequence[float]) -> bool:
    used = np.flatnonzero(np.array(amounts) > 0)
    return len(used) > 0 and len(used) < used[-1] - used[0] + 1


def _is_cut(amounts: Sequence[float]) -> bool:
    """Whether the stack ends within the cavity on both sides. At the base alone it usually does."""
    return len(amounts) > 1 and min(amounts[0], amounts[-1]) > MOST_CUT * max(amounts)


def _has_jump(amounts: Sequence[float]) -> bool:
    """Whether a slice between two others has far more than both. A heart changes little from slice to slice."""
    beside = zip(amounts, amounts[1:], amounts[2:], strict=False)
    return any(0 < MOST_JUMP * max(above, below) < middle for above, middle, below in beside)


def hole_share(labels: np.ndarray) -> float:
    """Background that is enclosed within slices, as a fraction of the outlined area."""
    outlined = labels > 0
    holes = sum(int((ndimage.binary_fill_holes(plane) & ~plane).sum()) for plane in np.moveaxis(outlined, -1, 0))
    return holes / max(1, int(outlined.sum()))


def cavities(anatomy: Anatomy) -> list[EjectionFraction]:
    """The structures that have an ejection fraction."""
    return [one for one in anatomy.measurements if isinstance(one, EjectionFraction)]


def first_cavity(anatomy: Anatomy) -> str | None:
    """The cavity that determines which frames are ED and ES."""
    return next((one.structure for one in cavities(anatomy)), None)


def ejection_fraction(end_diastole_ml: float, end_systole_ml: float) -> float | None:
    """100 (EDV - ESV) / EDV in %; None if the end-diastolic volume is zero."""
    return 100 * (end_diastole_ml - end_systole_ml) / end_diastole_ml if end_diastole_ml > 0 else None


def by_patient(measurements: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    patients: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        patients.setdefault(measurement.patient, []).append(measurement)
    return patients
