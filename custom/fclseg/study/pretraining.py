"""Pre-training inside a study: the same as ``fclseg pretrain``, with the study's split, preset and seed."""

from dataclasses import replace
from typing import Any

from fclseg.presets import get_preset
from fclseg.study.cache import Cache
from fclseg.study.cells import Pretraining
from fclseg.study.federated import run_job


def run_pretraining(cell: Pretraining, cache: Cache) -> dict[str, Any]:
    """Pre-train at all sites. The result lists the encoders and, if there is one, the whole network. Its rounds are
    plotted in the report."""
    # The cell's key does not depend on the fine-tuning, so an interrupted pre-training can continue for any of them.
    preset = replace(cell.preset, finetuning=get_preset(cell.preset.name).finetuning)
    folder = cell.folder(cache.root)
    run = run_job(cell.job, folder, cell.data, preset, cell.seed, options=cell.options, fold=cell.fold)
    encoders, networks = (
        {site: str(path.relative_to(cache.root)) for site, path in found.items()}
        for found in (run.encoders, run.site_networks)
    )
    rounds = run.rounds()
    seconds = sum(one["seconds"] for one in rounds)  # the sum over all parts of an interrupted run
    result: dict[str, Any] = {"run": {"rounds": rounds}, "encoders": encoders, "seconds": seconds}
    if run.network is not None:
        result["network"] = str(run.network.relative_to(cache.root))
    if networks:
        result["site_networks"] = networks
    return result
