"""Dice and HD95 against slow, obvious counterparts."""

import numpy as np
import pytest

from fclseg.finetune.metrics import volume_dice, volume_hd95

CLASSES = 4


def dice_by_sets(prediction, truth, value):
    mine, theirs = ({tuple(p) for p in np.argwhere(labels == value)} for labels in (prediction, truth))
    return 1.0 if not mine and not theirs else 2 * len(mine & theirs) / (len(mine) + len(theirs))


def surface(mask):
    """Voxels of the mask with a face neighbour outside of it (or at the border of the volume)."""
    points = []
    for point in np.argwhere(mask):
        for axis in range(3):
            for step in (-1, 1):
                neighbour = point.copy()
                neighbour[axis] += step
                inside = all(0 <= n < size for n, size in zip(neighbour, mask.shape, strict=True))
                if not inside or not mask[tuple(neighbour)]:
                    points.append(tuple(point))
    return np.array(sorted(set(points)), dtype=float)


def hd95_by_pairs(mine, theirs, spacing):
    steps = np.array([spacing[2], spacing[0], spacing[1]])
    a, b = surface(mine) * steps, surface(theirs) * steps
    distances = np.linalg.norm(a[:, None] - b[None], axis=2)
    return max(np.percentile(distances.min(axis=1), 95), np.percentile(distances.min(axis=0), 95))


def random_labels(rng, shape):
    """Boxes of every structure instead of salt-and-pepper noise."""
    labels = np.zeros(shape, np.uint8)
    for value in range(1, CLASSES):
        low = [rng.integers(0, size - 2) for size in shape]
        high = [rng.integers(start + 1, size + 1) for start, size in zip(low, shape, strict=True)]
        labels[tuple(slice(a, b) for a, b in zip(low, high, strict=True))] = value
    return labels


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (1.4, 0.9, 8.0)])
def test_agrees_with_the_oracles(seed, spacing):
    rng = np.random.default_rng(seed)
    shape = (4, int(rng.integers(6, 10)), int(rng.integers(6, 10)))
    prediction, truth = random_labels(rng, shape), random_labels(rng, shape)
    dice = volume_dice(prediction, truth, CLASSES)
    distance = volume_hd95(prediction, truth, CLASSES, spacing)
    for value in range(1, CLASSES):
        assert dice[value - 1] == pytest.approx(dice_by_sets(prediction, truth, value), abs=1e-6)
        mine, theirs = prediction == value, truth == value
        if mine.any() and theirs.any():
            assert distance[value - 1] == pytest.approx(hd95_by_pairs(mine, theirs, spacing), rel=1e-5)


def test_equal_volumes_are_perfect():
    labels = random_labels(np.random.default_rng(3), (3, 8, 8))
    assert volume_dice(labels, labels, CLASSES).tolist() == [1, 1, 1]
    assert volume_hd95(labels, labels, CLASSES, (1.5, 1.5, 10)).tolist() == [0, 0, 0]


def test_absent_structures():
    """Absent in both: agreement. Absent in one: no overlap, and the largest distance in the volume."""
    empty, full = np.zeros((2, 4, 4), np.uint8), np.ones((2, 4, 4), np.uint8)
    assert volume_dice(empty, empty, 2) == 1 and volume_hd95(empty, empty, 2, (1, 1, 1)) == 0
    for prediction, truth in ((empty, full), (full, empty)):
        assert volume_dice(prediction, truth, 2) == 0
        expected = np.sqrt((2 * 10) ** 2 + (4 * 1.5) ** 2 + (4 * 1.0) ** 2)
        assert volume_hd95(prediction, truth, 2, (1.5, 1.0, 10)) == pytest.approx(expected)
