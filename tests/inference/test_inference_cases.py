"""The inputs that inference accepts, and the arithmetic of measurements."""

import nibabel as nib
import numpy as np
import pytest

from fclseg.anatomy.records import Volume, read_images
from fclseg.anatomy.registry import ANATOMIES
from fclseg.errors import DataError
from fclseg.inference.body import body_of, stated_body
from fclseg.inference.cases import find_cases, output_names
from fclseg.inference.function import NO_HEART, patient_result
from fclseg.inference.measure import Measurement, measure
from fclseg.inference.segment import Segmentation
from fclseg.inference.tables import patient_rows, table_rows
from fclseg.inference.values import Body


def write(path, shape=(6, 6, 3)):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    nib.save(nib.Nifti1Image(data, np.diag([1.5, 1.5, 8, 1])), path)
    return path


def test_file_folder_and_patient(tmp_path, phantom):
    single = find_cases(str(write(tmp_path / "x" / "a.nii.gz")))
    assert [case.patient for case in single] == ["a"] and single.volumes[0].phase is None
    write(tmp_path / "x" / "b.nii")
    assert [case.patient for case in find_cases(str(tmp_path / "x"))] == ["a", "b"]
    patient = find_cases(str(phantom / "patient002"))
    assert [case.phase for case in patient] == ["ED", "ES"] and {case.patient for case in patient} == {"patient002"}
    assert len(find_cases(str(phantom))) == 8


def test_cycle_alone_gives_its_named_phases(tmp_path):
    write(tmp_path / "p1" / "p1_4d.nii.gz", (6, 6, 3, 4))
    (tmp_path / "p1" / "Info.cfg").write_text("ED: 1\nES: 3\n")
    cases = find_cases(str(tmp_path / "p1"))
    assert [case.phase for case in cases] == ["ED", "ES"]
    assert output_names(cases.volumes) == ["p1_4d_ED", "p1_4d_ES"]
    whole = np.asarray(nib.load(tmp_path / "p1" / "p1_4d.nii.gz").dataobj)
    ((_, voxels),) = read_images([cases.volumes[1]])
    assert np.array_equal(voxels, whole[::-1, ::-1, :, 2]), "stored as RAS, read as LPS"
    assert len(find_cases(str(tmp_path / "p1"), all_phases=True)) == 4


def test_a_cine_gives_all_its_frames(tmp_path):
    path = write(tmp_path / "p1" / "cine.nii.gz", (6, 6, 3, 4))
    for cases in (find_cases(str(path)), find_cases(str(tmp_path / "p1"))):
        assert [case.frame for case in cases] == [1, 2, 3, 4] and {case.phase for case in cases} == {None}
        assert set(output_names(cases)) == {"cine"}


def test_files_that_cannot_be_read_do_not_stop_the_others(tmp_path):
    write(tmp_path / "x" / "a.nii.gz")
    (tmp_path / "x" / "b.nii.gz").write_text("no image")
    cases = find_cases(str(tmp_path / "x"))
    assert [case.patient for case in cases] == ["a"] and len(cases.refused) == 1 and "b.nii.gz" in cases.refused[0]


def test_same_names_in_two_folders_do_not_overwrite_each_other(tmp_path):
    for folder in ("p1", "p2"):
        write(tmp_path / folder / "image.nii.gz")
    assert output_names(find_cases(str(tmp_path))) == ["p1_image", "p2_image"]
    pair = [str(write(tmp_path / phase / "anna" / "1.nii")) for phase in ("first", "second")]
    assert output_names(find_cases(ed=pair[0], es=pair[1])) == ["ED_anna_1", "ES_anna_1"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "nothing to segment"),
        ({"ed": "3d.nii.gz"}, "both --ed FILE and --es FILE"),
        ({"ed": "3d.nii.gz", "es": "3d.nii.gz"}, "both ED and ES"),
        ({"ed": "4d.nii.gz", "es": "3d.nii.gz"}, r"4d\.nii\.gz: is 4D, but a 3D"),
        ({"input": "none.nii.gz"}, "no such file"),
        ({"input": "notes.txt"}, "not have the name of a NIfTI file"),
        ({"input": "torn.nii.gz"}, r"torn\.nii\.gz"),
    ],
)
def test_refusals(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "3d.nii.gz")
    write(tmp_path / "4d.nii.gz", (6, 6, 3, 2))
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "torn.nii.gz").write_bytes((tmp_path / "3d.nii.gz").read_bytes()[:20])
    with pytest.raises(DataError, match=sentence):
        find_cases(**arguments)


SIZES = (2.5, 2.5, 2.0)
WHO = {"patient": "p", "image": "i", "phase": None, "frame": None}


def counted(labels, **who):
    return measure(Segmentation(labels), SIZES, ANATOMIES["acdc"], **WHO | who)


def test_volumes_agree_with_voxel_counting():
    labels = np.random.default_rng(0).integers(0, 4, size=(7, 8, 9)).astype(np.uint8)
    result = counted(labels, phase="ED", frame=1)
    for value, name in ((1, "RV"), (2, "MYO"), (3, "LV")):
        assert result.ml[name] == pytest.approx(sum(voxel == value for voxel in labels.ravel()) * 12.5 / 1000)
        assert sum(result.slices_ml[name]) == pytest.approx(result.ml[name])
    assert result.g == {"MYO": pytest.approx(result.ml["MYO"] * 1.05)}
    empty = counted(np.zeros((2, 2, 2), np.uint8), phase=None, frame=None)
    assert empty.flags == ["no RV found", "no MYO found", "no LV found"]


def test_a_cavity_without_wall_and_a_slice_without_cavity_are_flagged():
    labels = np.zeros((20, 20, 5), np.uint8)
    labels[4:16, 4:16, :4] = 2
    labels[6:14, 6:14, :4] = 3
    labels[0:2, 0:2] = 1
    assert counted(labels, phase=None, frame=None).remarks == []
    gap = labels.copy()
    gap[..., 2][gap[..., 2] == 3] = 2
    assert counted(gap, phase=None, frame=None).remarks == [
        "LV is missing in a slice although the slices around it have it"
    ]
    open_wall = labels.copy()
    open_wall[:, 14:16] = 0
    (flag,) = counted(open_wall, phase=None, frame=None).remarks
    assert flag == "25 % of the LV's outline has no MYO behind it"


def test_holes_missing_slices_and_a_heart_in_the_wrong_place_are_flagged():
    labels = np.zeros((20, 20, 4), np.uint8)
    labels[4:16, 4:16, :3] = 2
    labels[6:14, 6:14, :3] = 3
    labels[0:2, 0:2] = 1
    assert counted(labels, phase=None, frame=None).remarks == []
    holes = labels.copy()
    holes[9:11, 9:12, 0] = 0  # 6 of 448 voxels
    assert "the outlined area has holes" in counted(holes, phase=None, frame=None).remarks
    (flag,) = counted(labels[..., :3], phase=None, frame=None).remarks
    assert flag == "LV is large in the first and in the last slice: slices may be missing"
    jump = np.concatenate([labels, labels[..., -1:]], axis=2)  # the LV has 64, 64, 64, 0, 0 pixels
    jump[7:13, 7:13, 2][jump[7:13, 7:13, 2] == 3] = 2  # 28
    jump[7:13, 7:12, 3] = 3  # 30: still less than 1.75 times 28
    assert counted(jump, phase=None, frame=None).remarks == []
    jump[6:14, 6:13, 3] = 3  # 56: exactly 2 times 28
    (flag,) = counted(jump, phase=None, frame=None).remarks
    assert flag == "LV is much larger in one slice than in the slices beside it"
    far = measure(Segmentation(labels, off_centre_mm=(66.0, -88.0)), SIZES, ANATOMIES["acdc"], **WHO)
    assert far.remarks == ["the heart was found 110 mm from the middle of the image"]


def test_a_heart_that_jumps_between_the_phases_is_flagged():
    phases = [frame("ED", 120, 130), frame("ES", 48, 58)]
    phases[0].off_centre_mm, phases[1].off_centre_mm = (3.0, 0.0), (3.0, 20.0)
    result = patient_result("p", phases, ANATOMIES["acdc"], Body())
    assert result.flags == ["the heart was found 20 mm apart at ED and at ES"]


@pytest.mark.parametrize(
    ("rv", "flags"),
    [
        (35, ["RV is far smaller than LV at ED (35 and 120 ml): a part may be missing"]),
        (37, []),
        (390, []),
        (410, ["LV is far smaller than RV at ED (120 and 410 ml): a part may be missing"]),
    ],
)
def test_a_ventricle_of_less_than_three_tenths_of_the_other_is_flagged(rv, flags):
    stroke = 60  # of both ventricles, so that nothing else is wrong
    phases = [frame("ED", 120, rv), frame("ES", 120 - stroke, max(rv - stroke, 1))]
    result = patient_result("p", phases, ANATOMIES["acdc"], Body())
    assert [flag for flag in result.flags if "smaller" in flag] == flags


def frame(phase, lv, rv, myo=100.0, number=None):
    return Measurement("p", phase, "i", {"RV": rv, "MYO": myo, "LV": lv}, {"MYO": 1.05 * myo}, frame=number)


def test_function_of_a_heart_by_hand():
    body = Body(height_cm=180, weight_kg=80, heart_rate=60)
    result = patient_result("p", [frame("ED", 120, 130), frame("ES", 48, 58)], ANATOMIES["acdc"], body)
    values = {value.name: value.number for value in result.values}
    assert values["LV ejection fraction"] == pytest.approx(60) and values["LV stroke volume"] == 72
    assert values["LV cardiac output"] == pytest.approx(4.32) and values["MYO mass"] == pytest.approx(105)
    assert values["MYO mass per body surface"] == pytest.approx(105 / 2.0) and result.flags == []
    for name, number in (("end-diastolic volume", 60), ("end-systolic volume", 24), ("stroke volume", 36)):
        assert values[f"LV {name} per body surface"] == pytest.approx(number)
    assert values["LV cardiac output per body surface"] == pytest.approx(2.16)
    (row,) = patient_rows([result])
    assert row["LV stroke volume, ml"] == 72 and row["LV cardiac output per body surface, l/min/m²"] == 2.16
    assert [row["LV_EF_percent"] for row in table_rows([result], ANATOMIES["acdc"])] == [60.0, 60.0]


def test_implausible_figures_are_no_plain_results():
    swapped = patient_result("p", [frame("ED", 50, 90), frame("ES", 100, 40)], ANATOMIES["acdc"], Body())
    fraction = swapped.value("LV ejection fraction")
    assert not fraction.plausible and str(fraction) == "not plausible (-100 %)"
    assert "LV is larger at ES than at ED: check the phases" in swapped.flags
    assert table_rows([swapped], ANATOMIES["acdc"])[0]["LV_EF_percent"] is None
    (row,) = patient_rows([swapped])
    assert row["LV ejection fraction, %"] is None and "not plausible" in row["look_at"]
    huge = patient_result("p", [frame("ED", 120, 130, myo=1400), frame("ES", 60, 70)], ANATOMIES["acdc"], Body())
    assert str(huge.value("MYO mass")) == "not plausible (1470 g)"
    assert any("differs between ED and ES: 1470 g and 105 g" in flag for flag in huge.flags)
    empty = patient_result("p", [frame("ED", 0, 0), frame("ES", 0, 0)], ANATOMIES["acdc"], Body())
    assert empty.values == [] and empty.flags[0] == NO_HEART


def test_phases_are_found_in_the_curve_even_with_one_frame_gone_wrong():
    amounts = [118, 120, 110, 80, 55, 50, 60, 300, 100, 112]
    volumes = [frame(None, amount, amount, number=i + 1) for i, amount in enumerate(amounts)]
    result = patient_result("p", volumes, ANATOMIES["acdc"], Body())
    assert (result.phases["ED"].frame, result.phases["ES"].frame) == (2, 6)


def test_a_sharp_end_systole_is_no_outlier_and_a_frame_without_a_heart_is_no_end_systole():
    """With few frames, the basal slice may leave the ventricle in one of them only."""
    amounts = [177, 170, 150, 137, 116, 140, 0, 160, 170]
    volumes = [frame(None, amount, amount, number=i + 1) for i, amount in enumerate(amounts)]
    phases = patient_result("p", volumes, ANATOMIES["acdc"], Body()).phases
    assert (phases["ED"].frame, phases["ES"].frame) == (1, 5)


def test_three_frames_have_phases_too():
    volumes = [frame(None, amount, amount, number=i + 1) for i, amount in enumerate((65, 39, 57))]
    phases = patient_result("p", volumes, ANATOMIES["acdc"], Body()).phases
    assert (phases["ED"].frame, phases["ES"].frame) == (1, 2)


def test_what_the_user_states_about_the_patient_comes_before_the_file(tmp_path):
    (tmp_path / "Info.cfg").write_text("Height: 170\nWeight: 0\nHeartRate: 61\n")
    volume = Volume("p", None, None, tmp_path / "a.nii.gz", None, (1, 1, 1), ANATOMIES["acdc"])
    assert body_of([volume], Body()) == Body(170, None, 61)
    assert body_of([volume], stated_body(None, 80, 70)) == Body(170, 80, 70)
    for stated in ((1.75, None, None), (None, 7000, None), (None, None, float("nan"))):
        with pytest.raises(DataError, match="is impossible"):
            stated_body(*stated)


def test_a_flat_folder_of_acdc_names_and_a_pair_of_phases_are_read_as_patients(tmp_path):
    for name in ("patient001_frame01", "patient001_frame12", "patient002_frame01"):
        write(tmp_path / "flat" / f"{name}.nii.gz")
    cases = find_cases(str(tmp_path / "flat"))
    assert [(case.patient, case.frame) for case in cases] == [("patient001", 1), ("patient001", 12), ("patient002", 1)]
    assert cases.refused == ()
    for name in ("scan ED", "scan ES", "other_es", "Ed_notes"):
        write(tmp_path / "pair" / f"{name}.nii.gz")
    found = {(case.patient, case.phase) for case in find_cases(str(tmp_path / "pair"))}
    assert found == {("scan", "ED"), ("scan", "ES"), ("other_es", None), ("Ed_notes", None)}
    for name in ("ED", "ES"):
        write(tmp_path / "alone" / "anna" / f"{name}.nii.gz")
    assert [(case.patient, case.phase) for case in find_cases(str(tmp_path / "alone"))] == [
        ("anna", "ED"),
        ("anna", "ES"),
    ]


def test_frames_of_one_patient_in_a_folder_of_another_name_are_that_patient(tmp_path):
    for name in ("patient001_frame01", "patient001_frame12"):
        write(tmp_path / "export" / f"{name}.nii.gz")
    cases = find_cases(str(tmp_path / "export"))
    assert [case.patient for case in cases] == ["patient001"] * 2 and cases.refused == ()
    (tmp_path / "export" / "Info.cfg").write_text("ED: 1\nES: 12\n")  # the folder of a patient, with wrong names
    with pytest.raises(DataError, match="named after a different patient than its folder export"):
        find_cases(str(tmp_path / "export"))


def test_two_frames_named_like_acdc_have_an_ejection_fraction():
    def both(names):
        volumes = [frame(None, amount, amount, number=i + 1) for i, amount in enumerate((50, 120))]
        for one, name in zip(volumes, names, strict=True):
            one.image = f"{name}.nii.gz"
        return patient_result("p", volumes, ANATOMIES["acdc"], Body())

    flat = both(["patient001_frame01", "patient001_frame12"])
    assert flat.phases["ED"].frame == 2
    assert flat.value("LV ejection fraction").number == pytest.approx(100 * 70 / 120)
    assert both(["patient001_frame01", "patient002_frame01"]).value("LV ejection fraction") is None


def test_nan_padding_is_dark_and_nan_in_the_middle_stays(tmp_path):
    voxels = np.random.default_rng(0).random((16, 16, 3)).astype(np.float32) + 5
    for place, expected in ((np.s_[:3], voxels.min()), (np.s_[8, 8], np.nan)):
        padded = voxels.copy()
        padded[place] = np.nan
        nib.save(nib.Nifti1Image(padded, np.diag([-1.5, -1.5, 8, 1])), tmp_path / "a.nii.gz")
        ((_, found),) = read_images(find_cases(str(tmp_path / "a.nii.gz")))
        smallest = np.nanmin(padded)
        np.testing.assert_array_equal(
            found, np.where(np.isnan(padded), smallest if expected == expected else np.nan, padded)
        )
