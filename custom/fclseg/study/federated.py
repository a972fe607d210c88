"""Federated runs of a study with NVFlare, which are its pre-trainings.

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
from fclseg.flare.attendance import Attendance
from fclseg.flare.jobs import write_job
from fclseg.flare.launch import PICKUP_SECONDS, simulate
from fclseg.flare.runs.run_folder import SIMULATOR_LOG, RunFolder
from fclseg.flare.settings import RunSettings
from fclseg.presets import Preset, get_preset
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
    """Run a job on the sites of the data's split, or continue it. ``folder`` is the run folder.

    Every site that is drawn for a round must answer. Otherwise a result without one of them would be stored as if all
    had taken part.
    """
    sites = list(Splits.load(data.splits).sites)
    standard = get_preset(preset.name).values()
    changes = {name: value for name, value in preset.values().items() if value != standard[name]}
    values = {"job": job, "preset": preset.name, "changes": changes, "seed": seed, "run": folder.name}
    if start := options.start or get_row(job).start:
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
