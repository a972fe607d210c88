"""The measurements of a patient from the outlines on the page, so that they follow every change."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.records import Volume
from fclseg.inference.function import patient_result
from fclseg.inference.measure import measure
from fclseg.inference.segment import Segmentation
from fclseg.inference.values import Body

SHOWN = ("end-diastolic volume", "end-systolic volume", "ejection fraction", "mass")


def numbers_of(
    volumes: Mapping[Volume, np.ndarray], phases: Mapping[int, str], anatomy: Anatomy
) -> list[dict[str, Any]]:
    """Name, text and plausibility of each value. ``volumes`` are label maps [X, Y, S] without the excluded slices."""
    measured = []
    for volume, labels in volumes.items():
        phase = phases.get(volume.frame) if volume.frame is not None else volume.phase
        who = {"patient": volume.patient, "phase": phase, "image": volume.image.name, "frame": volume.frame}
        measured.append(measure(Segmentation(labels), volume.spacing, anatomy, **who))
    if not measured:
        return []
    result = patient_result(measured[0].patient, measured, anatomy, Body())
    shown = [value for value in result.values if value.name.endswith(SHOWN)] or result.values
    return [
        {"name": value.name, "text": f"{value.number:.0f} {value.unit}", "plausible": value.plausible}
        for value in shown
    ]
