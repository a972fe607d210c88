"""FedU (Zhuang et al. 2021): BYOL with a divergence-aware update of the predictor."""

from collections.abc import Mapping

import torch

from fclseg.methods.byol import BYOL
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.loading import State
from fclseg.networks.unet import Encoder
from fclseg.presets import Preset


def encoder_divergence(first: State, second: State) -> float:
    """Mean over convolutions of the L2 distance between their weights; the states may be on different devices."""
    pairs = [(weight, second[name].to(weight.device)) for name, weight in first.items() if weight.ndim == 4]
    return float(torch.stack([(ours - theirs).norm() for ours, theirs in pairs]).mean())


class FedU(BYOL):
    """Uses the global predictor only if the global encoder is close to the site's own.

    The online network is always replaced. If its distance from the average is ``threshold`` (mu) or more, the site's
    data differ from the others', and its own predictor suits its own target better.
    """

    def __init__(self, preset: Preset, threshold: float = 0.4, *, encoder: EncoderFactory = Encoder):
        super().__init__(preset, encoder=encoder)
        self.threshold = threshold

    def receive(self, components: Mapping[str, State]) -> None:
        if "online" in components and not self._agrees(components["online"]):
            components = {name: state for name, state in components.items() if name != "predictor"}
        super().receive(components)

    def _agrees(self, online: State) -> bool:
        return encoder_divergence(self.online.state_dict(), online) < self.threshold
