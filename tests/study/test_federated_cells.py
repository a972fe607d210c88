"""Federated fine-tuning has the same budget as local fine-tuning."""

import pytest

from fclseg.presets import get_preset
from fclseg.study.cells import FROZEN, FULL
from fclseg.study.federated import finetuning_preset


@pytest.mark.parametrize("rounds", [1, 7, 20])
@pytest.mark.parametrize("steps_per_epoch", [1, 2, 4, 8, 40])
def test_a_site_takes_as_many_steps_as_local_finetuning(rounds, steps_per_epoch):
    preset = get_preset("small", finetune_rounds=rounds, finetune_epochs=400, finetune_steps=400)
    federated = finetuning_preset(preset, FULL, steps_per_epoch)
    local = preset.finetuning.epochs_for(steps_per_epoch)
    assert federated.pretraining.rounds == min(rounds, local)
    # Rounds have whole epochs, so each may be half an epoch too long or too short.
    assert (
        abs(federated.pretraining.rounds * federated.pretraining.local_epochs - local)
        <= federated.pretraining.rounds / 2
    )


def test_the_frozen_reading_never_releases_the_encoder():
    preset = get_preset("small", finetune_rounds=20, frozen_epochs=3)
    frozen, full = (finetuning_preset(preset, mode, 2) for mode in (FROZEN, FULL))
    assert frozen.finetuning.frozen_epochs == frozen.pretraining.rounds * frozen.pretraining.local_epochs
    assert full.finetuning.frozen_epochs == 3
