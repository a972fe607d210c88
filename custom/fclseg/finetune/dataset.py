"""Which slices a training sees: the slice store of a folder, the choice of patients, and augmented batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from fclseg.data.augment import augment_labelled
from fclseg.data.sampler import SliceSampler
from fclseg.data.sites import Splits
from fclseg.data.slices import SliceStore, open_store
from fclseg.data.volumes import LABELS, read_folder
from fclseg.errors import DataError
from fclseg.randomness import generator


@lru_cache(maxsize=4)
def open_dataset(dataset_dir: str, layout: str, image_size: int, spacing: float, progress: bool = True) -> SliceStore:
    """The labelled volumes of a folder as slices; opened once per process, because a study asks thousands of times."""
    volumes = read_folder(Path(dataset_dir), "auto")
    found = {volume.layout for volume in volumes} - {layout, "nifti"}
    if found:
        raise DataError(
            f"{dataset_dir} is in the {found.pop()} layout, but this bundle segments the structures of {layout}: "
            f"use the bundle for that data set"
        )
    labelled = [volume for volume in volumes if volume.label is not None]
    if not labelled:
        raise DataError(f"{dataset_dir} holds no labelled volume: supervised training needs at least one")
    store = open_store(labelled, image_size=image_size, spacing=spacing, progress=progress)
    if (highest := int(store.labels.max())) > max(LABELS[layout]):  # possible in a plain folder only
        known = ", ".join(f"{value} {name}" for value, name in LABELS[layout].items())
        raise DataError(f"{dataset_dir} holds the label {highest}, but this bundle knows {known}: change the labels")
    return store


@dataclass(frozen=True)
class Patients:
    """Who is trained on and who is held out."""

    train: tuple[str, ...]
    validation: tuple[str, ...]


def choose_patients(
    store: SliceStore,
    *,
    splits: str | None = None,
    site: str | None = None,
    fold: int = 0,
    annotated: int | None = None,
    train_patients: Sequence[str] | None = None,
    validation_patients: Sequence[str] | None = None,
    seed: int = 0,
) -> Patients:
    """The patients of a training, from the most to the least explicit wish.

    Names given outright win. Otherwise a splits file gives the fold's training patients of one site (or of all sites
    pooled), ``annotated`` of them per site, and the fold's validation patients of every site. Without a splits file a
    quarter of the labelled patients, drawn with ``seed``, is held out.
    """
    labelled = sorted({volume.patient for volume in store.volumes if volume.labelled})
    if splits is not None:
        chosen = _from_splits(Splits.load(Path(splits)), site, fold, annotated, seed)
    else:
        chosen = _quarter_held_out(labelled, annotated, seed)
    train = tuple(_names(train_patients)) if train_patients is not None else chosen.train
    if validation_patients is not None:
        validation = tuple(_names(validation_patients))
    elif train_patients is not None and splits is None:
        validation = tuple(patient for patient in labelled if patient not in train)
    else:
        validation = chosen.validation
    if unknown := sorted(set(train + validation) - set(labelled)):
        raise DataError(f"patient '{unknown[0]}' has no labelled volume in the data: correct the splits or the names")
    if both := sorted(set(train) & set(validation)):
        raise DataError(f"patient '{both[0]}' is in the training and the validation set: name it in one of them")
    return Patients(train, validation)


def _names(patients: Sequence[str]) -> list[str]:
    """The command line gives one name as a plain string."""
    return [patients] if isinstance(patients, str) else [str(patient) for patient in patients]


def _from_splits(splits: Splits, site: str | None, fold: int, annotated: int | None, seed: int) -> Patients:
    train: list[str] = []
    for name in splits.sites if site is None else [site]:
        if annotated is None:
            train += splits.candidates(name, fold)
        else:
            train += splits.annotated(name, fold, annotated, seed=seed)
    return Patients(tuple(train), tuple(splits.validation(fold)))


def _quarter_held_out(labelled: list[str], annotated: int | None, seed: int) -> Patients:
    order = torch.randperm(len(labelled), generator=generator(seed, "held-out patients")).tolist()
    held_out = max(1, len(labelled) // 4) if len(labelled) > 1 else 0
    train = [labelled[i] for i in order[held_out:]]
    return Patients(tuple(sorted(train[:annotated])), tuple(sorted(labelled[i] for i in order[:held_out])))


def training_slices(
    store: SliceStore, patients: Sequence[str], batch_size: int, device: torch.device | str = "cpu"
) -> SliceSampler:
    """The labelled slices of these patients."""
    indices = store.select(patients=patients, labelled=True)
    if len(indices) == 0:
        raise DataError("there is no labelled slice to train on: give patients that have labels")
    return SliceSampler(store, indices, batch_size, labels=True, device=device)


class LabelledBatches:
    """Shuffled, augmented batches ``{"image", "label"}``; pass number ``epoch`` is the same whenever it is replayed."""

    def __init__(self, dataset: SliceSampler, seed: int):
        self.sampler, self.seed, self.epoch = dataset, seed, 0

    def __len__(self) -> int:
        return self.sampler.steps_per_epoch

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        self.epoch += 1
        source = generator(self.seed, "fine-tuning epoch", self.epoch)
        for batch in self.sampler.epoch(source):
            images, labels = augment_labelled(batch.images, batch.labels[:, None], source)
            yield {"image": images, "label": labels}

    def plain_images(self) -> Iterator[torch.Tensor]:
        """The training images without augmentation, in a fixed order."""
        for batch in self.sampler.epoch(generator(self.seed, "statistics")):
            yield batch.images
