"""An endless stream of phantom patients, each as the windows that inference would show to a network.

No patient is stored: patient number i follows from the seed alone. A batch at step n is therefore the same whether the
training was interrupted or not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from fclseg.data.windows import REACH_MM, Windows, labelled_windows
from fclseg.phantom.dataset import BREATH_HOLD, Acquisition, draw_heart, draw_scanner, patient_rng, scan, stack
from fclseg.randomness import derive_seed

WHOLE_IMAGE = 0.2
"""Share of patients whose windows also show what is farther from the heart than inference looks."""

JITTER_MM = 6.0
"""Standard deviation of the windows' centres around the heart."""

Slices = tuple[np.ndarray, np.ndarray]
"""Images [n, H, W] in [0, 1] as float16, and classes as uint8."""


def phantom_windows(seed: int, patient: int, size: int, pixel: float) -> Slices:
    """All slices of one patient at end-diastole and end-systole."""
    heart, scanner, rng = draw_heart(seed, patient), draw_scanner(seed, patient), patient_rng(seed, patient)
    taken = scan(heart, scanner, rng, 2, stack(heart, scanner, rng), BREATH_HOLD)
    reach = REACH_MM if rng.uniform() >= WHOLE_IMAGE else np.inf
    windows = Windows(size, pixel, (scanner.pixel, scanner.pixel), reach)
    middle = np.argwhere(taken.labels.any(axis=(2, 3))).mean(axis=0) + rng.normal(0, JITTER_MM, 2) / scanner.pixel
    x, y = (round(float(np.clip(place, 0, n - 1))) for place, n in zip(middle, taken.labels.shape, strict=False))
    frames = [_frame(taken, frame, windows, (x, y)) for frame in range(2)]
    images, labels = (np.concatenate(part) for part in zip(*frames, strict=True))
    return images, labels


def _frame(taken: Acquisition, frame: int, windows: Windows, centre: tuple[int, int]) -> Slices:
    voxels = taken.images[..., frame].astype(np.float32)
    low, high = np.percentile(voxels[windows.box(centre, voxels.shape)], (1, 99))
    grey = np.clip((voxels - low) / max(high - low, 1.0), 0, 1)
    return labelled_windows(windows, grey, taken.labels[..., frame], centre)


@dataclass
class PhantomStream:
    """``stream.batch(step)``: random slices of the newest patients; a new patient comes every ``every`` steps."""

    seed: int
    size: int
    pixel: float
    batch_size: int
    first: int = 60  # patients at the first step
    every: int = 3
    most: int = 400  # patients kept in memory
    _patients: dict[int, Slices] = field(default_factory=dict)

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Images [B, 1, H, W] and classes [B, 1, H, W]."""
        numbers = self._present(step)
        rng = np.random.default_rng(derive_seed(self.seed, "phantom batch", step))
        chosen = list(self._draw(rng, numbers))
        images, labels = (np.stack(part)[:, None] for part in zip(*chosen, strict=True))
        return torch.from_numpy(images).float(), torch.from_numpy(labels).long()

    def _present(self, step: int) -> range:
        last = self.first + step // self.every
        numbers = range(max(1, last - self.most + 1), last + 1)
        for gone in [number for number in self._patients if number not in numbers]:
            del self._patients[gone]
        for number in numbers:
            if number not in self._patients:
                self._patients[number] = phantom_windows(self.seed, number, self.size, self.pixel)
        return numbers

    def _draw(self, rng: np.random.Generator, numbers: range) -> Iterator[Slices]:
        for number in rng.choice(numbers, self.batch_size):
            images, labels = self._patients[int(number)]
            row = rng.integers(len(images))
            yield images[row], labels[row]
