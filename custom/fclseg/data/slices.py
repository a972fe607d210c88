"""The slice store: pre-processed slices of many volumes, stored once on disk and memory-mapped."""

import contextlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from fclseg.anatomy.records import Volume, read_images
from fclseg.anatomy.registry import get_anatomy, reference
from fclseg.data.place import Locate
from fclseg.data.preprocess import UNLABELLED, Preprocessor, partitions
from fclseg.data.store_files import (
    IMAGES,
    INDEX,
    LABEL_MAPS,
    StoreDamagedError,
    drafting,
    sampled_digest,
    store_key,
    store_lock,
)
from fclseg.documents import UNUSABLE
from fclseg.errors import DataError, FCLSegError


@dataclass(frozen=True)
class StoredVolume:
    patient: str
    frame: int | None
    phase: str | None
    labelled: bool  # at least one of its slices is
    spacing: tuple[float, float, float]  # pixel size of the stored slices and distance between them, mm
    start: int
    stop: int  # its slices are start:stop
    without: tuple[int, ...] = ()  # slices of a labelled volume, counted from its first, that nobody has labelled


class SliceStore:
    """Slices of all volumes, one after the other, read-only and memory-mapped."""

    def __init__(self, folder: Path):
        """Open a finished store. Raises ``StoreDamagedError`` if it is damaged."""
        try:
            index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
            if index["fingerprint"] != sampled_digest(folder):
                raise StoreDamagedError(folder)
            self.anatomy = get_anatomy(index["anatomy"])
            self.spacing: float = index["spacing"]
            self.volumes = [StoredVolume(**{**entry, "spacing": tuple(entry["spacing"])}) for entry in index["volumes"]]
            shape = (self.volumes[-1].stop, index["image_size"], index["image_size"])
            self.images = np.memmap(folder / IMAGES, np.float16, mode="r", shape=shape)
            self.labels = np.memmap(folder / LABEL_MAPS, np.uint8, mode="r", shape=shape)
        except (OSError, *UNUSABLE, FCLSegError) as error:
            raise StoreDamagedError(folder) from error
        self.folder = folder
        depths = [volume.stop - volume.start for volume in self.volumes]
        self.volume = np.repeat(np.arange(len(depths), dtype=np.int32), depths)
        self.partition = np.concatenate([partitions(depth, self.anatomy.partitions) for depth in depths])
        self.labelled = np.array([volume.labelled for volume in self.volumes], dtype=bool)[self.volume]
        for volume in self.volumes:
            self.labelled[[volume.start + number for number in volume.without]] = False

    def __len__(self) -> int:
        return len(self.volume)

    @property
    def image_size(self) -> int:
        return self.images.shape[1]

    @property
    def patients(self) -> list[str]:
        """All patients, in the order of the volumes."""
        return list(dict.fromkeys(volume.patient for volume in self.volumes))

    def select(self, patients: Iterable[str] | None = None, labelled: bool | None = None) -> np.ndarray:
        """Indices of the slices of these patients (None: all) that have labels, have none, or both (None)."""
        wanted = None if patients is None else set(patients)
        if wanted is not None and (unknown := sorted(wanted - set(self.patients))):
            raise DataError(
                f"patient {unknown[0]} is not in the data; the split and the data folder must belong together"
            )
        mine = np.array([wanted is None or volume.patient in wanted for volume in self.volumes], dtype=bool)
        chosen = mine[self.volume]
        return np.flatnonzero(chosen if labelled is None else chosen & (self.labelled == labelled))


def default_cache() -> Path:
    return Path(os.environ.get("FCLSEG_CACHE") or "~/.cache/fclseg").expanduser().absolute()


def open_store(
    volumes: Sequence[Volume],
    *,
    image_size: int,
    spacing: float,
    around: Locate | None = None,
    cache: Path | str | None = None,
    progress: bool = True,
) -> SliceStore:
    """The store of these volumes at this size (pixels) and in-plane spacing (mm). It is built if it does not exist.

    Slices show the middle of the image or, with ``around``, a window around a compact organ where that finds it.

    The store is named after a hash of source files and parameters. Several processes may ask at once: one builds, the
    others wait for it. A store that was damaged on disk is built again.
    """
    if not volumes:
        raise DataError("there are no volumes to make slices from; check the data folder and the patients of the split")
    if len({volume.anatomy for volume in volumes}) > 1:
        raise DataError("volumes of different anatomies cannot share a slice store; open one store per data folder")
    folder = Path(cache or default_cache()) / store_key(volumes, image_size, spacing, around.key if around else "")
    with contextlib.suppress(StoreDamagedError):
        return SliceStore(folder)
    with store_lock(folder):
        with contextlib.suppress(StoreDamagedError):
            return SliceStore(folder)  # another process built it while this one waited
        with drafting(folder) as draft:
            _build(draft, volumes, image_size, spacing, around, progress)
        return SliceStore(folder)


def _build(
    draft: Path, volumes: Sequence[Volume], image_size: int, spacing: float, around: Locate | None, progress: bool
) -> None:
    """Write all files of a store to the folder ``draft``."""
    prepare = Preprocessor(image_size, spacing)
    stored: list[StoredVolume] = []
    with open(draft / IMAGES, "wb") as images, open(draft / LABEL_MAPS, "wb") as labels:
        for volume, voxels in tqdm(
            read_images(volumes), "slices", len(volumes), unit="volume", disable=None if progress else True
        ):
            known = volume.read_label() if volume.label else np.full(voxels.shape, UNLABELLED, np.uint8)
            place = around(voxels, volume) if around and volume.anatomy.compact else None
            if place:
                pixels, classes = prepare.around(place, voxels, known, volume)
            else:
                pixels, classes = prepare.image(voxels, volume), prepare.label(known, volume, voxels.shape)
            labelled = (classes != UNLABELLED).any(axis=(1, 2))
            without = tuple(np.flatnonzero(~labelled).tolist()) if labelled.any() else ()
            images.write(pixels.tobytes())
            labels.write(classes.tobytes())
            start = stored[-1].stop if stored else 0
            pixel = (spacing, spacing, volume.spacing[2])
            identity = (volume.patient, volume.frame, volume.phase, bool(labelled.any()))
            stored.append(StoredVolume(*identity, pixel, start, start + len(pixels), without))
    index = {
        "anatomy": reference(volumes[0].anatomy),
        "image_size": image_size,
        "spacing": spacing,
        "volumes": [asdict(volume) for volume in stored],
        "fingerprint": sampled_digest(draft),
    }
    (draft / INDEX).write_text(json.dumps(index), encoding="utf-8")
