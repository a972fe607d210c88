"""``fclseg site check``: checks everything that could prevent a site from taking part. Each fault is one sentence.

The checks are a list, and each one checks one thing. A fault that several checks find is reported once.
"""

import importlib.metadata
import os
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fclseg.device import choose_device
from fclseg.engine.place import LOCAL_FILE
from fclseg.errors import FCLSegError
from fclseg.flare.classes import SITE_CLASSES
from fclseg.flare.kits.kit import AUTHORITY, CERTIFICATE, KEY, RESOURCES, Kit
from fclseg.hospital.policy import Policy

PINNED = ("torch", "monai", "nvflare")
LEAST_FREE = 2 * 10**9
"""In bytes. A run of the paper's size needs 0.4 GB, and its slice store about as much."""
SHORT_OF_DAYS = 30
CONNECT_SECONDS = 10.0


class Result(NamedTuple):
    """One line of the report: ``fault`` says what is wrong; otherwise ``found`` says what was found."""

    name: str
    found: str = ""
    fault: str = ""


class Notice(str):
    """What was found, if somebody should act on it soon. The site can still take part."""


class Fault(FCLSegError):
    """What is wrong, where, and what to do."""


def check_kit(path: Path, with_server: bool = True) -> Iterator[Result]:
    """All checks in order. The kit's contents are checked only if its files are complete."""
    kit = Kit(path)
    if kit.unusable:
        yield Result("kit", fault=kit.unusable)
        return
    named: set[str] = set()
    for name, check in CHECKS.items():
        if name == "server" and not with_server:
            continue
        result = _result(name, check, kit)
        if result.fault not in named:
            yield result
        named |= {result.fault} - {""}


def _result(name: str, check: Callable[[Kit], str], kit: Kit) -> Result:
    try:
        return Result(name, found=check(kit))
    except FCLSegError as error:
        return Result(name, fault=str(error))
    except (OSError, ValueError, LookupError, TypeError) as error:
        return Result(name, fault=f"{kit.path}: its {name} cannot be read ({error}): get the kit again")


def _versions(kit: Kit) -> str:
    requirements = [line.partition(";")[0] for line in importlib.metadata.requires("fclseg") or []]
    pinned = dict(text.split("==") for text in requirements if "==" in text)
    for name in PINNED:
        there = importlib.metadata.version(name).split("+")[0]
        if there != pinned[name].strip():
            raise Fault(f"{name} {there} is installed, but fclseg needs {pinned[name]}: install fclseg again")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("fclseg", *PINNED))


def _certificate(kit: Kit) -> str:
    certificate, now = kit.certificate(), time.time()
    start, end = (moment.timestamp() for moment in (certificate.not_valid_before_utc, certificate.not_valid_after_utc))
    days = (end - now) / 86400
    if now < start:
        raise Fault(
            f"{kit.path / CERTIFICATE} is not valid yet: check this machine's clock, which may be slow, or wait"
        )
    if days <= 0:
        raise Fault(f"{kit.path / CERTIFICATE} expired {-days:.0f} days ago: ask the coordinator for a new kit")
    found = f"{kit.site}, valid for {days:.0f} days"
    return found if days >= SHORT_OF_DAYS else Notice(f"{found}: ask the coordinator for a new kit now")


def _signature(kit: Kit) -> str:
    from cryptography.exceptions import InvalidSignature

    authority = kit.certificate(AUTHORITY)
    try:
        kit.certificate().verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise Fault(
            f"{kit.path / CERTIFICATE} was not signed by {kit.path / AUTHORITY}: the files come from different kits, "
            "so unpack one kit again"
        ) from None
    return "the certificate is signed by the project"


def _key(kit: Kit) -> str:
    from cryptography.hazmat.primitives import serialization

    path = kit.path / KEY
    if os.stat(path).st_mode & 0o077:
        raise Fault(f"{path} can be read by other accounts: chmod 600 {path}")
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if key.public_key().public_bytes(encoding, form) != kit.certificate().public_key().public_bytes(encoding, form):
        raise Fault(f"{path} is not the key of {CERTIFICATE}: restore the key that the certificate was made for")
    return "the private key fits and is private"


def _policy(kit: Kit) -> str:
    policy = Policy.of(kit.place)
    return f"{len(policy.jobs)} jobs, at most {policy.rounds} rounds" + (", each approved" if policy.approval else "")


def _classes(kit: Kit) -> str:
    document = kit.resources
    if document.get("class_list_enforcement_mode") != "enforce" or document.get("class_allow_list") is None:
        raise Fault(f"{kit.path / RESOURCES} lets a job name any class: use the kit's own allow-list of classes")
    if foreign := sorted(set(document["class_allow_list"]) - set(SITE_CLASSES)):
        raise Fault(f"{kit.path / RESOURCES} lets a job use '{foreign[0]}', which is not a class of fclseg: remove it")
    return f"a job may name {len(document['class_allow_list'])} classes"


def _logs(kit: Kit) -> str:
    if kit.resources.get("allow_log_streaming", True):
        raise Fault(
            f"{kit.path / RESOURCES} sends log files to the server, and they may contain patient names: set "
            '"allow_log_streaming" to false'
        )
    return "log files stay"


def _data(kit: Kit) -> str:
    from fclseg.data.check import check_folder

    folder = kit.place.data
    if folder is None:
        raise Fault(f"{kit.path / LOCAL_FILE} has no image folder: run fclseg site join {kit.path} --data DIR")
    report = check_folder(folder)
    if report.problems:
        more = f" (and {len(report.problems) - 1} more: fclseg data check {folder})" if len(report.problems) > 1 else ""
        raise Fault(f"{report.problems[0]}{more}")
    policy = Policy.of(kit.place)
    if len(report.patients) < policy.patients:
        raise Fault(
            f"{folder} has {len(report.patients)} patients, but the site's policy requires {policy.patients}: add "
            "patients or change the policy"
        )
    return f"{len(report.patients)} patients in {folder}"


def _disk(kit: Kit) -> str:
    found = []
    for name, folder in (("runs", kit.place.runs), ("cache", kit.place.cache)):
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            raise Fault(f'"{name}" cannot be written to {folder}: choose another folder in {kit.path / LOCAL_FILE}')
        if (free := free_bytes(existing)) < LEAST_FREE:
            raise Fault(
                f'"{name}" has {free / 1e9:.1f} GB free at {folder} and needs {LEAST_FREE / 1e9:.0f}: free space or '
                f"choose another folder in {kit.path / LOCAL_FILE}"
            )
        found.append(f"{free / 1e9:.0f} GB free for {name}")
    return ", ".join(found)


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _device(kit: Kit) -> str:
    return f"{choose_device(kit.place.option('device'))}, {kit.place.threads} threads"


def _server(kit: Kit) -> str:
    """Open a connection like NVFlare does, with both certificates. Nothing is sent."""
    host, port = kit.server
    context = ssl.create_default_context(cafile=str(kit.path / AUTHORITY))
    context.check_hostname = False  # NVFlare's certificates contain the server's name from the project file
    context.load_cert_chain(kit.path / CERTIFICATE, kit.path / KEY)
    try:
        with socket.create_connection((host, port), CONNECT_SECONDS) as plain, context.wrap_socket(plain) as secure:
            return f"{host}:{port} answers with {secure.version()}"
    except socket.gaierror:
        raise Fault(f"the server's name {host} is not known here: ask IT for its address (DNS or /etc/hosts)") from None
    except ssl.SSLError as error:
        raise Fault(
            f"{host}:{port} answers with a different certificate than the project's ({error.reason}): a proxy is in "
            "between, or the kit belongs to another project"
        ) from None
    except (TimeoutError, OSError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror
        raise Fault(
            f"{host}:{port} cannot be reached ({why}): allow this machine to open connections to it, and ask the "
            "coordinator whether the server is running"
        ) from None


CHECKS: dict[str, Callable[[Kit], str]] = {
    "versions": _versions,
    "certificate": _certificate,
    "signature": _signature,
    "key": _key,
    "policy": _policy,
    "classes": _classes,
    "logs": _logs,
    "device": _device,
    "disk": _disk,
    "data": _data,
    "server": _server,
}
