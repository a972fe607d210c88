"""Hearts made of discs, in ACDC's layout: images that stay the same when the phantom changes."""

from pathlib import Path

import nibabel as nib
import numpy as np

SPACING = (2.4, 2.4, 10.0)
SHAPE = (80, 80, 6)


def write_discs(root: Path, patients: int) -> Path:
    """Patients with two labelled phases each: a ring of muscle around a bright disc, and a bright disc next to it."""
    x, y = (np.arange(size) - size / 2 for size in SHAPE[:2])
    for number in range(1, patients + 1):
        name = f"patient{number:03d}"
        rng = np.random.default_rng(number)
        for frame, size in ((1, 1.0), (2, 0.7)):
            labels = np.zeros(SHAPE, np.uint8)
            for z in range(SHAPE[2]):
                radius = size * (9 - z) * rng.uniform(0.9, 1.1)
                centre = rng.uniform(-4, 4, 2)
                distance = np.hypot(x[:, None] - centre[0], y[None, :] - centre[1])
                beside = np.hypot(x[:, None] - centre[0] + 2 * radius, y[None, :] - centre[1])
                labels[..., z] = np.select([distance < radius, distance < radius + 4, beside < radius], [3, 2, 1], 0)
            grey = np.array([300, 700, 400, 800])[labels] + rng.normal(0, 60, SHAPE)
            _save(root / name / f"{name}_frame{frame:02d}.nii.gz", grey.clip(0).astype(np.int16))
            _save(root / name / f"{name}_frame{frame:02d}_gt.nii.gz", labels)
        (root / name / "Info.cfg").write_text("ED: 1\nES: 2\n")
    return root


def _save(path: Path, voxels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(voxels, np.diag([-SPACING[0], -SPACING[1], SPACING[2], 1.0])), path)
