"""Readers: every layout gives the records that its files describe, and refuses errors."""

import shutil

import nibabel as nib
import numpy as np
import pytest

from fclseg.anatomy.folders import read_folder, scan_folder
from fclseg.anatomy.nifti import read_header
from fclseg.errors import DataError


def voxels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 1000, shape, dtype=np.int16)


def test_acdc_frames_and_cycle(tmp_path, add_patient):
    add_patient(tmp_path, "patient001", frames=5, es=3)
    add_patient(tmp_path, "patient002", frames=0, es=12)
    volumes = read_folder(tmp_path)
    first = [volume for volume in volumes if volume.patient == "patient001"]
    found = {volume.frame: (volume.phase, volume.label is not None, volume.time_index) for volume in first}
    # Frames 1 and 3 have their own files, so the cycle gives only the others.
    assert found == {
        1: ("ED", True, None),
        3: ("ES", True, None),
        2: (None, False, 1),
        4: (None, False, 3),
        5: (None, False, 4),
    }
    assert {volume.image.name for volume in first if volume.time_index is not None} == {"patient001_4d.nii.gz"}
    assert [volume.frame for volume in volumes if volume.patient == "patient002"] == [1, 12]
    assert all(volume.anatomy.name == "acdc" and volume.spacing == (1.5, 1.5, 8.0) for volume in volumes)
    assert all(volume.label.name.endswith("_gt.nii.gz") for volume in volumes if volume.label)
    assert volumes[0].anatomy.describe_values() == "1 RV, 2 MYO, 3 LV"


def test_acdc_phase_of_a_frame_that_is_only_in_the_cycle(tmp_path, add_patient):
    folder = add_patient(tmp_path, "patient001", frames=4, es=3)
    for path in folder.glob("*_frame*"):
        path.unlink()
    assert [(volume.frame, volume.phase) for volume in read_folder(tmp_path)] == [
        (1, "ED"),
        (2, None),
        (3, "ES"),
        (4, None),
    ]


def test_acdc_in_nested_and_site_folders(tmp_path, add_patient):
    add_patient(tmp_path / "database" / "training", "patient001")
    add_patient(tmp_path / "site-a", "patient002")
    assert {volume.patient: volume.site for volume in read_folder(tmp_path)} == {
        "patient001": None,
        "patient002": "site-a",
    }


def test_links_that_lead_back_up_end(tmp_path, add_patient):
    folder = add_patient(tmp_path, "patient001")
    (folder / "up").symlink_to(tmp_path)
    assert len(read_folder(tmp_path)) == 2


def test_hidden_files_of_the_operating_system_are_ignored(tmp_path, add_patient):
    folder = add_patient(tmp_path, "patient001")
    (folder / "._patient001_frame01.nii.gz").write_text("resource fork")
    (tmp_path / ".git").mkdir()
    assert len(read_folder(tmp_path)) == 2


@pytest.mark.parametrize("crop", ["axial_crop", "axial_full", "sa_crop"])
def test_hvsmr_whichever_crop_is_there(tmp_path, save_nifti, crop):
    for patient in (0, 2, 10):
        save_nifti(tmp_path / f"training_{crop}_pat{patient}.nii.gz", voxels(9, 8, 7))
    save_nifti(tmp_path / f"training_{crop}_pat2-label.nii.gz", np.ones((9, 8, 7), np.uint8))
    volumes = read_folder(tmp_path)
    assert [volume.patient for volume in volumes] == ["pat0", "pat2", "pat10"]
    assert [volume.label is not None for volume in volumes] == [False, True, False]
    assert all(volume.anatomy.name == "hvsmr" and volume.frame is None for volume in volumes)


def test_hvsmr_takes_one_crop_of_a_patient(tmp_path, save_nifti):
    for crop in ("axial_full", "axial_crop"):
        save_nifti(tmp_path / crop / f"training_{crop}_pat1.nii.gz", voxels(9, 8, 7))
        save_nifti(tmp_path / "truth" / f"training_{crop}_pat1-label.nii.gz", np.ones((9, 8, 7), np.uint8))
    (volume,) = read_folder(tmp_path)
    assert volume.image.name == "training_axial_crop_pat1.nii.gz"
    assert volume.label.name == "training_axial_crop_pat1-label.nii.gz"


def test_plain_folder_pairs_labels_and_patients(tmp_path, save_nifti):
    save_nifti(tmp_path / "anna.nii.gz", voxels(9, 8, 4))
    save_nifti(tmp_path / "anna_seg.nii", np.ones((9, 8, 4), np.uint8))
    save_nifti(tmp_path / "images" / "bert.nii.gz", voxels(9, 8, 4))
    save_nifti(tmp_path / "labels" / "bert.nii.gz", np.ones((9, 8, 4), np.uint8))
    save_nifti(tmp_path / "carl" / "first.nii.gz", voxels(9, 8, 4))
    save_nifti(tmp_path / "carl" / "second.nii.gz", voxels(9, 8, 4))
    found = {(volume.patient, volume.frame): volume.label and volume.label.name for volume in read_folder(tmp_path)}
    assert found == {
        ("anna", None): "anna_seg.nii",
        ("bert", None): "bert.nii.gz",
        ("carl", 1): None,
        ("carl", 2): None,
    }
    assert {volume.anatomy.name for volume in read_folder(tmp_path)} == {"nifti"}


def test_anatomy_can_be_forced(tmp_path, add_patient):
    add_patient(tmp_path, "patient001")
    volumes = read_folder(tmp_path, "nifti")
    assert {volume.patient for volume in volumes} == {"patient001"}
    assert sum(volume.label is not None for volume in volumes) == 2
    with pytest.raises(DataError, match="no anatomy 'dicom'"):
        read_folder(tmp_path, "dicom")


def remove(folder, name):
    (folder / name).unlink()


FAULTS = {
    "no Info.cfg": (lambda f, save: remove(f, "Info.cfg"), r"Info\.cfg: is missing"),
    "Info.cfg without ES": (lambda f, save: (f / "Info.cfg").write_text("ED: 1\n"), r"Info\.cfg: has no line 'ES"),
    "Info.cfg is binary": (lambda f, save: (f / "Info.cfg").write_bytes(b"\xff\xfe\x00"), r"Info\.cfg: cannot be read"),
    "one frame for both phases": (
        lambda f, save: (f / "Info.cfg").write_text("ED: 1\nES: 1\n"),
        r"Info\.cfg: names frame 1 as ED and as ES",
    ),
    "phase without image": (
        lambda f, save: (f / "Info.cfg").write_text("ED: 1\nES: 9\n"),
        r"Info\.cfg: names frame 9 as ES",
    ),
    "label of another shape": (
        lambda f, save: save(f / "patient001_frame01_gt.nii.gz", np.ones((24, 20, 5), np.uint8)),
        r"frame01_gt\.nii\.gz: the label map has shape 24x20x5 but .* 24x20x6",
    ),
    "4D for 3D": (
        lambda f, save: save(f / "patient001_frame01.nii.gz", voxels(9, 8, 4, 3)),
        r"frame01\.nii\.gz: is 4D, but a 3D",
    ),
    "3D for 4D": (
        lambda f, save: save(f / "patient001_4d.nii.gz", voxels(9, 8, 4)),
        r"_4d\.nii\.gz: is 3D, but the 4D",
    ),
    "label alone": (
        lambda f, save: remove(f, "patient001_frame01.nii.gz"),
        r"frame01_gt\.nii\.gz: .*without its image",
    ),
    "second file for a frame": (
        lambda f, save: save(f / "patient001_frame1.nii", voxels(24, 20, 6)),
        r"frame1\.nii: is a second file for frame 1 in addition to patient001_frame01\.nii\.gz",
    ),
    "another patient's file": (
        lambda f, save: save(f / "patient007_frame01.nii.gz", voxels(24, 20, 6)),
        r"patient007_frame01\.nii\.gz: is named after a different patient",
    ),
    "stray name": (lambda f, save: save(f / "heart.nii.gz", voxels(24, 20, 6)), r"heart\.nii\.gz: has a name"),
    "empty folder": (lambda f, save: (f.parent / "patient002").mkdir(), r"patient002: the folder is empty"),
    "duplicate patient": (lambda f, save: shutil.copytree(f, f.parent / "copy" / f.name), "patient001 is also in"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_acdc_faults_are_named(tmp_path, add_patient, save_nifti, fault):
    plant, sentence = FAULTS[fault]
    plant(add_patient(tmp_path, "patient001"), save_nifti)
    with pytest.raises(DataError, match=sentence):
        read_folder(tmp_path)


def test_first_problem_is_raised_and_the_others_counted(tmp_path, add_patient):
    for name in ("patient001", "patient002", "patient003"):
        remove(add_patient(tmp_path, name), "Info.cfg")
    with pytest.raises(DataError, match=r"patient001/Info\.cfg: .*\(2 more: fclseg data check"):
        read_folder(tmp_path)
    scan = scan_folder(tmp_path)
    assert len(scan.problems) == 3 and len(scan.volumes) == 6


def test_hvsmr_and_plain_faults_are_named(tmp_path, save_nifti):
    hvsmr, plain = tmp_path / "hvsmr", tmp_path / "plain"
    save_nifti(hvsmr / "training_axial_crop_pat0.nii.gz", voxels(9, 8, 7))
    save_nifti(hvsmr / "again" / "training_axial_crop_pat0.nii.gz", voxels(9, 8, 7))
    save_nifti(hvsmr / "training_axial_full_pat1.nii.gz", voxels(9, 8, 7))
    save_nifti(hvsmr / "training_sa_crop_pat5-label.nii.gz", voxels(9, 8, 7))
    save_nifti(hvsmr / "notes.nii.gz", voxels(9, 8, 7))
    text = "\n".join(scan_folder(hvsmr).problems)
    for part in (
        "pat0 is also in",
        "pat1 has no axial_crop",
        "pat5-label.nii.gz: is a label map without",
        "notes.nii.gz",
    ):
        assert part in text
    save_nifti(plain / "a.nii.gz", voxels(9, 8, 7))
    save_nifti(plain / "a.nii", voxels(9, 8, 7))
    save_nifti(plain / "b_gt.nii", voxels(9, 8, 7))
    save_nifti(plain / "cine.nii", voxels(9, 8, 7, 3))
    save_nifti(plain / "cine_gt.nii", voxels(9, 8, 7, 3))
    save_nifti(plain / "x" / "dora" / "1.nii", voxels(9, 8, 7))
    save_nifti(plain / "y" / "dora" / "1.nii", voxels(9, 8, 7))
    text = "\n".join(scan_folder(plain).problems)
    for part in ("a second file for a ", "b_gt.nii: is a label", "cine.nii: is 4D", "patient dora is in"):
        assert part in text
    assert len(scan_folder(plain).problems) == 4


@pytest.mark.parametrize("slope", [-2.0, -2.6e-29])
def test_a_slope_that_inverts_the_image_is_refused(tmp_path, slope):
    image = nib.Nifti1Image(np.arange(60, dtype=np.int16).reshape(5, 4, 3), np.diag([-1.5, -1.5, 8.0, 1.0]))
    nib.save(image, tmp_path / "a.nii")
    assert read_header(tmp_path / "a.nii").shape == (5, 4, 3)
    content = bytearray((tmp_path / "a.nii").read_bytes())
    content[112:116] = np.float32(slope).tobytes()
    (tmp_path / "a.nii").write_bytes(bytes(content))
    with pytest.raises(DataError, match="inverts the grey values"):
        read_header(tmp_path / "a.nii")


def test_folders_that_hold_nothing(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for name, sentence in (
        ("empty", "contains no NIfTI"),
        ("file", "is a file, but a folder"),
        ("none", "no such folder"),
    ):
        with pytest.raises(DataError, match=sentence):
            read_folder(tmp_path / name)


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_unreadable_folder_is_named(open_folder, ordinary_user, add_patient, mode):
    for name in ("patient001", "patient002"):
        add_patient(open_folder, name)
    (open_folder / "patient002").chmod(mode)
    try:
        with ordinary_user():
            problems = scan_folder(open_folder).problems
            with pytest.raises(DataError, match=r"patient002.* permissions"):
                read_folder(open_folder)
            with pytest.raises(DataError, match="inside: the folder cannot be read"):
                read_folder(open_folder / "patient002" / "inside")
    finally:
        (open_folder / "patient002").chmod(0o755)
    assert problems and all("patient002" in problem for problem in problems)


def test_unreadable_file_is_named(open_folder, ordinary_user, add_patient):
    path = add_patient(open_folder, "patient001") / "patient001_frame01.nii.gz"
    path.chmod(0)
    with ordinary_user(), pytest.raises(DataError, match=r"patient001_frame01\.nii\.gz: this user may not read it"):
        read_folder(open_folder)
