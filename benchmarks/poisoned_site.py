"""Measures how much one of four sites can damage the encoder by multiplying its updates by a thousand.

    python benchmarks/poisoned_site.py --out /scratch/poisoned

Real rounds on a phantom (server, executors and learners in one process, without the network): honest runs, and runs
with a bad site under each of the server's protections. Then a decoder is trained on the frozen encoder, and its Dice on
held-out patients is printed, one line per run.
"""

import argparse
import os
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests" / "flare"))
from inprocess import InProcess

from fclseg.engine.messages import Message
from fclseg.engine.run_folder import GLOBAL
from fclseg.finetune.train import FinetuneSpec
from fclseg.phantom.dataset import write_phantom
from fclseg.study.fixed_training import train_fixed

SITES = [f"site-{number}" for number in range(1, 5)]
BAD, FACTOR = SITES[-1], 1000
RUNS = {
    "honest": (False, {}),
    "poisoned, no protection": (True, {"outliers": "off"}),
    "poisoned, outliers refused (default)": (True, {}),
    "poisoned, coordinate-wise median": (True, {"outliers": "off", "aggregation": "median"}),
    "poisoned, trimmed mean": (True, {"outliers": "off", "aggregation": "trimmed_mean"}),
    "honest, coordinate-wise median": (False, {"aggregation": "median"}),
}


def poison(sent: Message, received: Message) -> Message:
    """Multiply every update by a thousand. Variances stay positive, so that each single number looks valid."""
    for name, part in sent.components.items():
        for key, value in part.items():
            if value.dtype == np.float32:
                before = received.components[name][key].astype(np.float64)
                long = before + FACTOR * (value - before)
                part[key] = np.clip(abs(long) if key.endswith("running_var") else long, -3e38, 3e38).astype(np.float32)
    return sent


def pretrain(out: Path, name: str, poisoned: bool, settings: dict, data: dict[str, Path], rounds: int) -> Path:
    """The encoder of one run."""
    folder = out / name.replace(",", "").replace(" ", "_")
    run = InProcess(folder, data, "fclopt", rounds=rounds, changes={}, **settings)

    def ask(task, messages, timeout, accept):
        def received(site, message):
            bad = poisoned and site == BAD
            accept(site, poison(message, messages[site]) if bad else message)

        return run.ask(task, messages, timeout, received)

    run.loop.run(ask, lambda text: print(f"{name}: {text}", file=sys.stderr, flush=True))
    return run.loop.folder.encoders[GLOBAL]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--patients", type=int, default=3, help="per site")
    arguments = parser.parse_args()
    out = arguments.out.absolute()
    os.environ["FCLSEG_DEVICE"] = "cpu"
    data = {site: out / "data" / site for site in SITES}
    for number, folder in enumerate(data.values()):
        write_phantom(folder, patients=arguments.patients, frames=4, seed=number)
    held_out = out / "data" / "held_out"
    write_phantom(held_out, patients=8, frames=2, seed=99)
    patients = sorted(path.name for path in held_out.iterdir() if path.is_dir())
    encoders: dict[str, Path | None] = {"random encoder": None}
    for name, (poisoned, settings) in RUNS.items():
        encoders[name] = pretrain(out, name, poisoned, settings, data, arguments.rounds)
    for name, encoder in encoders.items():
        spec = FinetuneSpec(
            held_out,
            tuple(patients[:4]),
            tuple(patients[4:]),
            preset="demo",
            pretrained_encoder=encoder,
            freeze_encoder=True,
        )
        try:
            print(f"{name}: Dice {train_fixed(spec).evaluation.mean_dice:.3f}", flush=True)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
