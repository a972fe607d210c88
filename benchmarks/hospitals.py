"""The paper's tables with real hospitals as sites, in an order that was fixed before any of its figures was seen.

    fclseg data join HOSPITALS acdc mnms
    python benchmarks/hospitals.py --data HOSPITALS --out studies [--stages 3] [--jobs 1]

All stages take about 15 hours of one core. A stage is one ``fclseg study`` with the settings of
docs/results/hospitals_local.csv, and stages share their pre-trainings: an interrupted run continues, and whatever is
finished is a fair table, because cheap answers to the questions come before more rows and more labels.
"""

import argparse
import shlex
from pathlib import Path
from typing import NamedTuple

from fclseg.cli import main as fclseg

SETTINGS = "--sites-by centre --preset small --rounds 10"


class Stage(NamedTuple):
    question: str
    options: str  # of ``fclseg study``


STAGES = (
    Stage(
        "do exchanged features, PTNU and the target's exchange matter when scanners differ?",
        "local --methods random,fcl_own,fclopt,fclopt_ptnu --labels 1 --mode full,frozen --folds 2",
    ),
    Stage(
        "what does a network that already segments gain?",
        "local --methods random,shipped,mean_teacher --labels 0,1 --mode full --folds 2",
    ),
    Stage(
        "FCL against its own bank in pairs, and does a second pre-training agree?",
        "local --methods random,fcl,fclopt_dp,fcl_own --labels 1 --mode full,frozen --folds 2 --pretrain-seeds 2",
    ),
    Stage("the other rows", "local --methods random,fedmoco,fedu --labels 1 --mode full,frozen --folds 2"),
    Stage(
        "enough pairs for the correction",
        "local --methods random,fcl,fclopt_dp --labels 1 --mode full,frozen --folds 5",
    ),
    Stage(
        "what does PTNU save when half of the hospitals are absent?",
        "local --methods random,fclopt,fclopt_ptnu --labels 1 --mode full,frozen --folds 2 --job-set fraction=0.5",
    ),
    Stage(
        "does a hospital gain that never took part?",
        "federated --methods random,fcl,fclopt_dp --labels 1 --mode full,frozen --folds 2 --hold-out mnms-3",
    ),
    Stage(
        "all rows, alone",
        "local --methods random,fedmoco,fedbyol,fedu,fcl,fcl_own,fclopt,fclopt_ptnu,fclopt_dp --labels 1,2,4,8 "
        "--mode full,frozen --folds 2",
    ),
    Stage(
        "all rows, together",
        "federated --methods random,fedmoco,fedbyol,fedu,fcl,fcl_own,fclopt,fclopt_ptnu,fclopt_dp,mean_teacher "
        "--labels 1,2,4,8 --mode full,frozen --folds 2",
    ),
    Stage(
        "the paper's 9,400 local steps at the average hospital",
        "local --methods random,fcl --labels 1 --mode full,frozen --folds 2 --rounds 43",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder made by 'fclseg data join'")
    parser.add_argument("--out", type=Path, default=Path("studies"))
    parser.add_argument("--stages", type=int, default=len(STAGES), help="only the first so many")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    for number, stage in enumerate(STAGES[: given.stages], 1):
        print(f"stage {number} of {len(STAGES)}: {stage.question}", flush=True)
        table, *options = shlex.split(stage.options)
        command = ["study", table, "--data", given.data, *shlex.split(SETTINGS), *options]  # a later --rounds wins
        if code := fclseg([*map(str, command), "--jobs", str(given.jobs), "--out", str(given.out)]):
            raise SystemExit(code)
        kept = given.out / f"stage-{number}"
        kept.mkdir(exist_ok=True)
        for name in ("table.csv", "runs.csv", "study.json"):
            (kept / name).write_bytes((given.out / table / name).read_bytes())


if __name__ == "__main__":
    main()
