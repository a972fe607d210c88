"""How far predictions of the same image agree, per structure. No labels are needed.

Two figures: the overlap of a structure in turned and scaled views with that in their mean, and the Dice that the mean's
own probabilities let expect. Both are high where a network is right, and fall together with the true Dice
(``calibration.py`` says how far, from labelled patients).
"""

from dataclasses import dataclass

import torch

from fclseg.anatomy.base import Anatomy


@dataclass(frozen=True)
class Reliability:
    """Of one structure in one volume."""

    structure: str
    agreement: float  # mean Dice between each view and the mean of all; 1 if nothing was found in any
    expected: float  # Dice of the labels with labels drawn from the probabilities


def reliability(found: torch.Tensor, anatomy: Anatomy) -> tuple[Reliability, ...]:
    """From the probabilities [views, slices, C, H, W] of one volume."""
    mean = found.mean(dim=0)
    labels, each = mean.argmax(dim=1), found.argmax(dim=2)
    result = []
    for one in anatomy.structures:
        mask, masks = labels == one.value, each == one.value
        agreement = sum(_dice((mask & other).sum(), mask.sum() + other.sum()) for other in masks) / len(masks)
        sure = mean[:, one.value]
        result.append(Reliability(one.name, agreement, _dice(sure[mask].sum(), mask.sum() + sure.sum())))
    return tuple(result)


def _dice(common: torch.Tensor, sizes: torch.Tensor) -> float:
    return 2 * float(common) / float(sizes) if sizes else 1.0
