"""Each attack on a run as one call that returns its figures."""

from pathlib import Path
from typing import Any

import numpy as np

from fclseg.attacks.inversion import Reconstruction, blind_guess, reconstruct, train_decoder
from fclseg.attacks.material import Material, patients_of
from fclseg.attacks.membership import infer_membership
from fclseg.attacks.pictures import draw_best
from fclseg.attacks.reidentification import reidentify
from fclseg.attacks.scores import standard_error
from fclseg.attacks.target import Target
from fclseg.attacks.update import Situation, updates, with_features
from fclseg.privacy.protections import PrivacySettings

Figures = dict[str, Any]
KNOWN_BANKS = 2
"""Banks of each of the attacker's sites that its decoder is trained on."""
KNOWN_UPDATES, UPDATES = 240, 80
"""Updates that the attacker makes of its own patients, and updates of the victims."""
EASY = Situation()


def inversion(target: Target, privacy: PrivacySettings, out: Path, seed: int = 0) -> Figures:
    material = Material(target.feature_network, target.store, target.settings.build_preset(), privacy, seed)
    known, victims = material.leak(target.known, KNOWN_BANKS), material.leak(target.victims)
    found = reconstruct(train_decoder(known, target.store.anatomy.partitions, seed), victims)
    guess = blind_guess(known, victims)
    draw_best(out / "inversion.png", victims.views, found.images, found.ssim, _title(privacy))
    patients = patients_of(target.store, victims.rows)
    return _compared(found, guess, patients) | {"vectors": int(victims.vector.max()) + 1}


def reidentification(target: Target, privacy: PrivacySettings, out: Path, seed: int = 0) -> Figures:
    material = Material(target.feature_network, target.store, target.settings.build_preset(), privacy, seed)
    found = reidentify(material, target.victims, [*target.known, *target.victims])
    return {"top_1": found.rate, "top_1_error": found.error, "chance": found.chance}


def membership(target: Target, privacy: PrivacySettings, out: Path, seed: int = 0) -> Figures:
    """From the online network, which every party has; protections of features do not change it."""
    preset = target.settings.build_preset()
    found = infer_membership(target.method.online, target.store, preset, target.members, target.others, seed)
    return {"auc_patients": found.patients, "auc_slices": found.slices}


def update(target: Target, privacy: PrivacySettings, out: Path, seed: int = 0, situation: Situation = EASY) -> Figures:
    """Of each victim some updates; the decoder has learnt from as many of each of the attacker's patients."""
    fill_bank(target, seed)
    known, known_leak = updates(target.method, target.store, target.known, KNOWN_UPDATES, situation, privacy, seed)
    sent, leak = updates(target.method, target.store, target.victims, UPDATES, situation, privacy, seed + 1)
    own, victims = with_features(known, sent, known_leak, leak)
    found, guess = reconstruct(train_decoder(own, 1, seed), victims), blind_guess(own, victims)
    draw_best(out / "update.png", victims.views, found.images, found.ssim, _title(privacy))
    return _compared(found, guess, patients_of(target.store, victims.rows)) | {"updates": len(sent)}


ATTACKS = {"inversion": inversion, "reidentify": reidentification, "membership": membership, "update": update}
"""By the names of the command line."""


def fill_bank(target: Target, seed: int) -> None:
    """Methods with a bank compare with it: here with features of the attacker's own patients."""
    bank = getattr(target.method, "bank", None)
    if bank is not None:
        network = target.method.get_submodule("target")
        preset = target.settings.build_preset()
        leak = Material(network, target.store, preset, PrivacySettings(), seed).leak(target.known[:10])
        bank.push(leak.features, leak.partitions)


def _compared(found: Reconstruction, guess: Reconstruction, patients: np.ndarray) -> Figures:
    """Errors are standard errors over patients of the gain over the guess."""
    return {
        "ssim": float(found.ssim.mean()),
        "psnr": float(found.psnr.mean()),
        "guess_ssim": float(guess.ssim.mean()),
        "guess_psnr": float(guess.psnr.mean()),
        "ssim_error": standard_error((found.ssim - guess.ssim).numpy(), patients),
        "psnr_error": standard_error((found.psnr - guess.psnr).numpy(), patients),
        "better_than_guess": float((found.ssim > guess.ssim).double().mean()),
    }


def _title(privacy: PrivacySettings) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in privacy.shown().items()) or "no protection"
