"""Re-identification: the attacker has a scan of a person and looks for a vector of the same person's other frame."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from fclseg.attacks.material import Leak, Material, patients_of
from fclseg.attacks.scores import standard_error
from fclseg.data.augment import Views
from fclseg.randomness import generator

LOOKS = 8
"""Views of the attacker's scan whose features are averaged."""


@dataclass(frozen=True)
class TopOne:
    """Share of the scan's slices whose nearest vector is of the same patient, its standard error over patients, and the
    share by chance."""

    rate: float
    error: float
    chance: float


def reidentify(material: Material, victims: Sequence[str], everybody: Sequence[str]) -> TopOne:
    """The attacker's scans are the victims' first frames; vectors are those of everybody's second frames."""
    gallery = material.leak(everybody, frame=1)
    rows = material.rows(victims, frame=0)
    queries = query_features(material, rows)
    partitions = torch.from_numpy(material.store.partition[rows].astype(np.int64))
    store = material.store
    return top_one(queries, partitions, patients_of(store, rows), gallery, patients_of(store, gallery.rows))


@torch.no_grad()
def query_features(material: Material, rows: np.ndarray) -> torch.Tensor:
    """Mean unit features of several views of the attacker's own scan [N, D]."""
    images = torch.from_numpy(material.store.images[rows].astype(np.float32))[:, None]
    views, draws = Views(material.preset), generator(material.seed, "scan")
    network = material.network.eval()
    return torch.stack([functional.normalize(network(views(images, draws)), dim=1) for _ in range(LOOKS)]).mean(dim=0)


def cosine_of_what_is_left(queries: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """The cosine of each query with each unit vector [N, G], over the entries that ``perturb`` has not removed: the
    attacker sees which ones are zero."""
    left = (vectors != 0).to(queries)
    return (queries @ vectors.T) / (queries.square() @ left.T).clamp(min=torch.finfo(queries.dtype).tiny).sqrt()


def top_one(
    queries: torch.Tensor, partitions: torch.Tensor, patients: np.ndarray, gallery: Leak, owners: np.ndarray
) -> TopOne:
    """The nearest vector of the same partition counts by the share of the patient's slices in it: 1 for a vector of one
    slice, less for a prototype."""
    first = np.unique(gallery.vector, return_index=True)[1]
    vectors, places = gallery.features[first], gallery.partitions[first]
    names, who = np.unique(owners, return_inverse=True)
    shares = np.zeros((len(first), len(names)))
    np.add.at(shares, (gallery.vector, who), 1.0)
    shares /= shares.sum(axis=1, keepdims=True)
    wanted = np.searchsorted(names, patients)
    likeness = cosine_of_what_is_left(queries, vectors)
    same = partitions[:, None] == places[None]
    nearest = likeness.masked_fill(~same, -torch.inf).argmax(dim=1).numpy()
    possible = same.numpy().astype(float)
    chance = (possible @ shares / possible.sum(axis=1, keepdims=True).clip(min=1))[np.arange(len(wanted)), wanted]
    found = shares[nearest, wanted]
    return TopOne(float(found.mean()), standard_error(found, patients), float(chance.mean()))
