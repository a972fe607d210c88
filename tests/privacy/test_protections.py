"""Each protection against a slow and obvious implementation."""

import numpy as np
import pytest
import torch
from torch import nn

from fclseg.privacy.features import add_noise, group_means, group_of_each, sensitivity
from fclseg.privacy.mixing import LARGEST_WEIGHT, mix_images, mixing_weights, private_count, random_members
from fclseg.privacy.mixing import random_signs as signs_of
from fclseg.privacy.perturbation import gradient_norms, remove_revealing


def draws(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 36, 6)).eval()


def test_gradient_norms_are_those_of_autograd(network):
    images = torch.rand(3, 1, 6, 6)
    slow = torch.zeros(3, 6)
    for image in range(3):
        for entry in range(6):
            one = images[image : image + 1].clone().requires_grad_()
            network(one)[0, entry].backward()
            slow[image, entry] = one.grad.norm()
    fast = gradient_norms(network, images, draws(), probes=4000)
    assert torch.allclose(fast, slow, rtol=0.06)


@pytest.mark.parametrize(("share", "removed"), [(0.0, 0), (0.25, 2), (0.5, 4), (0.9, 7)])
def test_the_entries_with_the_largest_ratio_are_removed(share, removed):
    features, norms = torch.randn(5, 8, generator=draws(1)), torch.rand(5, 8, generator=draws(2)) + 0.1
    left = remove_revealing(features, norms, share)
    for feature, norm, result in zip(features, norms, left, strict=True):
        ratios = sorted(
            ((abs(float(r)) / float(n), place) for place, (r, n) in enumerate(zip(feature, norm, strict=True)))
        )
        gone = {place for _, place in ratios[len(ratios) - removed :]}
        expected = [0.0 if place in gone else float(r) for place, r in enumerate(feature)]
        assert result.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("mixed", [2, 3, 4, 6])
def test_a_mixture_is_the_weighted_sum_with_flipped_signs(mixed):
    own = private_count(mixed)
    assert own == {2: 1, 3: 2, 4: 2, 6: 3}[mixed]
    images, public = torch.rand(7, own, 4, 4), torch.rand(7, mixed - own, 4, 4)
    weights, signs = mixing_weights(7, mixed, draws()), signs_of(torch.Size((7, 1, 4, 4)), draws(1))
    assert torch.allclose(weights.sum(dim=1), torch.ones(7)) and bool((weights >= 0).all())
    assert weights.max() <= LARGEST_WEIGHT + 1e-6 and set(signs.unique().tolist()) == {-1.0, 1.0}
    result = mix_images(images, public, weights, signs)
    for number in range(7):
        for y in range(4):
            for x in range(4):
                members = [*images[number, :, y, x], *public[number, :, y, x]]
                value = sum(float(w) * (float(m) - 0.5) for w, m in zip(weights[number], members, strict=True))
                expected = 0.5 + float(signs[number, 0, y, x]) * value
                assert float(result[number, 0, y, x]) == pytest.approx(expected, abs=1e-6)


def test_each_image_is_in_its_own_mixture_with_others_of_the_batch_and_public_ones():
    own, public = random_members(50, 4, 9, draws())
    assert own.shape == (50, 2) and own[:, 0].tolist() == list(range(50)) and own.max() < 50
    assert public.shape == (50, 2) and set(public.flatten().tolist()) == set(range(9))


def test_prototypes_are_means_of_a_partition():
    partitions = torch.tensor([3, 0, 0, 3, 0, 0, 1])
    features = torch.randn(7, 5, generator=draws())
    groups = group_of_each(partitions, 1)
    assert groups.tolist() == [2, 0, 0, 2, 0, 0, 1]
    means = group_means(features, groups)
    for number, members in enumerate(([1, 2, 4, 5], [6], [0, 3])):
        expected = [sum(float(features[m, d]) for m in members) / len(members) for d in range(5)]
        assert means[number].tolist() == pytest.approx(expected, abs=1e-6)
    assert group_of_each(partitions, 3).tolist() == [4, 0, 1, 5, 2, 0, 3]


def test_noise_has_the_size_it_should_have():
    noisy = add_noise(torch.zeros(400, 50), 0.3, np.random.default_rng(0))
    assert float(noisy.std()) == pytest.approx(0.3, rel=0.02) and float(noisy.mean()) == pytest.approx(0, abs=0.01)


def _slow_sensitivity(owners, groups):
    """Move every feature with a patient from one end of the unit ball to the other, and measure the distance."""
    found = []
    for patient in {p for row in owners for p in row if p >= 0}:
        vectors = sorted(set(groups))
        distance = 0.0
        for vector in vectors:
            members = [k for k, group in enumerate(groups) if group == vector]
            before = [1.0 for _ in members]
            after = [-1.0 if patient in owners[k] else 1.0 for k in members]
            distance += (sum(before) / len(members) - sum(after) / len(members)) ** 2
        found.append(distance**0.5)
    return max(found)


@pytest.mark.parametrize("seed", range(5))
def test_one_patient_moves_the_vectors_as_far_as_reckoned(seed):
    random = np.random.default_rng(seed)
    owners, groups = random.integers(-1, 4, (30, 2)), np.sort(random.integers(0, 6, 30))
    groups = np.unique(groups, return_inverse=True)[1]
    assert sensitivity(owners, groups) == pytest.approx(_slow_sensitivity(owners.tolist(), groups.tolist()))


def test_sensitivity_by_hand():
    single = np.array([[0], [0], [0], [1]])
    assert sensitivity(single, np.arange(4)) == pytest.approx(2 * 3**0.5)  # three features, each moves by 2
    assert sensitivity(single, np.array([0, 0, 1, 1])) == pytest.approx((2**2 + 1**2) ** 0.5)
