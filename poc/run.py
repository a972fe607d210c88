#!/usr/bin/env python
"""Takes a job through a real run on this machine: a server and two sites as processes of their own, each with its data.

    python poc/run.py --out poc_output                      two phantom hospitals
    python poc/run.py --out poc_output --data site-1=/data/a --data site-2=/data/b --preset small --rounds 30

What it does by hand is what docs/operations.md asks of each party: allow the package's classes, name the data folder,
start, submit, wait, download, stop.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from fclseg.data.phantom import write_phantom
from fclseg.errors import FCLSegError
from fclseg.federation.exchange import get_row
from fclseg.flare.jobs import DEFAULTS, budget, write_job
from fclseg.flare.settings import LOCAL_FILE
from fclseg.networks.loading import load_encoder
from fclseg.networks.unet import UNet
from fclseg.presets import get_preset

PROJECT = Path(__file__).with_name("project.yml")
SITES = ("site-1", "site-2")


class Poc:
    """NVFlare's command line with its workspace in our output folder."""

    def __init__(self, out: Path):
        self.workspace = out / "workspace"
        self.environment = {**os.environ, "NVFLARE_POC_WORKSPACE": str(self.workspace)}

    def nvflare(self, *arguments: str, timeout: int = 300) -> str:
        command = [str(Path(sys.executable).with_name("nvflare")), *arguments]
        print("$ nvflare", " ".join(arguments), flush=True)
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            raise FCLSegError(f"nvflare {' '.join(arguments)} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def kit(self, party: str) -> Path:
        return next(self.workspace.glob(f"*/prod_00/{party}"))

    def stop(self) -> None:
        """Stop everything and wait until it has ended, because the next start needs the same ports."""
        self.nvflare("poc", "stop")
        deadline = time.monotonic() + 60
        while _processes(self.workspace) and time.monotonic() < deadline:
            time.sleep(1)


def _processes(workspace: Path) -> list[str]:
    """Command lines of running processes that belong to the workspace."""
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout.splitlines()
    return [line for line in listing if str(workspace) in line and "nvflare.private" in line]


def allow_package(kit: Path) -> None:
    """What each party's administrator does once: allow the classes of the installed package."""
    resources = json.loads((kit / "local" / "resources.json.default").read_text())
    resources["class_allow_list"].append("fclseg.")
    (kit / "local" / "resources.json").write_text(json.dumps(resources, indent=2))


def read_data(options: list[str]) -> dict[str, Path]:
    """``--data SITE=DIR``; a folder that is not there is refused, because no phantom may stand in for a hospital."""
    data = {site: Path(folder) for site, _, folder in (text.partition("=") for text in options)}
    for site, folder in data.items():
        if site not in SITES:
            raise FCLSegError(f"--data {site}=... names no site: the sites are {' and '.join(SITES)}")
        if not folder.is_dir():
            raise FCLSegError(f"the data folder {folder} of {site} does not exist: give an existing one")
    return data


def prepare(poc: Poc, out: Path, data: dict[str, Path]) -> None:
    poc.nvflare("poc", "prepare", "-i", str(PROJECT), "--force")
    for party in ("localhost", *SITES):
        allow_package(poc.kit(party))
    for number, site in enumerate(SITES):
        folder = data.get(site) or out / "data" / site
        if not folder.exists():
            write_phantom(folder, patients=3, seed=number)
        settings = {"data": str(folder.absolute()), "cache": str(out / "cache" / site)}
        (poc.kit(site) / LOCAL_FILE).write_text(json.dumps(settings, indent=2))


def run_job(poc: Poc, job: Path, out: Path, timeout: int) -> Path:
    """Submit, wait, download; the path of the encoder."""
    submitted = json.loads(poc.nvflare("job", "submit", "-j", str(job), "--format", "json"))
    job_id = _find(submitted, "job_id")
    poc.nvflare("job", "wait", job_id, "--timeout", str(timeout), timeout=timeout + 60)
    poc.nvflare("job", "download", job_id, "-o", str(out / "download"), "--force")
    found = sorted((out / "download" / job_id).rglob("encoder.safetensors"))  # earlier jobs lie beside it
    if not found:
        raise FCLSegError(f"job {job_id} ended without an encoder: look into the logs below {poc.workspace}")
    return found[0]


def _find(document: object, key: str) -> str:
    """The first value of a key, at any depth."""
    if isinstance(document, dict):
        if key in document:
            return document[key]
        document = list(document.values())
    for part in document if isinstance(document, list) else []:
        if (value := _find(part, key)) is not None:
            return value
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("poc_output"), metavar="DIR")
    parser.add_argument("--job", default="fclopt_dp")
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--data", action="append", default=[], metavar="SITE=DIR", help="a site's own image folder")
    parser.add_argument("--timeout", type=int, default=1800, metavar="SECONDS")
    arguments = parser.parse_args()
    out, started = arguments.out.absolute(), time.monotonic()
    job = out / "job" / arguments.job
    poc = Poc(out)
    try:
        data, preset = read_data(arguments.data), get_preset(arguments.preset, rounds=arguments.rounds)
        row = get_row(arguments.job)
        settings = {**DEFAULTS, "preset": preset.name, "rounds": preset.pretraining.rounds, "pickup_timeout": 300}
        write_job(job, row, {**settings, "changes": budget(row, preset)}, simulator=False)
        prepare(poc, out, data)
        try:
            poc.nvflare("poc", "start", "--timeout", "120")
            encoder = run_job(poc, job, out, arguments.timeout)
        finally:
            poc.stop()
        report = load_encoder(UNet(preset.networks.channels, classes=4), encoder)
    except (FCLSegError, subprocess.TimeoutExpired) as error:
        print(f"poc: {error}", file=sys.stderr)
        return 1
    print(f"{encoder} loads ({report}); {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
