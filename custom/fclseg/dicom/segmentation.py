"""Label maps as DICOM-SEG objects on the frame of reference of the images they were made from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fclseg import __version__
from fclseg.anatomy.base import Anatomy
from fclseg.dicom.read import pydicom
from fclseg.errors import FCLSegError
from fclseg.files import whole_file


def highdicom() -> Any:
    try:
        import highdicom as library
    except ImportError:
        raise FCLSegError("writing DICOM-SEG needs highdicom: install it with pip install 'fclseg[dicom]'") from None
    return library


def write_segmentation(path: Path, labels: np.ndarray, sources: Sequence[Path], anatomy: Anatomy, phase: str) -> None:
    """Labels [X, Y, S] of one phase in the order of the files ``sources``, one per slice."""
    seg, library = highdicom(), pydicom()
    from pydicom.sr.codedict import codes

    images = [library.dcmread(source) for source in sources]
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
        source_images=images,
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
    )
    with whole_file(path) as draft:
        dataset.save_as(draft)


def read_segmentation(path: Path) -> np.ndarray:
    """Labels [X, Y, S] of a file that ``write_segmentation`` wrote."""
    dataset = highdicom().seg.segread(path)
    planes = dataset.get_pixels_by_source_instance(
        [uid for _, _, uid in dataset.get_source_image_uids()], combine_segments=True, skip_overlap_checks=True
    )
    return np.transpose(planes, (2, 1, 0)).astype(np.uint8)
