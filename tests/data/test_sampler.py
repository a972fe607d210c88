"""Epochs can be replayed and cover all slices, and partners are chosen as in the paper."""

import numpy as np
import pytest
import torch

from fclseg.anatomy.folders import read_folder
from fclseg.data.sampler import SliceSampler
from fclseg.data.slices import open_store
from fclseg.errors import DataError
from fclseg.randomness import generator


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Three patients, two of them with several volumes; every slice has its own grey value, so it can be recognised."""
    import nibabel as nib

    root = tmp_path_factory.mktemp("sampler")
    rng = np.random.default_rng(0)
    for patient, volumes in (("anna", 2), ("bert", 3), ("carl", 1)):
        for number in range(volumes):
            path = root / "data" / patient / f"{number}.nii.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            voxels = rng.uniform(0, 1, (12, 12, 3 + 2 * number)).astype(np.float32)
            nib.save(nib.Nifti1Image(voxels, np.diag([2.0, 2.0, 8.0, 1.0])), path)
            if patient != "carl":
                label = nib.Nifti1Image((voxels > 0.5).astype(np.uint8), np.diag([2.0, 2.0, 8.0, 1.0]))
                nib.save(label, path.with_name(f"{number}_seg.nii.gz"))
    return open_store(read_folder(root / "data"), image_size=12, spacing=2.0, cache=root / "cache", progress=False)


def rows_of(store, images):
    """Which slices of the store these images are."""
    flat = np.asarray(store.images, np.float32).reshape(len(store), -1)
    return [int(np.flatnonzero((flat == image.numpy().ravel()).all(1))[0]) for image in images]


def test_an_epoch_covers_slices_once_and_replays(store):
    sampler = SliceSampler(store, store.select(), 4, partners=True)
    assert len(sampler) == len(store) and sampler.steps_per_epoch == len(store) // 4
    batches = list(sampler.epoch(generator(3, "site-1", 7)))
    assert len(batches) == sampler.steps_per_epoch
    rows = [row for batch in batches for row in rows_of(store, batch.images)]
    assert len(set(rows)) == len(rows) == 4 * len(batches)
    for batch, again in zip(batches, sampler.epoch(generator(3, "site-1", 7)), strict=True):
        assert batch.images.shape == (4, 1, 12, 12) and batch.images.dtype == torch.float32
        assert batch.partitions.dtype == torch.int64 and batch.labels is None
        assert torch.equal(batch.images, again.images) and torch.equal(batch.partners, again.partners)
        assert batch.partitions.tolist() == store.partition[rows_of(store, batch.images)].tolist()
    others = next(iter(sampler.epoch(generator(3, "site-1", 8))))
    assert not torch.equal(batches[0].images, others.images)


def candidates(store, indices, row):
    """Slow oracle: same partition, another patient; else another volume; else another slice; else itself."""
    same = [j for j in indices if store.partition[j] == store.partition[row]]
    patient = store.volumes[store.volume[row]].patient
    for choice in (
        [j for j in same if store.volumes[store.volume[j]].patient != patient],
        [j for j in same if store.volume[j] != store.volume[row]],
        [j for j in same if j != row],
        [row],
    ):
        if choice:
            return choice


@pytest.mark.parametrize("patients", [None, ["anna", "bert"], ["bert"], ["anna"], ["carl"]])
def test_partners_are_drawn_uniformly_from_the_oracles_candidates(store, patients):
    indices = store.select(patients)
    sampler = SliceSampler(store, indices, len(indices), partners=True)
    drawn = {int(row): [] for row in indices}
    for epoch in range(150):
        (batch,) = sampler.epoch(generator(0, epoch))
        for row, partner in zip(rows_of(store, batch.images), rows_of(store, batch.partners), strict=True):
            drawn[row].append(partner)
    for row, partners in drawn.items():
        expected = candidates(store, indices, row)
        assert set(partners) == set(expected)
        counts = [partners.count(candidate) for candidate in expected]
        spread = np.sqrt(150 / len(expected))
        assert max(abs(count - 150 / len(expected)) for count in counts) <= 5 * spread


def test_labels_come_with_their_images(store):
    sampler = SliceSampler(store, store.select(labelled=True), 5, labels=True)
    for batch in sampler.epoch(generator(0)):
        assert batch.labels.dtype == torch.int64 and batch.partners is None
        np.testing.assert_array_equal(batch.labels, store.labels[rows_of(store, batch.images)])
    with pytest.raises(DataError, match="slices for training with labels have none"):
        SliceSampler(store, store.select(), 5, labels=True)


def test_few_slices_give_one_batch_and_none_is_an_error(store):
    (batch,) = SliceSampler(store, store.select(["carl"]), 32).epoch(generator(0))
    assert len(batch.images) == len(store.select(["carl"]))
    (batch,) = SliceSampler(store, np.array([4]), 32, partners=True).epoch(generator(0))
    assert rows_of(store, batch.images) == rows_of(store, batch.partners) == [4, 4]
    with pytest.raises(DataError, match="no slice to train on"):
        SliceSampler(store, np.array([], dtype=int), 32)
