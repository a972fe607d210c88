"""Federated runs of a study: pre-training and federated fine-tuning are jobs of the same NVFlare frame."""

import json
from pathlib import Path
from typing import Any

from fclseg.presets import Preset
from fclseg.study.cells import Dataset


def run_job(job: str, folder: Path, data: Dataset, preset: Preset, seed: int) -> None:
    raise NotImplementedError


def read_rounds(folder: Path) -> list[dict[str, Any]]:
    """What the run wrote about its rounds."""
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
