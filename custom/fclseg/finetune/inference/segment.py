"""One volume through the network and back onto its own grid."""

import numpy as np
import torch
from monai.data import MetaTensor
from monai.inferers import sliding_window_inference
from scipy import ndimage

from fclseg.anatomy.records import Volume
from fclseg.data.preprocess import Preprocessor
from fclseg.networks.model_file import TrainedModel

SLICES_AT_ONCE = 16
"""Bounds the memory for volumes with hundreds of slices."""


class Segmenter:
    """``segmenter(voxels, volume)`` is the label map on the grid of ``voxels``.

    Intensities and pixel size are those of the training. The network slides over the whole image; its class
    probabilities, not its decisions, are resampled back, so that outlines stay smooth on the finer grid. Training shows
    only the image's centre, where the heart is, so far from it the network can take other organs for one: of all that
    it marks the largest connected piece is kept.
    """

    def __init__(self, model: TrainedModel, device: torch.device | str = "cpu", overlap: float = 0.5):
        self.model, self.device, self.overlap = model, device, overlap
        self.network = model.network.to(device).eval()
        self.prepare = Preprocessor(model.image_size, model.spacing)

    def __call__(self, voxels: np.ndarray, volume: Volume) -> np.ndarray:
        """Label map [X, Y, S], uint8."""
        scaled = self.prepare.scale(voxels, volume)
        stack = torch.from_numpy(np.ascontiguousarray(np.moveaxis(scaled, -1, 0)))
        chunks = [self._classes(chunk, volume.spacing) for chunk in stack.split(SLICES_AT_ONCE)]
        return keep_largest_piece(torch.cat(chunks).movedim(0, -1).numpy().astype(np.uint8))

    @torch.inference_mode()
    def _classes(self, slices: torch.Tensor, spacing: tuple[float, float, float]) -> torch.Tensor:
        """Slices [n, X, Y] -> classes [n, X, Y]."""
        affine = torch.diag(torch.tensor([*spacing[:2], 1.0, 1.0], dtype=torch.float64))
        resampled = self.prepare.resample(MetaTensor(slices, affine=affine), mode="bilinear")
        size = (self.model.image_size, self.model.image_size)
        images = resampled.as_tensor()[:, None].to(self.device)
        scores = sliding_window_inference(
            images, size, SLICES_AT_ONCE, self.network, overlap=self.overlap, mode="gaussian"
        )
        probabilities = scores.softmax(dim=1).cpu()
        planes = MetaTensor(
            probabilities.flatten(0, 1), affine=resampled.affine, applied_operations=resampled.applied_operations
        )
        back = self.prepare.resample.inverse(planes).as_tensor()
        return back.unflatten(0, probabilities.shape[:2]).argmax(dim=1)


def keep_largest_piece(labels: np.ndarray) -> np.ndarray:
    """Background everywhere but in the largest connected piece of all structures together (diagonals connect)."""
    pieces, count = ndimage.label(labels > 0, structure=np.ones((3,) * labels.ndim))
    if count < 2:
        return labels
    largest = 1 + np.bincount(pieces.ravel())[1:].argmax()
    return np.where(pieces == largest, labels, 0).astype(labels.dtype)
