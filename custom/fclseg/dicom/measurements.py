"""Measurements as a DICOM structured report: TID 1500, one measurement group per structure, with codes and units."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from fclseg import __version__
from fclseg.anatomy.base import Anatomy
from fclseg.dicom.codes import coded, quantity_code, structure_code, unit_code
from fclseg.dicom.frames import Source
from fclseg.dicom.objects import RESEARCH, highdicom, identifier, refused, source_images
from fclseg.files import whole_file

SERIES_NUMBER = 1001


class Measured(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def number(self) -> float: ...
    @property
    def unit(self) -> str: ...
    @property
    def plausible(self) -> bool: ...


def write_measurements(
    path: Path, values: Sequence[Measured], sources: Sequence[Source], anatomy: Anatomy, origin: str, check: bool
) -> None:
    """Implausible values are left out. ``origin`` identifies the network, and ``check`` says that a flag was raised."""
    try:
        dataset = _report([one for one in values if one.plausible], sources, anatomy, origin, check)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise refused(path, "structured report", error) from None
    with whole_file(path) as draft:
        dataset.save_as(draft)


def _report(values: Sequence[Measured], sources: Sequence[Source], anatomy: Anatomy, origin: str, check: bool) -> Any:
    library = highdicom()
    from pydicom.sr.codedict import codes

    images = source_images(sources)
    key = (images[0].SeriesInstanceUID, images[0].SOPInstanceUID, origin, [(one.name, one.number) for one in values])
    device = library.sr.DeviceObserverIdentifyingAttributes(
        uid=identifier("FCLSeg", __version__), name="FCLSeg", manufacturer_name="FCLSeg", model_name=origin[:64] or None
    )
    context = library.sr.ObservationContext(
        observer_device_context=library.sr.ObserverContext(codes.DCM.Device, device)
    )
    groups = [_group(library, structure, group, key) for structure, group in _by_structure(values, anatomy).items()]
    content = library.sr.MeasurementReport(
        observation_context=context,
        procedure_reported=codes.SCT.MagneticResonanceImagingOfHeart,
        imaging_measurements=groups,
        title=codes.DCM.ImagingMeasurementReport,
    )
    dataset = library.sr.ComprehensiveSR(
        evidence=images,
        content=content,
        series_instance_uid=identifier("SR series", *key),
        series_number=SERIES_NUMBER,
        sop_instance_uid=identifier("SR", *key),
        instance_number=1,
        manufacturer="FCLSeg",
        is_complete=not check,
    )
    dataset.SeriesDescription = f"{RESEARCH}: measurements{', to be checked' * check}"
    return dataset


def _by_structure(values: Sequence[Measured], anatomy: Anatomy) -> Mapping[str, list[Measured]]:
    groups: dict[str, list[Measured]] = {}
    for one in values:
        structure = next((name for name in anatomy.names if name in one.name.split()), "")
        groups.setdefault(structure, []).append(one)
    return groups


def _group(library: Any, structure: str, values: Sequence[Measured], key: object) -> Any:
    site = library.sr.FindingSite(coded(structure_code(structure)))
    return library.sr.MeasurementsAndQualitativeEvaluations(
        tracking_identifier=library.sr.TrackingIdentifier(identifier(structure, key), structure or "heart"),
        finding_sites=[site],
        algorithm_id=library.sr.AlgorithmIdentification("FCLSeg", __version__),
        measurements=[
            library.sr.Measurement(
                coded(quantity_code(one.name)), round(one.number, 2), coded(unit_code(one.unit)), finding_sites=[site]
            )
            for one in values
        ],
    )


def read_measurements(path: Path) -> dict[str, tuple[float, str]]:
    """Meaning of the code -> value and unit, of a file that ``write_measurements`` wrote."""
    report = highdicom().sr.srread(path)
    found = {}
    for group in report.content.get_image_measurement_groups():
        for one in group.get_measurements():
            found[one.name.meaning] = (float(one.value), one.unit.value)
    return found
