"""What is known of the patient's body: from the user, ``Info.cfg`` next to the image, or a cine's time axis."""

import contextlib
from pathlib import Path

import nibabel as nib

from fclseg.anatomy.info import INFO, read_info
from fclseg.anatomy.normals import MEN, WOMEN
from fclseg.anatomy.records import Volume
from fclseg.errors import DataError
from fclseg.inference.values import Body

HEIGHT_CM, WEIGHT_KG, BEATS, YEARS = (50.0, 250.0), (3.0, 350.0), (25.0, 220.0), (0.0, 120.0)
SECONDS = {"sec": 1.0, "msec": 1e-3, "usec": 1e-6}


def body_of(volumes: list[Volume], given: Body) -> Body:
    """What is known about the patient of these volumes; ``given`` comes first. Impossible values count as unknown."""
    entries = read_info(volumes[0].image.parent / INFO)
    rate = given.heart_rate or _number(entries, "HeartRate", BEATS)
    cine = next((volume for volume in volumes if volume.time_index is not None), None)
    if rate is None and cine is not None:
        rate = _rate(cine.image)
    height, weight = _number(entries, "Height", HEIGHT_CM), _number(entries, "Weight", WEIGHT_KG)
    sex = given.sex or (entries["Sex"] if entries.get("Sex") in (MEN, WOMEN) else None)
    age = given.age if given.age is not None else _number(entries, "Age", YEARS)
    return Body(given.height_cm or height, given.weight_kg or weight, rate, sex, age)


def stated_body(
    height_cm: float | None,
    weight_kg: float | None,
    heart_rate: float | None,
    sex: str | None = None,
    age: float | None = None,
) -> Body:
    """What the user states about a patient. Impossible values are refused."""
    for name, value, (low, high), unit in (
        ("height", height_cm, HEIGHT_CM, "cm"),
        ("weight", weight_kg, WEIGHT_KG, "kg"),
        ("heart rate", heart_rate, BEATS, "beats per minute"),
        ("age", age, YEARS, "years"),
    ):
        if value is not None and not low <= value <= high:
            raise DataError(f"a {name} of {value:g} {unit} is impossible: give {low:g} to {high:g} {unit}")
    return Body(height_cm, weight_kg, heart_rate, sex, age)


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
