"""Trains the weights that come with the bundles: the bundle's own training, only on phantoms (``make weights``).

    python -m fclseg.finetune.weights acdc hvsmr

No patients are involved, so there is nothing to license or to leak, and a new user can segment without any training.
"""

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.registry import get_anatomy
from fclseg.finetune.run import FinetuneSpec, train
from fclseg.networks.model_file import MODEL, load_model, write_model
from fclseg.phantom.slices import phantom_folder
from fclseg.resources import shipped_model


@dataclass(frozen=True)
class Recipe:
    """How the weights of one bundle are made."""

    patients: int
    epochs: int
    preset: str = "small"
    lr: float = 2e-3
    seed: int = 0


RECIPES = {
    "acdc": Recipe(patients=200, epochs=8),  # about 2,900 steps
    "hvsmr": Recipe(patients=24, epochs=7),  # many more slices per patient; about 1,500 steps
}
"""By anatomy. Plain NIfTI folders have no phantom, so their bundle has no weights."""


ABOUT = (
    "the bundle's own, trained on {} computer-made phantoms and on no patient; a start for fine-tuning and for trying "
    "things out, less accurate than a model fine-tuned on labelled patients"
)
"""Shown wherever the weights are used."""


def train_weights(name: str) -> Path:
    """Train the weights of an anatomy and write them to its bundle."""
    recipe = RECIPES[name]
    folder = phantom_folder(get_anatomy(name), recipe.patients)
    with (
        tempfile.TemporaryDirectory() as output
    ):  # the record contains folders of this machine and is not part of the bundle
        return publish(train_on(folder, recipe, name, Path(output)), name)


def train_on(folder: Path, recipe: Recipe, name: str, output: Path) -> Path:
    """Train on all patients of a folder and return the model's file in ``output``."""
    spec = FinetuneSpec(
        dataset_dir=folder,
        train_patients=tuple(sorted({volume.patient for volume in read_folder(folder, name)})),
        validation_patients=(),
        anatomy=get_anatomy(name),
        preset=recipe.preset,
        seed=recipe.seed,
        overrides={"epochs": recipe.epochs, "learning_rate": recipe.lr},
    )
    train(spec, output, progress=True)
    return output / MODEL


def publish(trained: Path, name: str) -> Path:
    """Write a trained model to its bundle, with a sentence that says what it is."""
    target = shipped_model(get_anatomy(name).bundle)
    target.parent.mkdir(exist_ok=True)
    write_model(target, replace(load_model(trained, name), about=ABOUT.format(RECIPES[name].patients)))
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("anatomy", nargs="*", default=list(RECIPES), choices=list(RECIPES), help="default: all")
    for name in parser.parse_args().anatomy:
        print(f"weights written to {train_weights(name)}")


if __name__ == "__main__":
    main()
