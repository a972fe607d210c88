"""Normal ranges of healthy adults, with their sources. Papillary muscles count as cavity, as in the labels of ACDC."""

from collections.abc import Mapping
from dataclasses import dataclass

Range = tuple[float, float]
MEN, WOMEN = "male", "female"


@dataclass(frozen=True)
class Normal:
    """The range of a quantity in healthy men and women, and the ages that were studied."""

    quantity: str
    men: Range
    women: Range
    source: str
    ages: Range = (18, 120)

    def ranges(self, sex: str | None) -> Mapping[str, Range]:
        """The ranges that apply: one if the sex is known, else both."""
        both = {MEN: self.men, WOMEN: self.women}
        return {sex: both[sex]} if sex in both else both

    def outside(self, number: float, sex: str | None) -> str:
        """ "low" or "high" if a number is outside of every range that applies; else empty."""
        ranges = self.ranges(sex).values()
        if all(number < low for low, _ in ranges):
            return "low"
        return "high" if all(number > high for _, high in ranges) else ""


_BIOBANK = "Petersen et al., J Cardiovasc Magn Reson 2017;19:18 (UK Biobank, aged 45 to 74): mean ± 2 SD"
_META = "Zhan et al., Circ Cardiovasc Imaging 2024;17:e016090 (52 studies): 95 % range"
_SCMR = (
    "Kawel-Boehm et al., J Cardiovasc Magn Reson 2025;27:101853 (SCMR, pooled adults): 95 % range, as others quote it"
)
"""The paper's tables could not be read. Two sources quote them, one for cavities with papillary muscles (these numbers)
and one without (RV: 49-117 and 47-99, 12-56 and 11-43 ml/m2, from 44 and 49 %), and fit together."""


def _biobank(quantity: str, men: Range, women: Range) -> Normal:
    """Mean and standard deviation -> range."""
    (low, high), (lower, higher) = ((mean - 2 * sd, mean + 2 * sd) for mean, sd in (men, women))
    return Normal(quantity, (low, high), (lower, higher), _BIOBANK, (45, 74))


ADULT_HEARTS = (
    _biobank("LV end-diastolic volume", (166, 32), (124, 21)),
    _biobank("LV end-systolic volume", (69, 16), (49, 11)),
    _biobank("LV stroke volume", (96, 20), (75, 14)),
    _biobank("LV stroke volume per body surface", (49, 10), (45, 8)),
    _biobank("LV ejection fraction", (58, 5), (61, 5)),
    _biobank("MYO mass per body surface", (53, 9), (42, 7)),
    Normal("LV end-diastolic volume per body surface", (60, 109), (56, 96), _META),
    Normal("RV ejection fraction", (44, 100), (47, 100), _SCMR),
    Normal("RV end-diastolic volume per body surface", (47, 116), (44, 99), _SCMR),
    Normal("RV end-systolic volume per body surface", (16, 52), (13, 43), _SCMR),
)
