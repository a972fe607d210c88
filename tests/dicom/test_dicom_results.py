"""DICOM results: what a viewer and a database read from SEG, SR and PDF. Read with highdicom and pydicom."""

import hashlib
from dataclasses import dataclass

import numpy as np
import pytest

from fclseg.anatomy.registry import ANATOMIES

pydicom, highdicom = pytest.importorskip("pydicom"), pytest.importorskip("highdicom")

from series_writer import write_series  # noqa: E402

from fclseg.dicom.document import read_document, write_document  # noqa: E402
from fclseg.dicom.importing import import_folder, read_sources  # noqa: E402
from fclseg.dicom.measurements import read_measurements, write_measurements  # noqa: E402
from fclseg.dicom.segmentation import read_segmentation, write_segmentation  # noqa: E402

ACDC = ANATOMIES["acdc"]


@dataclass
class Value:
    name: str
    number: float
    unit: str
    plausible: bool = True


@pytest.fixture
def sources(tmp_path):
    voxels = np.random.default_rng(0).integers(0, 500, (12, 14, 4, 3)).astype(np.uint16)
    write_series(tmp_path / "in", voxels, (1.5, 1.25, 8.0))
    import_folder(tmp_path / "in", tmp_path / "images", keep_sources=True)
    return read_sources(tmp_path / "images" / "patient001")


def test_files_of_an_anonymiser_that_removes_tags_get_results_too(sources, tmp_path):
    for path in {source.path for phases in sources for source in phases}:
        image = pydicom.dcmread(path)
        for tag in ("PatientName", "PatientBirthDate", "StudyTime", "AccessionNumber"):
            if tag in image:
                delattr(image, tag)
        image.save_as(path)
    labels = np.random.default_rng(1).integers(0, 4, (12, 14, 4)).astype(np.uint8)
    write_segmentation(tmp_path / "ED.dcm", labels, [phases[0] for phases in sources], ACDC, "ED", origin="net")
    np.testing.assert_array_equal(read_segmentation(tmp_path / "ED.dcm"), labels)


def test_each_structure_has_its_code_and_colour_and_all_phases_are_one_series(sources, tmp_path):
    labels = np.random.default_rng(1).integers(0, 4, (12, 14, 4, 2)).astype(np.uint8)
    files = [tmp_path / f"{phase}.dcm" for phase in ("ED", "ES")]
    for number, path in enumerate(files):
        own = [phases[number] for phases in sources]
        write_segmentation(path, labels[..., number], own, ACDC, path.stem, number=number + 1, origin="net")
        np.testing.assert_array_equal(read_segmentation(path), labels[..., number])
    first, second = (pydicom.dcmread(path) for path in files)
    assert first.SeriesInstanceUID == second.SeriesInstanceUID and first.SOPInstanceUID != second.SOPInstanceUID
    assert [one.InstanceNumber for one in (first, second)] == [1, 2] and first.ContentLabel == "ED"
    codes = {one.SegmentLabel: one.SegmentedPropertyTypeCodeSequence[0].CodeValue for one in first.SegmentSequence}
    assert codes == {"right ventricle": "53085002", "myocardium": "49848007", "left ventricle": "87878005"}
    for one, structure in zip(first.SegmentSequence, ACDC.structures, strict=True):
        lab = highdicom.color.CIELabColor.__new__(highdicom.color.CIELabColor)
        lab._value = tuple(one.RecommendedDisplayCIELabValue)
        wanted = [int(structure.colour[start : start + 2], 16) for start in (1, 3, 5)]
        np.testing.assert_allclose(lab.to_rgb(), wanted, atol=2)
    before = first.SOPInstanceUID
    write_segmentation(files[0], labels[..., 0], [phases[0] for phases in sources], ACDC, "ED", origin="net")
    assert pydicom.dcmread(files[0]).SOPInstanceUID == before, "an archive keeps one of two equal results"


def test_measurements_are_coded_with_units_and_implausible_ones_are_left_out(sources, tmp_path):
    values = [
        Value("LV ejection fraction", 58.25, "%"),
        Value("LV end-diastolic volume", 142.0, "ml"),
        Value("LV end-diastolic volume per body surface", 75.5, "ml/m²"),
        Value("MYO mass", 101.0, "g"),
        Value("RV ejection fraction", -3.0, "%", plausible=False),
    ]
    path = tmp_path / "sr.dcm"
    write_measurements(path, values, [phases[0] for phases in sources], ACDC, "net", check=True)
    assert read_measurements(path) == {
        "Left ventricular ejection fraction by MR": (58.25, "%"),
        "Left Ventricular ED Volume": (142.0, "ml"),
        "LV end-diastolic volume per body surface": (75.5, "ml/m2"),
        "Left Ventricle Mass": (101.0, "g"),
    }
    report = highdicom.sr.srread(path)
    groups = report.content.get_image_measurement_groups()
    sites = [[site.value.value for site in group.finding_sites] for group in groups]
    assert sites == [["87878005"], ["49848007"]]
    assert report.ContentTemplateSequence[0].TemplateIdentifier == "1500"
    assert report.CompletionFlag == "PARTIAL" and report.VerificationFlag == "UNVERIFIED"
    image = pydicom.dcmread(sources[0][0].path)
    assert (report.PatientID, report.StudyInstanceUID) == (image.PatientID, image.StudyInstanceUID)


def test_a_pdf_comes_out_as_it_went_in(sources, tmp_path):
    pdf = b"%PDF-1.4 odd number of bytes"
    write_document(tmp_path / "pdf.dcm", pdf, sources[0][0], "net")
    assert hashlib.sha256(read_document(tmp_path / "pdf.dcm")).digest() == hashlib.sha256(pdf).digest()
    dataset, image = pydicom.dcmread(tmp_path / "pdf.dcm"), pydicom.dcmread(sources[0][0].path)
    assert dataset.StudyInstanceUID == image.StudyInstanceUID and dataset.PatientID == image.PatientID
    assert dataset.Modality == "DOC" and len(dataset.EncapsulatedDocument) % 2 == 0
