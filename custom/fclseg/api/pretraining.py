"""Pre-training from Python, the same as ``fclseg pretrain``: in this process or with NVFlare, with the same result."""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fclseg.anatomy.folders import folder_anatomy, read_folder
from fclseg.anatomy.registry import reference
from fclseg.api.round_lines import RoundLines
from fclseg.data.hospitals import sites_by as by_hospital
from fclseg.data.sites import Splits
from fclseg.engine.in_process import run_in_process
from fclseg.engine.job_defaults import completed
from fclseg.engine.place import Place
from fclseg.engine.run_folder import GLOBAL, RunFolder
from fclseg.engine.run_settings import RunSettings
from fclseg.engine.simulation import shared_places
from fclseg.errors import DataError, FCLSegError
from fclseg.methods.exchange import SHIPPED, Row, get_row
from fclseg.methods.registry import method_class
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.model_file import segments
from fclseg.presets import Preset, full_name, get_preset
from fclseg.privacy.protections import NO_PROTECTION, PrivacySettings

SPLITS = "splits.json"
PICKUP_SECONDS = 180
"""Every site of a simulation has its own process, so one that does not fetch its task for that long has died."""
SITES = 2
"""Of a simulation whose patients are not split by the user."""


@dataclass(frozen=True)
class Pretrained:
    """What a run trained, by site ("" for what all sites share): encoders, whole networks if the method trains them,
    and the loss of each round."""

    folder: Path
    encoders: dict[str, Path]
    networks: dict[str, Path]
    losses: list[float]

    @property
    def encoder(self) -> Path:
        """The encoder that all sites share."""
        return self._shared(self.encoders, "encoder")

    @property
    def network(self) -> Path:
        """The whole network that all sites share."""
        if not self.networks:
            raise FCLSegError(f"the method of {self.folder.name} trains an encoder only: use encoder")
        return self._shared(self.networks, "network")

    @staticmethod
    def _shared(found: dict[str, Path], what: str) -> Path:
        if GLOBAL not in found:
            raise FCLSegError(f"every site has its own {what} here: choose from {what}s ({', '.join(found)})")
        return found[GLOBAL]


def pretrain(
    job: str,
    data: Path | str | None = None,
    out: Path | str | None = None,
    *,
    sites: int | None = None,
    splits: Path | str | None = None,
    sites_by: str | None = None,
    preset: Preset | str = "small",
    changes: Mapping[str, Any] | None = None,
    seed: int = 0,
    network: Path | str | None = None,
    privacy: PrivacySettings = NO_PROTECTION,
    name: str | None = None,
    runs: Path | str = "runs",
    nvflare: bool = False,
    fresh: bool = False,
    architecture: EncoderFactory | None = None,
    threads: int = 1,
    **settings: Any,
) -> Pretrained:
    """Run a job of the exchange plan on a folder whose patients are split across sites. The same call continues it.

    Args:
        job: a row of the exchange plan, for example "fclopt_dp", or the folder of a job (with ``nvflare``).
        data: a folder of images; a generated phantom by default.
        out: the run's folder; by default RUNS/NAME, and NAME is JOB-PRESET by default.
        sites: number of sites to split the patients across (2), unless ``splits`` is a file of "fclseg data split", or
            ``sites_by`` makes hospitals of the data (an entry of Info.cfg such as centre, or a table).
        changes: settings of the preset to change, such as {"local_epochs": 2}.
        network: start from this whole network, or "shipped"; the job's own start by default.
        privacy: protections of what sites send, for example PrivacySettings(perturb=0.5). Their randomness comes from
            the operating system, so a run with them cannot be repeated bit for bit.
        nvflare: run with NVFlare, one process per site. The result is the same, bit for bit.
        fresh: delete an earlier run in this folder and start over.
        architecture: makes a different encoder than the paper's (``networks/interface.py``); not with ``nvflare``.
        threads: number of torch threads in this process. Sites of NVFlare use one; more change the last bits.
        settings: other settings of a run: rounds, fraction, fold, labels, codec, tracking, ...
    """
    if nvflare and architecture is not None:
        raise FCLSegError("NVFlare's processes can only build the paper's encoder: leave out 'architecture'")
    with tempfile.TemporaryDirectory() as made:
        source, given = _job(job, Path(made)) if nvflare else (None, {"job": job})
        called = name or (Path(out).name if out else None)
        asked = {"seed": seed, "run": called, **privacy.shown(), **settings}
        run = settle(given, preset, changes or {}, network, data, asked)
        folder = Path(out or Path(runs) / run.run).absolute()
        folds = 2 if run.needs_folds else 0
        places, names = _places(data, splits, sites_by, sites, folder, seed, folds)
        if _open(folder, run, names, places, source, fresh):
            lines = RoundLines(folder, run.build_preset().pretraining.rounds)
            print(
                f"{run.row.title}, preset {run.preset}, {len(names)} sites, {run.rounds} rounds -> {folder}", flush=True
            )
            if source is not None:
                from fclseg.flare.launch import derive_job, simulate  # a run in this process does not need NVFlare
                from fclseg.flare.tracking import check_tracker_installed

                check_tracker_installed(run.tracking)
                simulate(derive_job(source, folder / "job", run.to_dict()), folder, names, places, lines)
            else:
                with _threads(threads):
                    watching = {"after_round": lambda record: lines()}
                    server = Place("server", folder, simulated=True, shared={"runs": str(folder.parent), **places})
                    places, images = shared_places(server, names)
                    print(images, flush=True)
                    run_in_process(run, RunFolder(folder), names, places, encoder=architecture, **watching)
    return _result(RunFolder(folder))


def settle(
    given: Mapping[str, Any],
    preset: Preset | str,
    changes: Mapping[str, Any],
    network: Path | str | None,
    data: Path | str | None,
    asked: Mapping[str, Any],
) -> RunSettings:
    """The settings of a run: what a job says (``given``), what is asked for, and what its row needs besides."""
    row = get_row(str(given.get("job")))
    chosen = get_preset(preset) if isinstance(preset, str) else preset
    values = {
        **asked,
        "preset": chosen.name,
        "changes": _changes(chosen, changes),
        "network": _network(network, row) or given.get("network"),
        **_anatomy(data, row),
    }
    values = completed(row, {name: value for name, value in values.items() if value is not None})
    return RunSettings.read({**given, **values, "pickup_timeout": PICKUP_SECONDS}, {})


def _job(job: str, made: Path) -> tuple[Path, dict[str, Any]]:
    """The folder of a job of NVFlare, and its settings."""
    from fclseg.flare.find_job import find_job  # a run in this process does not need NVFlare
    from fclseg.flare.launch import read_job

    source = find_job(job, made)
    return source, read_job(source)[1]


def _changes(preset: Preset, more: Mapping[str, Any]) -> dict[str, Any]:
    """What differs from the preset of this name."""
    standard = get_preset(preset.name).values()
    own = {name: value for name, value in preset.values().items() if value != standard[name]}
    return own | {full_name(name): value for name, value in more.items()}


def _network(given: Path | str | None, row: Row) -> str | None:
    """The network to start from. Fine-tuning takes only one that segments, because its settings are made for that."""
    if given is None or given == SHIPPED:
        return given and str(given)
    path = Path(given).absolute()
    if not segments(path) and method_class(row).wants_labels:
        raise FCLSegError(f"{path} does not segment: give a model.safetensors, for example of a mean_teacher run")
    return str(path)


def _anatomy(data: Path | str | None, row: Row) -> dict[str, Any]:
    """The structures that a job with a segmentation network learns: those of its data."""
    if data is None or not method_class(row).segments:
        return {}
    anatomy = folder_anatomy(data)
    return {"anatomy": reference(anatomy)} if anatomy.structures else {}


def _places(
    data: Path | str | None,
    splits: Path | str | None,
    sites_by: str | None,
    sites: int | None,
    folder: Path,
    seed: int,
    folds: int,
) -> tuple[dict[str, str | None], list[str]]:
    """The folders that all sites of a simulation share, and the names of the sites."""
    for path in (data, splits):
        if path is not None and not Path(path).exists():
            raise DataError(f"{path} does not exist: --data and --splits need an existing path")
    if (splits or sites_by) and not (data or os.environ.get("FCLSEG_DATA")):
        what = "--splits needs the data folder it was made for" if splits else "--sites-by is about your own data"
        raise FCLSegError(f"{what}: give --data as well")
    if sites is not None and sites < 1:
        raise FCLSegError(f"--sites must be at least 1, not {sites}")
    if sites_by is not None:
        splits = folder.with_name(f"{folder.name}.{SPLITS}")
        _hospitals(Path(data or os.environ["FCLSEG_DATA"]), sites_by, seed, folds).save(splits)
    places = {"data": data, "splits": splits}
    shared = {name: str(Path(path).absolute()) for name, path in places.items() if path is not None}
    if splits is None:
        return {"data": None, "splits": None, **shared}, [f"site-{number + 1}" for number in range(sites or SITES)]
    names = list(Splits.load(splits).sites)
    if sites not in (None, len(names)):
        raise FCLSegError(
            f"--sites {sites} contradicts {splits}, which splits the patients across {len(names)} sites "
            f"({', '.join(names)}): leave out --sites"
        )
    return {"data": None, **shared}, names


def _hospitals(data: Path, what: str, seed: int, folds: int) -> Splits:
    """A split whose sites are hospitals."""
    volumes = read_folder(data)
    return Splits.make(sorted({volume.patient for volume in volumes}), by_hospital(data, volumes, what), folds, seed)


def _open(
    folder: Path,
    run: RunSettings,
    names: Sequence[str],
    places: Mapping[str, str | None],
    source: Path | None,
    fresh: bool,
) -> bool:
    """Whether anything is left to do in a run's folder. Raises if it belongs to a different run."""
    if fresh:
        if source is not None and folder in source.absolute().parents:
            raise FCLSegError(
                f"--fresh would delete {folder}, which contains the job {source}: copy the job elsewhere first"
            )
        RunFolder(folder).forget()
    data = {"data": places["data"]} if places["data"] else {}  # the phantom's folder is not known yet
    RunFolder(folder).check({"settings": run.to_dict(), "sites": sorted(names), **data})
    if RunFolder(folder).complete:
        print(f"run {folder} is complete; --fresh starts it over")
    return not RunFolder(folder).complete


def _result(run: RunFolder) -> Pretrained:
    networks = run.site_networks if run.network is None else {GLOBAL: run.network}
    return Pretrained(run.path, run.encoders, networks, [record["loss"] for record in run.rounds()])


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
