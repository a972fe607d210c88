"""Pre-training from Python, in this process or with NVFlare, with the same result."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.records import Volume
from fclseg.data.sites import Splits
from fclseg.engine.run_settings import RunSettings
from fclseg.errors import FCLSegError
from fclseg.methods.exchange import get_row
from fclseg.methods.registry import method_class
from fclseg.networks.interface import EncoderFactory
from fclseg.presets import Preset, get_preset
from fclseg.privacy.protections import NO_PROTECTION, PrivacySettings
from fclseg.study.cells import Dataset
from fclseg.study.federated import run_here, run_job
from fclseg.study.job_options import JobOptions

SPLITS = "splits.json"


@dataclass(frozen=True)
class Pretrained:
    """The result of a pre-training: encoder files by site ("" for the shared one), and the loss of each round."""

    encoders: dict[str, Path]
    losses: list[float]

    @property
    def encoder(self) -> Path:
        """The encoder that all sites share."""
        if "" not in self.encoders:
            raise FCLSegError(f"every site has its own encoder here: choose from encoders ({', '.join(self.encoders)})")
        return self.encoders[""]


def pretrain(
    job: str,
    data: Path | str,
    out: Path | str,
    *,
    sites: int = 2,
    splits: Path | str | None = None,
    preset: Preset | str = "small",
    seed: int = 0,
    nvflare: bool = False,
    encoder: EncoderFactory | None = None,
    threads: int = 1,
    privacy: PrivacySettings = NO_PROTECTION,
    fold: int | None = None,
) -> Pretrained:
    """Pre-train the method of ``job`` on a folder whose patients are split across sites. Results go to ``out``.

    Args:
        job: a row of the exchange plan, for example "fclopt_dp".
        sites: number of sites to split the patients across, unless ``splits`` is a file of "fclseg data split".
        nvflare: run with NVFlare, one process per site. The encoder is the same, bit for bit.
        encoder: makes a different encoder than the paper's (``networks/interface.py``); not with ``nvflare``.
        threads: number of torch threads. Sites of a simulation use one; more are faster and change the last bits.
        privacy: protections of what sites send, for example PrivacySettings(perturb=0.5). Their randomness comes from
            the operating system, so a run with them cannot be repeated bit for bit.
        fold: leave out the patients that this fold of the split holds out.
    """
    row, chosen, folder = get_row(job), get_preset(preset) if isinstance(preset, str) else preset, Path(out).absolute()
    if method_class(row).wants_labels:
        raise FCLSegError(f"job '{job}' trains on labels: run it with 'fclseg pretrain --job {job}'")
    if nvflare and encoder is not None:
        raise FCLSegError("NVFlare's processes can only build the paper's encoder: leave out 'encoder' or 'nvflare'")
    RunSettings.read({"job": job, **privacy.shown()}, environment={})  # the checks of a job's protections
    volumes = read_folder(data)
    split = folder.with_name(f"{folder.name}.{SPLITS}")
    (Splits.load(splits) if splits else _split(volumes, sites, seed)).save(split)
    dataset = Dataset(Path(data).absolute(), volumes[0].anatomy, split, fingerprint="")
    options = JobOptions.make(privacy.shown(), ())
    if nvflare:
        run = run_job(job, folder, dataset, chosen, seed, options=options, fold=fold)
    else:
        with _threads(threads), tqdm(desc=row.title, total=chosen.pretraining.rounds, unit="round") as bar:
            run = run_here(job, folder, dataset, chosen, seed, options, encoder, _progress(bar), fold=fold)
    return Pretrained(run.encoders, [record["loss"] for record in run.rounds()])


def _progress(bar: tqdm) -> Callable[[dict[str, Any]], None]:
    def update(record: dict[str, Any]) -> None:
        bar.set_postfix(loss=f"{record['loss']:.3f}", refresh=False)
        bar.update()

    return update


def _split(volumes: list[Volume], sites: int, seed: int) -> Splits:
    return Splits.make(sorted({volume.patient for volume in volumes}), sites, folds=2, seed=seed)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
