"""The coordinator's first step: a project with server, hospitals and lead, and a startup kit for each of them."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
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
    """A kit and the party it is for."""

    name: str
    kind: str  # server, client or admin
    kit: Path


def describe_project(host: str, sites: Sequence[str], port: int, store: Path, **options: bool) -> dict[str, Any]:
    """The template with the names of the machines. Everything else in it stays. ``options`` are those of the kits."""
    document: dict[str, Any] = yaml.safe_load(TEMPLATE.read_text())
    _check_name(host)
    if not 1 <= port < 65535:
        raise FCLSegError(f"{port} is not a valid port: choose one from 1 to 65534 (the next one is also used)")
    server = next(party for party in document["participants"] if party["type"] == "server")
    admins = [party for party in document["participants"] if party["type"] == "admin"]
    server |= {"name": host, "fed_learn_port": port, "admin_port": port + 1}
    document["participants"] = [server, *_clients(sites), *admins]
    for builder in document["builders"]:
        if builder["path"].endswith("HospitalKits"):
            builder["args"] = {"store": str(store), **options}
    return document


def _clients(sites: Sequence[str]) -> list[dict[str, str]]:
    if len(set(sites)) < len(sites) or not sites:
        raise FCLSegError("name each hospital once: --sites hospital-a,hospital-b")
    for site in sites:
        _check_name(site)
    return [{"name": site, "type": "client", "org": re.sub(r"\W", "_", site)} for site in sites]


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise FCLSegError(f"'{name}' is not a valid name for a machine or a site: use letters, digits, '.', '-', '_'")


def make_kits(folder: Path, host: str, sites: Sequence[str], port: int) -> list[Party]:
    """Write ``project.yml`` and run ``nvflare provision``. Returns one kit per party."""
    if (folder / "project.yml").exists():
        raise FCLSegError(f"{folder} already contains a project: choose a new folder, or keep using its kits")
    document = describe_project(host, sites, port, folder.absolute() / STORE)
    private_folder(folder)
    return _provisioned(folder, document)


def add_sites(folder: Path, sites: Sequence[str]) -> list[Party]:
    """Kits for further hospitals. The root certificate and the other parties' kits stay valid."""
    document = _read_project(folder)
    present = [party["name"] for party in document["participants"]]
    if known := [site for site in sites if site in present]:
        raise FCLSegError(f"{folder} already has {known[0]}: choose another name, or use `fclseg server renew`")
    document["participants"] += _clients(sites)
    return [party for party in _provisioned(folder, document) if party.name in sites]


def renew(folder: Path, names: Sequence[str]) -> list[Party]:
    """Kits with new keys and certificates. NVFlare would give each party the certificate that it has already."""
    document = _read_project(folder)
    state = folder / "kits" / document["name"] / "state" / "cert.json"
    before = state.read_text(encoding="utf-8")
    certificates = json.loads(before)
    for name in names:
        if certificates.pop(name, None) is None:
            raise FCLSegError(f"{folder} has no party '{name}': fclseg server init or add makes its first kit")
    write_text(state, json.dumps(certificates))
    try:
        return [party for party in _provisioned(folder, document) if party.name in names]
    except FCLSegError:
        write_text(state, before)
        raise


def _read_project(folder: Path) -> dict[str, Any]:
    path = folder / "project.yml"
    if not path.exists():
        raise FCLSegError(f"{folder} contains no project: give the folder that `fclseg server init` made")
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


def _provisioned(folder: Path, document: Mapping[str, Any]) -> list[Party]:
    """Write the project and run ``nvflare provision``, which makes a new folder of kits each time."""
    path, kits = folder / "project.yml", folder / "kits"
    before = path.read_text(encoding="utf-8") if path.exists() else None
    write_text(path, yaml.safe_dump(dict(document), sort_keys=False))
    try:
        nvflare("provision", "-p", str(path), "-w", str(kits), "--force")  # adds to kits that exist, and asks nobody
    except FCLSegError:
        if before is not None:
            write_text(path, before)
        raise
    newest = max((kits / document["name"]).glob("prod_*"))
    return [Party(party["name"], party["type"], newest / party["name"]) for party in document["participants"]]


def nvflare(*arguments: str) -> str:
    """Run NVFlare's command. If it fails, its output is part of the error."""
    command = [str(Path(sys.executable).with_name("nvflare")), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        said = [line for line in lines if not line.startswith(("Hint:", "Code:"))]
        raise FCLSegError(f"nvflare {arguments[0]} failed: {said[-1] if said else 'it said nothing'}")
    return done.stdout


def submit_job(job: Path, kit: Path) -> str:
    """Submit a job to the server as the lead that the kit belongs to. Returns the server's job id."""
    patient = ("--connect-timeout", "60")  # NVFlare's 5 s are too few for a busy server
    answer = json.loads(
        nvflare("job", "submit", "-j", str(job), "--format", "json", "--startup-kit", str(kit), *patient)
    )
    found = find_value(answer, "job_id")
    if found is None:
        raise FCLSegError(f"the server accepted the job but returned no id: {json.dumps(answer)[:200]}")
    return str(found)


def find_value(document: object, key: str) -> object:
    """The first value of a key, at any depth."""
    if isinstance(document, dict):
        if key in document:
            return document[key]
        document = list(document.values())
    for part in document if isinstance(document, list) else []:
        if (value := find_value(part, key)) is not None:
            return value
    return None
