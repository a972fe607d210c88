"""The loss of images in which only some pixels are labelled."""

import numpy as np
import torch
from monai.losses import DiceCELoss

from fclseg.methods.labelled_loss import LabelledLoss


def batch(seed=0):
    source = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, 4, 6, 5, generator=source, requires_grad=True)
    labels = torch.randint(0, 4, (3, 1, 6, 5), generator=source)
    return scores, labels


def by_hand(scores, labels):
    """Cross-entropy and soft Dice of one image, pixel by pixel, over the pixels that are labelled."""
    pixels = [(x, y) for x in range(labels.shape[1]) for y in range(labels.shape[2]) if labels[0, x, y] != 255]
    chance, truth = [], []
    for x, y in pixels:
        exponentials = np.exp(scores[:, x, y])
        chance.append(exponentials / exponentials.sum())
        truth.append(np.eye(len(scores))[labels[0, x, y]])
    chance, truth = np.array(chance), np.array(truth)
    entropy = -np.mean([np.log(row[one.argmax()]) for row, one in zip(chance, truth, strict=True)])
    overlap = (2 * (chance * truth).sum(axis=0) + 1e-5) / (chance.sum(axis=0) + truth.sum(axis=0) + 1e-5)
    return entropy + 1 - overlap.mean()


def test_whole_images_have_monais_loss_bit_for_bit():
    scores, labels = batch()
    assert torch.equal(LabelledLoss()(scores, labels), DiceCELoss(to_onehot_y=True, softmax=True)(scores, labels))


def test_only_labelled_pixels_count():
    scores, labels = batch()
    labels[0, :, 2:4] = 255
    labels[1, :, :, 0] = 255
    labels[2] = 255  # not labelled at all: not part of the mean
    loss = LabelledLoss()(scores, labels)
    arrays = scores.detach().numpy().astype(float), labels.numpy()
    expected = np.mean([by_hand(arrays[0][i], arrays[1][i]) for i in (0, 1)])
    np.testing.assert_allclose(float(loss), expected, rtol=1e-5)
    loss.backward()
    unknown = (labels == 255).expand_as(scores)
    assert (scores.grad[unknown] == 0).all() and (scores.grad[~unknown] != 0).any()


def test_a_batch_without_labels_teaches_nothing():
    scores, labels = batch()
    loss = LabelledLoss()(scores, torch.full_like(labels, 255))
    loss.backward()
    assert float(loss) == 0 and (scores.grad == 0).all()
