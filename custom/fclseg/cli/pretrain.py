"""``fclseg pretrain``: run a federated job on this machine, one process per site."""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fclseg.cli.jobs import find_job
from fclseg.cli.options import add_run_options, positive, preset_change
from fclseg.errors import DataError, FCLSegError
from fclseg.presets import full_name

if TYPE_CHECKING:
    from fclseg.methods.exchange import Row


def register(subparsers) -> None:
    parser = subparsers.add_parser(
        "pretrain",
        help="pre-train an encoder across several sites in NVFlare's simulator",
        description="Run a job in NVFlare's simulator with one process per site. "
        "Run the same command again to continue an interrupted run.",
        epilog="example:\n  fclseg pretrain --job fclopt_dp --data data/acdc --sites 4 --preset small --rounds 30",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--job", required=True, metavar="NAME", help="name of a job, such as fclopt_dp, or a job folder"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of images (default: a generated phantom)")
    parser.add_argument(
        "--splits", type=Path, metavar="FILE", help="which patient is at which site, made by fclseg data split"
    )
    parser.add_argument("--sites", type=int, metavar="K", help="number of sites (default 2, or as many as in --splits)")
    add_run_options(parser, "for example the model.safetensors of a mean_teacher run")
    parser.add_argument(
        "--fraction",
        type=float,
        default=1.0,
        metavar="C",
        help="fraction of the sites that train per round (default 1)",
    )
    parser.add_argument("--fold", type=int, metavar="F", help="leave out the held-out patients of this fold")
    parser.add_argument("--name", help="name of the run folder (default <job>-<preset>)")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="DIR", help="folder of all runs (default runs)"
    )
    parser.add_argument("--fresh", action="store_true", help="delete an earlier run of this name and start over")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as made:
        return _run(arguments, find_job(arguments.job, Path(made)))


def _run(arguments: argparse.Namespace, source: Path) -> int:
    from fclseg.engine.run_folder import SIMULATOR_LOG, RunFolder
    from fclseg.engine.run_settings import RunSettings
    from fclseg.flare.launch import PICKUP_SECONDS, derive_job, read_job, simulate
    from fclseg.flare.tracking import check_tracker_installed

    _, given = read_job(source)
    settings = RunSettings.read({**given, **_changes(arguments, given), "pickup_timeout": PICKUP_SECONDS}, {})
    check_tracker_installed(settings.tracking)
    environment, sites = _environment(arguments), _sites(arguments)
    folder = arguments.runs.absolute() / settings.run
    if arguments.fresh:
        if folder in source.absolute().parents:
            raise FCLSegError(
                f"--fresh would delete {folder}, which contains the job {source}: copy the job elsewhere first"
            )
        RunFolder(folder).forget()
    data = {"data": str(arguments.data.absolute())} if arguments.data else {}  # the phantom's folder is not known yet
    RunFolder(folder).check({"settings": settings.to_dict(), "sites": sorted(sites), **data})
    if RunFolder(folder).complete:
        print(f"run {folder} is complete; --fresh starts it over")
        return 0
    job = derive_job(source, folder / "job", settings.to_dict())
    print(f"{settings.row.title}, preset {settings.preset}, {len(sites)} sites, {settings.rounds} rounds -> {folder}")
    progress = RoundLines(folder, settings.build_preset().pretraining.rounds)
    simulate(job, folder, sites, environment=environment, progress=progress)
    if not RunFolder(folder).complete:
        raise FCLSegError(f"the run ended without an encoder; NVFlare's messages are in {folder / SIMULATOR_LOG}")
    for path in RunFolder(folder).encoders.values():
        print(f"encoder: {path}")
    if model := RunFolder(folder).model:
        print(f"model: {model}")
    return 0


def _changes(arguments: argparse.Namespace, given: dict[str, Any]) -> dict[str, Any]:
    """The job settings that come from the command line."""
    from fclseg.engine.job_defaults import completed
    from fclseg.methods.exchange import get_row

    changes = {full_name(name): value for name, value in map(preset_change, arguments.set)}
    row = get_row(str(given.get("job")))
    settings = {
        "preset": arguments.preset,
        "rounds": arguments.rounds,
        "seed": arguments.seed,
        "fraction": arguments.fraction,
        "fold": arguments.fold,
        "run": arguments.name or "",
        "network": _network(arguments, row) or given.get("network"),
        "changes": changes,
        "tracking": arguments.tracking or given.get("tracking"),
        "codec": arguments.codec or given.get("codec"),
        **_anatomy(arguments, row),
    }
    return completed(row, settings)


def _anatomy(arguments: argparse.Namespace, row: "Row") -> dict[str, Any]:
    """The structures that a job with a segmentation network learns: those of its data."""
    from fclseg.anatomy.folders import folder_anatomy
    from fclseg.anatomy.registry import reference
    from fclseg.methods.registry import method_class

    if arguments.data is None or not method_class(row).segments:
        return {}
    anatomy = folder_anatomy(arguments.data)
    return {"anatomy": reference(anatomy)} if anatomy.structures else {}


def _network(arguments: argparse.Namespace, row: "Row") -> str | None:
    """The network to start from. Fine-tuning takes only one that segments, because its settings are made for that."""
    from fclseg.methods.exchange import SHIPPED
    from fclseg.methods.registry import method_class
    from fclseg.networks.model_file import segments

    if arguments.network in (None, SHIPPED):
        return arguments.network
    path = Path(arguments.network).absolute()
    if not segments(path) and method_class(row).wants_labels:
        raise FCLSegError(f"{path} does not segment: give a model.safetensors, for example of a mean_teacher run")
    return str(path)


def _sites(arguments: argparse.Namespace) -> list[str]:
    """The names of the sites: those of the split, or site-1, site-2, ..."""
    from fclseg.data.sites import Splits

    if arguments.sites is not None:
        positive(arguments.sites, "--sites")
    if arguments.splits is None:
        return [f"site-{number + 1}" for number in range(arguments.sites or 2)]
    names = list(Splits.load(arguments.splits).sites)
    if arguments.sites not in (None, len(names)):
        raise FCLSegError(
            f"--sites {arguments.sites} contradicts {arguments.splits}, which splits the patients across "
            f"{len(names)} sites ({', '.join(names)}): leave out --sites"
        )
    return names


def _environment(arguments: argparse.Namespace) -> dict[str, str]:
    """Environment variables for the sites' processes, which NVFlare starts, not we."""
    for path in (arguments.data, arguments.splits):
        if path is not None and not path.exists():
            raise DataError(f"{path} does not exist: --data and --splits need an existing path")
    if arguments.splits and not (arguments.data or os.environ.get("FCLSEG_DATA")):
        raise FCLSegError("--splits needs the data folder it was made for: give --data as well")
    chosen = {"FCLSEG_RUNS": arguments.runs, "FCLSEG_DATA": arguments.data, "FCLSEG_SPLITS": arguments.splits}
    return {name: str(path.absolute()) for name, path in chosen.items() if path is not None}


class RoundLines:
    """One line per finished round, read from the run folder."""

    def __init__(self, folder: Path, rounds: int):
        from fclseg.engine.run_folder import RunFolder, describe

        self._describe = describe
        self._folder, self._rounds = RunFolder(folder), rounds
        self._first = self._next = len(self._folder.rounds())
        self._started = time.monotonic()

    def __call__(self) -> None:
        for record in self._folder.rounds()[self._next :]:
            self._next += 1
            pace = (time.monotonic() - self._started) / (self._next - self._first)
            print(
                f"{self._describe(record, self._rounds)}  eta {_clock(pace * (self._rounds - self._next))}", flush=True
            )


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
