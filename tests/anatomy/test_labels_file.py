"""``labels.json``: what it may contain, what is refused, and that nothing is lost when it passes through files."""

import json

import nibabel as nib
import numpy as np
import pytest

from fclseg.anatomy.families.plain import ANATOMY, anatomy_of, from_labels
from fclseg.anatomy.folders import folder_anatomy, read_folder
from fclseg.anatomy.registry import get_anatomy, reference
from fclseg.errors import DataError

LIVER = {"structures": {"1": "liver", "2": "tumour"}, "spacing_mm": 1.5}


def test_structures_and_spacing_are_read(tmp_path):
    (tmp_path / "labels.json").write_text(json.dumps(LIVER))
    anatomy = anatomy_of(tmp_path)
    assert [(one.value, one.name) for one in anatomy.structures] == [(1, "liver"), (2, "tumour")]
    assert (anatomy.name, anatomy.bundle, anatomy.spacing_mm, anatomy.classes) == ("nifti", "nifti_unet", 1.5, 3)


def test_the_order_in_the_file_does_not_matter():
    anatomy = from_labels({"structures": {"2": "tumour", "1": "liver"}}, "here")
    assert anatomy.names == ("liver", "tumour") and anatomy.spacing_mm == 1.25


def test_more_structures_than_colours():
    anatomy = from_labels({"structures": {str(value): f"part {value}" for value in range(1, 12)}}, "here")
    assert [one.value for one in anatomy.structures] == list(range(1, 12))
    assert anatomy.structures[8].colour == anatomy.structures[0].colour


@pytest.mark.parametrize(
    "structures",
    [
        None,
        {},
        ["liver"],
        {"0": "background", "1": "liver"},
        {"1": "liver", "3": "tumour"},
        {"one": "liver"},
        {"1": "liver", "2": "liver"},
        {"1": ""},
        {"1": 7},
        {"1": "<b>liver</b>"},
        {"1": "l" * 41},
    ],
)
def test_structures_that_are_refused(structures):
    with pytest.raises(DataError, match=r"folder/labels\.json: must give the label values 1, 2, \.\.\. distinct names"):
        from_labels({"structures": structures}, "folder/labels.json")


@pytest.mark.parametrize("document", [[], "liver", None, {"spacing_mm": 1.0}])
def test_documents_that_are_refused(document):
    with pytest.raises(DataError, match="must give the label values"):
        from_labels(document, "folder/labels.json")


@pytest.mark.parametrize("spacing", [0, -1.0, 100, "1.5", True, None, float("nan"), float("inf")])
def test_spacings_that_are_refused(spacing):
    with pytest.raises(DataError, match="spacing_mm must be the in-plane pixel size in mm"):
        from_labels({**LIVER, "spacing_mm": spacing}, "folder/labels.json")


@pytest.mark.parametrize("text", ["{", "", "\x00"])
def test_a_file_that_is_no_json_is_refused(tmp_path, text):
    (tmp_path / "labels.json").write_text(text)
    with pytest.raises(DataError, match=r"labels\.json: is not (valid JSON|a text file)"):
        anatomy_of(tmp_path)


def test_an_anatomy_of_a_folder_goes_through_files_whole():
    anatomy = from_labels(LIVER, "here")
    written = json.loads(json.dumps(reference(anatomy)))
    assert written == LIVER and get_anatomy(written) == anatomy
    assert reference(ANATOMY) == "nifti" and get_anatomy("nifti") is ANATOMY


def test_a_folder_is_read_with_its_own_structures(tmp_path):
    voxels = np.random.default_rng(0).integers(0, 99, (6, 6, 3)).astype(np.int16)
    nib.save(nib.Nifti1Image(voxels, np.eye(4)), tmp_path / "anna.nii.gz")
    assert folder_anatomy(tmp_path).structures == () == read_folder(tmp_path)[0].anatomy.structures
    (tmp_path / "labels.json").write_text(json.dumps(LIVER))
    assert folder_anatomy(tmp_path) == read_folder(tmp_path)[0].anatomy == from_labels(LIVER, "here")
