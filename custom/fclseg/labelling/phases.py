"""Which frames of a cycle are ED and ES, if the data set does not say: from the volumes of the network's outlines."""

from collections.abc import Sequence

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.records import Volume
from fclseg.inference.function import name_phases
from fclseg.inference.measure import Measurement, millilitres
from fclseg.labelling.outlines import Outliner


def find_phases(volumes: Sequence[Volume], outliner: Outliner, anatomy: Anatomy) -> dict[int, str]:
    """Frame -> ED or ES; none until all frames are outlined."""
    measured = []
    for volume in volumes:
        outline = outliner.known(volume) if volume.frame is not None else None
        if outline is None:
            return {}
        ml = millilitres(outline.labels, volume.spacing, anatomy)
        measured.append(Measurement(volume.patient, None, volume.image.name, ml, frame=volume.frame))
    name_phases(measured, anatomy)
    return {one.frame: one.phase for one in measured if one.frame is not None and one.phase is not None}
