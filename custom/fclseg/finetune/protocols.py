"""The paper's fine-tuning protocols: which labels are used, and which patients are used for validation.

Every protocol validates on the held-out patients of the fold at *every* site. They differ in the labelled patients:
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
    """The patients of one fine-tuning: labelled patients by site, and validation patients."""

    training: dict[str, tuple[str, ...]]
    validation: tuple[str, ...]
    unlabelled: tuple[str, ...] = ()  # the other training patients of the same place

    @property
    def patients(self) -> tuple[str, ...]:
        """All labelled patients, for protocols that pool them."""
        return tuple(patient for patients in self.training.values() for patient in patients)


def local(splits: Splits, site: str | None, fold: int, labels: int, seed: int) -> Draw:
    """N patients of one site."""
    if site is None:
        raise DataError("local fine-tuning needs a site: name one")
    chosen = tuple(splits.labelled(site, fold, labels, seed=seed))
    others = tuple(patient for patient in splits.training(site, fold) if patient not in chosen)
    return Draw({site: chosen}, tuple(splits.validation(fold)), others)


def federated(splits: Splits, site: str | None, fold: int, labels: int, seed: int) -> Draw:
    """N patients of each site, L = N x sites in total. A site's patients are the same as in ``local``."""
    training = {name: tuple(splits.labelled(name, fold, labels, seed=seed)) for name in splits.sites}
    return Draw(training, tuple(splits.validation(fold)))


def centralised(splits: Splits, site: str | None, fold: int, labels: int, seed: int) -> Draw:
    """N patients from the training folds of all sites together. For one seed, a larger N only adds patients."""
    pool = sorted((patient, name) for name in splits.sites for patient in splits.candidates(name, fold))
    if not 0 < labels <= len(pool):
        raise DataError(
            f"N cannot be {labels}: all sites together have only {len(pool)} training patients in fold {fold}"
        )
    order = np.random.default_rng(derive_seed(seed, "centralised", fold, "annotated")).permutation(len(pool))
    training: dict[str, tuple[str, ...]] = {}
    for patient, name in (pool[i] for i in order[:labels]):
        training[name] = (*training.get(name, ()), patient)
    chosen = {patient for patients in training.values() for patient in patients}
    others = (patient for name in splits.sites for patient in splits.training(name, fold) if patient not in chosen)
    return Draw(training, tuple(splits.validation(fold)), tuple(others))


PROTOCOLS = {"local": local, "federated": federated, "centralised": centralised, "transfer": centralised}
"""``transfer`` draws like ``centralised``: its data set is one place with its own cross-validation."""


def draw(protocol: str, splits: Splits, site: str | None, fold: int, labels: int, seed: int) -> Draw:
    """The patients of one fine-tuning; without labels, those that the pre-trained network is validated on."""
    if labels == 0:
        return Draw({}, tuple(splits.validation(fold)))
    return PROTOCOLS[protocol](splits, site, fold, labels, seed)
