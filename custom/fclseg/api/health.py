"""Facts about this installation for bug reports, the same as ``fclseg doctor``. Nothing about patients."""

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from fclseg import __version__
from fclseg.data.slices import default_cache
from fclseg.device import processor
from fclseg.environment import COMMAND
from fclseg.resources import BUNDLES, resource_folder, resource_names, shipped_model

PACKAGES = ("torch", "monai", "nvflare", "numpy", "nibabel", "scipy", "safetensors", "pydicom", "highdicom")


@dataclass(frozen=True)
class Folder:
    """A folder, what it takes, and what is free on its disk; in bytes."""

    path: Path
    exists: bool
    writable: bool
    size: int
    free: int


@dataclass(frozen=True)
class Health:
    versions: dict[str, str | None]  # None: not installed
    system: str
    processor: str
    cores: int | None
    memory: int
    devices: list[str]
    folders: dict[str, Folder]
    weights: dict[str, Path | None]  # by bundle
    variables: dict[str, str]  # the environment variables of this package

    @property
    def problems(self) -> list[str]:
        """What would stop a training, each as a sentence."""
        found = [f"{name} is not installed: install fclseg again" for name in PACKAGES[:7] if not self.versions[name]]
        for name in ("cache", "here"):
            folder = self.folders[name]
            if not folder.writable:
                found.append(f"{folder.path} cannot be written: choose another folder")
            elif folder.free < 1e9:
                found.append(f"only {folder.free / 1e6:.0f} MB are free at {folder.path}: free some space")
        return found


def doctor() -> Health:
    """Versions, devices, folders, caches and disk space."""
    known: dict[str, str | None] = {"fclseg": __version__, "python": sys.version.split()[0]}
    folders = {"package": resource_folder(BUNDLES).parent, "cache": default_cache(), "here": Path.cwd()}
    bundles = resource_names(BUNDLES)
    return Health(
        versions=known | {name: _version(name) for name in PACKAGES},
        system=platform.platform(),
        processor=processor(),
        cores=os.cpu_count(),
        memory=psutil.virtual_memory().total,
        devices=_devices(),
        folders={name: _folder(path, measured=name == "cache") for name, path in folders.items()},
        weights={name: path if (path := shipped_model(name)).is_file() else None for name in bundles},
        variables={
            name: os.environ[name] for name in sorted(os.environ) if name.startswith("FCLSEG_") and name != COMMAND
        },
    )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _devices() -> list[str]:
    import torch

    gpus = [f"cuda:{number} {torch.cuda.get_device_name(number)}" for number in range(torch.cuda.device_count())]
    return [f"cpu, {torch.get_num_threads()} threads", *gpus]


def _folder(path: Path, measured: bool) -> Folder:
    """``measured``: also add up its files, which only a cache needs."""
    above = next(one for one in (path, *path.parents) if one.exists())
    files = [one for one in path.rglob("*") if one.is_file()] if measured and path.exists() else []
    size = sum(one.stat().st_size for one in files)
    return Folder(path, path.exists(), os.access(above, os.W_OK), size, shutil.disk_usage(above).free)
