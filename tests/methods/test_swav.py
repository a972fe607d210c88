"""Sinkhorn's marginals and SwAV's swapped prediction."""

from itertools import product

import pytest
import torch
from torch.nn import functional

from fclseg.data.sampler import Batch
from fclseg.methods.swav import SwAV, sinkhorn
from fclseg.presets import get_preset


def cosines(images, prototypes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    features, centres = (
        functional.normalize(torch.randn(count, 8, generator=generator), dim=1) for count in (images, prototypes)
    )
    return features @ centres.T


@pytest.mark.parametrize("images, prototypes", list(product([4, 16, 33], [2, 16])))
def test_marginals_after_convergence(images, prototypes):
    """Every image is one whole assignment and every prototype gets the same share of the images."""
    codes = sinkhorn(cosines(images, prototypes), iterations=300)
    torch.testing.assert_close(codes.sum(dim=1), torch.ones(images))
    torch.testing.assert_close(codes.sum(dim=0), torch.full((prototypes,), images / prototypes), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("iterations", [1, 3])
def test_equals_scaling_the_matrix_itself(iterations):
    scores = cosines(6, 4).double()
    matrix = torch.exp(scores / 0.05)
    for _ in range(iterations):
        matrix = matrix / matrix.sum(dim=0, keepdim=True) / 4
        matrix = matrix / matrix.sum(dim=1, keepdim=True) / 6
    torch.testing.assert_close(sinkhorn(scores, iterations=iterations).double(), matrix * 6, rtol=1e-4, atol=1e-6)


def test_extreme_scores_stay_finite():
    assert sinkhorn(1e3 * cosines(5, 3)).isfinite().all()


def test_swapped_prediction_is_a_cross_entropy_with_soft_targets():
    method = SwAV(get_preset("demo"), prototypes=4)
    predicting, assigning = cosines(6, 4, 1), cosines(6, 4, 2)
    expected = -(sinkhorn(assigning) * (predicting / 0.1).log_softmax(dim=1)).sum(dim=1).mean()
    torch.testing.assert_close(method._swapped(predicting, assigning), expected)


def test_each_view_is_predicted_from_the_other():
    preset = get_preset("demo")
    method = SwAV(preset, prototypes=4)
    images = torch.rand(6, 1, preset.images.size, preset.images.size)
    draws = torch.Generator().manual_seed(3)
    views = torch.cat([method.views(images, draws), method.views(images, draws)])
    with torch.no_grad():
        first, second = method.scores(method.online(views)).chunk(2)
    cross = [
        -(sinkhorn(goal) * (one / 0.1).log_softmax(dim=1)).sum(dim=1).mean()
        for one, goal in ((first, second), (second, first))
    ]
    loss = method.loss(Batch(images, torch.zeros(6, dtype=torch.int64)), torch.Generator().manual_seed(3))
    torch.testing.assert_close(loss.detach(), sum(cross) / 2)


def test_length_of_prototypes_does_not_matter():
    """Averaging over sites shortens them; only their direction may count."""
    method = SwAV(get_preset("demo"))
    features = torch.randn(5, get_preset("demo").networks.feature_size)
    before = method.scores(features)
    method.prototypes.weight.data *= 0.3
    torch.testing.assert_close(method.scores(features), before)
    assert before.abs().max() <= 1 + 1e-6
