"""Pre-training inside a study: what ``fclseg pretrain`` runs, with the study's split, preset and seed."""

from typing import Any

from fclseg.flare.run_folder import RunFolder
from fclseg.study.cache import Cache
from fclseg.study.cells import Pretraining
from fclseg.study.federated import run_job


def run_pretraining(cell: Pretraining, cache: Cache) -> dict[str, Any]:
    """Pre-train at all sites; the result names the encoders, and its rounds are what the report draws."""
    folder = RunFolder(cell.folder(cache.root))
    run_job(cell.method, folder.path, cell.data, cell.preset, cell.seed)
    encoders = {site: str(path.relative_to(cache.root)) for site, path in folder.encoders.items()}
    return {"run": {"rounds": folder.rounds()}, "encoders": encoders}
