"""Which protections are on and how strong they are. A job and a site's policy each have these settings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fclseg.errors import FCLSegError

NETWORKS = "networks"
"""The name under which the noise of an update is accounted: one clip applies to all networks together."""

FEWEST_MIXED, MOST_MIXED = 1, 16


@dataclass(frozen=True)
class PrivacySettings:
    """By default nothing is protected: sites send what the paper's methods send."""

    perturb: float = 0.0  # fraction of a feature's entries that are removed: those that reveal most about the image
    mix: int = 1  # images per feature; 1: features of single images
    prototypes: int | None = None  # mean features per partition instead of features; None: features
    feature_noise: float = 0.0  # standard deviation of the noise on each value of a unit feature
    clip: float | None = None  # largest Euclidean norm of an update; None: not clipped
    sigma: float = 0.0  # standard deviation of the noise on each value of an update, as a multiple of clip

    @classmethod
    def of(cls, values: object) -> "PrivacySettings":
        """Read from an object that has settings of these names, such as a job's settings or a policy."""
        return cls(**{name: getattr(values, name) for name in NAMES})

    @property
    def on_features(self) -> bool:
        return bool(self.perturb or self.mix > 1 or self.prototypes is not None or self.feature_noise)

    def shown(self) -> dict[str, Any]:
        """The protections that are on, for the audit."""
        return {name: getattr(self, name) for name in NAMES if getattr(self, name) != getattr(PrivacySettings, name)}

    def stricter(self, other: "PrivacySettings") -> "PrivacySettings":
        """The stricter value of each setting: more is removed, mixed, averaged, clipped and blurred."""
        return PrivacySettings(
            perturb=max(self.perturb, other.perturb),
            mix=max(self.mix, other.mix),
            prototypes=_smaller(self.prototypes, other.prototypes),
            feature_noise=max(self.feature_noise, other.feature_noise),
            clip=_smaller(self.clip, other.clip),
            sigma=max(self.sigma, other.sigma),
        )


NAMES = tuple(one.name for one in fields(PrivacySettings))
NO_PROTECTION = PrivacySettings()


def check_privacy(values: Mapping[str, Any], whose: str) -> None:
    """Refuse invalid values; ``whose`` is "the job" or "the site's policy"."""
    for name, (fits, wanted) in WANTED.items():
        if name in values and not fits(values[name]):
            raise FCLSegError(f"{whose} has '{name}' as {values[name]!r}: give {wanted}")
    if values.get("sigma") and values.get("clip") is None:
        raise FCLSegError(f"{whose} has 'sigma' but no 'clip', which sigma is a multiple of: give both")


def _smaller(first: Any, second: Any) -> Any:
    """The lower of two bounds; None means no bound."""
    return min((value for value in (first, second) if value is not None), default=None)


def _number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


WANTED = {
    "perturb": (lambda value: _number(value) and 0 <= value < 1, "a number >= 0 and < 1"),
    "mix": (
        lambda value: type(value) is int and FEWEST_MIXED <= value <= MOST_MIXED,
        f"a whole number from {FEWEST_MIXED} to {MOST_MIXED}",
    ),
    "prototypes": (
        lambda value: value is None or (type(value) is int and value >= 1),
        "a whole number of at least 1, or leave it out",
    ),
    "feature_noise": (lambda value: _number(value) and value >= 0, "a number of at least 0"),
    "clip": (lambda value: value is None or (_number(value) and value > 0), "a number > 0, or leave it out"),
    "sigma": (lambda value: _number(value) and value >= 0, "a number of at least 0"),
}
"""For each setting: the check of a value, and what to give instead."""
