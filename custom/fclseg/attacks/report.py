"""Each attack on a run as one call that returns its figures."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from fclseg.attacks.inversion import blind_guess, reconstruct, train_decoder
from fclseg.attacks.material import Material
from fclseg.attacks.membership import infer_membership
from fclseg.attacks.pictures import draw_best
from fclseg.attacks.reidentification import reidentify
from fclseg.attacks.target import Target
from fclseg.attacks.update import STEPS as UPDATE_STEPS
from fclseg.attacks.update import invert_update
from fclseg.privacy.settings import PrivacySettings
from fclseg.randomness import derive_seed

Figures = dict[str, Any]
KNOWN_BANKS = 2
"""Banks of each of the attacker's sites that its decoder is trained on."""
UPDATES, SLICES = 4, 2
"""Victims whose update is inverted, and slices in each update."""


def inversion(target: Target, privacy: PrivacySettings, out: Path, seed: int = 0) -> Figures:
    material = Material(target.feature_network, target.store, target.settings.build_preset(), privacy, seed)
    known, victims = material.leak(target.known, KNOWN_BANKS), material.leak(target.victims)
    found = reconstruct(train_decoder(known, target.store.anatomy.partitions, seed), victims)
    guess = blind_guess(known, victims)
    draw_best(out / "inversion.png", victims.views, found.images, found.ssim, _title(privacy))
    return {
        "ssim": float(found.ssim.mean()),
        "psnr": float(found.psnr.mean()),
        "guess_ssim": float(guess.ssim.mean()),
        "guess_psnr": float(guess.psnr.mean()),
        "better_than_guess": float((found.ssim > guess.ssim).double().mean()),
        "vectors": int(victims.vector.max()) + 1,
    }


def reidentification(target: Target, privacy: PrivacySettings, out: Path, seed: int = 0) -> Figures:
    material = Material(target.feature_network, target.store, target.settings.build_preset(), privacy, seed)
    found = reidentify(material, target.victims, [*target.known, *target.victims])
    return {"top_1": found.rate, "chance": found.chance}


def membership(target: Target, privacy: PrivacySettings, out: Path, seed: int = 0) -> Figures:
    """From the online network, which every party has; protections of features do not change it."""
    preset = target.settings.build_preset()
    found = infer_membership(target.method.online, target.store, preset, target.members, target.others, seed)
    return {"auc_patients": found.patients, "auc_slices": found.slices}


def update(target: Target, privacy: PrivacySettings, out: Path, seed: int = 0, steps: int = UPDATE_STEPS) -> Figures:
    """Two slices of each of some victims; the attacker begins at its own patients' mean slice."""
    preset, store, method = target.settings.build_preset(), target.store, target.method
    side = preset.images.view_size
    random = np.random.default_rng(derive_seed(seed, "updates"))
    guess = _whole(store.images[store.select(target.known)], side).mean(dim=0, keepdim=True)
    _fill_bank(target, seed)
    rebuilt, truth = [], []
    for patient in target.victims[:UPDATES]:
        rows = np.sort(random.choice(store.select([patient]), SLICES, replace=False))
        images = _whole(store.images[rows], side)
        partitions = torch.from_numpy(store.partition[rows].astype(np.int64))
        start = guess.repeat(len(rows), 1, 1, 1)
        rebuilt.append(invert_update(method, images, partitions, start, privacy, seed, steps))
        truth.append(images)
    scores = torch.cat([one.ssim for one in rebuilt])
    draw_best(out / "update.png", torch.cat(truth), torch.cat([one.images for one in rebuilt]), scores, _title(privacy))
    means = {name: float(torch.cat([getattr(one, name) for one in rebuilt]).mean()) for name in ("ssim", "psnr")}
    starts = {f"guess_{name}": float(torch.cat([getattr(one, f"start_{name}") for one in rebuilt]).mean())
              for name in ("ssim", "psnr")}  # fmt: skip
    return means | starts


ATTACKS = {"inversion": inversion, "reidentify": reidentification, "membership": membership, "update": update}
"""By the names of the command line."""


def _whole(images: np.ndarray, side: int) -> torch.Tensor:
    """Slices as they are, at the size of a view."""
    plain = torch.from_numpy(images.astype(np.float32))[:, None]
    return functional.interpolate(plain, size=side, mode="bilinear", antialias=True).clamp(0, 1)


def _fill_bank(target: Target, seed: int) -> None:
    """Methods with a bank compare with it: here with features of the attacker's own patients."""
    bank = getattr(target.method, "bank", None)
    if bank is not None:
        network = target.method.get_submodule("target")
        preset = target.settings.build_preset()
        leak = Material(network, target.store, preset, PrivacySettings(), seed).leak(target.known[:10])
        bank.push(leak.features, leak.partitions)


def _title(privacy: PrivacySettings) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in privacy.shown().items()) or "no protection"
