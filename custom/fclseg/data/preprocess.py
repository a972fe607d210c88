"""Turns a volume's voxels into 2D slices of one size: intensities, in-plane resampling, crop or pad, partitions."""

from functools import partial

import numpy as np

from fclseg.anatomy.records import Volume
from fclseg.errors import DataError

PERCENTILES = (1, 99)
LARGEST_RANGE = 1e30
PADDING_LINES = 8
UNLABELLED = 255
"""The value of pixels that nobody has labelled: single slices of a label map, or all of a volume without labels."""


def grey_range(voxels: np.ndarray, volume: Volume) -> tuple[float, float]:
    """Percentiles 1 and 99 of the volume without its padding. Raises if the image has no usable grey values."""
    with np.errstate(over="ignore"):
        finite = np.isfinite(voxels.astype(np.float32)).all()  # the precision in which slices are made
    if not finite:
        raise DataError(f"{_where(volume)}: the image contains NaN, infinite or too large values; export it again")
    for part in (unpadded(voxels), ...):  # around a bright box on black there is nothing but padding
        low, high = (float(value) for value in np.percentile(voxels[part], PERCENTILES))
        if low != high:
            break
    if np.float32(low) == np.float32(high):
        raise DataError(
            f"{_where(volume)}: the image is constant (percentiles 1 and 99 are equal); export it again or remove it"
        )
    if not high - low < LARGEST_RANGE:
        raise DataError(f"{_where(volume)}: the grey values span {high - low:g}, which is too much; export it again")
    return low, high


def unpadded(voxels: np.ndarray) -> tuple[slice, slice]:
    """The in-plane box without the constant borders that tools add to enlarge images.

    Padding must not change the grey values that a network sees. A few constant lines at the border come from the
    scanner and are kept.
    """
    box = []
    for axis, others in ((0, (1, 2)), (1, (0, 2))):
        size = voxels.shape[axis]
        used = np.flatnonzero(voxels.min(axis=others) != voxels.max(axis=others))
        first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, size)
        box.append(slice(first if first >= PADDING_LINES else 0, last if size - last >= PADDING_LINES else size))
    return box[0], box[1]


def check_label(voxels: np.ndarray, shape: tuple[int, ...], volume: Volume) -> None:
    """Refuse a label map whose shape differs from its image or whose values are not structures."""
    if voxels.shape != shape:
        raise DataError(
            f"{volume.label}: the label map has shape {voxels.shape}, but its image has {shape}; export it again"
        )
    values = np.unique(voxels)
    structures = volume.anatomy.structures
    classes = {0, *(structure.value for structure in structures)} if structures else set(range(UNLABELLED))
    if wrong := [value for value in values.tolist() if value not in classes | {UNLABELLED}]:
        allowed = ", ".join(map(str, sorted(classes))) if structures else f"whole numbers from 0 to {UNLABELLED - 1}"
        raise DataError(
            f"{volume.label}: the label map contains the value {wrong[0]:g}, but allowed are {allowed}, and "
            f"{UNLABELLED} where nothing is labelled; correct it"
        )


def labelled_slices(labels: np.ndarray) -> np.ndarray:
    """For each slice of a label map [X, Y, S], whether somebody has labelled any of its pixels."""
    return (labels != UNLABELLED).any(axis=(0, 1))


def partitions(slices: int, parts: int) -> np.ndarray:
    """The partition s of each slice: ``parts`` ordered groups whose sizes differ by at most one, larger ones first.

    A volume with fewer slices than parts is spread over the whole range by relative position, so that its last slice
    still belongs to the last part of the heart.
    """
    if slices < parts:
        return ((np.arange(slices) + 0.5) * parts / max(slices, 1)).astype(np.uint8)
    groups = np.array_split(np.arange(slices), parts)
    return np.repeat(np.arange(parts, dtype=np.uint8), [len(group) for group in groups])


class Preprocessor:
    """The paper's pre-processing with MONAI's transforms; made once, called for each volume.

    Grey values are scaled to [0, 1] with the volume's percentiles 1 and 99. Then slices are resampled one by one to the
    in-plane spacing, using only the header's voxel sizes. The slice axis stays last regardless of the affine: slices
    are what cardiac stacks have in common, and rotating to world axes would mix them.
    """

    def __init__(self, image_size: int, spacing: float):
        # Imported here because MONAI takes seconds to import, and opening a finished slice store does not need it.
        from monai.transforms import ResizeWithPadOrCrop, ScaleIntensityRange, Spacing

        self.size, self.pixel = image_size, spacing
        self.scale_to_unit = partial(ScaleIntensityRange, b_min=0.0, b_max=1.0, clip=True)
        self.resample = Spacing((spacing, spacing), padding_mode="border", dtype=np.float32)
        self.resize = ResizeWithPadOrCrop((image_size, image_size))

    def scale(self, voxels: np.ndarray, volume: Volume, box: tuple[slice, ...] = ()) -> np.ndarray:
        """Grey values in [0, 1], float32, on their original grid; scaled with the percentiles of ``box`` if given."""
        # ScaleIntensityRangePercentiles gives the same result, but it sorts all voxels, which takes most of the time.
        return np.asarray(self.scale_to_unit(*grey_range(voxels[box], volume))(voxels.astype(np.float32)))

    def image(self, voxels: np.ndarray, volume: Volume) -> np.ndarray:
        """Voxels [X, Y, S] to slices [S, H, W], float16 in [0, 1]."""
        return self._slices(self.scale(voxels, volume), volume, "bilinear").astype(np.float16)

    def label(self, voxels: np.ndarray, volume: Volume, shape: tuple[int, ...]) -> np.ndarray:
        """Classes [X, Y, S] to slices [S, H, W], uint8, by nearest neighbour."""
        check_label(voxels, shape, volume)
        planes = self._slices(voxels.astype(np.float32), volume, "nearest").round().astype(np.uint8)
        planes[~labelled_slices(voxels)] = UNLABELLED  # also where the slice was padded
        return planes

    def around(
        self, place: tuple[int, int], voxels: np.ndarray, labels: np.ndarray, volume: Volume
    ) -> tuple[np.ndarray, np.ndarray]:
        """Slices and their classes [S, H, W] in a window around a place, as inference shows them."""
        from fclseg.data.windows import REACH_MM, Windows, labelled_windows

        check_label(labels, voxels.shape, volume)
        area = unpadded(voxels)
        voxels, labels = voxels[area], labels[area]
        windows = Windows(self.size, self.pixel, volume.spacing, REACH_MM)
        centre = (place[0] - area[0].start, place[1] - area[1].start)
        grey = self.scale(voxels, volume, windows.box(centre, voxels.shape))
        return labelled_windows(windows, grey, labels, centre)

    def _slices(self, voxels: np.ndarray, volume: Volume, mode: str) -> np.ndarray:
        """Slices are passed as channels of a 2D image: one call, and no interpolation between slices."""
        import torch
        from monai.data import MetaTensor

        affine = torch.diag(torch.tensor([*volume.spacing[:2], 1.0, 1.0], dtype=torch.float64))
        stack = MetaTensor(torch.from_numpy(np.ascontiguousarray(np.moveaxis(voxels, -1, 0))), affine=affine)
        return np.asarray(self.resize(self.resample(stack, mode=mode)))


def _where(volume: Volume) -> str:
    return f"{volume.image} frame {volume.frame}" if volume.time_index is not None else str(volume.image)
