"""The numbers of a result, with their units and intervals, and what is known about the patient's body."""

import math
from dataclasses import dataclass

PER_SURFACE = " per body surface"


@dataclass(frozen=True)
class Body:
    """What is known about the patient besides the images."""

    height_cm: float | None = None
    weight_kg: float | None = None
    heart_rate: float | None = None  # beats per minute
    sex: str | None = None  # "male" or "female"
    age: float | None = None  # years

    @property
    def surface_m2(self) -> float | None:
        """Mosteller's formula."""
        if self.height_cm is None or self.weight_kg is None:
            return None
        return math.sqrt(self.height_cm * self.weight_kg / 3600)


@dataclass(frozen=True)
class Value:
    """One line of the result. Implausible values are marked as such and never shown as plain results."""

    name: str
    number: float
    unit: str
    plausible: bool = True
    caution: str = ""
    interval: tuple[float, float] | None = None  # low and high, if the model was calibrated

    def __str__(self) -> str:
        """As precise as such a measurement is: whole millilitres, grams and per cent, tenths of a litre per minute."""
        if not self.plausible:
            return f"not plausible ({self.text})"
        if self.interval is None:
            return self.text
        low, high = self.interval
        return f"{self.text} ({low:.{self._digits}f} to {high:.{self._digits}f})"

    @property
    def text(self) -> str:
        return f"{self.number:.{self._digits}f} {self.unit}"

    @property
    def _digits(self) -> int:
        return 1 if self.unit.startswith("l/min") else 0
