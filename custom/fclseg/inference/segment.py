"""Segments one volume on its own grid. Evaluation and inference share this code."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from monai.data import MetaTensor
from monai.inferers import Inferer, SliceInferer

from fclseg.anatomy.records import Volume
from fclseg.data.place import Centre
from fclseg.data.preprocess import Preprocessor, unpadded
from fclseg.data.windows import REACH_MM, Windows, slices_first, within
from fclseg.inference.locate import find_hearts, middle, move
from fclseg.inference.quality import contrast_to_noise
from fclseg.inference.refine import VIEWS, cleaned, keep_largest_piece, views
from fclseg.inference.reliability import Reliability, reliability
from fclseg.networks.blocks import folded
from fclseg.networks.model_file import TrainedModel

SLICES_AT_ONCE = 16
"""Limits the memory for volumes with hundreds of slices."""
MOST_MOVES = 10
SETTLED = 5
"""Slices through the middle of the stack by which a window is moved to the heart."""


@dataclass(frozen=True)
class Segmentation:
    """A label map in our axis order, and how reliable it is."""

    labels: np.ndarray  # [X, Y, S], uint8
    centre: Centre | None = None  # centre of the window, if the organ was located first
    agreement: float | None = None  # the organ's fraction of all that the search took for it
    reliability: tuple[Reliability, ...] = ()  # one per structure: how far predictions of the same image agree
    off_centre_mm: tuple[float, float] | None = None  # the window's centre relative to the centre of the image
    contrast: float | None = None  # between cavity and wall, in standard deviations of the noise
    median_grey: float | None = None  # of the image, between its darkest (0) and brightest (1) grey values

    @property
    def stability(self) -> float | None:
        """How far the views agree, over all structures."""
        parts = [one.agreement for one in self.reliability]
        return sum(parts) / len(parts) if parts else None


class Segmenter:
    """``segmenter(voxels, volume)`` segments voxels in our axis order, on their own grid.

    The network works at the pixel size of the training. Class probabilities, not labels, are resampled back, so that
    outlines stay smooth on the finer grid. Only the largest connected component is kept.

    A compact organ is located first and then segmented in a window around it, as in training. Grey values are scaled on
    what the window shows, so neither padding nor cropping changes them. Other anatomies can be larger than a window, so
    the network slides over the whole image.

    ``refined`` averages a compact organ's final prediction over rotated and scaled windows, and cleans it.
    """

    def __init__(
        self,
        model: TrainedModel,
        device: torch.device | str = "cpu",
        refined: bool = True,
        slices: Inferer | None = None,
    ):
        """``slices`` slides over the slices of an organ that is not compact."""
        self.model, self.device, self.refined = model, device, refined
        size = (model.image_size, model.image_size)
        self.slices = slices or SliceInferer(
            2, roi_size=size, sw_batch_size=SLICES_AT_ONCE, overlap=0.5, mode="gaussian"
        )
        # On a CPU this layout is about a third faster than the usual one.
        self.network = folded(model.network).to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.prepare = Preprocessor(model.image_size, model.spacing)

    def __call__(self, voxels: np.ndarray, volume: Volume, near: Centre | None = None) -> Segmentation:
        """``near`` is where the organ was found in another frame of the same image."""
        if self.model.anatomy.compact:
            return self._around_the_organ(voxels, volume, near)
        stack = slices_first(self.prepare.scale(voxels, volume))
        chunks = [self._slide(chunk, volume.spacing) for chunk in stack.split(SLICES_AT_ONCE)]
        return Segmentation(np.moveaxis(self._label_map(torch.cat(chunks)), 0, -1))

    def _around_the_organ(self, voxels: np.ndarray, volume: Volume, near: Centre | None) -> Segmentation:
        """Segment the image without its padding, which must not change anything."""
        area = unpadded(voxels)
        start = (area[0].start, area[1].start)
        inside = voxels[area]
        found = self._compact(inside, volume, None if near is None else (near[0] - start[0], near[1] - start[1]))
        labels = np.zeros(voxels.shape, np.uint8)
        labels[area] = found.labels
        centre = found.centre and (found.centre[0] + start[0], found.centre[1] + start[1])
        return replace(found, labels=labels, centre=centre)

    @torch.inference_mode()
    def locate(self, voxels: np.ndarray, volume: Volume) -> Centre | None:
        """The middle of a compact organ; None if nothing like it is found."""
        area = unpadded(voxels)
        inside = voxels[area]
        whole = slices_first(self.prepare.scale(inside, volume))
        place = self._search(inside, volume, whole, self._windows(volume))
        return place and (place[1][0] + area[0].start, place[1][1] + area[1].start)

    def _windows(self, volume: Volume) -> Windows:
        # The window is as large as in training: without its margin, Dice of the RV falls by .02 (13 patients).
        return Windows(self.model.image_size, self.model.spacing, volume.spacing, REACH_MM)

    @torch.inference_mode()
    def _compact(self, voxels: np.ndarray, volume: Volume, near: Centre | None) -> Segmentation:
        windows = self._windows(volume)
        whole = slices_first(self.prepare.scale(voxels, volume))
        place = self._search(voxels, volume, whole, windows, near)
        if place is None:
            return Segmentation(np.zeros(voxels.shape, np.uint8))
        local, centre, agreement = place
        found = views(windows.cut(local, centre), self._probabilities, len(VIEWS) if self.refined else 2)
        labels = self._paste(found.mean(dim=0) if self.refined else found[0], local, windows, centre)
        return Segmentation(
            np.moveaxis(labels, 0, -1),
            centre,
            agreement,
            reliability(found, self.model.anatomy),
            _off_centre(centre, voxels.shape, volume.spacing),
            contrast_to_noise(labels, local.numpy(), self.model.anatomy),
            float(whole.median()),
        )

    def _search(
        self, voxels: np.ndarray, volume: Volume, whole: torch.Tensor, windows: Windows, near: Centre | None = None
    ) -> tuple[torch.Tensor, Centre, float | None] | None:
        """The slices and the centre of the surest of all candidates, and its agreement; or of the organ ``near`` it."""
        if near is not None:
            return *self._settle(voxels, volume, windows, near), None
        hearts = find_hearts(whole, windows, self._probabilities)
        settled = [(*self._settle(voxels, volume, windows, one.centre), one.agreement) for one in hearts]
        if len(settled) > 1:
            settled.sort(key=lambda one: -self._sureness(one[0], one[1], windows))
        return settled[0] if settled else None

    def _settle(
        self, voxels: np.ndarray, volume: Volume, windows: Windows, centre: Centre
    ) -> tuple[torch.Tensor, Centre]:
        """Move a window until it comes back to where it was, always with the grey values of its own surroundings.

        Where the search ended changes the place by one voxel at most. If the window goes round in a circle, the first
        place of the circle in the order of the axes is taken.
        """
        centre = within(centre, voxels.shape)
        seen: list[Centre] = []
        while centre not in seen and len(seen) < MOST_MOVES:
            seen.append(centre)
            local = self._near(voxels, volume, windows, centre)
            centre = move(middle(local, SETTLED), centre, windows, self._probabilities)
        centre = min(seen[seen.index(centre) :]) if centre in seen else centre
        return self._near(voxels, volume, windows, centre), centre

    def _sureness(self, local: torch.Tensor, centre: Centre, windows: Windows) -> float:
        """Expected Dice of what a window shows, over all structures."""
        shown = self._probabilities(windows.cut(middle(local, SETTLED), centre))
        return sum(one.expected for one in reliability(shown[None], self.model.anatomy))

    def _near(self, voxels: np.ndarray, volume: Volume, windows: Windows, centre: Centre) -> torch.Tensor:
        """Slices whose grey values are scaled on what a window shows."""
        return slices_first(self.prepare.scale(voxels, volume, windows.box(centre, voxels.shape)))

    def _paste(self, probabilities: torch.Tensor, slices: torch.Tensor, windows: Windows, centre: Centre) -> np.ndarray:
        """Labels [S, X, Y] on the slices' grid from the probabilities in a window."""
        return self._label_map(windows.paste(probabilities, centre, slices.shape[1:]).argmax(dim=1))

    def _label_map(self, classes: torch.Tensor) -> np.ndarray:
        """Classes [S, X, Y] as the anatomy allows them."""
        labels = classes.numpy().astype(np.uint8)
        anatomy = self.model.anatomy
        whole = self.refined or not anatomy.one_organ
        return cleaned(labels, anatomy) if whole else keep_largest_piece(labels)

    def _probabilities(self, images: torch.Tensor) -> torch.Tensor:
        return torch.cat(
            [self.network(chunk.to(self.device)).softmax(dim=1).cpu() for chunk in images.split(SLICES_AT_ONCE)]
        )

    @torch.inference_mode()
    def _slide(self, slices: torch.Tensor, spacing: tuple[float, float, float]) -> torch.Tensor:
        """Slices [n, X, Y] -> classes [n, X, Y]."""
        affine = torch.diag(torch.tensor([*spacing[:2], 1.0, 1.0], dtype=torch.float64))
        resampled = self.prepare.resample(MetaTensor(slices, affine=affine), mode="bilinear")
        stack = resampled.as_tensor().movedim(0, -1)[None, None].to(self.device)  # [1, 1, X, Y, n]
        scores = self.slices(stack, self.network)[0].movedim(-1, 0)
        probabilities = scores.softmax(dim=1).cpu()
        planes = MetaTensor(
            probabilities.flatten(0, 1), affine=resampled.affine, applied_operations=resampled.applied_operations
        )
        back = self.prepare.resample.inverse(planes).as_tensor()
        return back.unflatten(0, probabilities.shape[:2]).argmax(dim=1)


def _off_centre(centre: Centre, shape: Sequence[int], spacing: Sequence[float]) -> tuple[float, float]:
    x, y = ((centre[axis] - (shape[axis] - 1) / 2) * spacing[axis] for axis in (0, 1))
    return x, y
