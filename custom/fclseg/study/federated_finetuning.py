"""Federated fine-tuning of a study: all sites in the worker's own process, one after the other.

It trains what the job ``finetune_federated`` trains with NVFlare, bit for bit. A fine-tuning is so short that starting
NVFlare's processes would take longer than the training, so an interrupted one is simply repeated.
"""

from pathlib import Path

from fclseg.data.sampler import SliceSampler
from fclseg.device import choose_device
from fclseg.federation.exchange import get_row
from fclseg.federation.states import to_tensors
from fclseg.finetune.dataset import open_labelled, training_slices
from fclseg.finetune.evaluation import VolumeEvaluator
from fclseg.finetune.protocols import Draw
from fclseg.local.federation import LocalFederation, LocalSite
from fclseg.methods.base import Method
from fclseg.methods.registry import build_method
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.loading import load_encoder
from fclseg.networks.start_share import average_with_start
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
    store = open_labelled(str(cell.data.root), anatomy, images.size, images.spacing(anatomy), progress=False)
    samplers = {
        site: training_slices(store, patients, cell.preset.finetuning.batch_size, device)
        for site, patients in chosen.training.items()
    }
    longest = max(sampler.steps_per_epoch for sampler in samplers.values())
    preset = finetuning_preset(cell.preset, cell.mode, longest)

    def join(name: str, sampler: SliceSampler) -> LocalSite:
        method = _started(build_method(FEDERATED_JOB, preset, cell.seed, anatomy), cell, start)
        return LocalSite.start(name, method.to(device), sampler)

    sites = [join(name, sampler) for name, sampler in samplers.items()]
    federation = LocalFederation(get_row(FEDERATED_JOB), sites, cell.seed)
    losses = list(federation.run())
    network = FreezableUNet(preset.networks.channels, anatomy.classes)
    network.load_state_dict(to_tensors(federation.means["online"]))
    if cell.whole_network:
        average_with_start(network, start, preset.finetuning.start_share)
    refined = cell.preset.finetuning.refined
    return VolumeEvaluator(network.eval(), store, chosen.validation, anatomy, refined=refined), losses


def _started(method: Method, cell: Finetuning, start: Path | None) -> Method:
    """The method with the weights that the fine-tuning starts from."""
    if start is not None and cell.whole_network:
        method.start_from(start)
    elif start is not None:
        load_encoder(method.online, start)
    return method
