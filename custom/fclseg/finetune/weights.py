"""Trains the weights that come with the bundles, only on phantoms (``make weights``).

    python -m fclseg.finetune.weights acdc acdc_small hvsmr

No patients are involved, so there is nothing to license or to leak, and a new user can segment without any training.
An interrupted training of ``acdc`` continues where it was when the same command is given again. Hours on one core that
does nothing else: acdc 0.4 if it computes in bfloat16 (1.7 on an older one), acdc_small 0.1, hvsmr 0.1.
"""

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fclseg.anatomy.folders import read_folder
from fclseg.anatomy.registry import get_anatomy
from fclseg.data.slices import default_cache
from fclseg.finetune.phantom_stream import PhantomStream
from fclseg.finetune.phantom_training import Schedule, train_on_phantoms
from fclseg.finetune.train import FinetuneSpec, train
from fclseg.networks.freezable import FreezableUNet
from fclseg.networks.model_file import MODEL, TrainedModel, load_model, write_model
from fclseg.phantom.slices import SEED, phantom_folder
from fclseg.presets import get_preset
from fclseg.resources import bundle_folder

ABOUT = (
    "the bundle's own, trained on computer-made phantoms and on no patient; a start for fine-tuning and for trying "
    "things out, less accurate than a model fine-tuned on labelled patients"
)
"""Shown wherever the weights are used."""


def train_on_stream(anatomy: str, preset: str, *, schedule: Schedule, state: Path) -> TrainedModel:
    """For compact organs, which inference shows to the network in windows."""
    chosen, kind = get_preset(preset), get_anatomy(anatomy)
    spacing = chosen.images.spacing(kind)
    network = FreezableUNet(chosen.networks.channels, kind.classes, SEED, patch=chosen.networks.patch)
    stream = PhantomStream(SEED, chosen.images.size, spacing, chosen.pretraining.batch_size)
    trained = train_on_phantoms(network, stream, schedule, state)
    return TrainedModel(trained, kind, chosen.images.size, spacing, preset)


def train_on_folder(anatomy: str, preset: str, *, patients: int, epochs: int, state: Path) -> TrainedModel:
    """For other organs: the bundle's own training on a folder of phantoms. It takes minutes and starts anew."""
    folder = phantom_folder(get_anatomy(anatomy), patients)
    spec = FinetuneSpec(
        dataset_dir=folder,
        train_patients=tuple(sorted({volume.patient for volume in read_folder(folder, anatomy)})),
        validation_patients=(),
        anatomy=get_anatomy(anatomy),
        preset=preset,
        overrides={"epochs": epochs, "learning_rate": 2e-3},
    )
    with tempfile.TemporaryDirectory() as output:  # the record contains folders of this machine and is not shipped
        train(spec, Path(output), progress=True)
        return load_model(Path(output) / MODEL, anatomy)


@dataclass(frozen=True)
class Recipe:
    """How one file of weights is made."""

    anatomy: str
    preset: str
    train: Callable[..., TrainedModel]  # (anatomy, preset, state=file in which an interrupted training is kept)

    @property
    def path(self) -> Path:
        file = "model_small.safetensors" if (self.anatomy, self.preset) == ("acdc", "small") else MODEL
        return bundle_folder(get_anatomy(self.anatomy).bundle) / "models" / file


RECIPES = {
    "acdc": Recipe(
        "acdc", "standard", partial(train_on_stream, schedule=Schedule(steps=7000, decay=1400, middle=3750))
    ),
    "acdc_small": Recipe("acdc", "small", partial(train_on_stream, schedule=Schedule(steps=3000, decay=800))),
    "hvsmr": Recipe("hvsmr", "small", partial(train_on_folder, patients=24, epochs=7)),
}
"""Plain NIfTI folders have no phantom, so their bundle has no weights."""


def train_weights(name: str) -> Path:
    """Train weights and write them to their bundle, with a sentence that says what they are."""
    recipe = RECIPES[name]
    model = recipe.train(recipe.anatomy, recipe.preset, state=default_cache() / f"weights-{name}.pt")
    recipe.path.parent.mkdir(exist_ok=True)
    write_model(recipe.path, replace(model, about=ABOUT))
    return recipe.path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", nargs="*", default=list(RECIPES), choices=list(RECIPES), help="default: all")
    for name in parser.parse_args().weights:
        print(f"weights written to {train_weights(name)}")


if __name__ == "__main__":
    main()
