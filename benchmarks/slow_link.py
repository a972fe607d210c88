"""Seconds per round over a slow link: real parties with TLS, each site behind a proxy that lets few bits pass.

    python benchmarks/slow_link.py --out DIR [--jobs fcl fclopt_dp fclopt_dp_tiny] [--megabits 2] [--rounds 3]

Server and sites are those of poc/parties.py. Each site reaches the server through its own local proxy, limited in each
direction. The networks are those of the `paper` preset; images are tiny and few, because only the link matters here.
Prints one line per job.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from fclseg.engine.job_defaults import DEFAULTS, budget
from fclseg.flare.jobs import write_job
from fclseg.methods.exchange import get_row
from fclseg.phantom.dataset import write_phantom
from fclseg.presets import full_name, get_preset

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "poc"), str(Path(__file__).parent)]

from limited_link import LimitedLink  # noqa: E402
from parties import Federation  # noqa: E402

TINY = {"images.size": 32, "view_size": 32, "pixel_scale": 5.0, "batch_size": 8, "calibration_rounds": 10}


def prepare(out: Path, megabits: float) -> tuple[Federation, list[LimitedLink]]:
    """Parties whose sites go through a proxy, with a phantom each and nothing that they keep from the server."""
    federation, links = Federation(out), []
    for number, site in enumerate(federation.sites):
        link = LimitedLink(megabits * 1e6 / 8)
        links.append(link)
        (party,) = (one for one in federation.project["participants"] if one["name"] == site)
        party["connect_to"] = {"host": "localhost", "port": link.port}
        if not (out / "data" / site).exists():
            write_phantom(out / "data" / site, patients=2, frames=2, seed=number)
    federation.provision()
    (server,) = (one for one in federation.project["participants"] if one["type"] == "server")
    for site, link in zip(federation.sites, links, strict=True):
        link.start(server["fed_learn_port"])
        policy = {"components": ["online", "predictor", "target", "bank", "distance"]}
        policy["changes"] = [full_name(name) for name in TINY]
        folders = {"data": str(out / "data" / site), "cache": str(out / "cache" / site)}
        federation.configure(site, **folders, policy=policy)
    (out / "tmp").mkdir(exist_ok=True)
    federation.environment["TMPDIR"] = str(out / "tmp")  # not to wait for trainings of other runs of this machine
    return federation, links


def measure(federation: Federation, job: str, preset: str, rounds: int, timeout: int) -> list[dict]:
    """The lines of ``rounds.jsonl``."""
    row, changes = get_row(job), {full_name(name): value for name, value in TINY.items()}
    chosen = get_preset(preset, **changes)
    settings = {**DEFAULTS, "preset": preset, "rounds": rounds, "run": f"{job}-{time.time():.0f}", "min_sites": 2}
    folder = federation.out / "job" / job
    write_job(folder, row, {**settings, "changes": budget(row, chosen) | changes}, simulator=False)
    job_id = federation.submit(folder)
    federation.wait(job_id, timeout)
    (found,) = federation.download(job_id).rglob("rounds.jsonl")
    return [json.loads(line) for line in found.read_text().splitlines()]


def report(job: str, records: list[dict], megabits: float) -> None:
    """Seconds of each round, and of its wire bytes alone at the link's speed: the difference is computing."""
    seconds = ", ".join(f"{record['seconds']:.0f}" for record in records)
    links = ", ".join(f"{max(map(_wire, record['bytes'].values())) * 8e-6 / megabits:.0f}" for record in records)
    failed = [f"round {r['round']}: {s['status']}" for r in records for s in r["sites"].values() if s["status"] != "ok"]
    print(
        f"{job}: rounds of {seconds} s, of which the bytes alone take {links} s"
        f"{'; failed: ' + '; '.join(failed) if failed else ''}",
        flush=True,
    )


def _wire(site: dict) -> int:
    return site["up"]["wire"] + site["down"]["wire"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for kits, logs and results")
    parser.add_argument("--jobs", nargs="+", default=["fclopt_dp_tiny", "fclopt_dp", "fcl"])
    parser.add_argument("--megabits", type=float, default=2.0, help="per second, site and direction (default 2)")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=int, default=7200, metavar="SECONDS", help="for each job (default 7200)")
    arguments = parser.parse_args()
    federation, links = prepare(arguments.out.absolute(), arguments.megabits)
    try:
        federation.start_all(seconds=300)
        for job in arguments.jobs:
            records = measure(federation, job, arguments.preset, arguments.rounds, arguments.timeout)
            report(job, records, arguments.megabits)
    finally:
        federation.stop()
        for link in links:
            link.stop()


if __name__ == "__main__":
    main()
