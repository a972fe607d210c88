"""``fclseg segment`` on what a scanner exported, against the same scan as NIfTI, with one and with two processes.

With the weights that the bundle ships."""

import json
import shutil

import nibabel as nib
import numpy as np
import pytest

from fclseg.cli import main
from fclseg.phantom.dataset import write_phantom

pytest.importorskip("pydicom"), pytest.importorskip("highdicom")

from series_writer import tags, write_series  # noqa: E402

SPACING = (1.5, 1.5, 10.0)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two patients as NIfTI with the nominal affine of ACDC, and as DICOM with the oblique one of a scanner."""
    folder = tmp_path_factory.mktemp("hospital")
    write_phantom(folder / "phantom", "acdc", patients=2, seed=3, frames=3)
    (folder / "nifti").mkdir()
    for number in (1, 2):
        cine = nib.load(next((folder / "phantom").glob(f"*{number:03d}/*_4d.nii.gz")))
        voxels = np.asarray(cine.dataobj)[:, :, 1:5].astype(np.uint16)
        who = {"patient": f"Doe^{number}", "number": f"id{number}"}
        write_series(folder / "dicom" / str(number), voxels[:, :, ::-1], SPACING, **who)
        image = nib.Nifti1Image(voxels.astype(np.int32), np.diag([-SPACING[0], -SPACING[1], SPACING[2], 1.0]))
        image.header.set_xyzt_units("mm", "sec")
        nib.save(image, folder / "nifti" / f"patient{number:03d}.nii.gz")
    return folder


def segment(place, scan, out, *options):
    arguments = ["segment", place / scan, "--out", place / out, *options]
    assert main([str(argument) for argument in arguments]) == 0
    return json.loads((place / out / "measurements.json").read_text())


def without_file_names(volumes):
    return [{name: value for name, value in row.items() if name != "image"} for row in volumes]


def test_a_dicom_folder_gives_what_the_nifti_files_give(place):
    """Labels voxel by voxel, so volumes and ejection fractions too; results are not shown under the patients' names.

    The affines differ: if the network were shown the heart upside down or from apex to base, the labels would, too."""
    plain = segment(place, "nifti", "from_nifti", "--all-phases")
    found = segment(place, "dicom", "from_dicom")
    for number in (1, 2):
        one, other = (
            np.asarray(nib.load(place / path).dataobj)
            for path in (
                f"from_nifti/patient{number:03d}_seg.nii.gz",
                f"from_dicom/patient{number:03d}_4d_seg.nii.gz",
            )
        )
        assert one.any()
        np.testing.assert_array_equal(one, other[:, :, ::-1])
        assert len(list((place / "from_dicom").glob(f"patient{number:03d}_*.dcm"))) == 4, "3 phases and measurements"
    fractions = [[row["LV_EF_percent"] for row in content["volumes"]] for content in (plain, found)]
    volumes = [[row["LV_ml"] for row in content["volumes"]] for content in (plain, found)]
    assert None not in fractions[0]
    assert fractions[0] == fractions[1] and volumes[0] == pytest.approx(volumes[1], abs=0.02)
    for path in (place / "from_dicom").glob("*.html"):
        assert "Doe^" not in path.read_text()
    assert found["patients"]["patient001"]["values"]["LV cardiac output per body surface, l/min/m²"] > 0
    _segment_again_with_a_bad_series(place, found)


def _segment_again_with_a_bad_series(place, found):
    """The same command continues; a series that cannot be read is named at the end and stops nothing."""
    files = sorted((place / "from_dicom").glob("*.dcm"))
    before = [path.stat().st_mtime_ns for path in files]
    files[0].unlink()
    assert segment(place, "dicom", "from_dicom") == found
    assert files[0].is_file() and [path.stat().st_mtime_ns for path in files[-3:]] == before[-3:], "patient 2 is kept"
    shutil.copytree(place / "dicom" / "1", place / "mixed" / "1")
    write_series(place / "mixed" / "3", np.full((20, 20, 4, 2), 7, np.uint16), SPACING, number="id3", patient="Roe^3")
    for path in list((place / "mixed" / "3").iterdir()):
        if tags(path).InstanceNumber == 3:  # the first of two phases of the second slice
            path.unlink()
    assert main(["segment", str(place / "mixed"), "--out", str(place / "from_mixed")]) == 1
    assert len(list((place / "from_mixed").glob("patient001_*.dcm"))) == 4
    assert "has 2 phases, but slice 2 has 1; export all of it" in (place / "from_mixed" / "index.html").read_text()
    assert main(["segment", str(place / "mixed"), "--out", str(place / "from_dicom")]) == 1, "other images"


@pytest.mark.nightly
def test_two_processes_give_what_one_gives(place):
    alone = segment(place, "nifti", "one_process", "--all-phases")
    together = segment(place, "nifti", "two_processes", "--all-phases", "--workers", 2)
    assert without_file_names(alone["volumes"]) == without_file_names(together["volumes"])
    for path in sorted((place / "one_process").glob("*_seg.nii.gz")):
        same = place / "two_processes" / path.name
        np.testing.assert_array_equal(np.asarray(nib.load(path).dataobj), np.asarray(nib.load(same).dataobj))
