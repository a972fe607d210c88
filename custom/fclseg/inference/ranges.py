"""Values beside the normal ranges that apply to a patient."""

from dataclasses import dataclass

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.normals import MEN, WOMEN, Normal, Range
from fclseg.inference.function import PatientResult
from fclseg.inference.values import Body, Value

PEOPLE = {MEN: "men", WOMEN: "women"}
ADULT = 18


@dataclass(frozen=True)
class Judged:
    """A value, its normal range in words, and whether it is outside of it ("low", "high" or empty)."""

    value: Value
    normal: Normal
    text: str
    outside: str


def judge(result: PatientResult, anatomy: Anatomy) -> dict[str, Judged]:
    """By the name of the value. Children have other ranges, so they get none."""
    body = result.body
    if body.age is not None and body.age < ADULT:
        return {}
    normals = {normal.quantity: normal for normal in anatomy.normals}
    judged = {}
    for value in result.values:
        if (normal := normals.get(value.name)) is not None:
            outside = normal.outside(value.number, body.sex) if value.plausible else ""
            judged[value.name] = Judged(value, normal, _text(value, normal, body), outside)
    return judged


def age_remark(result: PatientResult, judged: dict[str, Judged]) -> str:
    """What the patient's age means for the ranges."""
    age = result.body.age
    if age is None:
        return ""
    if age < ADULT:
        return f"The patient is {age:.0f} years old: no ranges are shown, because they are those of adults."
    ages = {one.normal.ages for one in judged.values() if not one.normal.ages[0] <= age <= one.normal.ages[1]}
    if not ages:
        return ""
    low, high = min(ages)
    return f"The patient is {age:.0f} years old; the study of some ranges had people aged {low:g} to {high:g}."


def people(body: Body) -> str:
    return PEOPLE.get(body.sex or "", "adults")


def _text(value: Value, normal: Normal, body: Body) -> str:
    words = [f"{PEOPLE[sex]} {_interval(value, one)}" for sex, one in normal.ranges(body.sex).items()]
    return f"{', '.join(words)} {value.unit}"


def _interval(value: Value, limits: Range) -> str:
    low, high = limits
    return f"from {low:g}" if value.unit == "%" and high >= 100 else f"{low:g}–{high:g}"
