"""Complete phantom data sets on disk, in the layouts of the ACDC and HVSMR challenges.

Everything is determined by the seed: patient ``i`` does not depend on the other patients in the data set, and scanner
``k`` does not depend on the patients it images.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from fclseg.errors import DataError
from fclseg.phantom.body import paint_heart, thorax
from fclseg.phantom.family import FAMILIES, SEEN, Family, get_family
from fclseg.phantom.heart import LV, MYO, RV, Heart, beat, contraction
from fclseg.phantom.plane import Contrast, Plane
from fclseg.phantom.scanner import Scanner, acquire
from fclseg.randomness import derive_seed

FRAMES = 10
"""Frames of the written heart cycle."""

BREATH_HOLD = 0.8
"""Standard deviation (mm) of the slice misalignment, because each slice is acquired in its own breath-hold."""


ABOVE_BASE = ((-1.0, 0.6), (0.0, 2.6), (0.5, 4.0))
"""How many slices a stack begins above the mitral valve: operators plan it tightly or with a margin."""


@dataclass(frozen=True)
class Acquisition:
    """One patient on one scanner: images and labels [X, Y, Z, T]."""

    images: np.ndarray  # int16
    labels: np.ndarray  # uint8, values of ACDC
    atrium: np.ndarray  # bool: blood above the valves, which ACDC leaves unlabelled
    end_systole: int


def write_phantom(
    out: str | Path,
    anatomy: str = "acdc",
    patients: int = 10,
    seed: int = 0,
    sites: int = 1,
    frames: int = FRAMES,
    family: str = SEEN,
) -> list[Path]:
    """Write a data set into the folder ``out`` and return one path per patient (ACDC folder or HVSMR image).

    Patients are assigned to ``sites`` scanners in turn (see ``scanner_of``). ``frames`` is the length of the heart
    cycle in ACDC's layout; HVSMR has only one phase. ``family`` decides which hearts and scanners there are
    (``family.py``). The folder appears complete or not at all.
    """
    out = Path(out)
    if anatomy not in WRITERS:
        raise DataError(f"there is no phantom for anatomy '{anatomy}': choose one of {', '.join(WRITERS)}")
    if patients < 1 or sites < 1 or frames < 2:
        raise DataError(
            f"a phantom needs at least 1 patient, 1 site and 2 frames, not {patients}, {sites} and {frames}"
        )
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise DataError(f"{out} exists and is not an empty folder: choose another folder or empty it")
        return _write_atomically(out, WRITERS[anatomy], patients, seed, sites, frames, get_family(family))
    except OSError as error:
        raise DataError(f"the phantom cannot be written to {out} ({error.strerror}): choose another folder") from error


def scanner_of(patient: int, sites: int) -> int:
    """The scanner (0 ... sites - 1) of the patient with this number (1, 2, ...)."""
    return (patient - 1) % sites


def phantom_sites(patients: int, sites: int) -> dict[str, list[str]]:
    """Site name -> ACDC patient names, one scanner per site: the split in which sites really differ."""
    return {
        f"site-{k + 1}": [f"patient{i:03d}" for i in range(1, patients + 1) if scanner_of(i, sites) == k]
        for k in range(sites)
    }


def draw_heart(seed: int, patient: int, family: Family = FAMILIES[SEEN]) -> Heart:
    return Heart.draw(_rng(seed, "heart", patient), family.groups)


def draw_scanner(seed: int, site: int, family: Family = FAMILIES[SEEN]) -> Scanner:
    return Scanner.draw(_rng(seed, "scanner", site), family.protocol)


def patient_rng(seed: int, patient: int) -> np.random.Generator:
    """Decides everything about a patient's examination, apart from heart and scanner."""
    return _rng(seed, "scan", patient)


def stack(heart: Heart, scanner: Scanner, rng: np.random.Generator) -> np.ndarray:
    """Heights of the slices: from near the mitral valve to near the apex, as an operator would place them."""
    first = heart.length + rng.uniform(*rng.choice(ABOVE_BASE)) * scanner.slice_spacing
    return np.arange(first, rng.uniform(-1.6, 1.5) * heart.wall, -scanner.slice_spacing)


def scan(
    heart: Heart, scanner: Scanner, rng: np.random.Generator, frames: int, heights: np.ndarray, breath: float = 0.0
) -> Acquisition:
    """Image a heart in slices at ``heights`` (mm above the apex, in slice order), misaligned by ``breath`` (mm)."""
    x, y = scanner.grid()
    tissue = Contrast(*(signal * rng.uniform(0.85, 1.15) for signal in astuple(scanner.contrast)))
    plane = Plane(x, y, heights.astype(np.float32), scanner.pixel, tissue)
    pulse = beat(heart, x, y, heights, breath * rng.standard_normal((len(heights), 2)), frames)
    scene = thorax(rng, plane, heart, pulse)
    atrium = paint_heart(rng, scene, plane, heart, pulse)
    arrays = (acquire(rng, scene, scanner), pulse.labels(), atrium)
    images, labels, above = (np.ascontiguousarray(array.transpose(2, 3, 1, 0)) for array in arrays)
    return Acquisition(images, labels, above, contraction(frames)[1])


def _rng(seed: int, *keys: object) -> np.random.Generator:
    return np.random.default_rng(derive_seed(seed, "phantom", *keys))


def _write_atomically(
    out: Path, writer: Callable[..., Any], patients: int, seed: int, sites: int, frames: int, family: Family
) -> list[Path]:
    out.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        written = [
            writer(
                building,
                i,
                draw_heart(seed, i, family),
                draw_scanner(seed, scanner_of(i, sites), family),
                patient_rng(seed, i),
                frames,
            )
            for i in range(1, patients + 1)
        ]
        building.chmod(0o755)
        if out.exists():
            out.rmdir()
        building.rename(out)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return [out / path.relative_to(building) for path in written]


def _write_acdc(
    root: Path, patient: int, heart: Heart, scanner: Scanner, rng: np.random.Generator, frames: int
) -> Path:
    acquired = scan(heart, scanner, rng, frames, stack(heart, scanner, rng), BREATH_HOLD)
    name = f"patient{patient:03d}"
    folder = root / name
    folder.mkdir()
    spacing = (scanner.pixel, scanner.pixel, scanner.slice_spacing)
    _save(folder / f"{name}_4d.nii.gz", acquired.images, (*spacing, rng.uniform(0.7, 1.1) / frames))
    for frame in (0, acquired.end_systole):
        stem = f"{name}_frame{frame + 1:02d}"
        _save(folder / f"{stem}.nii.gz", acquired.images[..., frame], spacing)
        _save(folder / f"{stem}_gt.nii.gz", acquired.labels[..., frame], spacing)
    height = rng.normal(170, 9)
    info = {
        "ED": 1,
        "ES": acquired.end_systole + 1,
        "Group": heart.group,
        "Height": f"{height:.1f}",
        "NbFrame": frames,
        "Weight": f"{rng.uniform(19, 32) * (height / 100) ** 2:.1f}",
    }
    (folder / "Info.cfg").write_text("".join(f"{key}: {value}\n" for key, value in info.items()))
    return folder


def _write_hvsmr(
    root: Path, patient: int, heart: Heart, scanner: Scanner, rng: np.random.Generator, frames: int
) -> Path:
    """One resting phase of a nearly isotropic scan, cropped to the heart."""
    spacing = round(scanner.pixel * 0.9, 3)
    rows, columns = (round(n * 0.6) for n in scanner.matrix)
    close_up = replace(scanner, matrix=(rows, columns), pixel=spacing)
    heights = np.arange(heart.length * 1.25, -2 * heart.wall, -spacing)
    acquired = scan(heart, close_up, rng, 1, heights)
    labels = np.select([acquired.labels == MYO, np.isin(acquired.labels, (RV, LV)) | acquired.atrium], [1, 2], 0)
    image = root / f"training_axial_crop_pat{patient - 1}.nii.gz"
    _save(image, acquired.images[..., 0], (spacing,) * 3)
    _save(root / f"training_axial_crop_pat{patient - 1}-label.nii.gz", labels[..., 0].astype(np.uint8), (spacing,) * 3)
    return image


WRITERS = {"acdc": _write_acdc, "hvsmr": _write_hvsmr}


def _save(path: Path, array: np.ndarray, spacing: tuple[float, ...]) -> None:
    """A NIfTI file in millimetres and seconds whose world origin is the centre of the image."""
    affine = np.diag([-spacing[0], -spacing[1], spacing[2], 1.0])
    affine[:3, 3] = -affine[:3, :3] @ ((np.array(array.shape[:3]) - 1) / 2)
    image = nib.Nifti1Image(array, affine)
    image.header.set_xyzt_units("mm", "sec")
    image.header.set_zooms(spacing)
    nib.save(image, path)
