"""The contrastive loss against a loop over queries and positives, and the sampling of negatives."""

import math
from itertools import product

import pytest
import torch

from fclseg.methods.infonce import contrastive_loss, draw_without_replacement


def slow_loss(positives, negatives, positive_mask, negative_mask):
    losses = []
    for row in range(len(positives)):
        background = sum(math.exp(s) for s, use in zip(negatives[row], negative_mask[row], strict=True) if use)
        terms = [
            -math.log(math.exp(s) / (math.exp(s) + background))
            for s, use in zip(positives[row], positive_mask[row], strict=True)
            if use
        ]
        losses.append(sum(terms) / len(terms) if terms else 0.0)
    return torch.tensor(losses, dtype=torch.float64)


@pytest.mark.parametrize("count, positives, negatives", list(product([1, 3], [1, 4], [1, 9])))
def test_loss_equals_the_formula(count, positives, negatives):
    generator = torch.Generator().manual_seed(count * 100 + positives * 10 + negatives)
    p = 4 * torch.randn(count, positives, generator=generator, dtype=torch.float64)
    n = 4 * torch.randn(count, negatives, generator=generator, dtype=torch.float64)
    p_mask = torch.rand(p.shape, generator=generator) < 0.6
    n_mask = torch.rand(n.shape, generator=generator) < 0.6
    every = [torch.ones(x.shape, dtype=torch.bool) for x in (p, n)]
    torch.testing.assert_close(contrastive_loss(p, n), slow_loss(p, n, *every))
    torch.testing.assert_close(contrastive_loss(p, n, p_mask, n_mask), slow_loss(p, n, p_mask, n_mask))


def test_no_positive_and_no_negative_give_zero_and_no_nan():
    scores = torch.randn(2, 5, requires_grad=True)
    nothing = torch.zeros(2, 5, dtype=torch.bool)
    loss = contrastive_loss(scores, scores, positive_mask=nothing) + contrastive_loss(scores, scores, ~nothing, nothing)
    loss.sum().backward()
    assert loss.tolist() == [0, 0]
    assert scores.grad.isfinite().all()


def test_large_scores_do_not_overflow():
    assert contrastive_loss(torch.tensor([[0.0]]), torch.tensor([[1e4, 1e4]])).item() == pytest.approx(1e4, abs=1)


def test_draws_are_different_indices_and_replay():
    draws = draw_without_replacement(50, 20, 8, torch.Generator().manual_seed(1))
    assert draws.shape == (50, 8)
    assert all(len(set(row)) == 8 and set(row) <= set(range(20)) for row in draws.tolist())
    assert torch.equal(draws, draw_without_replacement(50, 20, 8, torch.Generator().manual_seed(1)))
    assert not torch.equal(draws[0].sort().values, draws[1].sort().values)


def test_draws_are_uniform():
    """Each of 12 entries is drawn with probability 5/12: within five standard deviations over 4,000 draws."""
    rows, total, size = 4000, 12, 5
    counts = draw_without_replacement(rows, total, size, torch.Generator().manual_seed(0)).flatten().bincount()
    expected = rows * size / total
    assert (counts - expected).abs().max() < 5 * math.sqrt(expected * (1 - size / total))
