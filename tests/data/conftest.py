"""Small data sets in the layouts that the readers support, as real files."""

import nibabel as nib
import numpy as np
import pytest


def write_nifti(path, voxels, spacing=(1.5, 1.5, 8.0), affine=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nib.Nifti1Image(voxels, np.diag([*spacing[:3], 1.0]) if affine is None else affine)
    image.header.set_zooms((*spacing[:3], 0.1)[: voxels.ndim])
    nib.save(image, path)
    return path


@pytest.fixture
def save_nifti():
    return write_nifti


@pytest.fixture
def add_patient():
    """``add_patient(root, name)`` writes one patient in the ACDC layout, with a cycle of ``frames`` frames if asked."""

    def add(root, name, *, shape=(24, 20, 6), frames=0, es=3, seed=0):
        rng = np.random.default_rng([seed, *name.encode()])
        folder = root / name
        for frame in (1, es):
            image = rng.integers(0, 1000, shape, dtype=np.int16)
            label = np.zeros(shape, np.uint8)
            label[4:10, 3:9] = rng.integers(1, 4, (6, 6, shape[2]), dtype=np.uint8)
            write_nifti(folder / f"{name}_frame{frame:02d}.nii.gz", image)
            write_nifti(folder / f"{name}_frame{frame:02d}_gt.nii.gz", label)
        if frames:
            write_nifti(folder / f"{name}_4d.nii.gz", rng.integers(0, 1000, (*shape, frames), dtype=np.int16))
        (folder / "Info.cfg").write_text(f"ED: 1\nES: {es}\nGroup: NOR\nNbFrame: {frames or 2}\n")
        return folder

    return add
