"""Finds bundles and jobs: at the top of a source checkout, or inside the package installed from a wheel."""

from pathlib import Path

from fclseg.errors import FCLSegError

PACKAGE = Path(__file__).resolve().parent
ROOTS = (PACKAGE, PACKAGE.parents[1])
"""In a wheel (``setup.py`` copies both folders into the package), and in a checkout (the package is in custom/)."""

BUNDLES, JOBS = "bundles", "jobs"


def resource_folder(kind: str) -> Path:
    """The folder of all bundles or of all jobs."""
    for root in ROOTS:
        if (root / kind).is_dir():
            return root / kind
    raise FCLSegError(f"there is no folder {kind} in {PACKAGE}: the installation is incomplete, so install it again")


def resource_names(kind: str) -> list[str]:
    """The names of all bundles or jobs."""
    return sorted(path.name for path in resource_folder(kind).iterdir() if path.is_dir())


SMALL_PRESETS = ("demo", "small")
"""Presets whose network is smaller than that of the default weights."""


def shipped_model(bundle: str, preset: str | None = None) -> Path:
    """The weights that come with a bundle (``fclseg.finetune.weights``), if it has any; those of a preset's size."""
    models = bundle_folder(bundle) / "models"
    small = models / "model_small.safetensors"
    return small if preset in SMALL_PRESETS and small.is_file() else models / "model.safetensors"


def bundle_folder(name: str) -> Path:
    """The folder of one bundle."""
    if name not in resource_names(BUNDLES):
        raise FCLSegError(f"there is no bundle '{name}': choose one of {', '.join(resource_names(BUNDLES))}")
    return resource_folder(BUNDLES) / name
