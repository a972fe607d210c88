"""The base class of all methods: modules, a loss for one batch, and what happens after a step.

Everything a method remembers is a module or a buffer, so ``state_dict()`` is its complete state. A direct sub-module is
a *component*: the unit that the exchange plan sends up or down (``online``, ``predictor``, ``target``, ``bank``...).
Nothing here depends on NVFlare.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import ClassVar

import torch
from torch import nn

from fclseg.data.augment import Views
from fclseg.data.sampler import Batch, SliceSampler
from fclseg.networks.heads import EncoderNetwork
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.loading import State, load_encoder_of, load_network
from fclseg.networks.unet import Encoder
from fclseg.presets import Preset


class Method(nn.Module):
    """Base of all methods. ``online`` is the network whose encoder is kept for fine-tuning.

    ``encoder`` makes that encoder. A method with its own ``__init__`` takes it as a keyword and passes it on.
    """

    wants_partners = False
    """Whether each image of a batch needs a partner: a slice of the same partition from a different patient."""
    wants_labels = False
    """Whether the method trains on labelled slices only (supervised fine-tuning)."""
    whole_network = False
    """Whether ``online`` is a whole U-Net, so that its decoder is kept for fine-tuning too."""
    segments = False
    """Whether that U-Net segments the structures of an anatomy, which must then be passed to the method."""
    has_target = False
    """Whether there is a component ``target``, a moving average of ``online``."""
    feature_networks: ClassVar[Mapping[str, str]] = {}
    """For each component that contains features: the network that computes them."""
    learning_rates: ClassVar[Mapping[str, float]]
    """The method's own learning rate for each optimiser that a preset may name; ``pretraining.lr`` overrides it."""

    online: EncoderNetwork

    def __init__(self, preset: Preset, *, encoder: EncoderFactory = Encoder):
        super().__init__()
        self.preset = preset
        self.views = Views(preset)
        self.online = EncoderNetwork(preset, encoder)

    def local_epochs(self, sampler: SliceSampler) -> int:
        """Passes over the site's slices in a round."""
        return self.preset.pretraining.local_epochs

    @property
    def optimizer_name(self) -> str:
        """Which optimiser trains the method."""
        return self.preset.pretraining.optimizer

    @property
    def learning_rate(self) -> float:
        """The learning rate of the first round."""
        chosen = self.preset.pretraining.lr
        return self.learning_rates[self.optimizer_name] if chosen is None else chosen

    def trainable(self) -> Iterable[nn.Parameter]:
        """The parameters that the optimiser updates."""
        return (parameter for parameter in self.parameters() if parameter.requires_grad)

    def begin_round(self, sampler: SliceSampler, round_number: int, generator: torch.Generator) -> None:
        """Called after the site received its components and before its first step of the round."""

    def loss(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        """The loss of one batch; ``generator`` is the only source of randomness."""
        raise NotImplementedError

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Feature vectors [B, D] of images, for the collapse monitor."""
        return self.online(images)

    def after_step(self) -> None:
        """Called after each optimiser step: moving averages, enqueueing."""

    def send(self, component: str) -> State:
        """A component as it leaves the site."""
        return self.get_submodule(component).state_dict()

    def receive(self, components: Mapping[str, State]) -> None:
        """Load what came from the server: complete components, including BatchNorm statistics."""
        for name, state in components.items():
            self.get_submodule(name).load_state_dict(state)

    def start_from(self, network: Path) -> None:
        """Begin with the weights of this file, as online and as target network. A method that trains no whole network
        takes the encoder."""
        load = load_network if self.whole_network else load_encoder_of
        load(self.online, network)
        if self.has_target:
            self.receive({"target": self.send("online")})

    def receive_others(self, component: str, states: Mapping[str, State]) -> None:
        """Load what the other sites sent, by site; for components that the server forwards instead of averaging."""
        raise NotImplementedError


@torch.no_grad()
def move_average(target: nn.Module, online: nn.Module, momentum: float) -> None:
    """xi <- m xi + (1 - m) theta (Eq. byol_ema), parameters only: BatchNorm statistics stay the target's own."""
    for xi, theta in zip(target.parameters(), online.parameters(), strict=True):
        xi.lerp_(theta, 1.0 - momentum)


def frozen_copy(network: nn.Module) -> nn.Module:
    """A copy without gradients: the initial target (momentum) network."""
    return deepcopy(network).requires_grad_(False)
