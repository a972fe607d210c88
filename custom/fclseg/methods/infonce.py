"""The contrastive loss of MoCo, FCL, SimCLR, FedCA and FedGL, and the sampling of negatives for FCL."""

import torch
from torch.nn import functional

MASKED = -1e9
"""Score of an entry that is left out: finite, so that a row without any entry gives zero and not NaN."""


def contrastive_loss(
    positives: torch.Tensor,
    negatives: torch.Tensor,
    positive_mask: torch.Tensor | None = None,
    negative_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """The loss l_{q,P,Q'} of Eq. (loss_memorybank) for each query.

    l = -1/|P| sum_{p in P} log( e^{s_p} / (e^{s_p} + sum_{n in Q'} e^{s_n}) ) with scores s = q.k / tau. Each term is
    softplus(logsumexp(s_n) - s_p), which cannot overflow.

    Args:
        positives: scores of the positives [N, P].
        negatives: scores of the negatives [N, M].
        positive_mask: which of the positives count [N, P]; all by default. A query with none has loss zero.
        negative_mask: which of the negatives count [N, M]; all by default.

    Returns:
        The loss of each query [N].
    """
    if negative_mask is not None:
        negatives = negatives.masked_fill(~negative_mask, MASKED)
    terms = functional.softplus(negatives.logsumexp(dim=1, keepdim=True) - positives)
    if positive_mask is None:
        return terms.mean(dim=1)
    return (terms * positive_mask).sum(dim=1) / positive_mask.sum(dim=1).clamp(min=1)


def draw_without_replacement(rows: int, total: int, size: int, generator: torch.Generator) -> torch.Tensor:
    """Q' of Eq. (contrastive_negatives): for each query ``size`` different indices below ``total``, [rows, size].

    One permutation per row is three times as fast as sorting or partitioning random keys.
    """
    draws = [torch.randperm(total, generator=generator)[:size] for _ in range(rows)]
    return torch.stack(draws)
