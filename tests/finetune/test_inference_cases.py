"""What the user may point inference at, and the measurements' arithmetic."""

import nibabel as nib
import numpy as np
import pytest

from fclseg.anatomy.registry import ANATOMIES
from fclseg.errors import DataError
from fclseg.finetune.inference.cases import find_cases, output_names, read_case
from fclseg.finetune.inference.measure import Measurement, ejection_fractions, measure, table_rows


def write(path, shape=(6, 6, 3)):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    nib.save(nib.Nifti1Image(data, np.diag([1.5, 1.5, 8, 1])), path)
    return path


def test_file_folder_and_patient(tmp_path, phantom):
    single = find_cases(str(write(tmp_path / "x" / "a.nii.gz")))
    assert [case.patient for case in single] == ["a"] and single[0].phase is None
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
    assert output_names(cases) == ["p1_4d_ED", "p1_4d_ES"]
    whole = np.asarray(nib.load(tmp_path / "p1" / "p1_4d.nii.gz").dataobj)
    assert np.array_equal(read_case(cases[1])[1], whole[..., 2])


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
        ({"ed": "3d.nii.gz"}, "--ed FILE and --es FILE together"),
        ({"ed": "3d.nii.gz", "es": "3d.nii.gz"}, "both ED and ES"),
        ({"input": "4d.nii.gz"}, r"4d\.nii\.gz: is 4D where a 3D"),
        ({"input": "none.nii.gz"}, "no such file"),
        ({"input": "notes.txt"}, "not a NIfTI file"),
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


def test_volumes_agree_with_voxel_counting():
    labels = np.random.default_rng(0).integers(0, 4, size=(7, 8, 9)).astype(np.uint8)
    result = measure(labels, 12.5, ANATOMIES["acdc"], patient="p", phase="ED", image="i")
    for value, name in ((1, "RV"), (2, "MYO"), (3, "LV")):
        assert result.ml[name] == pytest.approx(sum(voxel == value for voxel in labels.ravel()) * 12.5 / 1000)
    assert result.g == {"MYO": pytest.approx(result.ml["MYO"] * 1.05)} and result.remarks == []
    empty = measure(np.zeros((2, 2, 2), np.uint8), 1.0, ANATOMIES["hvsmr"], patient="p", phase=None, image="i")
    assert empty.remarks == ["no MYO found", "no BP found"]


def test_ejection_fraction_needs_both_phases_and_blood():
    end_diastole = Measurement("p", "ED", "a", {"LV": 120.0, "RV": 0.0, "MYO": 100.0})
    end_systole = Measurement("p", "ES", "b", {"LV": 48.0, "RV": 10.0, "MYO": 95.0})
    assert ejection_fractions([end_diastole, end_systole], ANATOMIES["acdc"]) == {"LV": pytest.approx(60.0)}
    assert ejection_fractions([end_diastole], ANATOMIES["acdc"]) == {}
    swapped = [Measurement("p", "ED", "a", {"LV": 50.0}), Measurement("p", "ES", "b", {"LV": 100.0})]
    rows = table_rows(swapped, ANATOMIES["acdc"])
    assert rows[0]["LV_EF_percent"] == -100 and "larger at ES" in rows[0]["remarks"]
    assert "RV_EF_percent" in rows[0] and rows[0]["RV_EF_percent"] is None
