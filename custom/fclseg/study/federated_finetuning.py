"""Federated fine-tuning of a study: all sites in the worker's own process, one after the other.

It trains what the job ``finetune_federated`` trains with NVFlare, bit for bit. A fine-tuning is so short that starting
NVFlare's processes would take longer than the training, so an interrupted one is simply repeated.
"""

from pathlib import Path
from typing import cast

from fclseg.anatomy.registry import reference
from fclseg.device import choose_device
from fclseg.engine.in_process import open_unsaved
from fclseg.engine.run_settings import RunSettings
from fclseg.finetune.dataset import open_labelled, training_slices
from fclseg.finetune.evaluation import VolumeEvaluator
from fclseg.finetune.protocols import Draw
from fclseg.networks.unet import UNet
from fclseg.presets import Preset
from fclseg.study.cells import FEDERATED_JOB, FROZEN, Finetuning


def finetuning_preset(preset: Preset, mode: str, steps_per_epoch: int) -> Preset:
    """The preset of a federated fine-tuning. In frozen-encoder evaluation the encoder is never unfrozen."""
    federated = preset.changed(preset.federated_finetuning(steps_per_epoch))
    if mode != FROZEN:
        return federated
    return federated.changed(
        {"finetuning.frozen_epochs": federated.pretraining.rounds * federated.pretraining.local_epochs}
    )


def finetune_federated(cell: Finetuning, start: Path | None, chosen: Draw) -> tuple[VolumeEvaluator, list[float]]:
    """Fine-tune across all sites. Returns the evaluator with the final global network, and the loss of each round."""
    anatomy, images, device = cell.data.anatomy, cell.preset.images, choose_device()
    store = open_labelled(
        str(cell.data.root), anatomy, images.size, images.spacing(anatomy), images.windows, progress=False
    )
    samplers = {
        site: training_slices(store, patients, cell.preset.finetuning.batch_size, device)
        for site, patients in chosen.training.items()
    }
    longest = max(sampler.steps_per_epoch for sampler in samplers.values())
    preset = finetuning_preset(cell.preset, cell.mode, longest)

    begin = {} if start is None else {"network" if cell.whole_network else "encoder": str(start)}
    settings = RunSettings.of_preset(
        FEDERATED_JOB, preset, seed=cell.seed, anatomy=reference(anatomy), min_sites=len(samplers), **begin
    )
    run = open_unsaved(settings, samplers, str(device))
    losses: list[float] = []
    run.run(after_round=lambda record: losses.append(record["loss"]))
    network = cast(UNet, run.loop.method.online)
    refined = cell.preset.finetuning.refined
    return VolumeEvaluator(network.eval(), store, chosen.validation, anatomy, refined=refined), losses
