"""The fine-tuning of a study: every method trains equally long, and is scored on the network's own grid.

``fclseg finetune`` trains until the loss has converged instead, which would compare methods after different trainings.
"""

from dataclasses import replace
from pathlib import Path

from fclseg.finetune.train import FinetuneResult, FinetuneSpec, train

FIXED = {
    "epochs": "$@settings.finetuning.epochs_for(@steps_per_epoch)",
    "original_grid": False,
    "refined": "$@settings.finetuning.refined",
}
"""Changes to the bundle's train config."""


def train_fixed(spec: FinetuneSpec, output_dir: str | Path | None = None) -> FinetuneResult:
    return train(replace(spec, overrides={**FIXED, **spec.overrides}), output_dir)
