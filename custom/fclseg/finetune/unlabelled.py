"""Semi-supervised fine-tuning: a mean teacher on patients without labels, in the same steps as the labelled ones."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fclseg.anatomy.folders import read_folder
from fclseg.data.augment import RANGES, Ranges
from fclseg.data.sampler import SliceSampler
from fclseg.data.slices import SliceStore, open_store
from fclseg.errors import DataError
from fclseg.finetune.dataset import Patients, listed
from fclseg.inference.find import shipped_finder
from fclseg.methods.base import frozen_copy, move_average
from fclseg.methods.mean_teacher import agreement
from fclseg.networks.freezable import FreezableUNet
from fclseg.randomness import generator

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class WithUnlabelled(nn.Module):
    """The supervised loss of a labelled batch, plus ``weight`` times the mean teacher's loss of an unlabelled batch.

    The teacher is a moving average of the network. Its weights and the number of steps are this module's state, so that
    a resumed training continues with them.
    """

    def __init__(
        self,
        supervised: Loss,
        network: FreezableUNet,
        slices: SliceSampler,
        weight: float,
        seed: int,
        momentum: float,
        ranges: Ranges = RANGES,
    ):
        super().__init__()
        self.supervised, self.slices, self.weight = supervised, slices, weight
        self.seed, self.momentum, self.ranges = seed, momentum, ranges
        self._network = [network]  # in a list: it is trained and stored by others
        self.teacher = frozen_copy(network)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, prediction: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        (network,) = self._network
        steps = int(self.get_buffer("steps"))
        if steps:  # after the optimiser's last step
            move_average(self.teacher, network, self.momentum)
        source = generator(self.seed, "unlabelled slices", steps)
        self.get_buffer("steps").add_(1)
        loss = agreement(network, self.teacher, self.slices.draw(source).images, source, ranges=self.ranges)
        return self.supervised(prediction, labels) + self.weight * loss


def with_unlabelled(
    supervised: Loss,
    network: FreezableUNet,
    weight: float,
    slices: Callable[[], SliceSampler],
    seed: int,
    momentum: float,
    ranges: Ranges = RANGES,
) -> Loss:
    """The loss of a training. Without a weight it is the supervised one, and no slice is read."""
    return WithUnlabelled(supervised, network, slices(), weight, seed, momentum, ranges) if weight else supervised


def unlabelled_slices(
    store: SliceStore,
    dataset_dir: str | Path,
    patients: Patients,
    chosen: Sequence[str] | None,
    batch_size: int,
    device: torch.device | str = "cpu",
    windows: bool = False,
) -> SliceSampler:
    """All slices of the ``chosen`` patients, by default of those that are neither trained on with labels nor held out.

    Slices that nobody has labelled, of frames that are labelled in part, are among them unless patients are chosen.
    """
    volumes = read_folder(Path(dataset_dir))
    used = {*patients.train, *patients.validation}
    names = {volume.patient for volume in volumes} - used if chosen is None else set(listed(chosen))
    if held_out := sorted(names & set(patients.validation)):
        raise DataError(f"patient '{held_out[0]}' is held out, so training must not see it: list it in only one place")
    found = [volume for volume in volumes if volume.patient in names]
    partly = {(one.patient, one.frame) for one in store.volumes if one.without and one.patient in patients.train}
    if chosen is None:
        found += [volume for volume in volumes if volume.label and (volume.patient, volume.frame) in partly]
    if not found:
        raise DataError(
            "there is no patient without labels to learn from: set unlabelled_weight to 0, or name patients"
        )
    around = shipped_finder(store.anatomy, device) if windows else None
    every = open_store(found, image_size=store.image_size, spacing=store.spacing, around=around, progress=False)
    others = set(every.patients) - names
    slices = np.concatenate([every.select(set(every.patients) - others), every.select(others, labelled=False)])
    return SliceSampler(every, slices, batch_size, device=device)
