"""What one of four sites can do to the encoder by sending its updates a thousand times too long.

    python benchmarks/poisoned_site.py --out /scratch/poisoned

Real simulator runs on a phantom, one honest and the others with a bad site, under each of the server's protections;
then the decoder is trained on the frozen encoder, and its Dice on held-out patients is printed, one line per run.
"""

import argparse
import json
from pathlib import Path

from fclseg.data.phantom import phantom_sites, write_phantom
from fclseg.data.sites import Splits
from fclseg.federation.exchange import get_row
from fclseg.finetune.run import FinetuneSpec, finetune
from fclseg.flare.jobs import CUSTOM, write_job
from fclseg.flare.launch import simulate
from fclseg.flare.run_folder import GLOBAL, RunFolder

SITES = [f"site-{number}" for number in range(1, 5)]
BAD = SITES[-1]
POISON = f"""
from fclseg.flare.executor import SiteExecutor
from fclseg.flare.messages import Message


class Poisoned(SiteExecutor):
    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        before = Message.from_shareable(shareable).components
        reply = super().execute(task_name, shareable, fl_ctx, abort_signal)
        if fl_ctx.get_identity_name() != "{BAD}" or task_name != "pretrain":
            return reply
        answer = Message.from_shareable(reply)
        for name, part in answer.components.items():
            for key, value in part.items():
                if value.dtype.kind == "f":
                    part[key] = (before[name][key] + 1000 * (value - before[name][key])).astype(value.dtype)
                    if key.endswith("running_var"):
                        part[key] = abs(part[key])
        return answer.to_shareable()
"""
RUNS = {
    "honest": (False, {}),
    "poisoned, no protection": (True, {"outliers": "off"}),
    "poisoned, outliers refused (default)": (True, {}),
    "poisoned, outliers clipped": (True, {"outliers": "clip"}),
    "poisoned, coordinate-wise median": (True, {"outliers": "off", "aggregation": "median"}),
    "poisoned, trimmed mean": (True, {"outliers": "off", "aggregation": "trimmed_mean"}),
    "honest, coordinate-wise median": (False, {"aggregation": "median"}),
}


def pretrain(out: Path, name: str, poisoned: bool, settings: dict, data: Path, rounds: int) -> Path:
    """The encoder of one run."""
    run = out / "runs" / name.replace(",", "").replace(" ", "_")
    job = out / "jobs" / run.name / "fclopt"
    given = {"preset": "demo", "rounds": rounds, "seed": 0, "run": run.name, "pickup_timeout": 300, **settings}
    write_job(job, get_row("fclopt"), given)
    if poisoned:
        (job / CUSTOM / "poison.py").write_text(POISON)
        path = job / "app" / "config" / "config_fed_client.json"
        document = json.loads(path.read_text())
        document["executors"][0]["executor"]["path"] = "poison.Poisoned"
        path.write_text(json.dumps(document))
    places = {"FCLSEG_RUNS": run.parent, "FCLSEG_DATA": data, "FCLSEG_SPLITS": out / "splits.json"}
    run.mkdir(parents=True, exist_ok=True)
    simulate(job, run, SITES, environment={key: str(value) for key, value in places.items()})
    return RunFolder(run).encoders[GLOBAL]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--patients", type=int, default=12)
    arguments = parser.parse_args()
    out = arguments.out.absolute()
    data = out / "data"
    if not data.exists():
        write_phantom(data, patients=arguments.patients, frames=4, sites=len(SITES))
    owner = {p: site for site, group in phantom_sites(arguments.patients, len(SITES)).items() for p in group}
    Splits.make(sorted(owner), owner, folds=2).save(out / "splits.json")
    patients = sorted(owner)
    half = len(patients) // 2
    encoders: dict[str, Path | None] = {"random encoder": None}
    for name, (poisoned, settings) in RUNS.items():
        encoders[name] = pretrain(out, name, poisoned, settings, data, arguments.rounds)
    for name, encoder in encoders.items():
        spec = FinetuneSpec(
            data,
            tuple(patients[:half]),
            tuple(patients[half:]),
            preset="demo",
            pretrained_encoder=encoder,
            freeze_encoder=True,
        )
        print(f"{name}: Dice {finetune(spec).evaluation.mean_dice:.3f} with the encoder frozen", flush=True)


if __name__ == "__main__":
    main()
