"""NT-Xent against MONAI's ContrastiveLoss, and with FedCA's dictionary against a loop."""

import math
from itertools import product

import pytest
import torch
from monai.losses import ContrastiveLoss
from torch.nn import functional

from fclseg.methods.simclr import nt_xent


@pytest.mark.parametrize("count, size, temperature", list(product([2, 5, 16], [3, 32], [0.1, 0.5])))
def test_nt_xent_equals_monai(count, size, temperature):
    generator = torch.Generator().manual_seed(count)
    first, second = torch.randn(2, count, size, generator=generator, dtype=torch.float64)
    expected = ContrastiveLoss(temperature=temperature)(first, second)
    torch.testing.assert_close(nt_xent(first, second, temperature), expected)


@pytest.mark.parametrize("count, entries", list(product([2, 5], [0, 1, 9])))
def test_dictionary_entries_are_further_negatives(count, entries):
    generator = torch.Generator().manual_seed(entries)
    views = functional.normalize(torch.randn(2 * count, 4, generator=generator, dtype=torch.float64), dim=1)
    dictionary = functional.normalize(torch.randn(entries, 4, generator=generator, dtype=torch.float64), dim=1)
    losses = []
    for row, query in enumerate(views):
        partner = views[(row + count) % (2 * count)]
        others = [view for index, view in enumerate(views) if index != row] + list(dictionary)
        losses.append(
            -math.log(math.exp(query @ partner / 0.2) / sum(math.exp(query @ other / 0.2) for other in others))
        )
    value = nt_xent(views[:count], views[count:], 0.2, dictionary)
    assert value.item() == pytest.approx(sum(losses) / len(losses))
