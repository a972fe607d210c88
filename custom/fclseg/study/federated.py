"""Federated runs of a study: pre-training and federated fine-tuning are both NVFlare jobs.

They run like ``fclseg pretrain``: a job from the exchange plan, NVFlare's simulator with one process per site, and a
run folder from which an interrupted run continues.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from fclseg.anatomy.registry import reference
from fclseg.data.sites import Splits
from fclseg.errors import FCLSegError
from fclseg.federation.exchange import get_row
from fclseg.finetune.dataset import open_labelled, training_slices
from fclseg.finetune.evaluation import VolumeEvaluator
from fclseg.finetune.protocols import Draw
from fclseg.flare.attendance import Attendance
from fclseg.flare.jobs import write_job
from fclseg.flare.launch import PICKUP_SECONDS, simulate
from fclseg.flare.runs.run_folder import SIMULATOR_LOG, RunFolder
from fclseg.flare.settings import RunSettings
from fclseg.networks.model_file import load_model
from fclseg.presets import Preset, get_preset
from fclseg.study.cache import Cache
from fclseg.study.cells import FEDERATED_JOB, FROZEN, Dataset, Finetuning
from fclseg.study.job_options import PLAIN, JobOptions


def run_job(
    job: str,
    folder: Path,
    data: Dataset,
    preset: Preset,
    seed: int,
    *,
    options: JobOptions = PLAIN,
    **more: Any,
) -> RunFolder:
    """Run a job on the sites of the data's split, or continue it. ``folder`` is the run folder.

    Every site that is drawn for a round must answer. Otherwise a result without one of them would be stored as if all
    had taken part.
    """
    sites = list(Splits.load(data.splits).sites)
    standard = get_preset(preset.name).values()
    changes = {name: value for name, value in preset.values().items() if value != standard[name]}
    values = {"job": job, "preset": preset.name, "changes": changes, "seed": seed, "run": folder.name}
    if start := get_row(job).start:
        values |= {"network": start, "anatomy": reference(data.anatomy)}
    values |= {"pickup_timeout": PICKUP_SECONDS, **dict(options.settings), **more}
    settings = RunSettings.read(values, environment={})
    settings = replace(settings, min_sites=len(Attendance(sites, settings.fraction, seed).draw(0)))
    run = RunFolder(folder)
    start_over_elsewhere(run, settings, data)
    filters = [one.config() for one in options.filters]
    write_job(folder / "job" / job, settings.row, settings.to_dict(), filters=filters)
    places = {"FCLSEG_RUNS": folder.parent, "FCLSEG_DATA": data.root, "FCLSEG_SPLITS": data.splits}
    environment = {name: str(path) for name, path in places.items()}
    simulate(folder / "job" / job, folder, sites, environment=environment)
    if not run.complete:
        raise FCLSegError(f"the run ended before its last round; NVFlare's messages are in {folder / SIMULATOR_LOG}")
    return run


def start_over_elsewhere(run: RunFolder, settings: RunSettings, data: Dataset) -> None:
    """Delete an unfinished run whose images or settings were in another place. It computes the same, as its name says,
    but a run can only be continued with the same paths."""
    try:
        run.check({"settings": settings.to_dict(), "data": str(data.root), "splits": str(data.splits)})
    except FCLSegError:
        run.forget()


def finetuning_preset(preset: Preset, mode: str, steps_per_epoch: int) -> Preset:
    """The preset of a federated fine-tuning. In frozen-encoder evaluation the encoder is never unfrozen."""
    federated = preset.changed(preset.federated_finetuning(steps_per_epoch))
    if mode != FROZEN:
        return federated
    return federated.changed(
        {"finetuning.frozen_epochs": federated.pretraining.rounds * federated.pretraining.local_epochs}
    )


def finetune_federated(
    cell: Finetuning, cache: Cache, start: Path | None, chosen: Draw
) -> tuple[VolumeEvaluator, list[float]]:
    """Fine-tune across all sites. Returns the evaluator with the final global network, and the loss of each round."""
    folder = cache.root / "runs" / f"{FEDERATED_JOB}-{cell.key}"
    anatomy, batch, images = cell.data.anatomy, cell.preset.finetuning.batch_size, cell.preset.images
    store = open_labelled(str(cell.data.root), anatomy, images.size, images.spacing(anatomy), progress=False)
    longest = max(training_slices(store, patients, batch).steps_per_epoch for patients in chosen.training.values())
    preset = finetuning_preset(cell.preset, cell.mode, longest)
    more: dict[str, Any] = {"fold": cell.fold, "labels": cell.labels, "anatomy": reference(anatomy)}
    more["network" if cell.whole_network else "encoder"] = None if start is None else str(start)
    run = run_job(FEDERATED_JOB, folder, cell.data, preset, cell.seed, **more)
    if run.model is None:
        raise FCLSegError(f"the run {folder} ended without a segmentation network: run the same command again")
    network = load_model(run.model, anatomy.name).network
    losses = [one["loss"] for one in run.rounds()]
    run.forget()  # keep the result, which is small, and not the sites' memories
    refined = cell.preset.finetuning.refined
    return VolumeEvaluator(network, store, chosen.validation, anatomy, refined=refined), losses
