"""The search for the organ as a MONAI inferer, for tools that load the bundle's own pre- and post-processing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from monai.inferers import Inferer

from fclseg.anatomy.base import Anatomy
from fclseg.finetune.inference.locate import find_heart, recentre
from fclseg.finetune.inference.refine import averaged, cleaned
from fclseg.finetune.inference.windows import Windows


class OrganInferer(Inferer):
    """Images [B, 1, X, Y, S] at the network's pixel size -> probabilities [B, C, X, Y, S]; background elsewhere."""

    def __init__(self, size: int):
        super().__init__()
        self.windows = Windows(size, 1.0, (1.0, 1.0))  # sizes are in pixels, because the images have been resampled

    def __call__(
        self, inputs: torch.Tensor, network: Callable[..., torch.Tensor], *args: Any, **kwargs: Any
    ) -> torch.Tensor:
        def predict(images: torch.Tensor) -> torch.Tensor:
            return network(images.to(inputs.device), *args, **kwargs).softmax(dim=1).cpu()

        return torch.stack([self._one(torch.as_tensor(image[0]), predict) for image in inputs]).to(inputs.device)

    def _one(self, image: torch.Tensor, predict: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        slices = image.movedim(-1, 0).contiguous().float().cpu()
        heart = find_heart(slices, self.windows, predict)
        centre = (slices.shape[1] // 2, slices.shape[2] // 2) if heart is None else heart.centre
        centre = recentre(slices, centre, self.windows, predict)
        planes = self.windows.paste(averaged(predict)(self.windows.cut(slices, centre)), centre, slices.shape[1:])
        planes[:, 0] += 1 - planes.sum(dim=1)  # outside the window
        return planes.movedim(0, -1)


def cleaning(anatomy: Anatomy) -> Callable[[torch.Tensor], torch.Tensor]:
    """The post-processing of inference for labels [1, X, Y, S]. MONAI's own transforms need another library."""

    def clean(labels: torch.Tensor) -> torch.Tensor:
        stack = np.moveaxis(labels[0].cpu().numpy().astype(np.uint8), -1, 0)
        return torch.from_numpy(np.moveaxis(cleaned(stack, anatomy), 0, -1).copy())[None]

    return clean
