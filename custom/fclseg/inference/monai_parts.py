"""Inference as a MONAI transform and a MONAI inferer, for tools that run a bundle's config themselves (MONAI Label).

Both use the code of ``fclseg segment``, so such a tool gives the same labels.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import torch
from monai.data import MetaTensor
from monai.inferers import Inferer
from monai.transforms import Orientationd
from nibabel.affines import voxel_sizes

from fclseg.anatomy.orientation import find_storage
from fclseg.anatomy.records import Volume
from fclseg.inference.segment import Segmenter
from fclseg.networks.model_file import TrainedModel


class OurOrientationd(Orientationd):
    """MONAI's ``Orientationd``, with the axis codes of each image chosen as in ``anatomy/orientation.py``.

    One set of codes for all images, such as LPS, would take another axis for the slices in many oblique stacks.
    """

    def __init__(self, keys: str, slice_axis: int):
        super().__init__(keys, axcodes="LPS", labels=None)
        self.slice_axis = slice_axis

    def __call__(self, data: Mapping[Hashable, Any], lazy: bool | None = None) -> dict[Hashable, torch.Tensor]:
        for key in self.key_iterator(data):
            self.ornt_transform.axcodes = self._codes(data[key])
        return super().__call__(data, lazy)

    def _codes(self, image: MetaTensor) -> str:
        affine, shape = np.asarray(image.affine), image.shape[1:]
        rows = tuple(tuple(row) for row in affine[:3])
        storage = find_storage(rows, shape, voxel_sizes(affine), self.slice_axis)
        return "".join(nib.aff2axcodes(storage.affine(rows, shape)))


class VolumeInferer(Inferer):
    """Images [B, 1, X, Y, S] in our axis order, with their original voxels -> labels as one-hot [B, C, X, Y, S].

    The organ is located, grey values are scaled, slices are resampled and predictions are cleaned here, because each of
    these steps depends on where the organ is.
    """

    def __init__(self, model: TrainedModel, refined: bool = True, slices: Inferer | None = None):
        super().__init__()
        self.model, self.refined, self.slices = model, refined, slices

    def __call__(self, inputs: torch.Tensor, network: Callable[..., Any], *args: Any, **kwargs: Any) -> torch.Tensor:
        model = replace(self.model, network=network)  # type: ignore[arg-type]
        segmenter = Segmenter(model, inputs.device, self.refined, self.slices)
        images = inputs if isinstance(inputs, MetaTensor) else MetaTensor(inputs)  # then voxels are taken for 1 mm
        x, y, s = voxel_sizes(np.asarray(images.affine)).tolist()
        volume = Volume("image", None, None, Path("image"), None, (x, y, s), model.anatomy)
        found = [segmenter(image[0].cpu().numpy(), volume).labels for image in images.as_tensor()]
        classes = torch.from_numpy(np.stack(found)).long()
        one_hot = torch.nn.functional.one_hot(classes, model.anatomy.classes)
        return MetaTensor(one_hot.movedim(-1, 1).float().to(inputs.device), meta=images.meta)
