"""Prints the table of docs/privacy.md from the figures of feature_privacy.py and protection_cost.py.

python benchmarks/privacy_table.py ATTACKS/figures.json COST/figures.json
"""

import json
import sys
from pathlib import Path

import numpy as np

NETWORKS = {"fcl": 868, "fcl_own": 868, "fclopt_dp": 614}
"""Networks up per site and round in kB, preset `small` (`fclseg bytes --preset small`)."""
BANK = 131
"""512 features of 64 numbers, in kB."""
PARTITIONS = 4


def main() -> None:
    attacks, cost = (json.loads(Path(path).read_text()) for path in sys.argv[1:3])
    print("| protection | inversion: SSIM | PSNR, dB | re-identification: top-1 | membership: AUC | Dice | up, kB |")
    print("|---|---|---|---|---|---|---|")
    for name in dict.fromkeys(key.rpartition(" ")[0] for key in cost if key.endswith("pre-training")):
        print(f"| {' | '.join([f'`{name}`', *_attacked(attacks, name), *_paid(cost, name), _bytes(name)])} |")
    print(f"| random weights | | | | | {_dice(cost, 'random')} | |")


def _attacked(attacks: dict, name: str) -> list[str]:
    """SSIM, PSNR and top-1 with standard errors over patients."""
    job, _, protection = name.partition(" ")
    key = f"{job} {protection or 'plain'}"
    inverted, found = attacks.get(f"inversion {key}"), attacks.get(f"reidentify {key}")
    if inverted is None or found is None:
        return ["-"] * 3
    return [
        f"{inverted['ssim']:.3f} ± {inverted['ssim_error']:.3f}",
        f"{inverted['psnr']:.1f} ± {inverted['psnr_error']:.1f}",
        f"{found['top_1']:.3f} ± {found['top_1_error']:.3f}",
    ]


def _paid(cost: dict, name: str) -> list[str]:
    found = cost.get(f"{name} membership")
    return [f"{found['auc_patients']:.2f}" if found else "-", _dice(cost, name)]


def _dice(cost: dict, name: str) -> str:
    """Mean over the sites that this row and FCL have, and the difference to FCL with its standard error over sites."""
    have = [{key.rpartition(" ")[2] for key in cost if key.startswith(f"{row} frozen ")} for row in (name, "fcl")]
    sites = sorted(set.intersection(*have))
    if not sites:
        return "-"
    scores, plain = ([cost[f"{row} frozen {site}"]["dice"] for site in sites] for row in (name, "fcl"))
    text, gaps = f"{np.mean(scores):.3f}, {len(sites)} sites", np.subtract(scores, plain)
    if name == "fcl":
        return text
    error = f" ± {gaps.std(ddof=1) / len(gaps) ** 0.5:.3f}" if len(gaps) > 1 else ""
    return f"{text} ({gaps.mean():+.3f}{error})"


def _bytes(name: str) -> str:
    job, _, protection = name.partition(" ")
    values = dict(part.split("=") for part in protection.split())
    bank = BANK if job == "fcl" else 0
    if "prototypes" in values:
        bank = BANK / 512 * PARTITIONS * int(values["prototypes"])
    return f"{NETWORKS[job] + bank:.0f}"


if __name__ == "__main__":
    main()
