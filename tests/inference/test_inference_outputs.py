"""Label maps on the input's own grid, pictures and tables, checked on re-opened files."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from torch import nn

from fclseg.anatomy.base import EjectionFraction
from fclseg.anatomy.families.plain import from_labels
from fclseg.anatomy.records import Volume
from fclseg.errors import DataError
from fclseg.inference import NOTICE
from fclseg.inference.cases import find_cases
from fclseg.inference.patients import Inference
from fclseg.inference.segment import Segmenter, keep_largest_piece
from fclseg.inference.values import Body
from fclseg.networks.model_file import TrainedModel


class Threshold(nn.Module):
    """A network whose right answer is known: bright pixels are structure 1."""

    def forward(self, images):
        return torch.cat([0.5 - images, images - 0.5], dim=1) * 40


BRIGHT = replace(from_labels({"structures": {"1": "LV"}}, "the test"), measurements=(EjectionFraction("LV"),))


def segmenter(network=None, spacing=1.25, image_size=32):
    return Segmenter(TrainedModel(network or Threshold(), BRIGHT, image_size, spacing, "demo"))


def oblique(zooms):
    """Rotated about two axes and shifted, as short-axis stacks are."""
    a, b = np.deg2rad(35), np.deg2rad(-20)
    turn = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
    tilt = np.array([[1, 0, 0], [0, np.cos(b), -np.sin(b)], [0, np.sin(b), np.cos(b)]])
    affine = np.eye(4)
    affine[:3, :3] = turn @ tilt @ np.diag(zooms)
    affine[:3, 3] = (-70.5, 33.25, 12.125)
    return affine


def bright_disc(shape, zooms, centre_mm, radius_mm=18.0):
    x, y = np.meshgrid(*(np.arange(n) * zoom for n, zoom in zip(shape[:2], zooms[:2], strict=True)), indexing="ij")
    disc = np.hypot(x - centre_mm[0], y - centre_mm[1]) < radius_mm
    return np.repeat(disc[..., None], shape[2], axis=2)


def write(path, disc, affine, dtype=np.int16, units="mm", klass=nib.Nifti1Image):
    noise = np.random.default_rng(0).normal(scale=5, size=disc.shape)
    image = klass((disc * 800 + 100 + noise).astype(dtype), affine)
    image.header.set_xyzt_units(units)
    image.set_qform(affine, code=1)
    image.set_sform(affine, code=2)
    path.parent.mkdir(exist_ok=True)
    nib.save(image, path)
    return path


GEOMETRIES = [
    ((61, 83, 5), (1.3, 1.3, 9.0), "straight", "a.nii.gz", nib.Nifti1Image),
    ((70, 50, 3), (1.9, 1.1, 8.0), "oblique", "a.nii.gz", nib.Nifti1Image),
    ((40, 40, 20), (3.1, 3.1, 1.0), "oblique", "a.nii", nib.Nifti2Image),
]


@pytest.mark.parametrize(("shape", "zooms", "direction", "name", "klass"), GEOMETRIES)
def test_label_map_has_the_inputs_geometry_and_lies_on_the_disc(tmp_path, shape, zooms, direction, name, klass):
    affine = oblique(zooms) if direction == "oblique" else np.diag([-zooms[0], -zooms[1], zooms[2], 1.0])
    disc = bright_disc(shape, zooms, (45, 40))
    source = nib.load(write(tmp_path / name, disc, affine, klass=klass))
    (result,) = Inference(segmenter(), find_cases(str(tmp_path / name)), tmp_path / "out").run()
    found = nib.load(tmp_path / "out" / "a_seg.nii.gz")
    labels = np.asarray(found.dataobj)
    assert found.shape == source.shape and np.array_equal(found.affine, source.affine)
    assert found.header.get_zooms() == source.header.get_zooms()
    assert found.header.get_xyzt_units() == source.header.get_xyzt_units()
    assert [int(found.header[code]) for code in ("qform_code", "sform_code")] == [1, 2]
    assert found.get_data_dtype() == np.uint8 and set(np.unique(labels)) == {0, 1}
    overlap = 2 * (disc & (labels == 1)).sum() / (disc.sum() + (labels == 1).sum())
    assert overlap > 0.97, "shifted or scaled on its way back"
    (volume,) = result.volumes
    assert volume.ml["LV"] == pytest.approx((labels == 1).sum() * np.prod(zooms) / 1000, rel=1e-5)
    assert NOTICE[:40].encode() in bytes(found.header["descrip"])


def test_whole_image_is_covered_not_just_its_centre(tmp_path):
    zooms = (1.5, 1.5, 8.0)
    disc = bright_disc((200, 180, 2), zooms, (265, 30), radius_mm=20)
    write(tmp_path / "far.nii.gz", disc, oblique(zooms))
    Inference(segmenter(), find_cases(str(tmp_path / "far.nii.gz")), tmp_path / "out").run()
    labels = np.asarray(nib.load(tmp_path / "out" / "far_seg.nii.gz").dataobj)
    assert 2 * (disc & (labels == 1)).sum() / (disc.sum() + labels.sum()) > 0.97


def test_pair_of_phases_gives_an_ejection_fraction(tmp_path):
    zooms = (1.5, 1.5, 10.0)
    for phase, radius in (("ed", 24.0), ("es", 16.0)):
        write(tmp_path / f"{phase}.nii.gz", bright_disc((80, 80, 4), zooms, (60, 60), radius), oblique(zooms))
    cases = find_cases(ed=str(tmp_path / "ed.nii.gz"), es=str(tmp_path / "es.nii.gz"))
    Inference(segmenter(), cases, tmp_path / "out").run()
    ml = {}
    for phase in ("ed", "es"):
        labels = np.asarray(nib.load(tmp_path / "out" / f"{phase}_seg.nii.gz").dataobj)
        ml[phase] = (labels == 1).sum() * np.prod(zooms) / 1000
    expected = 100 * (ml["ed"] - ml["es"]) / ml["ed"]
    with open(tmp_path / "out" / "measurements.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["phase"] for row in rows] == ["ED", "ES"]
    assert [float(row["LV_EF_percent"]) for row in rows] == [pytest.approx(expected, abs=0.06)] * 2
    assert float(rows[0]["LV_ml"]) == pytest.approx(ml["ed"], abs=0.01) and rows[0]["notice"] == NOTICE
    content = json.loads((tmp_path / "out" / "measurements.json").read_text())
    assert content["notice"] == NOTICE and len(content["volumes"]) == 2
    for name in ("ed", "es"):
        assert (tmp_path / "out" / f"{name}_overlay.png").read_bytes().startswith(b"\x89PNG")
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".part")]


def test_metres_are_not_taken_for_millimetres(tmp_path):
    zooms = (0.0015, 0.0015, 0.008)
    affine = np.diag([*zooms, 1.0])
    write(tmp_path / "m.nii.gz", bright_disc((60, 60, 3), (1.5, 1.5, 8.0), (45, 45)), affine, units="meter")
    (result,) = Inference(segmenter(), find_cases(str(tmp_path / "m.nii.gz")), tmp_path / "out").run()
    labels = np.asarray(nib.load(tmp_path / "out" / "m_seg.nii.gz").dataobj)
    (volume,) = result.volumes
    assert volume.ml["LV"] == pytest.approx((labels == 1).sum() * 1.5 * 1.5 * 8.0 / 1000, rel=1e-4)
    assert volume.ml["LV"] == pytest.approx(np.pi * 18**2 * 24 / 1000, rel=0.05)


def test_one_bad_file_is_named_and_the_others_are_done(tmp_path):
    zooms = (1.5, 1.5, 8.0)
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "good.nii.gz", bright_disc((60, 60, 3), zooms, (45, 45)), oblique(zooms))
    broken = np.full((60, 60, 3), np.nan, np.float32)
    nib.save(nib.Nifti1Image(broken, oblique(zooms)), tmp_path / "in" / "nan.nii.gz")
    with pytest.raises(DataError, match=r"1 of 2 refused: .*nan\.nii\.gz.*NaN"):
        Inference(segmenter(), find_cases(str(tmp_path / "in")), tmp_path / "out").run()
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "good_seg.nii.gz", "good_overlay.png", "good_report.html", "good_result.json", "index.html",
        "measurements.csv", "measurements.json", "patients.csv", "slices.csv",
    }  # fmt: skip
    page = (tmp_path / "out" / "index.html").read_text()
    assert "nan.nii.gz" in page and 'href="good_report.html"' in page and NOTICE in page


def test_output_inside_the_input_folder_is_refused(tmp_path):
    write(tmp_path / "a.nii.gz", bright_disc((40, 40, 2), (2, 2, 8), (40, 40)), oblique((2, 2, 8)))
    with pytest.raises(DataError, match="outside"):
        find_cases(str(tmp_path), output_dir=str(tmp_path / "out"))


HEART = replace(BRIGHT, compact=True)


def heart_segmenter():
    return Segmenter(TrainedModel(Threshold(), HEART, 32, 3.0, "demo"))


def labels_of(voxels, spacing=(1.5, 1.5, 8.0)):
    volume = Volume("p", None, None, Path("p.nii"), None, spacing, HEART)
    return heart_segmenter()(voxels, volume).labels


def test_padding_cropping_and_shifting_leave_the_labels_as_they_were():
    disc = bright_disc((90, 100, 3), (1.5, 1.5, 8.0), (75, 70))
    body = np.random.default_rng(0).normal(300, 20, disc.shape)
    voxels = np.where(disc, 900.0, body).astype(np.float32)
    labels = labels_of(voxels)
    assert 2 * (disc & (labels == 1)).sum() / (disc.sum() + labels.sum()) > 0.95
    for pad in (((256, 0), (0, 0)), ((0, 256), (256, 0)), ((256, 256), (256, 256))):
        padded = labels_of(np.pad(voxels, (*pad, (0, 0))))
        inside = tuple(slice(one[0], one[0] + n) for one, n in zip(pad, voxels.shape, strict=False))
        np.testing.assert_array_equal(padded[inside], labels)
        assert padded.sum() == labels.sum(), "nothing is drawn on the padding"
    np.testing.assert_array_equal(labels_of(voxels[8:, 6:]), labels[8:, 6:])
    moved = np.roll(voxels, (27, -20), (0, 1))  # 40 and 30 mm
    found = np.roll(labels_of(moved), (-27, 20), (0, 1))
    # The centre of the disc is between two voxels, and the window may settle on either: half of one of its pixels.
    assert 2 * ((found == 1) & (labels == 1)).sum() / (found.sum() + labels.sum()) > 0.95


class ByGrey(nn.Module):
    """A network that is sure of the two structures of a heart, and half sure that anything dark is one of them."""

    def forward(self, images):
        shades = torch.cat([torch.full_like(images, level) for level in (0.0, 0.6, 1.0)], dim=1)
        dark = torch.where((images > 0.15) & (images < 0.4), 1.0, 0.0) * torch.tensor([0.0, 0.3, 0.0])[:, None, None]
        return -300.0 * (images - shades) ** 2 * (dark == 0).all(dim=1, keepdim=True) + dark


def test_the_heart_is_where_the_network_is_sure_of_all_structures_not_where_it_finds_most():
    spacing, shape = (1.5, 1.5, 8.0), (160, 150, 3)
    lung, wall, cavity = (bright_disc(shape, spacing, place, radius_mm=radius) for place, radius in
                          (((60, 170), 44), ((180, 60), 26), ((180, 60), 16)))  # fmt: skip
    voxels = np.select([cavity, wall, lung], [1000.0, 600.0, 270.0], 0).astype(np.float32)
    voxels += np.random.default_rng(0).random(shape, dtype=np.float32)
    anatomy = replace(from_labels({"structures": {"1": "MYO", "2": "LV"}}, "the test"), compact=True)
    volume = Volume("p", None, None, Path("p.nii"), None, spacing, anatomy)
    labels = Segmenter(TrainedModel(ByGrey(), anatomy, 32, 3.0, "demo"))(voxels, volume).labels
    assert not (labels[lung] > 0).any()
    assert (labels[cavity] == 2).mean() > 0.9


class Corner(nn.Module):
    """A network that always finds something in the corner of its window."""

    def forward(self, images):
        found = torch.zeros_like(images)
        found[..., -4:, -4:] = 1
        return torch.cat([0.5 - found, found - 0.5], dim=1) * 40


def test_a_window_does_not_leave_the_image():
    """In a damaged image nothing holds it; beyond the image there are no grey values to scale."""
    voxels = np.random.default_rng(0).normal(300, 20, (30, 26, 3)).astype(np.float32)
    volume = Volume("p", None, None, Path("p.nii"), None, (1.5, 1.5, 8.0), HEART)
    corners = Segmenter(TrainedModel(Corner(), HEART, 32, 3.0, "demo"))
    assert not corners(voxels, volume).labels.any(), "what is beyond the image is not a heart"
    found = corners(voxels, volume, (200, -90))
    assert all(0 <= place < size for place, size in zip(found.centre, voxels.shape, strict=False))


def test_nothing_is_claimed_far_from_the_heart():
    voxels = bright_disc((200, 100, 3), (1.5, 1.5, 8.0), (75, 70)) * 800.0 + np.random.default_rng(0).random(
        (200, 100, 3)
    )
    voxels[190:198, 40:60] = 800.0  # an arm, 170 mm away and smaller
    labels = labels_of(voxels)
    assert labels[44:56, 42:52].all() and not labels[150:].any()


def test_a_second_run_takes_over_what_is_finished_and_a_changed_file_is_done_again(tmp_path):
    zooms = (1.5, 1.5, 8.0)
    path = write(tmp_path / "a.nii.gz", bright_disc((60, 60, 3), zooms, (45, 45)), oblique(zooms))

    def run():
        return Inference(segmenter(), find_cases(str(path)), tmp_path / "out").run()[0].volumes[0].ml["LV"]

    first = run()
    before = (tmp_path / "out" / "a_seg.nii.gz").stat().st_mtime_ns
    assert run() == first and (tmp_path / "out" / "a_seg.nii.gz").stat().st_mtime_ns == before
    for lost in ("a_seg.nii.gz", "a_report.html", "a_overlay.png"):
        (tmp_path / "out" / lost).unlink()
        assert run() == first and (tmp_path / "out" / lost).is_file(), "a deleted file is made again"
    (tmp_path / "Info.cfg").write_text("Height: 180\nWeight: 80\n")
    run()
    assert "area: 2.00 m²" in (tmp_path / "out" / "a_report.html").read_text(), "the body is part of the input"
    pdfs = []
    for body in (Body(160, 60), Body(180, 80), Body(180, 80)):  # what somebody types
        Inference(segmenter(), find_cases(str(path)), tmp_path / "out", body=body, pdf=True).run()
        pdfs += [file.stat().st_mtime_ns for file in (tmp_path / "out").glob("*.pdf")]
    assert len(pdfs) == 3 and pdfs[0] < pdfs[1] == pdfs[2]
    write(path, bright_disc((60, 60, 3), zooms, (45, 45), 9.0), oblique(zooms))
    assert run() < first / 2


def test_volumes_per_slice_are_those_of_the_label_map(tmp_path):
    zooms = (1.5, 1.5, 8.0)
    disc = bright_disc((60, 60, 4), zooms, (45, 45))
    disc[..., 3] = bright_disc((60, 60, 1), zooms, (45, 45), 9.0)[..., 0]
    path = write(tmp_path / "a.nii.gz", disc, np.diag([-1.5, -1.5, 8.0, 1.0]))  # base first
    Inference(segmenter(), find_cases(str(path)), tmp_path / "out").run()
    labels = np.asarray(nib.load(tmp_path / "out" / "a_seg.nii.gz").dataobj)
    with open(tmp_path / "out" / "slices.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = labels.sum(axis=(0, 1)) * np.prod(zooms) / 1000
    assert [int(row["slice"]) for row in rows] == [1, 2, 3, 4] and expected[3] < expected[2] / 3
    assert [float(row["LV_ml"]) for row in rows] == pytest.approx(expected, abs=1e-3)
    (volume,) = json.loads((tmp_path / "out" / "measurements.json").read_text())["volumes"]
    assert volume["slices_ml"]["LV"] == pytest.approx(expected, abs=1e-3)


def test_height_and_weight_of_one_patient_are_not_used_for_several(tmp_path):
    zooms = (1.5, 1.5, 8.0)
    for name in ("a", "b"):
        write(tmp_path / "in" / f"{name}.nii.gz", bright_disc((40, 40, 2), zooms, (30, 30)), oblique(zooms))
    cases = find_cases(str(tmp_path / "in"))
    with pytest.raises(DataError, match="there are 2"):
        Inference(segmenter(), cases, tmp_path / "out", body=Body(180, 80)).run()
    assert not (tmp_path / "out").exists()


def test_a_cine_is_one_label_file_with_its_curve(tmp_path):
    zooms, radii = (1.5, 1.5, 8.0), (16, 14, 18, 23, 24, 22)
    frames = np.stack([bright_disc((60, 60, 3), zooms, (45, 45), radius) for radius in radii], axis=-1)
    image = nib.Nifti1Image((frames * 800 + 100).astype(np.int16), oblique(zooms))
    image.header.set_xyzt_units("mm", "sec")
    image.header.set_zooms((*zooms, 0.15))
    nib.save(image, tmp_path / "cine.nii.gz")
    anatomy = replace(BRIGHT, measurements=(EjectionFraction("LV"),))
    model = TrainedModel(Threshold(), anatomy, 32, 1.25, "demo")
    (result,) = Inference(Segmenter(model), find_cases(str(tmp_path / "cine.nii.gz")), tmp_path / "out").run()
    labels = nib.load(tmp_path / "out" / "cine_seg.nii.gz")
    assert labels.shape == frames.shape and labels.header.get_zooms()[3] == pytest.approx(0.15)
    assert [(phase, one.frame) for phase, one in result.phases.items()] == [("ED", 5), ("ES", 2)]
    assert result.value("LV ejection fraction").number == pytest.approx(100 * (1 - 14**2 / 24**2), abs=3)
    assert result.value("LV cardiac output").number > 0
    page = (tmp_path / "out" / "cine_report.html").read_text()
    assert page.index("<figcaption>cine ED<") < page.index("<figcaption>cine ES<"), (
        "in this order, as doctors read them"
    )
    assert "<polyline" in page and "data:image/png;base64," in page and "http" not in page.replace("http-equiv", "")


def test_only_the_largest_piece_is_kept():
    labels = np.zeros((8, 8, 2), np.uint8)
    labels[1:4, 1:4] = 1
    labels[4, 4, 0] = 2  # touches by a corner: the same piece
    labels[7, 7, 1] = 3
    kept = keep_largest_piece(labels)
    assert kept[7, 7, 1] == 0 and kept[4, 4, 0] == 2 and (kept == 1).sum() == 18
    assert keep_largest_piece(np.zeros_like(labels)).sum() == 0
