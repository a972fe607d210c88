"""FedCA (Zhang et al. 2020): SimCLR with a dictionary of features shared among sites and alignment on public images.

The public images are a phantom that every site generates from the same seed, so they never cross the wire. Neither does
the base network they are aligned to.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fclseg.anatomy.families.acdc import ANATOMY
from fclseg.anatomy.records import Volume
from fclseg.data.preprocess import Preprocessor
from fclseg.data.sampler import Batch, SliceSampler
from fclseg.methods.bank import MemoryBank, RemoteBanks
from fclseg.methods.simclr import SimCLR, nt_xent
from fclseg.methods.training import make_optimizer
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.loading import State
from fclseg.networks.unet import Encoder
from fclseg.phantom.dataset import draw_heart, draw_scanner, scan
from fclseg.presets import Preset
from fclseg.randomness import derive_seed, generator

PUBLIC_SEED = 2010
PATIENTS, FRAMES, SLICES = 8, 2, 4
"""The public set has PATIENTS x FRAMES x SLICES images."""


def public_images(preset: Preset) -> torch.Tensor:
    """Phantom slices between apex and base, one scanner per patient, pre-processed like real ones: [P, 1, H, W]."""
    prepare = Preprocessor(preset.images.size, preset.images.spacing(ANATOMY))
    slices = []
    for patient in range(PATIENTS):
        heart, scanner = draw_heart(PUBLIC_SEED, patient), draw_scanner(PUBLIC_SEED, patient)
        rng = np.random.default_rng(derive_seed(PUBLIC_SEED, "public", patient))
        voxels = scan(heart, scanner, rng, FRAMES, np.linspace(0.9, 0.1, SLICES) * heart.length).images
        spacing = (scanner.pixel, scanner.pixel, scanner.slice_spacing)
        record = Volume(f"public{patient:03d}", None, None, Path("phantom"), None, spacing, ANATOMY)
        slices += [prepare.image(voxels[..., frame], record) for frame in range(FRAMES)]
    return torch.from_numpy(np.concatenate(slices)).float()[:, None]


class PublicSet(nn.Module):
    """Public images, and the features that the base network gives them: the anchors of the alignment."""

    images: torch.Tensor
    anchors: torch.Tensor
    ready: torch.Tensor

    def __init__(self, preset: Preset):
        super().__init__()
        count = PATIENTS * FRAMES * SLICES
        self.register_buffer("images", torch.zeros(count, 1, preset.images.size, preset.images.size))
        self.register_buffer("anchors", torch.zeros(count, preset.networks.feature_size))
        self.register_buffer("ready", torch.zeros((), dtype=torch.bool))


class FedCA(SimCLR):
    """``alignment`` weighs the alignment loss; the base network takes ``base_steps`` SimCLR steps on public images."""

    feature_networks: ClassVar[Mapping[str, str]] = {"dictionary": "online"}

    def __init__(
        self, preset: Preset, alignment: float = 0.1, base_steps: int = 60, *, encoder: EncoderFactory = Encoder
    ):
        super().__init__(preset, encoder=encoder)
        self.alignment, self.base_steps, self.encoder_factory = alignment, base_steps, encoder
        self.dictionary = MemoryBank(preset.pretraining.bank_size, preset.networks.feature_size)
        self.remote = RemoteBanks(preset.networks.feature_size)
        self.public = PublicSet(preset)
        self._fresh: tuple[torch.Tensor, torch.Tensor]  # features and partitions of the current step

    def begin_round(self, sampler: SliceSampler, round_number: int, generator: torch.Generator) -> None:
        if not self.public.ready:
            self._prepare_public()
        if len(self.dictionary) < self.dictionary.size:
            self.dictionary.fill(sampler, self._encode, generator)

    def loss(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        first, second = self.two_views(batch.images, generator)
        self._fresh = first.detach(), batch.partitions
        contrast = nt_xent(first, second, self.preset.pretraining.temperature, self.remote.entries()[0])
        return contrast + self.alignment * self._alignment(generator)

    def after_step(self) -> None:
        self.dictionary.push(*self._fresh)

    def send(self, component: str) -> State:
        return self.dictionary.shared() if component == "dictionary" else super().send(component)

    def receive_others(self, component: str, states: Mapping[str, State]) -> None:
        self.remote.replace(states)

    def _alignment(self, generator: torch.Generator) -> torch.Tensor:
        """Mean squared distance between unit features of some public images and their anchors.

        In evaluation mode: phantom images must not enter the BatchNorm statistics that fine-tuning starts from.
        """
        chosen = torch.randperm(len(self.public.images), generator=generator)[: self.preset.pretraining.batch_size]
        chosen = chosen.to(self.public.images.device)
        self.online.eval()
        features = functional.normalize(self.online(_resized(self.public.images[chosen], self.preset)), dim=1)
        self.online.train(self.training)
        return (features - self.public.anchors[chosen]).square().sum(dim=1).mean()

    @torch.no_grad()
    def _encode(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return self.online(self.views(images, generator))

    def _prepare_public(self) -> None:
        """Generate the public images and train the base network on them, identically at every site."""
        images = public_images(self.preset).to(self.public.images.device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(PUBLIC_SEED)
            base = SimCLR(self.preset, encoder=self.encoder_factory).to(images.device)
        draws = generator(PUBLIC_SEED, "base network")
        optimizer = make_optimizer(base)
        for _ in range(self.base_steps):
            chosen = torch.randperm(len(images), generator=draws)[: self.preset.pretraining.batch_size]
            loss = base.loss(Batch(images[chosen], torch.zeros(len(chosen), dtype=torch.int64)), draws)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            anchors = functional.normalize(base.eval().online(_resized(images, self.preset)), dim=1)
        self.public.images.copy_(images)
        self.public.anchors.copy_(anchors)
        self.public.ready.fill_(True)


def _resized(images: torch.Tensor, preset: Preset) -> torch.Tensor:
    """Whole images at the size of a view."""
    return functional.interpolate(images, size=preset.images.view_size, mode="bilinear", antialias=True)
