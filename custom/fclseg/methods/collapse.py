"""The collapse monitor: can a site's features still distinguish its images?"""

import torch
from torch.nn import functional


@torch.no_grad()
def feature_std(features: torch.Tensor) -> float:
    """Spread of features [N, D]: sqrt(D) times the mean per-dimension standard deviation of the normalised features.

    Close to 1 when the directions are spread evenly over the sphere, 0 when all features point the same way, which is
    the collapse that negative-free methods risk.
    """
    directions = functional.normalize(features.float(), dim=1)
    return float(directions.std(dim=0, correction=0).mean() * features.shape[1] ** 0.5)
