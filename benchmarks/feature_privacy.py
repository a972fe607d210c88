"""What each protection leaves to an attacker: the table of docs/privacy.md.

Features with each protection come from one network, that of a run of FCL without any, so that rows differ in nothing
else. `protection_cost.py` trains with each protection and measures its Dice, and `privacy_table.py` prints both.

    python benchmarks/feature_privacy.py --run runs/fcl --data ACDC --splits splits.json --known site-1,site-2 --out DIR

A row that is in DIR/figures.json already is not computed again.
"""

import argparse
import json
from functools import partial
from pathlib import Path

import torch

from fclseg.attacks.report import inversion, membership, reidentification, update
from fclseg.attacks.target import Target, open_target
from fclseg.attacks.update import Situation
from fclseg.privacy.protections import PrivacySettings

FEATURE_ROWS = [
    PrivacySettings(),
    *(PrivacySettings(prototypes=count) for count in (1, 4)),
    *(PrivacySettings(mix=count) for count in (4, 2)),
    PrivacySettings(perturb=0.5),
    *(PrivacySettings(feature_noise=deviation) for deviation in (0.1, 0.3, 1.0)),
    PrivacySettings(prototypes=16),
    PrivacySettings(mix=6),
    *(PrivacySettings(perturb=share) for share in (0.8, 0.2)),
    PrivacySettings(prototypes=1, feature_noise=1.0),
]
"""No protection, each at three strengths, and what docs/privacy.md recommends. Perturbation takes as long as all
others together, so most of it comes last."""

UPDATE_ROWS = [PrivacySettings(), *(PrivacySettings(clip=1.0, sigma=sigma) for sigma in (1e-3, 1e-2, 1e-1))]
"""In the situation that is easiest to attack."""

SITUATIONS = {
    "4 slices": Situation(slices=4),
    "16 slices": Situation(slices=16),
    "16 slices, real": Situation(slices=16, real=True),
    "16 slices, real, 4 steps": Situation(slices=16, real=True, steps=4),
}
"""Towards a real round, without noise."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("run", "data", "splits", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--known", required=True, help="the attacker's sites, for example site-1,site-2")
    parser.add_argument("--attacks", default="inversion,reidentify,membership,update")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    target = open_target(arguments.run, arguments.data, arguments.splits, arguments.known.split(","))
    wanted = arguments.attacks.split(",")
    if "membership" in wanted:
        row(arguments.out, "membership", PrivacySettings(), membership, target)
    if target.settings.sends_features:
        for privacy in FEATURE_ROWS:
            for name, attack in (("inversion", inversion), ("reidentify", reidentification)):
                if name in wanted:
                    row(arguments.out, name, privacy, attack, target)
    if "update" in wanted:
        for privacy in UPDATE_ROWS:
            row(arguments.out, "update", privacy, update, target)
        for name, situation in SITUATIONS.items():
            row(arguments.out, f"update {name}", PrivacySettings(), partial(update, situation=situation), target)


def row(out: Path, name: str, privacy: PrivacySettings, attack, target: Target) -> None:
    file = out / "figures.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    key = f"{name} {target.settings.job} {' '.join(f'{n}={v:g}' for n, v in privacy.shown().items()) or 'plain'}"
    if key not in known:
        known[key] = attack(target, privacy, out / key.replace(" ", "-"))
        out.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(known, indent=2) + "\n")
    print(key, {part: round(value, 3) for part, value in known[key].items()}, flush=True)


if __name__ == "__main__":
    main()
