"""Dice and cross-entropy where there are labels: the loss of every supervised training."""

import torch
from torch import nn

from fclseg.data.preprocess import UNLABELLED


class LabelledLoss(nn.Module):
    """MONAI's ``DiceCELoss`` of scores [B, C, H, W] and classes [B, 1, H, W], over the pixels that have a label.

    Pixels with the value ``UNLABELLED`` do not count: the loss of such an image is that of its other pixels alone. A
    batch without any labelled pixel has a loss of zero.
    """

    def __init__(self) -> None:
        super().__init__()
        from monai.losses import DiceCELoss  # takes seconds to import, and not everybody who names this class trains

        self.whole = DiceCELoss(to_onehot_y=True, softmax=True)

    def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        known = labels[:, 0] != UNLABELLED
        if bool(known.all()):
            return self.whole(scores, labels)
        losses = [
            self.whole(score[None, :, mask], label[None, :, mask])
            for score, label, mask in zip(scores, labels, known, strict=True)
            if bool(mask.any())
        ]
        return torch.stack(losses).mean() if losses else scores.sum() * 0


def soft_dice(scores: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """1 - soft Dice of each structure over the whole batch, averaged over the structures.

    ``truth`` are shares of the classes [B, C, H, W]. Slice by slice, as in ``DiceCELoss``, a few uncertain pixels in
    slices without a structure would weigh as much as a whole ventricle in others.
    """
    shares = scores.softmax(dim=1)
    common, sizes = (part.sum(dim=(0, 2, 3)) for part in (shares * truth, shares + truth))
    return (1 - (2 * common + 1) / (sizes + 1))[1:].mean()
