"""A PDF as a DICOM object of the patient's exam."""

import hashlib
from datetime import datetime
from pathlib import Path
from typing import Any

from fclseg import __version__
from fclseg.dicom.frames import Source, pydicom
from fclseg.dicom.objects import RESEARCH, identifier, source_images
from fclseg.files import whole_file

ENCAPSULATED_PDF = "1.2.840.10008.5.1.4.1.1.104.1"
SERIES_NUMBER = 1002
COPIED = (
    "PatientName", "PatientID", "PatientBirthDate", "PatientSex", "StudyInstanceUID", "StudyDate", "StudyTime",
    "StudyID", "AccessionNumber", "ReferringPhysicianName", "SpecificCharacterSet",
)  # fmt: skip


def write_document(path: Path, pdf: bytes, source: Source, origin: str) -> None:
    """``origin`` identifies the network."""
    (image,) = source_images([source])
    with whole_file(path) as draft:
        _document(pdf, image, origin).save_as(draft, enforce_file_format=True)


def _document(pdf: bytes, image: Any, origin: str) -> Any:
    library = pydicom()
    key = (image.SeriesInstanceUID, image.SOPInstanceUID, origin, hashlib.sha256(pdf).hexdigest())
    meta = library.dataset.FileMetaDataset()
    meta.MediaStorageSOPClassUID = ENCAPSULATED_PDF
    meta.MediaStorageSOPInstanceUID = identifier("PDF", *key)
    meta.TransferSyntaxUID = library.uid.ExplicitVRLittleEndian
    dataset = library.dataset.FileDataset(None, {}, file_meta=meta, preamble=b"\0" * 128)
    dataset.SOPClassUID, dataset.SOPInstanceUID = ENCAPSULATED_PDF, meta.MediaStorageSOPInstanceUID
    for name in COPIED:
        if (value := getattr(image, name, None)) is not None:
            setattr(dataset, name, value)
    now = datetime.now()
    dataset.ContentDate = dataset.SeriesDate = now.strftime("%Y%m%d")
    dataset.ContentTime = dataset.SeriesTime = now.strftime("%H%M%S")
    dataset.AcquisitionDateTime, dataset.BurnedInAnnotation, dataset.ConversionType = "", "NO", "WSD"
    dataset.Modality, dataset.Manufacturer, dataset.SoftwareVersions = "DOC", "FCLSeg", __version__
    dataset.SeriesInstanceUID = identifier("PDF series", *key)
    dataset.SeriesNumber, dataset.InstanceNumber = SERIES_NUMBER, 1
    dataset.SeriesDescription, dataset.DocumentTitle = f"{RESEARCH}: report", f"{RESEARCH}: FCLSeg report"
    dataset.ConceptNameCodeSequence = []
    dataset.MIMETypeOfEncapsulatedDocument = "application/pdf"
    dataset.EncapsulatedDocumentLength = len(pdf)
    dataset.EncapsulatedDocument = pdf + b"\0" * (len(pdf) % 2)
    return dataset


def read_document(path: Path) -> bytes:
    """The PDF of a file that ``write_document`` wrote."""
    dataset = pydicom().dcmread(path)
    return bytes(dataset.EncapsulatedDocument)[: int(dataset.EncapsulatedDocumentLength)]
