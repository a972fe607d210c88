"""The coordinator's first step: a project with its server, hospitals and lead, and a start-up kit for each of them."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fclseg.errors import FCLSegError
from fclseg.files import private_folder, write_text

TEMPLATE = Path(__file__).with_name("project.yml")
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
STORE = "store"


@dataclass(frozen=True)
class Party:
    """A kit and whom it is for."""

    name: str
    kind: str  # server, client or admin
    kit: Path


def describe_project(host: str, sites: Sequence[str], port: int, store: Path) -> dict[str, Any]:
    """The template with the machine's own names; everything else in it stays."""
    document: dict[str, Any] = yaml.safe_load(TEMPLATE.read_text())
    for name in (host, *sites):
        if not NAME.fullmatch(name):
            raise FCLSegError(f"'{name}' cannot name a machine or a site: use letters, digits, '.', '-' and '_'")
    if len(set(sites)) < len(sites) or not sites:
        raise FCLSegError("name each hospital once: --sites hospital-a,hospital-b")
    if not 1 <= port < 65535:
        raise FCLSegError(f"{port} is no port: choose one from 1 to 65534 (the next one is used, too)")
    server = next(party for party in document["participants"] if party["type"] == "server")
    admins = [party for party in document["participants"] if party["type"] == "admin"]
    server |= {"name": host, "fed_learn_port": port, "admin_port": port + 1}
    clients = [{"name": site, "type": "client", "org": re.sub(r"\W", "_", site)} for site in sites]
    document["participants"] = [server, *clients, *admins]
    for builder in document["builders"]:
        if builder["path"].endswith("HospitalKits"):
            builder["args"] = {"store": str(store)}
    return document


def make_kits(folder: Path, host: str, sites: Sequence[str], port: int) -> list[Party]:
    """Write ``project.yml`` and run ``nvflare provision``; one kit per party."""
    if (folder / "project.yml").exists():
        raise FCLSegError(f"{folder} has a project already: choose a new folder, or keep using its kits")
    document = describe_project(host, sites, port, folder.absolute() / STORE)
    private_folder(folder)
    write_text(folder / "project.yml", yaml.safe_dump(document, sort_keys=False))
    nvflare("provision", "-p", str(folder / "project.yml"), "-w", str(folder / "kits"))
    kits = folder / "kits" / document["name"] / "prod_00"
    return [Party(party["name"], party["type"], kits / party["name"]) for party in document["participants"]]


def nvflare(*arguments: str) -> str:
    """NVFlare's command; what it printed is part of the error where it fails."""
    command = [str(Path(sys.executable).with_name("nvflare")), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise FCLSegError(f"nvflare {arguments[0]} failed: {said[-1] if said else 'it said nothing'}")
    return done.stdout


def submit_job(job: Path, kit: Path) -> str:
    """Hand a job to the server in the name of the lead whose kit it is; the id that the server gave it."""
    answer = json.loads(nvflare("job", "submit", "-j", str(job), "--format", "json", "--startup-kit", str(kit)))
    found = _find(answer, "job_id")
    if found is None:
        raise FCLSegError(f"the server took the job but named no id: {json.dumps(answer)[:200]}")
    return str(found)


def _find(document: object, key: str) -> object:
    """The first value of a key, at any depth."""
    if isinstance(document, dict):
        if key in document:
            return document[key]
        document = list(document.values())
    for part in document if isinstance(document, list) else []:
        if (value := _find(part, key)) is not None:
            return value
    return None
