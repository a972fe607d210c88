"""Pre-training inside a study: the same as ``fclseg pretrain``, with the study's split, preset and seed."""

from dataclasses import replace
from pathlib import Path

from fclseg.engine.run_folder import GLOBAL, RunFolder
from fclseg.methods.exchange import ENCODER, MODEL, get_row
from fclseg.networks.loading import load_encoder, load_network
from fclseg.networks.model_file import load_model, write_model
from fclseg.presets import get_preset
from fclseg.resources import shipped_model
from fclseg.study.cache import Cache
from fclseg.study.cells import Pretraining
from fclseg.study.document import PretrainingResult
from fclseg.study.federated import run_here, run_job

COMPLETED = "completed.safetensors"
"""The network that a run started from, with everything in it that the run trained."""


def run_pretraining(cell: Pretraining, cache: Cache) -> PretrainingResult:
    """Pre-train at all sites. The result lists the encoders and, if there are any, the whole networks. Its rounds are
    plotted in the report."""
    # The cell's key does not depend on the fine-tuning, so an interrupted pre-training can continue for any of them.
    preset = replace(cell.preset, finetuning=get_preset(cell.preset.name).finetuning)
    folder = cell.folder(cache.root)
    start = run_job if cell.options.filters else run_here  # only NVFlare has filters
    run = start(cell.job, folder, cell.data, preset, cell.seed, options=cell.options, fold=cell.fold)
    rounds = run.rounds()
    seconds = sum(one["seconds"] for one in rounds)  # the sum over all parts of an interrupted run
    encoders = {site: str(path.relative_to(cache.root)) for site, path in run.encoders.items()}
    networks = {site: str(path.relative_to(cache.root)) for site, path in whole_networks(cell, run).items()}
    return {"rounds": rounds, "encoders": encoders, "networks": networks, "seconds": seconds}


def whole_networks(cell: Pretraining, run: RunFolder) -> dict[str, Path]:
    """By site, the whole networks that a run hands over."""
    trained = run.site_networks if run.network is None else {GLOBAL: run.network}
    if not cell.start or get_row(cell.job).hands_over == MODEL:
        return trained
    return {site: complete(cell, path) for site, path in (trained or run.encoders).items()}


def complete(cell: Pretraining, trained: Path) -> Path:
    """A segmentation network from the one that a run started from and what the run trained: an encoder, or a network
    that predicts something else. The rest, such as the decoder or its last layer, is that of the start."""
    path = trained.with_name(COMPLETED)
    start = load_model(shipped_model(cell.data.anatomy.bundle, cell.preset.name), cell.data.anatomy.name)
    load = load_encoder if get_row(cell.job).hands_over == ENCODER else load_network
    report = load(start.network, trained)
    write_model(path, replace(start, about=f"{cell.job}, {cell.options}: {report}"))
    return path
