"""The folder of labels: label maps in the data set's layout, with the frames that they belong to.

It can be given to ``fclseg finetune`` as it is, or moved to another machine: each labelled patient's frames are copied.
Slices that nobody has labelled have the value 255 in the label map. So what was labelled is written together with the
labels, in one step, and no program can take an unlabelled slice for background by mistake.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np

from fclseg.anatomy.families.plain import LABELS_FILE
from fclseg.anatomy.geometry import fitting_storage
from fclseg.anatomy.info import INFO, read_info
from fclseg.anatomy.nifti import read_header, read_voxels, stem
from fclseg.anatomy.records import Volume
from fclseg.data.preprocess import UNLABELLED, check_label
from fclseg.files import make_folder, whole_file, write_text
from fclseg.inference.patients import label_image

SUFFIXES = {"hvsmr": "-label"}
"""How a data set calls the label map of an image, if not ``NAME_gt``."""

DRAFTS = ".drafts"


class LabelFolder:
    def __init__(self, root: Path, data: Path):
        self.root, self.data = root, data
        make_folder(root)
        if (data / LABELS_FILE).is_file() and not (root / LABELS_FILE).exists():
            shutil.copyfile(data / LABELS_FILE, root / LABELS_FILE)

    def image_file(self, volume: Volume) -> Path:
        """Where the frame's image is, or will be: the same place as in the data; frames of a cycle get their own."""
        parent = self.root / volume.image.parent.relative_to(self.data)
        if volume.time_index is None:
            return parent / volume.image.name
        parent = parent if parent.name == volume.patient else parent / volume.patient
        return parent / f"{volume.patient}_frame{volume.frame:02d}.nii.gz"

    def label_file(self, volume: Volume) -> Path:
        image = self.image_file(volume)
        return image.with_name(f"{stem(image)}{SUFFIXES.get(volume.anatomy.name, '_gt')}.nii.gz")

    def labels(self, volume: Volume) -> np.ndarray | None:
        """The label map [X, Y, S] in our axis order, if there is one; its file may store the axes in any order."""
        path = self.label_file(volume)
        if not path.is_file():
            return None
        header, image = read_header(path), read_header(volume.image)
        storage = fitting_storage(path, header, volume.image, image, volume.anatomy.slice_axis)
        labels = storage.inside(read_voxels(path))
        check_label(labels, self.shape(volume), replace(volume, label=path))
        return np.array(labels, dtype=np.uint8)

    def write(self, volume: Volume, number: int, plane: np.ndarray | None) -> None:
        """Write one slice [X, Y] of a label map, or take it out again (None). Other slices stay as they are."""
        labels = self.labels(volume)
        if labels is None:
            labels = np.full(self.shape(volume), UNLABELLED, np.uint8)
        labels[:, :, number] = UNLABELLED if plane is None else plane
        self.write_all(volume, labels)

    def write_all(self, volume: Volume, labels: np.ndarray) -> None:
        """Write a label map, or remove it if nothing is labelled in it."""
        path = self.label_file(volume)
        if (labels == UNLABELLED).all():
            path.unlink(missing_ok=True)
            return
        self._copy_image(volume)
        with whole_file(path) as draft:
            nib.save(label_image(volume.storage.outside(labels), nib.load(volume.image)), draft)

    def name_phases(self, volumes: Sequence[Volume], phases: Mapping[int, str]) -> None:
        """Copy the frames of ED and ES of a patient, and write which they are to its ``Info.cfg``."""
        named = [volume for volume in volumes if volume.frame in phases]
        if not named:
            return
        for volume in named:
            self._copy_image(volume)
        entries = read_info(volumes[0].image.parent / INFO)
        entries |= {phase: str(frame) for frame, phase in phases.items()}
        target = self.image_file(named[0]).parent / INFO
        write_text(target, "".join(f"{name}: {value}\n" for name, value in entries.items()))

    def draft(self, volume: Volume, number: int) -> np.ndarray | None:
        """The slice that somebody began and did not finish."""
        try:
            return np.load(self._draft_file(volume, number))
        except (OSError, ValueError, EOFError):
            return None

    def write_draft(self, volume: Volume, number: int, plane: np.ndarray | None) -> None:
        path = self._draft_file(volume, number)
        if plane is None:
            path.unlink(missing_ok=True)
            return
        with whole_file(path) as draft:
            np.save(draft, plane)

    def _draft_file(self, volume: Volume, number: int) -> Path:
        name = f"{stem(self.image_file(volume))}_slice{number:03d}.npy"
        return self.root / DRAFTS / volume.patient / name

    def shape(self, volume: Volume) -> tuple[int, int, int]:
        shape = nib.load(volume.image).shape
        x, y, z = (int(shape[axis]) for axis in volume.storage.axes)
        return x, y, z

    def _copy_image(self, volume: Volume) -> None:
        target = self.image_file(volume)
        if target.exists():
            return
        with whole_file(target) as draft:
            if volume.time_index is None:
                shutil.copyfile(volume.image, draft)
                return
            source = nib.load(volume.image)
            frame = np.asanyarray(source.dataobj)[..., volume.time_index]
            header = source.header.copy()
            header.set_data_dtype(frame.dtype)
            header["scl_slope"], header["scl_inter"] = 1, 0
            nib.save(type(source)(frame, source.affine, header), draft)
