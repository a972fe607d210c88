"""DICOM in: the grid, the affine and the phases. DICOM out: the labels on the original frame of reference."""

from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
import torch
from torch import nn

from fclseg.anatomy.base import EjectionFraction
from fclseg.anatomy.families.plain import from_labels
from fclseg.anatomy.folders import read_folder
from fclseg.cli import main
from fclseg.data.check import check_folder
from fclseg.errors import DataError
from fclseg.inference.cases import find_cases
from fclseg.inference.patients import Inference
from fclseg.inference.segment import Segmenter
from fclseg.networks.model_file import TrainedModel

pydicom, highdicom = pytest.importorskip("pydicom"), pytest.importorskip("highdicom")

from series_writer import write_enhanced, write_series  # noqa: E402

from fclseg.dicom.importing import import_folder, read_sources  # noqa: E402
from fclseg.dicom.read import find_series  # noqa: E402
from fclseg.dicom.results import write_phases  # noqa: E402
from fclseg.dicom.segmentation import read_segmentation, write_segmentation  # noqa: E402
from fclseg.dicom.volume import to_nifti  # noqa: E402

SPACING = (1.5, 1.25, 8.0)
RADII = (14, 12, 9, 8, 10, 13)


class Threshold(nn.Module):
    def forward(self, images):
        return torch.cat([0.5 - images, images - 0.5], dim=1) * 40


def beating_disc(shape=(40, 44, 4)):
    x, y = np.meshgrid(*(np.arange(n) * s for n, s in zip(shape[:2], SPACING[:2], strict=True)), indexing="ij")
    distance = np.hypot(x - 30, y - 26)[:, :, None, None] + np.arange(shape[2])[None, None, :, None]
    noise = np.random.default_rng(0).integers(0, 9, (*shape, len(RADII)))
    return ((distance < np.array(RADII)) * 800 + 100 + noise).astype(np.uint16)


@pytest.mark.parametrize("series_per_slice", [False, True])
def test_a_series_becomes_one_cine_in_the_scanners_coordinates(tmp_path, series_per_slice):
    voxels = beating_disc()
    affine = write_series(tmp_path / "in", voxels, SPACING, series_per_slice=series_per_slice)
    found = find_series(tmp_path / "in")
    assert found.problems == []
    (cine,) = found.series
    image = to_nifti(cine)
    np.testing.assert_array_equal(np.asarray(image.dataobj), voxels)
    np.testing.assert_allclose(image.affine, affine, atol=1e-4)
    assert image.header.get_zooms() == pytest.approx((*SPACING, 0.04), rel=1e-4)


def test_a_series_whose_high_values_are_dark_is_read_as_it_is_shown(tmp_path):
    voxels = beating_disc()
    write_series(tmp_path / "in", voxels, SPACING)
    for path in (tmp_path / "in").iterdir():
        image = pydicom.dcmread(path)
        image.PhotometricInterpretation = "MONOCHROME1"
        image.save_as(path)
    (cine,) = find_series(tmp_path / "in").series
    np.testing.assert_array_equal(np.asarray(to_nifti(cine).dataobj), -voxels.astype(np.float32))


def test_import_replaces_names_by_codes_and_keeps_the_key_outside(tmp_path):
    for number, name in ((2, "Roe^Richard"), (1, "Doe^Jane")):
        write_series(
            tmp_path / "in" / str(number), beating_disc() + number, SPACING, patient=name, number=f"id{number}"
        )
    assert main(["data", "import", str(tmp_path / "in"), str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"patient001", "patient002"}
    report = check_folder(tmp_path / "out")
    assert report.problems == [] and report.unlabelled == 2 * len(RADII)
    key = (tmp_path / "out_key.csv").read_text().splitlines()
    assert key[1].startswith("patient001,id1,Doe^Jane") and key[2].startswith("patient002,id2,Roe^Richard")
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            assert b"Doe" not in path.read_bytes() and b"Roe" not in path.read_bytes()
    assert "Height: 170.0" in (tmp_path / "out" / "patient001" / "Info.cfg").read_text()


def test_labels_go_back_to_dicom_voxel_by_voxel_and_function_is_that_of_the_nifti_way(tmp_path):
    voxels = beating_disc()
    affine = write_series(tmp_path / "in", voxels, SPACING)
    image = nib.Nifti1Image(voxels.astype(np.int32), affine)
    image.set_qform(affine, code=1)
    nib.save(image, tmp_path / "scan.nii.gz")
    anatomy = replace(from_labels({"structures": {"1": "LV"}}, "the test"), measurements=(EjectionFraction("LV"),))
    segmenter = Segmenter(TrainedModel(Threshold(), anatomy, 32, 1.25, "demo"))
    (plain,) = Inference(segmenter, find_cases(str(tmp_path / "scan.nii.gz")), tmp_path / "nifti").run()

    out = tmp_path / "dicom"
    imported = import_folder(tmp_path / "in", out / "images", keep_sources=True)
    results = Inference(segmenter, find_cases(str(out / "images"), all_phases=True), out).run()
    written = write_phases("patient001", results[0].volumes, out, imported, anatomy)
    names = ["ED", "frame02", "frame03", "ES", "frame05", "frame06"]
    assert [path.name for path in written] == [f"patient001_{name}.dcm" for name in names], "one for each phase"
    labels = np.asarray(nib.load(tmp_path / "nifti" / "scan_seg.nii.gz").dataobj)
    assert (results[0].phases["ED"].frame, results[0].phases["ES"].frame) == (1, 4)
    for path, frame in zip(written, range(6), strict=True):
        np.testing.assert_array_equal(read_segmentation(path), labels[..., frame])
        segmentation, source = pydicom.dcmread(path), pydicom.dcmread(next((tmp_path / "in").iterdir()))
        assert segmentation.FrameOfReferenceUID == source.FrameOfReferenceUID
        assert segmentation.Modality == "SEG" and labels[..., frame].any()
    fractions = [result.value("LV ejection fraction").number for result in (plain, results[0])]
    assert fractions[0] == pytest.approx(fractions[1], abs=1e-6)


def test_an_enhanced_file_is_read_like_the_series_and_labels_go_back_to_it(tmp_path):
    voxels = beating_disc()
    affine = write_enhanced(tmp_path / "in", voxels, SPACING)
    imported = import_folder(tmp_path / "in", tmp_path / "out" / "images", keep_sources=True)
    assert imported.problems == []
    image = nib.load(imported.patients["patient001"])
    np.testing.assert_array_equal(np.asarray(image.dataobj), voxels)
    np.testing.assert_allclose(image.affine, affine, atol=1e-4)
    assert image.header.get_zooms() == pytest.approx((*SPACING, 0.04), rel=1e-4)
    labels = (voxels[..., 1] > 500).astype(np.uint8)
    sources = [phases[1] for phases in read_sources(imported.patients["patient001"].parent)]
    write_segmentation(tmp_path / "a.dcm", labels, sources, from_labels({"structures": {"1": "LV"}}, "the test"), "ED")
    volume = highdicom.seg.segread(tmp_path / "a.dcm").get_volume(combine_segments=True, skip_overlap_checks=True)
    lps = np.diag([-1, -1, 1, 1]) @ affine
    x, y, s = np.nonzero(labels)
    places = (lps @ np.stack([x, y, s, np.ones_like(x)]))[:3].T
    indices = np.nonzero(volume.array)
    found = (volume.affine @ np.stack([*indices, np.ones_like(indices[0])]))[:3].T
    order = [np.lexsort(np.round(one, 2).T) for one in (places, found)]
    np.testing.assert_allclose(found[order[1]], places[order[0]], atol=0.01)


def test_incomplete_and_foreign_files_are_named(tmp_path):
    write_series(tmp_path / "in", beating_disc(), SPACING)
    (tmp_path / "in" / "readme.txt").write_text("no image")
    files = sorted((tmp_path / "in").glob("IM*"))
    for path in list(files):
        if pydicom.dcmread(path).InstanceNumber in (7, 8):  # of the six phases of the second slice
            path.unlink()
            files.remove(path)
    with pytest.raises(DataError, match="has 6 phases, but slice 2 has 4; export all of it"):
        import_folder(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    files[4].write_bytes(files[4].read_bytes()[:300])
    assert find_series(tmp_path / "in").problems
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="contains no DICOM image series"):
        import_folder(tmp_path / "empty", tmp_path / "out")


def test_of_an_exam_only_the_short_axis_cine_is_taken(tmp_path):
    """Localisers and long-axis views lie beside it in every export; they are named, and nothing is wrong."""
    write_series(tmp_path / "in" / "short", beating_disc(), SPACING)
    study = pydicom.dcmread(next((tmp_path / "in" / "short").iterdir())).StudyInstanceUID
    for name, stack in (("long", beating_disc()[:, :, :1]), ("localiser", beating_disc()[..., :1])):
        write_series(tmp_path / "in" / name, stack, SPACING)
        for path in (tmp_path / "in" / name).iterdir():
            image = pydicom.dcmread(path)
            image.StudyInstanceUID, image.SeriesDescription = study, name
            image.save_as(path)
    imported = import_folder(tmp_path / "in", tmp_path / "out")
    assert list(imported.patients) == ["patient001"] and imported.problems == []
    assert nib.load(imported.patients["patient001"]).shape == beating_disc().shape
    left = sorted(sentence.split("series ")[1] for sentence in imported.left_out)
    assert left == [
        "localiser (number 3) (4 slices, 1 phases) is not a short-axis cine",
        "long (number 3) (1 slices, 6 phases) is not a short-axis cine",
    ]


def test_an_interrupted_import_leaves_no_folder(tmp_path, monkeypatch):
    write_series(tmp_path / "in", beating_disc(), SPACING)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(nib, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        import_folder(tmp_path / "in", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert import_folder(tmp_path / "in", tmp_path / "out").patients


def test_imported_cycles_are_read_as_unlabelled_frames(tmp_path):
    write_series(tmp_path / "in", beating_disc(), SPACING)
    import_folder(tmp_path / "in", tmp_path / "out")
    volumes = read_folder(tmp_path / "out")
    assert len(volumes) == len(RADII) and {volume.phase for volume in volumes} == {None}
    assert volumes[0].spacing == pytest.approx(SPACING, rel=1e-4)
