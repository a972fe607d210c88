"""Zero-label transfer: a network trained on ACDC phantoms segments images in the layout of HVSMR.

The structures differ, so classes are merged by name: LV and RV become the blood pool, MYO the myocardium. The network
sees the images at its own pixel size. For comparison, the weights shipped for HVSMR are scored in the same way.

    python benchmarks/zero_label_transfer.py --data HVSMR [--model model.safetensors] [--refined]
"""

import argparse
from pathlib import Path

import torch
from torch import nn

from fclseg.anatomy.base import Anatomy
from fclseg.anatomy.registry import ANATOMIES
from fclseg.finetune.dataset import open_labelled
from fclseg.finetune.evaluation import Evaluation, VolumeEvaluator
from fclseg.networks.model_file import TrainedModel, load_model
from fclseg.resources import shipped_model

MEANS = {"MYO": ("MYO",), "BP": ("RV", "LV")}
"""For each structure of HVSMR: the structures of ACDC that it consists of."""


class Merged(nn.Module):
    """A network for ACDC that answers with the classes of HVSMR: p(blood pool) = p(RV) + p(LV)."""

    def __init__(self, network: nn.Module, source: Anatomy, target: Anatomy):
        super().__init__()
        self.network = network
        value = {structure.name: structure.value for structure in source.structures}
        self.groups = [[0], *([value[name] for name in MEANS[structure.name]] for structure in target.structures)]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        beliefs = self.network(images).log_softmax(dim=1)
        return torch.stack([beliefs[:, group].logsumexp(dim=1) for group in self.groups], dim=1)


def score(network: nn.Module, model: TrainedModel, data: Path, refined: bool) -> Evaluation:
    """Every labelled volume of the folder, at the pixel size of the model."""
    target = ANATOMIES["hvsmr"]
    store = open_labelled(str(data), target, model.image_size, model.spacing, progress=False)
    return VolumeEvaluator(network, store, store.patients, target, refined=refined).run()  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder in the layout of HVSMR, with labels")
    parser.add_argument("--model", type=Path, help="a model that segments ACDC (default: the shipped weights)")
    parser.add_argument("--refined", action="store_true", help="average over rotations, and clean, as inference does")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    acdc = load_model(arguments.model or shipped_model("acdc_unet"), "acdc")
    own = load_model(shipped_model("hvsmr_unet"), "hvsmr")
    merged = Merged(acdc.network, acdc.anatomy, own.anatomy)
    for title, network, model in (("from ACDC", merged, acdc), ("shipped for HVSMR", own.network, own)):
        print(f"{title}: {score(network, model, arguments.data, arguments.refined).summary()}", flush=True)


if __name__ == "__main__":
    main()
