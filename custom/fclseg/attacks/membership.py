"""Membership: views of a slice that the encoder was trained on have more similar features (EncoderMI, Liu 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fclseg.attacks.scores import area_under_curve
from fclseg.data.augment import Views
from fclseg.data.slices import SliceStore
from fclseg.presets import Preset
from fclseg.randomness import generator

LOOKS = 10
"""Views of each slice that are compared with each other."""


@dataclass(frozen=True)
class Membership:
    """Area under the ROC curve; 0.5 is chance."""

    patients: float
    slices: float


@torch.no_grad()
def agreement(network: nn.Module, images: torch.Tensor, preset: Preset, seed: int = 0) -> np.ndarray:
    """For each image the mean cosine between features of its views [N]."""
    views, draws = Views(preset), generator(seed, "membership")
    network.eval()
    found = torch.stack([functional.normalize(network(views(images, draws)), dim=1) for _ in range(LOOKS)])
    total = found.sum(dim=0).square().sum(dim=1)  # of all pairs, each view with itself included
    return ((total - LOOKS) / (LOOKS * (LOOKS - 1))).numpy()


def infer_membership(
    network: nn.Module,
    store: SliceStore,
    preset: Preset,
    members: Sequence[str],
    others: Sequence[str],
    seed: int = 0,
) -> Membership:
    """How well agreement tells patients that were trained on from others."""
    by_patient, by_slice = [], []
    for group in (members, others):
        scores = [
            agreement(network, torch.from_numpy(store.images[rows].astype(np.float32))[:, None], preset, seed)
            for rows in (store.select([patient]) for patient in group)
        ]
        by_patient.append(np.asarray([score.mean() for score in scores]))
        by_slice.append(np.concatenate(scores))
    return Membership(area_under_curve(*by_patient), area_under_curve(*by_slice))
