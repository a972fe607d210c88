"""The smooth curve of a volume over one heart beat, which begins where it ended."""

import numpy as np

HARMONICS = 4
FEWEST_FRAMES = 12
"""A heart beat has no faster parts than the fourth harmonic that matter for its volume (filling in two steps). With few
frames there is nothing to smooth."""


def medians(amounts: np.ndarray) -> np.ndarray:
    """The median of each frame and the two beside it."""
    return np.median([np.roll(amounts, step) for step in (-1, 0, 1)], axis=0)


def smooth_cycle(amounts: np.ndarray) -> np.ndarray:
    """The amounts of all frames without what is faster than ``HARMONICS``."""
    if len(amounts) < FEWEST_FRAMES:
        return amounts
    parts = np.fft.rfft(amounts)
    parts[HARMONICS + 1 :] = 0
    return np.fft.irfft(parts, len(amounts))
