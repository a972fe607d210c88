"""From the network's outlines to the slices that could be labelled."""

from collections.abc import Mapping

import numpy as np

from fclseg.anatomy.records import Volume
from fclseg.labelling.outlines import Outline
from fclseg.labelling.proposal import Candidate, parts_of


def candidates_of(outlines: Mapping[Volume, Outline]) -> list[Candidate]:
    """The slices at and beside the organ, of volumes whose phase is known or that have none."""
    found = []
    for volume, outline in outlines.items():
        parts = parts_of(np.any(outline.labels > 0, axis=(0, 1)))
        for number, part in enumerate(parts):
            if part is not None:
                found.append(Candidate(volume.patient, volume.frame, number, part, volume.phase))
    return found
