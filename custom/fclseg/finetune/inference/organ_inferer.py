"""The search for the organ as a MONAI inferer, for tools that load the bundle's own pre- and post-processing."""

from collections.abc import Callable
from typing import Any

import torch
from monai.inferers import Inferer

from fclseg.finetune.inference.locate import find_heart, recentre
from fclseg.finetune.inference.refine import keep_largest_piece
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
        area = (slice(0, slices.shape[1]), slice(0, slices.shape[2]))
        heart = find_heart(slices, area, self.windows, predict)
        centre = (slices.shape[1] // 2, slices.shape[2] // 2) if heart is None else heart.centre
        centre = recentre(slices, centre, self.windows, predict)
        planes = self.windows.paste(predict(self.windows.cut(slices, centre)), centre, slices.shape[1:])
        planes[:, 0] += 1 - planes.sum(dim=1)  # outside the window
        return planes.movedim(0, -1)


def keep_largest(labels: torch.Tensor) -> torch.Tensor:
    """Keeps only the largest component of labels [1, X, Y, S]. MONAI's own transform needs another library."""
    return torch.from_numpy(keep_largest_piece(labels[0].cpu().numpy()))[None]
