"""Pre-training inside a study: the same ``fclseg pretrain`` a user runs, with the study's split, preset and seed."""

from pathlib import Path
from typing import Any

from fclseg.data.sampler import SliceSampler
from fclseg.data.sites import Splits
from fclseg.data.slices import open_store
from fclseg.data.volumes import read_folder
from fclseg.federation.exchange import ROWS
from fclseg.flare.run_folder import RunFolder
from fclseg.methods.registry import build_method
from fclseg.methods.training import cosine_lr, make_optimizer, train_round
from fclseg.networks.loading import save_encoder
from fclseg.study.cache import Cache
from fclseg.study.cells import Pretraining
from fclseg.study.federated import run_job


def run_pretraining(cell: Pretraining, cache: Cache) -> dict[str, Any]:
    """Pre-train at all sites; the result names the encoders, and its rounds are what the report draws."""
    folder = cell.folder(cache.root)
    if ROWS[cell.method].flows:
        run_job(cell.method, folder, cell.data, cell.preset, cell.seed)
        rounds, encoders = RunFolder(folder).rounds(), {"": "encoder.safetensors"}
    else:
        rounds, encoders = train_alone(cell, folder)
    encoders = {site: str((folder / name).relative_to(cache.root)) for site, name in encoders.items()}
    return {"run": {"rounds": rounds}, "encoders": encoders}


def train_alone(cell: Pretraining, folder: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Every site for itself, for rows in which nothing crosses the wire: as many steps as with the others."""
    splits, volumes = Splits.load(cell.data.splits), read_folder(cell.data.root)
    rounds = [{"round": number, "sites": {}, "d": None, "bytes": {}} for number in range(cell.preset.rounds)]
    encoders = {}
    for site, patients in splits.sites.items():
        mine = [volume for volume in volumes if volume.patient in patients]
        encoders[site] = f"sites/{site}/encoder.safetensors"
        reports = _train_site(cell, site, mine, folder / encoders[site])
        for record, report in zip(rounds, reports, strict=True):
            record["sites"][site] = report
    return rounds, encoders


def _train_site(cell: Pretraining, site: str, volumes: list, encoder: Path) -> list[dict[str, Any]]:
    preset = cell.preset
    store = open_store(volumes, image_size=preset.image_size, spacing=preset.spacing(volumes[0].layout), progress=False)
    method = build_method(cell.method, preset, cell.seed)
    sampler = SliceSampler(store, store.select(), preset.batch_size, partners=method.wants_partners)
    optimizer = make_optimizer(method, preset)
    base = getattr(preset, method.lr_setting)
    reports = []
    for number in range(preset.rounds):
        result = train_round(
            method,
            sampler,
            optimizer,
            lr=cosine_lr(base, number, preset.rounds),
            epochs=preset.local_epochs,
            seed=cell.seed,
            site=site,
            round_number=number,
        )
        reports.append(vars(result) | {"status": "ok"})
    metadata = {"preset": preset.name, "job": cell.method, "run": cell.name, "round": preset.rounds - 1}
    save_encoder(encoder, method.online.encoder, metadata)
    return reports
