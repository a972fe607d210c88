"""Random views of a whole batch at once: one affine resampling and a few tensor operations, no loop over samples.

Random numbers are drawn by the caller's (CPU) generator and then moved to the images' device, so a view is the same
on every device up to rounding and bit for bit the same when a step is repeated.

Views are computed in full precision even in mixed-precision training: in bfloat16, a coordinate in an image of 256
pixels is off by up to half a pixel.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch.nn import functional as F

from fclseg.presets import Preset
from fclseg.presets.settings import ImageSettings


@dataclass(frozen=True)
class Ranges:
    """How much a view may differ from its image; every sample draws its own values uniformly from these ranges."""

    area: tuple[float, float]  # fraction of the image's area that the crop keeps
    aspect: float  # width and height of the crop differ by a factor of up to this
    rotation: float  # degrees to either side
    flip: float  # probability of a left/right mirror image
    gamma: float  # exponent between 1 / gamma and gamma
    contrast: float  # factor around the image's mean: 1 - contrast ... 1 + contrast
    brightness: float  # shift to either side, as a fraction of the intensity range
    noise: float  # largest standard deviation of the added noise
    blur: float  # largest variance of the blur along each axis, in pixels squared (at most 2/3)


RANGES = Ranges(
    area=(0.6, 1.0), aspect=1.2, rotation=40, flip=0, gamma=2.0, contrast=0.5, brightness=0.2, noise=0.05, blur=0.5
)
"""Used for views in pre-training and for labelled images in fine-tuning.

Intensity changes are strong: otherwise a network with one labelled patient learns that patient's grey values, and
encoders pre-trained with mild changes were no better than random weights. Crops are weak: below about 0.6 of
the image, two views often show different organs, which stalls BYOL and makes MoCo collapse. There are no flips: the
data contain no heart with its right ventricle on the other side, and left and right tell the two ventricles apart.
"""


WINDOWS = replace(RANGES, area=(0.7, 1.25))
"""For labelled windows around a heart. It may also look smaller than it is: many headers state nominal pixel sizes."""


def labelled_ranges(images: ImageSettings) -> Ranges:
    """For supervised training on slices of these settings."""
    return WINDOWS if images.windows else RANGES


class Views:
    """``views(images, generator)`` returns one random view [B, C, v, v] of each image; call it twice for two views.

    A plain callable without parameters or buffers: it adds nothing to the state of the method that holds it.
    """

    def __init__(self, preset: Preset, ranges: Ranges = RANGES):
        self.size = (preset.images.view_size, preset.images.view_size)
        self.ranges = ranges

    @torch.no_grad()
    def __call__(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        with _full_precision(images):
            grid = _grid(_random_affine(images, self.size, self.ranges, generator), images, self.size)
            return _random_intensity(_resample(images, grid, "bilinear"), self.ranges, generator)


@torch.no_grad()
def augment_labelled(
    images: torch.Tensor, labels: torch.Tensor, generator: torch.Generator, ranges: Ranges = RANGES
) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply one random affine map to images [B, C, H, W] and labels [B, H, W] or [B, 1, H, W]; sizes do not change.

    Labels use nearest-neighbour sampling and are background (0) outside the image, so no new label value appears,
    whichever value marks "no label". Intensities change in the images only.
    """
    size = (images.shape[2], images.shape[3])
    with _full_precision(images):
        grid = _grid(_random_affine(images, size, ranges, generator), images, size)
        planes = labels.reshape(len(labels), 1, *size).to(images.dtype)
        moved = _resample(planes, grid, "nearest").to(labels.dtype).reshape(labels.shape)
        return _random_intensity(_resample(images, grid, "bilinear"), ranges, generator), moved


@torch.no_grad()
def augment_maps(
    images: torch.Tensor, maps: torch.Tensor, generator: torch.Generator, ranges: Ranges = RANGES
) -> tuple[torch.Tensor, torch.Tensor]:
    """As ``augment_labelled``, for maps [B, K, H, W] of real numbers: interpolated, and 0 outside the image."""
    size = (images.shape[2], images.shape[3])
    with _full_precision(images):
        grid = _grid(_random_affine(images, size, ranges, generator), images, size)
        moved = _resample(maps.to(images.dtype), grid, "bilinear")
        return _random_intensity(_resample(images, grid, "bilinear"), ranges, generator), moved


def _full_precision(images: torch.Tensor) -> AbstractContextManager[object]:
    """Turn mixed precision off, on devices that support it."""
    device = images.device.type
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


def _uniform(count: int, values: int, generator: torch.Generator, device: torch.device) -> torch.Tensor:
    """Random numbers in [0, 1), of shape [values, B]."""
    return torch.rand(values, count, generator=generator, device=generator.device).to(device)


def _between(low: float, high: float, u: torch.Tensor) -> torch.Tensor:
    return low + (high - low) * u


def _random_affine(
    images: torch.Tensor, size: tuple[int, int], ranges: Ranges, generator: torch.Generator
) -> torch.Tensor:
    """One crop, rotation and mirror per sample as maps [B, 2, 3] from output to input coordinates in [-1, 1]."""
    u = _uniform(len(images), 6, generator, images.device)
    side = _between(*ranges.area, u[0]).sqrt()
    stretch = ranges.aspect ** (_between(-0.5, 0.5, u[1]))
    scale = torch.stack([side * stretch, side / stretch])
    angle = torch.deg2rad(_between(-ranges.rotation, ranges.rotation, u[2]))
    mirror = torch.where(u[3] < ranges.flip, -1.0, 1.0)
    # The centre moves only so far that the unrotated crop stays inside the image.
    shift = (1 - scale).clamp(min=0) * _between(-1, 1, u[4:6])
    return affine_maps(scale, angle, shift, mirror, (images.shape[2], images.shape[3]), size)


def affine_maps(
    scale: torch.Tensor,
    angle: torch.Tensor,
    shift: torch.Tensor,
    mirror: torch.Tensor,
    in_size: tuple[int, int],
    out_size: tuple[int, int],
) -> torch.Tensor:
    """Maps [B, 2, 3] for ``affine_grid``: ``scale`` [2, B] (x, y) is the crop's side relative to the largest one that
    has the output's shape, ``angle`` [B] rotates it (radians), ``shift`` [2, B] moves its centre in units of half the
    image and ``mirror`` [B] is -1 where left and right swap. Rotation happens in pixels, so it never shears an image
    that is not square.
    """
    (in_h, in_w), (out_h, out_w) = in_size, out_size
    fit = min(in_h / out_h, in_w / out_w)
    half_x, half_y = scale[0] * mirror * (fit * out_w / 2), scale[1] * (fit * out_h / 2)
    cos, sin = angle.cos(), angle.sin()
    row_x = torch.stack([cos * half_x, -sin * half_y], dim=1) / (in_w / 2)
    row_y = torch.stack([sin * half_x, cos * half_y], dim=1) / (in_h / 2)
    return torch.cat([torch.stack([row_x, row_y], dim=1), shift.T[:, :, None]], dim=2)


def _grid(maps: torch.Tensor, images: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    return F.affine_grid(maps.to(images.dtype), [len(images), 1, *size], align_corners=False)


def _resample(planes: torch.Tensor, grid: torch.Tensor, mode: str) -> torch.Tensor:
    return F.grid_sample(planes, grid, mode=mode, padding_mode="zeros", align_corners=False)


def _random_intensity(images: torch.Tensor, ranges: Ranges, generator: torch.Generator) -> torch.Tensor:
    """Blur, gamma, contrast, brightness and noise, with a separate strength per sample. The result stays in [0, 1]."""
    u = _uniform(len(images), 5, generator, images.device)[:, :, None, None, None].to(images.dtype)
    noise = torch.randn(images.shape, generator=generator, device=generator.device).to(images)
    images = _blur(images, ranges.blur * u[0])
    images = images.clamp(0, 1) ** (ranges.gamma ** _between(-1, 1, u[1]))
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    images = mean + (images - mean) * _between(1 - ranges.contrast, 1 + ranges.contrast, u[2])
    images = images + _between(-ranges.brightness, ranges.brightness, u[3])
    return (images + noise * (ranges.noise * u[4])).clamp(0, 1)


def _blur(images: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """Three taps (v/2, 1 - v, v/2) along each axis: a kernel of variance v with one strength per sample."""
    padded = F.pad(images, (1, 1, 1, 1), mode="replicate")
    padded = (1 - variance) * padded[..., 1:-1] + variance / 2 * (padded[..., :-2] + padded[..., 2:])
    return (1 - variance) * padded[..., 1:-1, :] + variance / 2 * (padded[..., :-2, :] + padded[..., 2:, :])
