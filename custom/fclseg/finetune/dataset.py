"""The slices of a training: the slice store of a folder, the choice of patients, and augmented batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.folders import folder_anatomy, read_folder
from fclseg.anatomy.registry import get_anatomy
from fclseg.data.augment import RANGES, Ranges, augment_labelled
from fclseg.data.place import AroundLabels
from fclseg.data.preprocess import UNLABELLED
from fclseg.data.sampler import SliceSampler
from fclseg.data.sites import Splits
from fclseg.data.slices import SliceStore, open_store
from fclseg.errors import DataError
from fclseg.randomness import generator


def open_labelled(
    dataset_dir: str,
    anatomy: Anatomy,
    image_size: int,
    spacing: float,
    windows: bool = False,
    progress: bool = True,
) -> SliceStore:
    """The labelled volumes of a folder as slices. Opened once per process, because a study asks thousands of times, and
    again if a file of the folder has changed: somebody may have labelled more."""
    files = _files_of(Path(dataset_dir))
    return _opened(dataset_dir, anatomy, image_size, spacing, windows, progress, files)


def _files_of(folder: Path) -> int:
    """A number that changes with any file of a folder."""
    found = [(path, path.stat()) for path in sorted(folder.rglob("*.nii*")) if path.is_file()]
    return hash(tuple((path, status.st_size, status.st_mtime_ns) for path, status in found))


@lru_cache(maxsize=4)
def _opened(
    dataset_dir: str,
    anatomy: Anatomy,
    image_size: int,
    spacing: float,
    windows: bool,
    progress: bool,
    files: int,
) -> SliceStore:
    volumes = read_folder(Path(dataset_dir))
    found = volumes[0].anatomy
    if found.structures and found.structures != anatomy.structures:
        raise DataError(
            f"{dataset_dir} contains {found.title} with the labels {found.describe_values()}, but this bundle segments "
            f"{anatomy.describe_values()}: use the bundle {found.bundle}"
        )
    labelled = [volume for volume in volumes if volume.label is not None]  # wholly or in part
    if not labelled:
        raise DataError(f"{dataset_dir} contains no labelled volume: supervised training needs at least one")
    around = AroundLabels() if windows else None
    store = open_store(labelled, image_size=image_size, spacing=spacing, around=around, progress=progress)
    known = store.labels[store.labels != UNLABELLED]
    if not len(known):
        raise DataError(f"{dataset_dir} contains no labelled slice: supervised training needs at least one")
    if (highest := int(known.max())) >= anatomy.classes:  # only possible in a plain folder without labels.json
        raise DataError(
            f"{dataset_dir} contains the label {highest}, but this bundle knows only {anatomy.describe_values()}: "
            "change the labels"
        )
    return store


def find_anatomy(name: str, dataset_dir: str) -> Anatomy:
    """The bundle's anatomy. The bundle for plain folders takes its structures from the data."""
    anatomy = get_anatomy(name)
    if anatomy.structures:
        return anatomy
    found = folder_anatomy(dataset_dir)
    if found.name != name or not found.structures:
        raise DataError(
            f"{dataset_dir} does not say what its labels mean: write labels.json into it, for example "
            '{"structures": {"1": "liver", "2": "tumour"}}'
        )
    return found


@dataclass(frozen=True)
class Patients:
    """The training patients and the held-out patients."""

    train: tuple[str, ...]
    validation: tuple[str, ...]


def choose_patients(
    store: SliceStore,
    *,
    splits: str | None = None,
    site: str | None = None,
    fold: int = 0,
    labels: int | None = None,
    train_patients: Sequence[str] | None = None,
    validation_patients: Sequence[str] | None = None,
    seed: int = 0,
) -> Patients:
    """The patients of a training. The most explicit choice wins.

    Patients given by name come first. Otherwise a splits file gives the fold's training patients of one site (or of all
    sites pooled), ``labels`` of them per site, and the fold's validation patients of every site. Without a splits file
    a random quarter of the labelled patients, drawn with ``seed``, is held out.
    """
    labelled = sorted({volume.patient for volume in store.volumes if volume.labelled})
    if splits is not None:
        chosen = _from_splits(Splits.load(Path(splits)), site, fold, labels, seed)
    else:
        chosen = _quarter_held_out(labelled, labels, seed)
    train = tuple(listed(train_patients)) if train_patients is not None else chosen.train
    if validation_patients is not None:
        validation = tuple(listed(validation_patients))
    elif train_patients is not None and splits is None:
        validation = tuple(patient for patient in labelled if patient not in train)
    else:
        validation = chosen.validation
    if unknown := sorted(set(train + validation) - set(labelled)):
        raise DataError(f"patient '{unknown[0]}' has no labelled volume in the data: correct the splits or the names")
    if both := sorted(set(train) & set(validation)):
        raise DataError(
            f"patient '{both[0]}' is in both the training and the validation set: list it in only one of them"
        )
    return Patients(train, validation)


def listed(patients: Sequence[str]) -> list[str]:
    """A single name on the command line is a plain string."""
    return [patients] if isinstance(patients, str) else [str(patient) for patient in patients]


def _from_splits(splits: Splits, site: str | None, fold: int, labels: int | None, seed: int) -> Patients:
    train: list[str] = []
    for name in splits.sites if site is None else [site]:
        if labels is None:
            train += splits.candidates(name, fold)
        else:
            train += splits.labelled(name, fold, labels, seed=seed)
    return Patients(tuple(train), tuple(splits.validation(fold)))


def _quarter_held_out(labelled: list[str], labels: int | None, seed: int) -> Patients:
    order = torch.randperm(len(labelled), generator=generator(seed, "held-out patients")).tolist()
    held_out = max(1, len(labelled) // 4) if len(labelled) > 1 else 0
    train = [labelled[i] for i in order[held_out:]]
    return Patients(tuple(sorted(train[:labels])), tuple(sorted(labelled[i] for i in order[:held_out])))


def training_slices(
    store: SliceStore, patients: Sequence[str], batch_size: int, device: torch.device | str = "cpu"
) -> SliceSampler:
    """The labelled slices of these patients."""
    indices = store.select(patients=patients, labelled=True)
    if len(indices) == 0:
        raise DataError("there is no labelled slice to train on: give patients that have labels")
    return SliceSampler(store, indices, batch_size, labels=True, device=device)


class LabelledBatches:
    """Shuffled, augmented batches ``{"image", "label"}``. An ``epoch`` is the same every time it is replayed."""

    def __init__(self, dataset: SliceSampler, seed: int, ranges: Ranges = RANGES):
        self.sampler, self.seed, self.epoch, self.ranges = dataset, seed, 0, ranges

    def __len__(self) -> int:
        return self.sampler.steps_per_epoch

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        self.epoch += 1
        source = generator(self.seed, "fine-tuning epoch", self.epoch)
        for batch in self.sampler.epoch(source):
            images, labels = augment_labelled(batch.images, batch.label_maps, source, self.ranges)
            yield {"image": images, "label": labels}

    def plain_images(self) -> Iterator[torch.Tensor]:
        """The training images without augmentation, in a fixed order."""
        for batch in self.sampler.epoch(generator(self.seed, "statistics")):
            yield batch.images
