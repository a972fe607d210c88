"""The best reconstructions beside the truth: what an attacker would look at."""

from pathlib import Path

import torch

from fclseg.files import private_folder

BEST = 5


def draw_best(path: Path, truth: torch.Tensor, images: torch.Tensor, scores: torch.Tensor, title: str) -> None:
    """The ``BEST`` images by their score, truth above and reconstruction below."""
    from matplotlib.figure import Figure

    chosen = scores.argsort(descending=True)[:BEST]
    figure = Figure(figsize=(2 * len(chosen), 4.4))
    axes = figure.subplots(2, len(chosen), squeeze=False)
    for column, number in enumerate(chosen.tolist()):
        for row, picture in enumerate((truth[number, 0], images[number, 0])):
            axes[row, column].imshow(picture.numpy(), cmap="gray", vmin=0, vmax=1)
            axes[row, column].set_axis_off()
        axes[1, column].set_title(f"SSIM {float(scores[number]):.2f}", fontsize=9)
    figure.suptitle(f"{title}: truth above, reconstruction below", fontsize=10)
    private_folder(path.parent)
    figure.savefig(path, dpi=80)
