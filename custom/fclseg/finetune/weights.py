"""The weights that bundles ship: trained by the bundle's own training, on phantoms alone (``make weights``).

    python -m fclseg.finetune.weights acdc hvsmr

No patient is involved, so there is nothing to license or to leak, and a new user can segment before anybody trains.
"""

import argparse
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.registry import get_anatomy
from fclseg.data.phantom_slices import phantom_folder
from fclseg.finetune.run import FinetuneSpec, finetune, shipped_model
from fclseg.networks.model_file import MODEL


@dataclass(frozen=True)
class Recipe:
    """How the weights of one bundle are made."""

    patients: int
    epochs: int  # about 2,900 steps in total
    preset: str = "small"
    lr: float = 2e-3
    seed: int = 0


RECIPES = {
    "acdc": Recipe(patients=200, epochs=8),
    "hvsmr": Recipe(patients=40, epochs=7),  # more slices per patient than ACDC's
}
"""By anatomy. Plain NIfTI folders have no phantom, so their bundle has no weights."""


def train_weights(name: str) -> Path:
    """Train the shipped weights of an anatomy and put them into its bundle."""
    recipe, anatomy = RECIPES[name], get_anatomy(name)
    folder = phantom_folder(anatomy, recipe.patients)
    patients = sorted({volume.patient for volume in read_folder(folder, name)})
    spec = FinetuneSpec(
        dataset_dir=folder,
        train_patients=tuple(patients),
        validation_patients=(),
        anatomy=anatomy,
        preset=recipe.preset,
        seed=recipe.seed,
        overrides={"epochs": recipe.epochs, "learning_rate": recipe.lr},
    )
    target = shipped_model(anatomy)
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as output:  # the record names folders of this machine and is not shipped
        finetune(spec, output, progress=True)
        shutil.copyfile(Path(output) / MODEL, target)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("anatomy", nargs="*", default=list(RECIPES), choices=list(RECIPES), help="default: all")
    for name in parser.parse_args().anatomy:
        print(f"weights written to {train_weights(name)}")


if __name__ == "__main__":
    main()
