"""Trap weights: networks that a dishonest server prepares so that one step reveals features of single views.

Fowl et al., *Robbing the Fed* (ICLR 2022), for BYOL's projector. All rows of its first layer measure the same number,
and BatchNorm's shifts are the quantiles of that number, so that row k is active for the views above quantile k. The
updates of two neighbouring rows then differ by the features of the views between their quantiles: often a single one.
BatchNorm's backward pass takes the batch's mean away, and the part along the measured number.
"""

from collections.abc import Mapping

import numpy as np
from scipy.stats import norm

from fclseg.federation.states import Arrays

GAIN, PASSED = 3e-5, 1e-6
"""So small that Adam's first step is proportional to the gradient instead of its sign."""


def set_trap(networks: Mapping[str, Arrays], seed: int = 0) -> dict[str, Arrays]:
    """The networks of a BYOL job with a prepared projector and predictor; the encoder stays as it is."""
    made = {name: {key: array.copy() for key, array in arrays.items()} for name, arrays in networks.items()}
    for name in made.keys() - {"predictor"}:
        _measure(made[name], seed)
    predictor = made["predictor"]
    for key in predictor:
        if not key.startswith("1.running") and not key.endswith("tracked"):
            predictor[key][:] = 0
    predictor["0.weight"][0, 0] = predictor["1.weight"][0] = 1
    predictor["3.weight"][1, 0], predictor["3.bias"][2] = GAIN, 1  # half of the views pull towards the target
    return made


def _measure(network: Arrays, seed: int) -> None:
    weight = network["projector.0.weight"]
    weight[:] = np.random.default_rng(seed).standard_normal(weight.shape[1])
    network["projector.1.weight"][:] = 1
    network["projector.1.bias"][:] = -norm.ppf((np.arange(len(weight)) + 0.5) / len(weight))
    for key in ("projector.3.weight", "projector.3.bias"):
        network[key][:] = 0
    network["projector.3.weight"][0], network["projector.3.bias"][1] = PASSED, 1


def read_trap(sent: Arrays, received: Arrays) -> np.ndarray:
    """One vector [rows - 1, D] per pair of neighbouring rows: zero, one view's features, or a sum of several."""
    name = "projector.0.weight"
    update = sent[name].astype(np.float64) - received[name]
    return -np.diff(update, axis=0)


def revealed(found: np.ndarray, features: list[np.ndarray], weight: np.ndarray, alike: float = 0.99) -> list[int]:
    """The views whose features were found; ``features``: of each batch that the site trained on, one row per view."""
    truth = np.concatenate([_left_over(batch.astype(np.float64), weight.astype(np.float64)) for batch in features])
    cosines = np.abs(_unit(found) @ _unit(truth).T)
    return sorted({int(row.argmax()) for row in cosines if row.max() > alike})


def _left_over(features: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """What BatchNorm's backward pass leaves of the features of a batch."""
    measured = features @ weight
    measured = ((measured - measured.mean()) / measured.std())[:, None]
    return features - features.mean(axis=0) - measured * (measured * features).mean(axis=0)


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)
