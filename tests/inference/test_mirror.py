"""A mirrored exam is called mirrored, with the shipped network on phantoms whose files are turned around."""

import nibabel as nib
import numpy as np
import pytest

from fclseg.inference.exam import SegmentOptions, segment_scan
from fclseg.inference.function import MIRRORED


def copied(source, target, change):
    """A patient's images with changed voxels and the same header; no label maps."""
    target.mkdir(parents=True)
    (target / "Info.cfg").write_bytes((source / "Info.cfg").read_bytes())
    for path in source.glob("*_frame??.nii.gz"):
        image = nib.load(path)
        nib.save(nib.Nifti1Image(change(np.asarray(image.dataobj)), image.affine, image.header), target / path.name)
    return target.parent


@pytest.mark.parametrize(
    ("change", "flags"),
    [
        (lambda voxels: voxels, False),
        (lambda voxels: voxels[::-1], True),  # left and right exchanged
        (lambda voxels: voxels[::-1, ::-1], True),  # turned by 180 degrees
    ],
)
def test_exchanged_sides_are_named_and_nothing_is_measured(phantom, tmp_path, change, flags):
    folder = copied(phantom / "patient001", tmp_path / "in" / "patient001", change)
    (result,) = segment_scan(folder, tmp_path / "out", SegmentOptions(quiet=True))
    assert (result.flags == [MIRRORED]) == flags and bool(result.values) != flags
    assert "RV and LV may be exchanged" in MIRRORED and "mirrored" in MIRRORED
    (again,) = segment_scan(folder, tmp_path / "out", SegmentOptions(quiet=True))  # from what the first run wrote
    assert again.flags == result.flags and again.values == result.values
