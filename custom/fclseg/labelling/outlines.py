"""The network's outlines of a volume; kept on disk once computed."""

import hashlib
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from fclseg.anatomy.records import Volume, read_images
from fclseg.data.place import Centre
from fclseg.data.slices import default_cache
from fclseg.device import choose_device
from fclseg.files import whole_file
from fclseg.inference.segment import Segmenter
from fclseg.networks.model_file import load_model

FORMAT = 2


@dataclass(frozen=True)
class Outline:
    labels: np.ndarray  # [X, Y, S], uint8, in our axis order


class Outliner:
    """Outlines of one model. Slow to make, quick to read again."""

    def __init__(self, model: Path, cache: Path | None = None):
        self.path = model
        self.model = load_model(model)
        digest = hashlib.sha256(model.read_bytes()).hexdigest()[:16]
        self.folder = (cache or default_cache()) / "outlines" / f"{FORMAT}-{digest}"
        self._segmenter: Segmenter | None = None

    def known(self, volume: Volume) -> Outline | None:
        """The outline of an earlier time, if there is one."""
        try:
            with np.load(self._file(volume)) as stored:
                return Outline(stored["labels"])
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
            return None

    def make(self, volumes: Iterable[Volume]) -> Iterator[tuple[Volume, Outline]]:
        """The outlines of a patient's volumes. The organ is located once per file."""
        for _, group in groupby(volumes, key=lambda volume: volume.image):
            frames = list(group)
            known = {volume: self.known(volume) for volume in frames}
            near: Centre | None = None
            for volume, voxels in read_images([volume for volume in frames if known[volume] is None]):
                outline, near = self._look(voxels, volume, near)
                known[volume] = outline
                with whole_file(self._file(volume)) as draft:
                    np.savez_compressed(draft, **vars(outline))
            yield from ((volume, outline) for volume, outline in known.items() if outline is not None)

    def _file(self, volume: Volume) -> Path:
        status = volume.image.stat()
        what = (str(volume.image.resolve()), status.st_size, status.st_mtime_ns, volume.time_index, volume.storage)
        return self.folder / f"{hashlib.blake2b(repr(what).encode(), digest_size=16).hexdigest()}.npz"

    def _look(self, voxels: np.ndarray, volume: Volume, near: Centre | None) -> tuple[Outline, Centre | None]:
        if self._segmenter is None:
            self._segmenter = Segmenter(self.model, choose_device())
        found = self._segmenter(voxels, volume, near)
        return Outline(found.labels), found.centre
