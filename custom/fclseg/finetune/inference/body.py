"""Height, weight and heart rate, if known: from ``Info.cfg`` next to the image and from the time axis of a cine."""

import contextlib
from pathlib import Path

import nibabel as nib

from fclseg.anatomy.families.acdc import INFO
from fclseg.anatomy.records import Volume
from fclseg.finetune.inference.function import Body

HEIGHT_CM, WEIGHT_KG, BEATS = (50.0, 250.0), (3.0, 350.0), (25.0, 220.0)
SECONDS = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6}


def body_of(volumes: list[Volume]) -> Body:
    """What is known about the patient of these volumes. Impossible values count as unknown."""
    entries = _entries(volumes[0].image.parent / INFO)
    rate = _number(entries, "HeartRate", BEATS)
    cine = next((volume for volume in volumes if volume.time_index is not None), None)
    if rate is None and cine is not None:
        rate = _rate(cine.image)
    return Body(_number(entries, "Height", HEIGHT_CM), _number(entries, "Weight", WEIGHT_KG), rate)


def _entries(path: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        pairs = (line.split(":", 1) for line in lines if ":" in line)
        return {name.strip(): value.strip() for name, value in pairs}
    return {}


def _number(entries: dict[str, str], name: str, bounds: tuple[float, float]) -> float | None:
    with contextlib.suppress(ValueError):
        value = float(entries.get(name, ""))
        if bounds[0] <= value <= bounds[1]:
            return value
    return None


def _rate(path: Path) -> float | None:
    """Beats per minute, if the frames of a 4D file cover one cycle and the header gives their duration."""
    header = nib.load(path).header
    seconds = SECONDS.get(header.get_xyzt_units()[1])
    zooms = header.get_zooms()
    if seconds is None or len(zooms) < 4 or not zooms[3] > 0:
        return None
    rate = 60 / (float(zooms[3]) * seconds * header.get_data_shape()[3])
    return rate if BEATS[0] <= rate <= BEATS[1] else None
