"""Federated runs of a study, which are its pre-trainings: a job from the exchange plan, and a run folder from which an
interrupted run continues. They run in this process, or with NVFlare's simulator if a filter of NVFlare takes part.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fclseg.anatomy.registry import reference
from fclseg.data.sites import Splits
from fclseg.engine.attendance import Attendance
from fclseg.engine.in_process import run_in_process
from fclseg.engine.rounds import AfterRound
from fclseg.engine.run_folder import RunFolder
from fclseg.engine.run_settings import RunSettings
from fclseg.errors import FCLSegError
from fclseg.flare.jobs import write_job
from fclseg.flare.launch import PICKUP_SECONDS, simulate
from fclseg.methods.exchange import get_row
from fclseg.networks.interface import EncoderFactory
from fclseg.presets import Preset
from fclseg.study.cells import Dataset
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
    """Run a job with NVFlare's simulator on the sites of the data's split, or continue it. ``folder`` is the run
    folder."""
    sites, settings = _settled(job, folder, data, preset, seed, options, more)
    filters = [one.config() for one in options.filters]
    write_job(folder / "job" / job, settings.row, settings.to_dict(), filters=filters)
    simulate(folder / "job" / job, folder, sites, {"data": str(data.root), "splits": str(data.splits)})
    return RunFolder(folder)


def run_here(
    job: str,
    folder: Path,
    data: Dataset,
    preset: Preset,
    seed: int,
    options: JobOptions = PLAIN,
    encoder: EncoderFactory | None = None,
    after_round: AfterRound = lambda record: None,
    **more: Any,
) -> RunFolder:
    """The same in this process, one site after the other, with the same result."""
    sites, settings = _settled(job, folder, data, preset, seed, options, more)
    run, shared = RunFolder(folder), {"data": str(data.root), "splits": str(data.splits)}
    run_in_process(settings, run, sites, shared, encoder=encoder, after_round=after_round)
    return run


def _settled(
    job: str, folder: Path, data: Dataset, preset: Preset, seed: int, options: JobOptions, more: Mapping[str, Any]
) -> tuple[list[str], RunSettings]:
    """The sites of the data's split, and the run's settings.

    Every site that is drawn for a round must answer. Otherwise a result without one of them would be stored as if all
    had taken part.
    """
    sites = list(Splits.load(data.splits).sites)
    values: dict[str, Any] = {"seed": seed, "run": folder.name, "pickup_timeout": PICKUP_SECONDS}
    if start := options.start or get_row(job).start:
        values |= {"network": start, "anatomy": reference(data.anatomy)}
    settings = RunSettings.of_preset(job, preset, **{**values, **dict(options.settings), **more})
    settings = replace(settings, min_sites=len(Attendance(sites, settings.fraction, seed).draw(0)))
    start_over_elsewhere(RunFolder(folder), settings, data)
    return sites, settings


def start_over_elsewhere(run: RunFolder, settings: RunSettings, data: Dataset) -> None:
    """Delete an unfinished run whose images or settings were in another place. It computes the same, as its name says,
    but a run can only be continued with the same paths."""
    try:
        run.check({"settings": settings.to_dict(), "data": str(data.root), "splits": str(data.splits)})
    except FCLSegError:
        run.forget()
