"""Label maps as DICOM-SEG objects on the frame of reference of the images they were made from."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fclseg import __version__
from fclseg.anatomy.base import Anatomy, Structure
from fclseg.dicom.codes import coded, structure_code
from fclseg.dicom.frames import Source, headers, pydicom
from fclseg.dicom.objects import RESEARCH, highdicom, identifier, refused, source_images
from fclseg.files import whole_file

SERIES_NUMBER = 1000


def write_segmentation(
    path: Path,
    labels: np.ndarray,
    sources: Sequence[Source],
    anatomy: Anatomy,
    phase: str,
    *,
    number: int = 1,
    origin: str = "",
) -> None:
    """Labels [X, Y, S] of one phase in the order of ``sources``, one per slice.

    All phases of an exam are instances of one series, counted by ``number``. ``origin`` identifies the network.
    """
    try:
        dataset = _segmentation(labels, sources, anatomy, phase, number, origin)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise refused(path, "DICOM-SEG", error) from None
    with whole_file(path) as draft:
        dataset.save_as(draft)


def _segmentation(
    labels: np.ndarray, sources: Sequence[Source], anatomy: Anatomy, phase: str, number: int, origin: str
) -> Any:
    seg = highdicom()
    images = _images(sources)
    series = {image.SOPInstanceUID: image.SeriesInstanceUID for image in images}
    stack = min(series.values())
    for image in images:  # the library accepts one series only, but some scanners make one per slice
        image.SeriesInstanceUID = images[0].SeriesInstanceUID
    enhanced = sources[0].frame is not None  # the library takes one such file and the indices of its frames
    digest = hashlib.blake2b(np.ascontiguousarray(labels).tobytes(), digest_size=16).hexdigest()
    dataset = seg.seg.Segmentation(
        source_images=images[:1] if enhanced else images,
        pixel_array=np.ascontiguousarray(np.transpose(labels, (2, 1, 0))),
        segmentation_type=seg.seg.SegmentationTypeValues.BINARY,
        segment_descriptions=[_description(seg, one) for one in anatomy.structures],
        series_instance_uid=identifier("SEG series", stack, origin),
        series_number=SERIES_NUMBER,
        sop_instance_uid=identifier("SEG", stack, origin, number, digest),
        instance_number=number,
        manufacturer="FCLSeg",
        manufacturer_model_name="FCLSeg",
        software_versions=__version__,
        device_serial_number="0",
        series_description=f"{RESEARCH}: {anatomy.title}"[:64],
        content_label=_content_label(phase),
        content_description=f"{anatomy.title} {phase}".strip()[:64],
        omit_empty_frames=False,
        **(_planes(seg, sources) if enhanced else {}),
    )
    dataset.ReferencedSeriesSequence = _by_series(dataset.ReferencedSeriesSequence, series)
    return dataset


def _description(seg: Any, structure: Structure) -> Any:
    """A segment with the structure's own code and colour."""
    from pydicom.sr.codedict import codes

    code = coded(structure_code(structure.name))
    red, green, blue = (int(structure.colour[start : start + 2], 16) for start in (1, 3, 5))
    return seg.seg.SegmentDescription(
        segment_number=structure.value,
        segment_label=structure.title[:64],
        segmented_property_category=codes.SCT.AnatomicalStructure,
        segmented_property_type=code,
        algorithm_type=seg.seg.SegmentAlgorithmTypeValues.AUTOMATIC,
        algorithm_identification=seg.AlgorithmIdentificationSequence(
            "FCLSeg", codes.DCM.ArtificialIntelligence, __version__
        ),
        display_color=seg.color.CIELabColor.from_rgb(red, green, blue),
    )


def _content_label(phase: str) -> str:
    """A code string: capitals, digits and underscores."""
    return re.sub(r"[^A-Z0-9_]", "_", phase.upper())[:16] or "SEGMENTATION"


def _images(sources: Sequence[Source]) -> list[Any]:
    images = source_images(sources)
    for image in images:
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
