#!/usr/bin/env python
"""Runs a job with real parties on this machine: a server and two sites as separate processes, each with its own data.

    python poc/run.py --out poc_output                      two phantom hospitals
    python poc/run.py --out poc_output --data site-1=/data/a --data site-2=/data/b --preset small --rounds 30

It follows the steps in docs/howto/lead.md: provision, set the data folder, start, submit, wait, download, stop.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from parties import Federation

from fclseg.engine.job_defaults import DEFAULTS, completed
from fclseg.errors import FCLSegError
from fclseg.flare.jobs import write_job
from fclseg.methods.exchange import get_row
from fclseg.networks.loading import load_encoder
from fclseg.networks.unet import UNet
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import get_preset

SITES = ("site-1", "site-2")
COMPLETED = "FINISHED:COMPLETED"


def read_data(options: list[str]) -> dict[str, Path]:
    """``--data SITE=DIR``. Raises if a folder does not exist, because a phantom must not replace a hospital's data."""
    data = {site: Path(folder) for site, _, folder in (text.partition("=") for text in options)}
    for site, folder in data.items():
        if site not in SITES:
            raise FCLSegError(f"--data {site}=... is not a site: the sites are {' and '.join(SITES)}")
        if not folder.is_dir():
            raise FCLSegError(f"the data folder {folder} of {site} does not exist: give an existing one")
    return data


def prepare(federation: Federation, data: dict[str, Path], features: bool) -> None:
    """Make startup kits for all parties, and write each site's data folder and policy to its own file."""
    federation.provision()
    for number, site in enumerate(SITES):
        folder = data.get(site) or federation.out / "data" / site
        if not folder.exists():
            write_phantom(folder, patients=3, seed=number)
        policy = {"components": ["online", "target", "bank", "dictionary"]} if features else {}
        federation.configure(
            site, data=str(folder.absolute()), cache=str(federation.out / "cache" / site), policy=policy
        )


def run_job(federation: Federation, job: Path, timeout: int) -> Path:
    """Submit, wait and download. Returns the path of the encoder."""
    job_id = federation.submit(job)
    status = federation.wait(job_id, timeout)
    found = sorted(federation.download(job_id).rglob("encoder.safetensors"))  # results of earlier jobs are next to it
    if status != COMPLETED or not found:
        raise FCLSegError(f"job {job_id} ended as {status} without an encoder: see {federation.out}/*.log")
    return found[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("poc_output"), metavar="DIR")
    parser.add_argument("--job", default="fclopt_dp")
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--data", action="append", default=[], metavar="SITE=DIR", help="a site's own image folder")
    parser.add_argument("--allow-features", action="store_true", help="both hospitals let features leave (FCL, FedCA)")
    parser.add_argument("--timeout", type=int, default=1800, metavar="SECONDS")
    arguments = parser.parse_args()
    out, started = arguments.out.absolute(), time.monotonic()
    job = out / "job" / arguments.job
    try:
        data, preset = read_data(arguments.data), get_preset(arguments.preset, rounds=arguments.rounds)
        row = get_row(arguments.job)
        settings = {**DEFAULTS, "preset": preset.name, "rounds": preset.pretraining.rounds, "pickup_timeout": 300}
        write_job(job, row, completed(row, settings), simulator=False)
        federation = Federation(out)
        prepare(federation, data, arguments.allow_features)
        try:
            federation.start_all()
            encoder = run_job(federation, job, arguments.timeout)
        finally:
            federation.stop()
        report = load_encoder(UNet(preset.networks.channels, classes=4), encoder)
    except (FCLSegError, subprocess.TimeoutExpired) as error:
        print(f"poc: {error}", file=sys.stderr)
        return 1
    print(f"{encoder} loads ({report}); {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
