"""The paper's fine-tuning protocols: whose labels are used, and who validates.

Every protocol validates on the patients that the fold holds out at *every* site. They differ in the labelled patients:
``local`` takes N of one site, ``federated`` N of each site (which never leave it), ``centralised`` N of all sites
together, and ``transfer`` M of another data set.
"""

from dataclasses import dataclass

import numpy as np

from fclseg.data.sites import Splits
from fclseg.errors import DataError
from fclseg.randomness import derive_seed


@dataclass(frozen=True)
class Draw:
    """The patients of one fine-tuning: labelled ones by site, and those it is validated on."""

    training: dict[str, tuple[str, ...]]
    validation: tuple[str, ...]

    @property
    def patients(self) -> tuple[str, ...]:
        """All labelled patients, for protocols that bring them together."""
        return tuple(patient for patients in self.training.values() for patient in patients)


def local(splits: Splits, site: str | None, fold: int, labels: int, seed: int) -> Draw:
    """N patients of one site."""
    if site is None:
        raise DataError("local fine-tuning happens at one site: name it")
    return Draw({site: tuple(splits.labelled(site, fold, labels, seed=seed))}, tuple(splits.validation(fold)))


def federated(splits: Splits, site: str | None, fold: int, labels: int, seed: int) -> Draw:
    """N patients of each site, L = N x sites in total; a site's draw is the same as in ``local``."""
    training = {name: tuple(splits.labelled(name, fold, labels, seed=seed)) for name in splits.sites}
    return Draw(training, tuple(splits.validation(fold)))


def centralised(splits: Splits, site: str | None, fold: int, labels: int, seed: int) -> Draw:
    """N patients from the training folds of all sites together; for one seed the draw only grows with N."""
    pool = sorted((patient, name) for name in splits.sites for patient in splits.candidates(name, fold))
    if not 0 < labels <= len(pool):
        raise DataError(f"all sites together have {len(pool)} training patients in fold {fold}: N cannot be {labels}")
    order = np.random.default_rng(derive_seed(seed, "centralised", fold, "annotated")).permutation(len(pool))
    training: dict[str, tuple[str, ...]] = {}
    for patient, name in (pool[i] for i in order[:labels]):
        training[name] = (*training.get(name, ()), patient)
    return Draw(training, tuple(splits.validation(fold)))


PROTOCOLS = {"local": local, "federated": federated, "centralised": centralised, "transfer": centralised}
"""``transfer`` draws as ``centralised`` does: its data set is one place with a cross-validation of its own."""


def draw(protocol: str, splits: Splits, site: str | None, fold: int, labels: int, seed: int) -> Draw:
    """The patients of one fine-tuning; without labels, those that the pre-trained network is validated on."""
    if labels == 0:
        return Draw({}, tuple(splits.validation(fold)))
    return PROTOCOLS[protocol](splits, site, fold, labels, seed)
