"""What all DICOM results have in common: identifiers that follow from their content, and tags of the exam."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fclseg.dicom.frames import Source, pydicom, whole_dataset
from fclseg.errors import DataError, FCLSegError

PATIENT_AND_STUDY = (
    "PatientName", "PatientID", "PatientBirthDate", "PatientSex", "StudyDate", "StudyTime", "StudyID",
    "AccessionNumber", "ReferringPhysicianName", "PositionReferenceIndicator",
)  # fmt: skip
"""Tags that a result takes over. They may be empty, but some anonymisers remove them."""
RESEARCH = "Research only"


def highdicom() -> Any:
    try:
        import highdicom as library
    except ImportError:
        raise FCLSegError(
            "writing DICOM results needs highdicom: install it with pip install 'fclseg[dicom]'"
        ) from None
    return library


def identifier(*parts: object) -> str:
    """The same UID for the same content: an archive that gets a result twice keeps one."""
    return str(pydicom().uid.generate_uid(entropy_srcs=[repr(part) for part in parts]))


def source_images(sources: Sequence[Source]) -> list[Any]:
    """The files of some images, with the tags that a result needs. Enhanced files appear once."""
    images = [whole_dataset(file) for file in dict.fromkeys(source.path for source in sources)]
    for image in images:
        for name in PATIENT_AND_STUDY:
            setattr(image, name, getattr(image, name, ""))
    return images


def refused(path: Path, what: str, error: Exception) -> DataError:
    """What a library says about unusual sources, as one sentence."""
    reason = " ".join(str(error).split())[:120]
    return DataError(f"{path}: no {what} can be made for these images ({reason}); use the other results")
