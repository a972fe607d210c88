"""Pre-training from Python, in this process or with NVFlare, with the same result."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.records import Volume
from fclseg.data.sampler import SliceSampler
from fclseg.data.sites import Splits
from fclseg.data.slices import open_store
from fclseg.device import choose_device
from fclseg.errors import FCLSegError
from fclseg.federation.exchange import SHIPPED, Row, get_row
from fclseg.flare.runs.run_files import CONFIG
from fclseg.flare.settings import RunSettings
from fclseg.local.federation import LocalFederation, LocalSite
from fclseg.methods.base import Method
from fclseg.methods.registry import build_method, method_class
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.loading import save_encoder
from fclseg.presets import Preset, get_preset
from fclseg.privacy.settings import NO_PROTECTION, PrivacySettings
from fclseg.resources import shipped_model

SPLITS = "splits.json"
ENCODER = "encoder.safetensors"


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
    RunSettings.read({"job": job, **privacy.shown()}, environment={})  # the checks of a job's protections
    volumes = read_folder(data)
    split = Splits.load(splits) if splits else _split(volumes, sites, seed)
    if nvflare and encoder is not None:
        raise FCLSegError("NVFlare's processes can only build the paper's encoder: leave out 'encoder' or 'nvflare'")
    if nvflare:
        split.save(folder.with_name(f"{folder.name}.{SPLITS}"))
        return _over_nvflare(row, Path(data).absolute(), folder, volumes, chosen, seed, privacy, fold)
    if (folder / CONFIG).exists():
        raise FCLSegError(f"{folder} belongs to a run with NVFlare: choose another folder")
    with _threads(threads):
        federation = gather(row, volumes, split, chosen, seed, privacy=privacy, fold=fold, encoder=encoder)
        return _in_this_process(federation, folder)


def _split(volumes: list[Volume], sites: int, seed: int) -> Splits:
    return Splits.make(sorted({volume.patient for volume in volumes}), sites, folds=2, seed=seed)


def gather(
    row: Row,
    volumes: list[Volume],
    split: Splits,
    preset: Preset,
    seed: int,
    *,
    privacy: PrivacySettings = NO_PROTECTION,
    fold: int | None = None,
    encoder: EncoderFactory | None = None,
) -> LocalFederation:
    """All sites of a split, ready for their first round in this process."""
    sites = []
    for name, patients in split.sites.items():
        method = _start(build_method(row, preset, seed, volumes[0].anatomy, encoder), row, volumes[0].anatomy)
        method.to(choose_device())
        training = patients if fold is None else split.training(name, fold)
        sites.append(LocalSite.start(name, method, _sampler(volumes, training, method)))
    return LocalFederation(row, sites, seed, privacy)


def _in_this_process(federation: LocalFederation, folder: Path) -> Pretrained:
    row, rounds = federation.row, federation.settings.rounds
    with tqdm(federation.run(), desc=row.title, total=rounds, unit="round") as bar:
        for loss in bar:
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
    paths = {}
    for site, method in federation.finish().items():
        paths[site] = folder / "sites" / site / ENCODER if site else folder / ENCODER
        metadata = {"preset": method.preset.name, "run": folder.name, "job": row.job, "round": rounds - 1}
        save_encoder(paths[site], method.get_submodule("online.encoder"), metadata)
    return Pretrained(paths, federation.losses)


def _start(method: Method, row: Row, anatomy: Anatomy) -> Method:
    """The method with the network that its job starts from."""
    if row.start == SHIPPED:
        method.start_from(shipped_model(anatomy.bundle))
    return method


def _sampler(volumes: list[Volume], patients: list[str], method: Method) -> SliceSampler:
    """Batches of all slices of a site's patients."""
    images, own = method.preset.images, [volume for volume in volumes if volume.patient in set(patients)]
    store = open_store(own, image_size=images.size, spacing=images.spacing(volumes[0].anatomy), progress=False)
    batch = method.preset.pretraining.batch_size
    return SliceSampler(store, store.select(), batch, partners=method.wants_partners, device=choose_device())


def _over_nvflare(
    row: Row,
    data: Path,
    folder: Path,
    volumes: list[Volume],
    preset: Preset,
    seed: int,
    privacy: PrivacySettings,
    fold: int | None,
) -> Pretrained:
    from fclseg.study.cells import Dataset  # NVFlare is imported only if it is used
    from fclseg.study.federated import run_job
    from fclseg.study.job_options import JobOptions

    splits = folder.with_name(f"{folder.name}.{SPLITS}")
    dataset, options = Dataset(data, volumes[0].anatomy, splits, fingerprint=""), JobOptions.make(privacy.shown(), ())
    run = run_job(row.job, folder, dataset, preset, seed, options=options, fold=fold)
    return Pretrained(run.encoders, [record["loss"] for record in run.rounds()])


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
