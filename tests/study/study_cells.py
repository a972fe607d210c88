"""Cells and quick stand-ins for training, shared by the tests of the scheduler; workers import this by name."""

import os
import signal
import time
from pathlib import Path

from fclseg.anatomy.registry import ANATOMIES
from fclseg.errors import FCLSegError
from fclseg.presets import get_preset
from fclseg.study.cells import Dataset, Finetuning, Pretraining

DATA = Dataset(Path("images"), ANATOMIES["acdc"], Path("splits.json"), "fingerprint")


def finetuning(fold=0, job="random", pretraining=None, **more) -> Finetuning:
    values = {"protocol": "local", "labels": 1, "site": "site-1", "seed": 0, "mode": "full", "data": DATA}
    preset = get_preset("demo")
    return Finetuning(**{"job": job, "fold": fold, "preset": preset, "pretraining": pretraining} | values | more)


def pretraining(seed=0, **changes) -> Pretraining:
    return Pretraining("fclopt", seed, get_preset("demo", **changes), DATA)


def log(cache, cell) -> None:
    with open(cache.root / "log", "a") as stream:
        stream.write(f"{cell.kind} {getattr(cell, 'fold', '-')} {os.getpid()} {os.environ['OMP_NUM_THREADS']}\n")


def quick(cell, cache) -> dict:
    log(cache, cell)
    if isinstance(cell, Finetuning) and cell.pretraining:
        assert cache.get(cell.pretraining.key), "fine-tuning started before its pre-training was there"
    return {"dice": 0.5}


def slow(cell, cache) -> dict:
    time.sleep(0.4)
    return quick(cell, cache)


def fragile(cell, cache) -> dict:
    """Fold 1 is refused with a sentence, fold 2 is a fault, fold 3 kills its process; pre-training fails."""
    log(cache, cell)
    if isinstance(cell, Pretraining):
        raise FCLSegError("no images at site-2")
    if cell.fold == 1:
        raise FCLSegError("this fold has no patients: choose another")
    if cell.fold == 2:
        raise ZeroDivisionError("a fault")
    if cell.fold == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"dice": 0.5}
