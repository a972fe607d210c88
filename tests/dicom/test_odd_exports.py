"""Exports as hospitals really make them: compressed, repeated, incomplete, twice, among other series, without preamble.

The oracle is the voxels that were written: whatever an export does to its files, the same cine comes out."""

import shutil

import nibabel as nib
import numpy as np
import pytest

from fclseg.cli import main
from fclseg.errors import DataError

pydicom, _ = pytest.importorskip("pydicom"), pytest.importorskip("highdicom")

from series_writer import write_enhanced, write_series  # noqa: E402

from fclseg.dicom.importing import import_folder, read_sources  # noqa: E402
from fclseg.dicom.read import find_series, is_dicom  # noqa: E402
from fclseg.dicom.volume import to_nifti  # noqa: E402

SPACING = (1.5, 1.25, 8.0)
SLICES, PHASES = 5, 8


@pytest.fixture
def voxels():
    """Grey values that rise by 10 from phase to phase, so that what lies between two phases is known."""
    ground = np.random.default_rng(0).integers(0, 500, (12, 14, SLICES, 1))
    return (ground + 10 * np.arange(PHASES)).astype(np.uint16)


@pytest.fixture
def export(tmp_path, voxels):
    write_series(tmp_path / "in", voxels, SPACING)
    return tmp_path / "in"


def change(folder, which=lambda image: True, **tags):
    """Set tags of the images for which ``which`` is true."""
    for path in list(folder.iterdir()):
        image = pydicom.dcmread(path)
        if which(image):
            for name, value in tags.items():
                setattr(image, name, value(image) if callable(value) else value)
            image.save_as(path)


def place(image):
    return (image.InstanceNumber - 1) // PHASES


def phase(image):
    return (image.InstanceNumber - 1) % PHASES


def remove(folder, which):
    for path in list(folder.iterdir()):
        if which(pydicom.dcmread(path)):
            path.unlink()


def read(folder):
    found = find_series(folder)
    assert found.problems == []
    (cine,) = found.series
    return np.asarray(to_nifti(cine).dataobj), cine, found


def test_jpeg_lossless_is_decoded(export, voxels):
    gdcm = pytest.importorskip("gdcm", reason="the decoder of the extra dicom is not installed")
    for path in export.iterdir():
        reader, writer, changer = gdcm.ImageReader(), gdcm.ImageWriter(), gdcm.ImageChangeTransferSyntax()
        reader.SetFileName(str(path))
        assert reader.Read()
        changer.SetTransferSyntax(gdcm.TransferSyntax(gdcm.TransferSyntax.JPEGLosslessProcess14_1))
        changer.SetInput(reader.GetImage())
        assert changer.Change()
        writer.SetFile(reader.GetFile())
        writer.SetImage(changer.GetOutput())
        writer.SetFileName(str(path))
        assert writer.Write()
    assert pydicom.dcmread(path).file_meta.TransferSyntaxUID == "1.2.840.10008.1.2.4.70"
    np.testing.assert_array_equal(read(export)[0], voxels)


def test_without_a_decoder_the_true_reason_is_told(export, tmp_path, monkeypatch):
    def fail(self):
        raise RuntimeError("Unable to decompress pixel data because all plugins are missing dependencies: gdcm")

    change(export, file_meta=lambda image: image.file_meta)
    monkeypatch.setattr(pydicom.dataset.FileDataset, "pixel_array", property(fail), raising=False)
    with pytest.raises(DataError, match=r"no decoder is installed: pip install 'fclseg\[dicom\]'"):
        import_folder(export, tmp_path / "out")


def test_a_truncated_export_is_called_truncated(export, tmp_path):
    for path in export.iterdir():
        path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"its pixels cannot be read .*; copy or export it again"):
        import_folder(export, tmp_path / "out")
    for path in export.iterdir():
        path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(DataError, match=r"ends in its header; copy or export it again \(\d+ more files"):
        import_folder(export, tmp_path / "out")


def test_one_image_without_pixels_is_interpolated(export, tmp_path, voxels):
    for path in export.iterdir():
        if pydicom.dcmread(path).InstanceNumber == 2 * PHASES + 4:
            path.write_bytes(path.read_bytes()[:-40])
    imported = import_folder(export, tmp_path / "out")
    np.testing.assert_array_equal(np.asarray(nib.load(imported.patients["patient001"]).dataobj), voxels)
    (note,) = imported.notes["patient001"]
    assert "interpolated from the phases beside it" in note


@pytest.mark.parametrize("same_series", [True, False])
def test_of_a_repeated_breath_hold_the_last_complete_one_is_used(tmp_path, voxels, same_series):
    """Slice 3 was acquired again and then begun once more; trigger times differ a little, as they do."""
    write_series(tmp_path / "in", voxels, SPACING, series_per_slice=not same_series)
    for number, (first, images) in enumerate(((1000, PHASES), (2000, 3)), start=1):
        write_series(tmp_path / "again", voxels + 5 * number, SPACING)
        remove(tmp_path / "again", lambda image, images=images: place(image) != 2 or phase(image) >= images)
        like = next(image for image in map(pydicom.dcmread, (tmp_path / "in").iterdir()) if place(image) == 2)
        tags = {"StudyInstanceUID": like.StudyInstanceUID, "FrameOfReferenceUID": like.FrameOfReferenceUID}
        tags |= {"SeriesInstanceUID": like.SeriesInstanceUID} if same_series else {"SeriesNumber": first}
        change(
            tmp_path / "again",
            **tags,
            TriggerTime=lambda image: float(image.TriggerTime) * 1.02 + 3,
            InstanceNumber=lambda image, first=first: first + image.InstanceNumber,
        )
        for path in list((tmp_path / "again").iterdir()):
            path.rename(tmp_path / "in" / f"{first}{path.name}")
    found, cine, _ = read(tmp_path / "in")
    expected = voxels.copy()
    expected[:, :, 2] += 5
    np.testing.assert_array_equal(found, expected)
    (remark,) = cine.remarks
    assert remark.endswith("slice 3 was acquired 3 times; the last complete one is used")


def test_a_lost_phase_is_interpolated_from_its_neighbours(export, tmp_path, voxels):
    remove(export, lambda image: image.InstanceNumber == PHASES + 4)
    found, cine, _ = read(export)
    np.testing.assert_array_equal(found, voxels)
    assert cine.remarks[0].endswith("slice 2 has 7 phases instead of 8 and is interpolated in time")
    imported = import_folder(export, tmp_path / "out", keep_sources=True)
    assert {len(phases) for phases in read_sources(tmp_path / "out" / "patient001")} == {PHASES}
    assert imported.notes["patient001"] == list(cine.remarks)


def test_the_command_says_what_was_done(export, tmp_path, capsys):
    remove(export, lambda image: image.InstanceNumber == PHASES + 4)
    assert main(["data", "import", str(export), str(tmp_path / "out")]) == 0
    assert (
        "- patient001: series without description (number 3): slice 2 has 7 phases instead" in capsys.readouterr().out
    )


def test_a_faster_beat_is_stretched_to_the_cycle_of_the_others(export):
    """Seven phases of a shorter cycle: the phases between are the weighted means of their neighbours."""
    remove(export, lambda image: place(image) == 1 and phase(image) == 7)
    change(export, lambda image: place(image) == 1, TriggerTime=lambda image: 30.0 * phase(image))
    found, _, _ = read(export)
    steps = found[0, 0, 1].astype(float) - found[0, 0, 1, 0]
    np.testing.assert_allclose(steps[:7], 10 * np.arange(7) * 7 / 8, atol=0.5)


def test_a_slice_at_the_end_with_few_phases_is_left_out(export, voxels):
    remove(export, lambda image: place(image) == SLICES - 1 and phase(image) > 1)
    found, cine, _ = read(export)
    np.testing.assert_array_equal(found, voxels[:, :, :-1])
    assert cine.remarks[0].endswith("slice 5 has only 2 of 8 phases and is left out")


def shift(image, millimetres):
    """Move an image along the normal."""
    direction = np.array(image.ImageOrientationPatient, float)
    normal = np.cross(direction[:3], direction[3:])
    return [float(f"{value:.6f}") for value in np.array(image.ImagePositionPatient, float) + normal * millimetres]


def test_gaps_of_10_and_11_mm_are_accepted_with_a_remark_and_a_missing_slice_is_not(export, voxels, tmp_path):
    change(export, lambda image: place(image) == 4, ImagePositionPatient=lambda image: shift(image, 1.0))
    found, cine, _ = read(export)
    np.testing.assert_array_equal(found, voxels)
    assert cine.remarks[0].endswith("the slices are 8.0 to 9.0 mm apart; volumes use the mean of 8.2 mm")
    assert cine.spacing[2] == pytest.approx(8.25, abs=1e-3)
    remove(export, lambda image: place(image) == 2)
    with pytest.raises(DataError, match=r"has 16.0 mm between slices 2 and 3 and 9.0 mm elsewhere.*slice is missing"):
        import_folder(export, tmp_path / "out")


def test_an_axial_stack_and_an_earlier_stack_beside_the_cine_are_left_out(export, voxels, tmp_path):
    study = pydicom.dcmread(next(export.iterdir())).StudyInstanceUID
    for name, number in (("later cine", 9), ("first try", 2)):
        write_series(tmp_path / "in" / name, voxels + 7, SPACING)
        change(tmp_path / "in" / name, StudyInstanceUID=study, SeriesDescription=name, SeriesNumber=number)
    axial = {"ImageOrientationPatient": [1.0, 0, 0, 0, 1.0, 0]}
    change(
        tmp_path / "in" / "later cine",
        **axial,
        ImagePositionPatient=lambda image: [-80.0, -60.0, 40.0 + 8 * place(image)],
    )
    flat = tmp_path / "all"
    flat.mkdir()
    for path in sorted(path for path in export.rglob("*") if path.is_file()):
        shutil.copy(path, flat / f"{path.parent.name}_{path.name}".replace(" ", "_"))
    found, _, all_found = read(flat)
    np.testing.assert_array_equal(found, voxels)
    assert sorted(sentence.split(": ")[1].split(" (5")[0] for sentence in all_found.left_out) == [
        "series first try (number 2)",
        "series later cine (number 9)",
    ]


def test_the_same_export_twice_is_read_once(export, voxels):
    shutil.copytree(export, export / "copy")
    found, _, all_found = read(export)
    np.testing.assert_array_equal(found, voxels)
    assert all_found.left_out == [f"{export}: {SLICES * PHASES} images are copies of others and are read once"]


def test_a_single_file_stands_for_its_series(export, voxels, tmp_path):
    write_series(export.parent / "other", voxels, SPACING)
    for path in (export.parent / "other").iterdir():
        path.rename(export / f"other_{path.name}")
    path = next(path for path in export.iterdir() if path.name.startswith("IM"))
    np.testing.assert_array_equal(read(path)[0], voxels)
    write_enhanced(tmp_path / "enhanced", voxels, SPACING)
    np.testing.assert_array_equal(read(tmp_path / "enhanced" / "IM1")[0], voxels)


def test_files_without_preamble_are_read(export, voxels):
    for number, path in enumerate(export.iterdir()):
        image = pydicom.dcmread(path)
        with open(path, "wb") as file:
            raw = pydicom.filebase.DicomIO(file)
            raw.is_little_endian, raw.is_implicit_VR = True, number % 2 == 0
            pydicom.filewriter.write_dataset(raw, image)
        assert is_dicom(path)
    np.testing.assert_array_equal(read(export)[0], voxels)
    (export / "notes.txt").write_text("no image at all, only a few words that are long enough")
    assert not is_dicom(export / "notes.txt")


def test_sex_and_age_reach_the_imported_patient(export, tmp_path):
    change(export, PatientAge="063Y", PatientSex="M")
    import_folder(export, tmp_path / "stated")
    assert {"Age: 63", "Sex: male"} <= set((tmp_path / "stated" / "patient001" / "Info.cfg").read_text().splitlines())
    change(export, PatientAge="", PatientBirthDate="19700615", StudyDate="20200601", PatientSex="O")
    import_folder(export, tmp_path / "computed")
    lines = (tmp_path / "computed" / "patient001" / "Info.cfg").read_text().splitlines()
    assert "Age: 49" in lines and not any(line.startswith("Sex") for line in lines)
