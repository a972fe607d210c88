"""FCL, the paper's first framework: MoCo with exchanged features, sampled negatives and structural matching."""

from collections.abc import Mapping
from typing import ClassVar

import torch

from fclseg.data.sampler import Batch
from fclseg.methods.bank import RemoteBanks
from fclseg.methods.infonce import contrastive_loss, draw_without_replacement
from fclseg.methods.moco import MoCo
from fclseg.networks.interface import EncoderFactory
from fclseg.networks.loading import State
from fclseg.networks.unet import Encoder
from fclseg.presets import Preset


def fcl_loss(
    queries: torch.Tensor,
    keys: torch.Tensor,
    partitions: torch.Tensor,
    bank: torch.Tensor,
    bank_partitions: torch.Tensor,
    *,
    temperature: float,
    sample: torch.Tensor | None = None,
    gsm: bool = True,
    mask_same_partition: bool = False,
) -> torch.Tensor:
    """L_B of Eq. (gsm): mean over queries of L_local, plus L_remote with ``gsm``.

    Args:
        queries: q of the images and of their partners [N, D], unit length.
        keys: for each query its local positives P(q) [N, 2, D].
        partitions: the partition of each query [N].
        bank: Q [M, D], own and remote features; ``bank_partitions`` [M].
        sample: for each query the indices of its Q' [N, K]; None takes all of Q.
        gsm: add the loss with Lambda(q), the entries of Q' in the query's partition, as positives.
        mask_same_partition: leave Lambda(q) out of the denominator. The paper keeps it, so that once features of a
            partition align, the pull on a remote positive is partly undone by the push from the others.
    """
    local = torch.einsum("nd,npd->np", queries, keys) / temperature
    negatives = queries @ bank.T / temperature
    same = partitions[:, None] == bank_partitions[None, :]
    if sample is not None:
        negatives, same = negatives.gather(1, sample), same.gather(1, sample)
    counted = ~same if mask_same_partition else None
    loss = contrastive_loss(local, negatives, negative_mask=counted)
    if gsm:
        loss = loss + contrastive_loss(negatives, negatives, positive_mask=same, negative_mask=counted)
    return loss.mean()


class FCL(MoCo):
    """MoCo whose bank is shared (``fe``), subsampled (``ns``) and matched across sites by partition (``gsm``)."""

    feature_networks: ClassVar[Mapping[str, str]] = {"bank": "target"}

    def __init__(
        self,
        preset: Preset,
        fe: bool = True,
        ns: bool = True,
        gsm: bool = True,
        mask_same_partition: bool = False,
        refill_each_round: bool = True,
        *,
        encoder: EncoderFactory = Encoder,
    ):
        super().__init__(preset, refill_each_round, encoder=encoder)
        self.wants_partners = True  # the paper's local positives are always structural, regardless of the preset
        self.fe, self.ns, self.gsm = fe, ns, gsm
        self.mask_same_partition = mask_same_partition
        self.remote = RemoteBanks(preset.networks.feature_size)

    def loss(self, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        images = torch.cat([batch.images, batch.partner_images])
        partitions = batch.partitions.repeat(2)
        queries, keys = self.queries(images, generator), self.keys(images, generator)
        self._fresh = keys, partitions
        pairs = torch.stack(keys.chunk(2), dim=1).repeat(2, 1, 1)  # P(q_i) = P(q_j) = {k_i+, k_j+}
        bank, bank_partitions = self.aggregated_bank()
        sample = None
        if self.ns and len(bank) > self.bank.size:
            sample = draw_without_replacement(len(queries), len(bank), self.bank.size, generator).to(bank.device)
        return fcl_loss(
            queries,
            pairs,
            partitions,
            bank,
            bank_partitions,
            temperature=self.preset.pretraining.temperature,
            sample=sample,
            gsm=self.gsm,
            mask_same_partition=self.mask_same_partition,
        )

    def aggregated_bank(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Q of Eq. (shared_negatives): the site's own bank and, with feature exchange, those of the others."""
        banks = [self.own_entries(), self.remote.entries()] if self.fe else [self.own_entries()]
        features, partitions = zip(*banks, strict=True)
        return torch.cat(features), torch.cat(partitions)

    def send(self, component: str) -> State:
        return self.bank.shared() if component == "bank" else super().send(component)

    def receive_others(self, component: str, states: Mapping[str, State]) -> None:
        """Keep the other sites' banks until the next exchange."""
        self.remote.replace(states)
