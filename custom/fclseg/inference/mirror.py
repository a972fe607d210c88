"""Whether an image shows a heart only if left and right are exchanged. A NIfTI header can be wrong about it.

Networks know on which side of the LV the RV lies. In a mirrored image they find the LV and next to nothing of the RV.
"""

import numpy as np

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.records import Volume
from fclseg.inference.measure import Measurement, cavities, measure
from fclseg.inference.segment import Segmenter

SUSPECT_LIKENESS = 0.85
SUSPECT_RATIO = 0.35
"""Only images below one of these are segmented once more: likeness, or the volume of the RV relative to the LV."""
MARGIN = 0.03
"""By how much the mirrored image must look more like a heart. In 42 patients (every fourth of ACDC, every third of
M&Ms; the figures were fixed on six patients, five of them among these), ED or ES said so for all 42 when mirrored, and
for one as it is, in which no heart was found."""


def is_mirrored(measured: Measurement, voxels: np.ndarray, volume: Volume, segmenter: Segmenter) -> bool:
    """Voxels [X, Y, S]; the first axis is left and right in short-axis images, whichever way it runs."""
    anatomy = segmenter.model.anatomy
    found = segmenter(np.ascontiguousarray(voxels[::-1]), volume)
    other = measure(found, volume.spacing, anatomy, patient="", phase=None, image="", frame=None)
    return other.likeness > measured.likeness + MARGIN


def is_suspect(measured: Measurement, anatomy: Anatomy) -> bool:
    """Whether it is worth another segmentation to know."""
    if not anatomy.compact or len(cavities(anatomy)) != 2:
        return False
    first, second = (measured.ml[one.structure] for one in cavities(anatomy))
    return second < SUSPECT_RATIO * first or measured.likeness < SUSPECT_LIKENESS
