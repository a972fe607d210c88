"""Label maps as DICOM-SEG objects on the frame of reference of the images they were made from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fclseg import __version__
from fclseg.anatomy.base import Anatomy
from fclseg.dicom.frames import Source, headers, pydicom
from fclseg.errors import DataError, FCLSegError
from fclseg.files import whole_file

PATIENT_AND_STUDY = (
    "PatientName", "PatientID", "PatientBirthDate", "PatientSex", "StudyDate", "StudyTime", "StudyID",
    "AccessionNumber", "ReferringPhysicianName", "PositionReferenceIndicator",
)  # fmt: skip
"""Tags that a DICOM-SEG takes over. They may be empty, but some anonymisers remove them."""


def highdicom() -> Any:
    try:
        import highdicom as library
    except ImportError:
        raise FCLSegError("writing DICOM-SEG needs highdicom: install it with pip install 'fclseg[dicom]'") from None
    return library


def write_segmentation(path: Path, labels: np.ndarray, sources: Sequence[Source], anatomy: Anatomy, phase: str) -> None:
    """Labels [X, Y, S] of one phase in the order of ``sources``, one per slice."""
    try:
        dataset = _segmentation(labels, sources, anatomy, phase)
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # what the library says about unusual sources
        reason = " ".join(str(error).split())[:120]
        raise DataError(f"{path}: no DICOM-SEG can be made for these images ({reason}); use the NIfTI labels") from None
    with whole_file(path) as draft:
        dataset.save_as(draft)


def _segmentation(labels: np.ndarray, sources: Sequence[Source], anatomy: Anatomy, phase: str) -> Any:
    seg = highdicom()
    from pydicom.sr.codedict import codes

    images = _images(sources)
    series = {image.SOPInstanceUID: image.SeriesInstanceUID for image in images}
    for image in images:  # the library accepts one series only, but some scanners make one per slice
        image.SeriesInstanceUID = images[0].SeriesInstanceUID
    enhanced = sources[0].frame is not None  # the library takes one such file and the indices of its frames
    algorithm = seg.AlgorithmIdentificationSequence("FCLSeg", codes.DCM.ArtificialIntelligence, __version__)
    segments = [
        seg.seg.SegmentDescription(
            segment_number=one.value,
            segment_label=one.name,
            segmented_property_category=codes.SCT.AnatomicalStructure,
            segmented_property_type=codes.SCT.Heart,
            algorithm_type=seg.seg.SegmentAlgorithmTypeValues.AUTOMATIC,
            algorithm_identification=algorithm,
        )
        for one in anatomy.structures
    ]
    dataset = seg.seg.Segmentation(
        source_images=images[:1] if enhanced else images,
        pixel_array=np.ascontiguousarray(np.transpose(labels, (2, 1, 0))),
        segmentation_type=seg.seg.SegmentationTypeValues.BINARY,
        segment_descriptions=segments,
        series_instance_uid=seg.UID(),
        series_number=1000,
        sop_instance_uid=seg.UID(),
        instance_number=1,
        manufacturer="FCLSeg",
        manufacturer_model_name="FCLSeg",
        software_versions=__version__,
        device_serial_number="0",
        series_description=f"Research only: {anatomy.title} {phase}"[:64],
        omit_empty_frames=False,
        **(_planes(seg, sources) if enhanced else {}),
    )
    dataset.ReferencedSeriesSequence = _by_series(dataset.ReferencedSeriesSequence, series)
    return dataset


def _images(sources: Sequence[Source]) -> list[Any]:
    images = [pydicom().dcmread(file) for file in dict.fromkeys(source.path for source in sources)]
    for image in images:
        for name in PATIENT_AND_STUDY:
            setattr(image, name, getattr(image, name, ""))
        if sources[0].frame is None and not getattr(image, "SliceThickness", None):
            image.SliceThickness = f"{_distance(images):.4f}"
    return images


def _by_series(referenced: Sequence[Any], series: dict[str, str]) -> list[Any]:
    """The referenced images under the series that they really belong to."""
    groups: dict[str, list[Any]] = {}
    for item in referenced:
        for instance in item.ReferencedInstanceSequence:
            groups.setdefault(series[instance.ReferencedSOPInstanceUID], []).append(instance)
    found = []
    for uid, instances in groups.items():
        item = pydicom().Dataset()
        item.SeriesInstanceUID, item.ReferencedInstanceSequence = uid, instances
        found.append(item)
    return found


def _planes(seg: Any, sources: Sequence[Source]) -> dict[str, Any]:
    """Positions of the slices of one phase, which are only some of the frames of an enhanced file."""
    known = {source: header for path in {source.path for source in sources} for source, header in headers(path)}
    own = [known[source] for source in sources]
    between = _distance(own)
    thickness = float(getattr(own[0], "SliceThickness", None) or between)
    return {
        "plane_positions": [seg.PlanePositionSequence("PATIENT", one.ImagePositionPatient) for one in own],
        "plane_orientation": seg.PlaneOrientationSequence("PATIENT", own[0].ImageOrientationPatient),
        "pixel_measures": seg.PixelMeasuresSequence(own[0].PixelSpacing, thickness, between),
    }


def _distance(headers: Sequence[Any]) -> float:
    """The mean distance between neighbouring slices in mm; for a single slice its thickness, or 1."""
    if len(headers) < 2:
        return float(getattr(headers[0], "SliceThickness", None) or 1.0)
    places = [np.array(one.ImagePositionPatient, float) for one in headers]
    return float(np.linalg.norm(np.diff(places, axis=0), axis=1).mean())


def read_segmentation(path: Path) -> np.ndarray:
    """Labels [X, Y, S] of a file that ``write_segmentation`` wrote."""
    dataset = highdicom().seg.segread(path)
    planes = dataset.get_pixels_by_source_instance(
        [uid for _, _, uid in dataset.get_source_image_uids()], combine_segments=True, skip_overlap_checks=True
    )
    return np.transpose(planes, (2, 1, 0)).astype(np.uint8)
