"""The phantom on disk: complete data sets, correct ejection fractions, different scanners, nothing half-written."""

import nibabel as nib
import numpy as np
import pytest
from scipy.ndimage import binary_dilation, label

from fclseg.anatomy.folders import read_folder
from fclseg.errors import DataError
from fclseg.phantom import dataset
from fclseg.phantom.dataset import draw_heart, draw_scanner, phantom_sites, scanner_of, write_phantom
from fclseg.phantom.heart import GROUPS, LV, MYO, RV, contraction

PATIENTS, SITES, SEED = 6, 3, 11


@pytest.fixture(scope="module")
def acdc(tmp_path_factory):
    return write_phantom(tmp_path_factory.mktemp("phantom") / "acdc", patients=PATIENTS, seed=SEED, sites=SITES)


@pytest.fixture(scope="module")
def hvsmr(tmp_path_factory):
    return write_phantom(tmp_path_factory.mktemp("phantom") / "hvsmr", "hvsmr", patients=2, seed=SEED)


def array(path) -> np.ndarray:
    return np.asarray(nib.load(path).dataobj)


def info(folder) -> dict[str, str]:
    return dict(line.split(": ") for line in (folder / "Info.cfg").read_text().splitlines())


def frames(folder) -> tuple[int, int]:
    return int(info(folder)["ED"]), int(info(folder)["ES"])


def truth(folder, frame: int) -> np.ndarray:
    return array(folder / f"{folder.name}_frame{frame:02d}_gt.nii.gz")


def test_acdc_layout_is_complete(acdc):
    assert [folder.name for folder in acdc] == [f"patient{i:03d}" for i in range(1, PATIENTS + 1)]
    assert sorted(acdc[0].parent.iterdir()) == acdc
    for folder in acdc:
        end_diastole, end_systole = frames(folder)
        stems = [f"{folder.name}_frame{frame:02d}" for frame in (end_diastole, end_systole)]
        expected = {"Info.cfg", f"{folder.name}_4d.nii.gz"} | {s + e for s in stems for e in (".nii.gz", "_gt.nii.gz")}
        assert {path.name for path in folder.iterdir()} == expected
        assert list(info(folder)) == ["ED", "ES", "Group", "Height", "NbFrame", "Weight"]
        assert info(folder)["Group"] in GROUPS
        assert 1 == end_diastole < end_systole <= int(info(folder)["NbFrame"])


def test_headers_are_those_of_a_short_axis_stack(acdc):
    for folder in acdc:
        cycle = nib.load(folder / f"{folder.name}_4d.nii.gz")
        for frame in frames(folder):
            image = nib.load(folder / f"{folder.name}_frame{frame:02d}.nii.gz")
            labels = nib.load(folder / f"{folder.name}_frame{frame:02d}_gt.nii.gz")
            assert image.get_data_dtype() == np.int16 and labels.get_data_dtype() == np.uint8
            assert image.shape == labels.shape == cycle.shape[:3]
            assert np.array_equal(image.affine, labels.affine) and np.array_equal(image.affine, cycle.affine)
            x, y, z = image.header.get_zooms()
            assert 1.4 <= x == y <= 1.6 and 8 <= z <= 10
            assert np.linalg.det(image.affine[:3, :3]) == pytest.approx(x * y * z, rel=1e-4)
            assert np.array_equal(array(image.get_filename()), array(cycle.get_filename())[..., frame - 1])
        assert cycle.shape[3] == int(info(folder)["NbFrame"]) == 10
        assert 0.05 < cycle.header.get_zooms()[3] < 0.15
        assert cycle.header.get_xyzt_units() == ("mm", "sec")


def test_the_reader_finds_every_frame_and_label(acdc):
    volumes = read_folder(acdc[0].parent, "acdc")
    assert sum(volume.label is not None for volume in volumes) == 2 * PATIENTS
    assert sum(volume.label is None for volume in volumes) == 8 * PATIENTS
    assert {volume.patient for volume in volumes} == {folder.name for folder in acdc}


def test_voxel_counts_give_the_ejection_fraction_drawn(acdc):
    for number, folder in enumerate(acdc, start=1):
        end_diastole, end_systole = (np.count_nonzero(truth(folder, frame) == LV) for frame in frames(folder))
        measured = 1 - end_systole / end_diastole
        assert measured == pytest.approx(draw_heart(SEED, number).ejection_fraction, abs=0.015)


def test_ejection_fractions_span_ten_to_eighty_percent():
    fractions = [draw_heart(0, number).ejection_fraction for number in range(300)]
    assert 0.10 <= min(fractions) < 0.14 and 0.76 < max(fractions) <= 0.80


@pytest.mark.parametrize("count", [2, 3, 5, 10, 30])
def test_the_cycle_starts_at_end_diastole_and_ends_systole_once(count):
    curve, systole = contraction(count)
    assert curve[0] == 0 and curve[systole] == 1 and np.count_nonzero(curve == 1) == 1
    assert (np.diff(curve[: systole + 1]) > 0).all() and (np.diff(curve[systole:]) < 0).all()


def test_the_cavity_lies_inside_the_wall_and_beside_the_right_ventricle(acdc):
    for folder in acdc:
        for frame in frames(folder):
            labels = truth(folder, frame)
            assert set(np.unique(labels)) == {0, RV, MYO, LV}
            for plane in np.moveaxis(labels, 2, 0):
                around = binary_dilation(plane == LV) & (plane != LV)
                assert set(np.unique(plane[around])) <= {MYO}
                assert label(plane == LV)[1] <= 1
            touching = binary_dilation(labels == RV) & (labels == MYO)
            assert touching.sum() > 50


def test_anatomy_changes_from_base_to_apex(acdc):
    for folder in acdc:
        labels = truth(folder, 1)
        cavity, right = ((labels == structure).sum(axis=(0, 1)) for structure in (LV, RV))
        present = np.flatnonzero(cavity)
        assert (np.diff(cavity[present]) < 0).mean() > 0.7  # narrows towards the apex, which comes last
        right = right[right > 0]  # above its valves there is none
        assert right[: len(right) // 2].mean() > 1.5 * right[len(right) // 2 :].mean()


def test_the_wall_thickens(acdc):
    """Its volume changes by what was drawn and by slices that leave the ventricle, its thickness by more."""
    for folder in acdc:
        labels = [truth(folder, frame) for frame in frames(folder)]
        volumes = [np.count_nonzero(one == MYO) for one in labels]
        assert 0.85 < volumes[1] / volumes[0] < 1.4
        middle = labels[0].shape[2] // 2
        outer, inner = (
            [np.sqrt(np.isin(one[..., middle], found).sum()) for one in labels] for found in ((MYO, LV), (LV,))
        )
        assert outer[1] - inner[1] > 1.05 * (outer[0] - inner[0])


def test_blood_is_brighter_than_muscle_and_lung(acdc):
    for folder in acdc:
        image, labels = array(folder / f"{folder.name}_frame01.nii.gz"), truth(folder, 1)
        assert np.median(image[labels == LV]) > 1.2 * np.median(image[labels == MYO])
        assert image.min() >= 0 and image.std() > 0


def test_a_seed_determines_every_file(acdc, tmp_path):
    again = write_phantom(tmp_path / "again", patients=2, seed=SEED, sites=SITES)
    assert len(again) == 2
    for first, second in zip(acdc[:2], again, strict=True):
        assert sorted(path.name for path in first.iterdir()) == sorted(path.name for path in second.iterdir())
        for path in first.iterdir():
            assert path.read_bytes() == (second / path.name).read_bytes()


def test_another_seed_is_another_patient():
    assert draw_heart(0, 1) != draw_heart(1, 1)
    assert draw_heart(0, 1) != draw_heart(0, 2)
    assert draw_scanner(0, 0) != draw_scanner(0, 1)


def test_patients_are_dealt_to_scanners_in_turn(acdc):
    pixels = [float(nib.load(folder / f"{folder.name}_4d.nii.gz").header.get_zooms()[0]) for folder in acdc]
    shapes = [nib.load(folder / f"{folder.name}_4d.nii.gz").shape[:2] for folder in acdc]
    for number, (pixel, shape) in enumerate(zip(pixels, shapes, strict=True), start=1):
        scanner = draw_scanner(SEED, scanner_of(number, SITES))
        assert pixel == pytest.approx(scanner.pixel) and shape == scanner.matrix
    assert len(set(pixels)) == SITES
    assert phantom_sites(5, 2) == {
        "site-1": ["patient001", "patient003", "patient005"],
        "site-2": ["patient002", "patient004"],
    }


def test_hvsmr_layout_is_isotropic_with_two_labels(hvsmr):
    assert [path.name for path in hvsmr] == [f"training_axial_crop_pat{i}.nii.gz" for i in range(2)]
    assert len(list(hvsmr[0].parent.iterdir())) == 4
    for path in hvsmr:
        image, labels = nib.load(path), nib.load(path.with_name(path.name.replace(".nii.gz", "-label.nii.gz")))
        assert image.shape == labels.shape and image.shape[2] > 40
        assert len(set(np.round(image.header.get_zooms(), 4))) == 1
        values, counts = np.unique(labels.dataobj, return_counts=True)
        voxels = array(path).astype(float)
        assert np.corrcoef(voxels[..., 1:].ravel(), voxels[..., :-1].ravel())[0, 1] > 0.85  # one scan, not a stack
        assert values.tolist() == [0, 1, 2] and counts.min() > 1000
    assert sum(volume.label is not None for volume in read_folder(hvsmr[0].parent, "hvsmr")) == 2


def test_a_folder_with_something_in_it_is_refused_and_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(DataError, match="not an empty folder"):
        write_phantom(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "out").mkdir()
    assert write_phantom(tmp_path / "out", patients=1, frames=2)[0].is_dir()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"anatomy": "dicom"}, "no phantom for anatomy 'dicom': choose one of acdc, hvsmr"),
        ({"patients": 0}, "at least 1 patient, 1 site and 2 frames, not 0, 1 and 10"),
        ({"sites": 0}, "not 10, 0 and 10"),
        ({"frames": 1}, "not 10, 1 and 1"),
    ],
)
def test_impossible_requests_are_refused(tmp_path, wrong, sentence):
    with pytest.raises(DataError, match=sentence):
        write_phantom(tmp_path / "out", **wrong)
    assert not list(tmp_path.iterdir())


def test_an_unwritable_place_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        write_phantom(tmp_path / "file" / "out", patients=1)


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setitem(dataset.WRITERS, "acdc", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_phantom(tmp_path / "out", patients=1)
    assert not list(tmp_path.iterdir())
