"""Scanners that differ, which makes the data of the sites not identically distributed."""

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter

from fclseg.phantom.plane import Contrast

Range = tuple[float, float]


@dataclass(frozen=True)
class Protocol:
    """Ranges that the settings of a scanner are drawn from."""

    pixel: Range = (1.4, 1.6)
    slice_spacing: Range = (8.0, 10.0)
    blood: Range = (0.65, 1.0)
    myocardium: Range = (0.13, 0.34)
    gamma: Range = (0.75, 1.3)
    noise: Range = (0.01, 0.045)
    blur: Range = (0.2, 0.55)
    bias: Range = (0.3, 0.9)


@dataclass(frozen=True)
class Scanner:
    """One site's machine and protocol: geometry, contrast and image quality."""

    matrix: tuple[int, int]
    pixel: float  # mm
    slice_spacing: float  # mm
    rotation: float  # radians: rotation of the field of view
    contrast: Contrast
    gain: float  # stored value at full scale
    gamma: float
    noise: float  # standard deviation relative to full scale
    blur: float  # pixels
    bias: float  # strength of the coil shading
    coil: tuple[float, float]  # the coil's position in units of half the field of view

    @classmethod
    def draw(cls, rng: np.random.Generator, protocol: Protocol) -> "Scanner":
        side = int(rng.integers(136, 165))
        return cls(
            matrix=(side - int(rng.integers(0, 13)), side),
            pixel=round(rng.uniform(*protocol.pixel), 3),
            slice_spacing=round(rng.uniform(*protocol.slice_spacing), 1),
            rotation=rng.uniform(-0.35, 0.35),
            contrast=Contrast(
                blood=rng.uniform(*protocol.blood),
                myocardium=rng.uniform(*protocol.myocardium),
                fat=rng.uniform(0.5, 1.4),
                muscle=rng.uniform(0.12, 0.4),
                liver=rng.uniform(0.12, 0.45),
                lung=rng.uniform(0.01, 0.12),
            ),
            gain=rng.uniform(250, 1800),
            gamma=rng.uniform(*protocol.gamma),
            noise=rng.uniform(*protocol.noise),
            blur=rng.uniform(*protocol.blur),
            bias=rng.uniform(*protocol.bias),
            coil=(rng.uniform(-1.2, 0.2), rng.uniform(-1.2, 0.2)),
        )

    def grid(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions [X, Y] of the pixels in the patient's plane, in mm from the centre of the field of view."""
        x, y = ((np.arange(n, dtype=np.float32) - (n - 1) / 2) * self.pixel for n in self.matrix)
        x, y = x[:, None], y[None]
        cos, sin = np.cos(np.float32(self.rotation)), np.sin(np.float32(self.rotation))
        return x * cos - y * sin, x * sin + y * cos


def acquire(rng: np.random.Generator, scene: np.ndarray, scanner: Scanner) -> np.ndarray:
    """The scanner's image of the tissue signal [T, Z, X, Y]: coil shading, blur, Rician noise, int16."""
    patient_bias = scanner.bias * rng.uniform(0.7, 1.3)
    u, v = (np.linspace(-1, 1, n, dtype=np.float32) for n in scanner.matrix)
    away = np.hypot(u[:, None] - scanner.coil[0], v[None] - scanner.coil[1])
    shading = np.exp(-np.float32(patient_bias) * (away - away.mean()))
    image = gaussian_filter(scene, sigma=(0, 0, scanner.blur, scanner.blur))
    image = np.clip(image, 0, None) ** np.float32(scanner.gamma) * shading
    real, imaginary = (np.float32(scanner.noise) * rng.standard_normal(image.shape, dtype=np.float32) for _ in "ri")
    image = np.hypot(image + real, imaginary)
    gain = scanner.gain * rng.uniform(0.7, 1.4)
    return np.clip(np.rint(image * gain), 0, np.iinfo(np.int16).max).astype(np.int16)
