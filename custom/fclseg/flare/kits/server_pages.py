"""``/health`` and ``/metrics`` (Prometheus) of the coordinator's server, for a program on the same machine."""

import json
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

from cryptography import x509

from fclseg.engine.place import Place
from fclseg.errors import FCLSegError
from fclseg.flare.kits.kit_check import CONNECT_SECONDS, LEAST_FREE, SHORT_OF_DAYS
from fclseg.flare.runs.overview import find_runs
from fclseg.flare.runs.watch_page import Pages, metrics

CONFIG, CERTIFICATE = "startup/fed_server.json", "startup/server.crt"


def server_kit(folder: Path) -> Path:
    """Raises if a folder is not the kit of a server."""
    if not (folder / CONFIG).is_file():
        raise FCLSegError(f"{folder} is not the server's startup kit (it has no {CONFIG}): give the kit's folder")
    return folder.absolute()


def server_pages(kit: Path) -> Callable[[], Pages]:
    """The pages of the server with this kit: whether it answers, its certificate, its disk and all of its runs."""
    runs = Place("", kit).runs

    def read() -> Pages:
        answers, days, free = _answers(kit), _days(kit), shutil.disk_usage(kit).free
        faults = [] if answers else ["the server does not answer on its port"]
        faults += [f"its certificate ends in {days:.0f} days: fclseg server renew"] if days < SHORT_OF_DAYS else []
        faults += [f"{free / 1e9:.1f} GB are free"] if free < LEAST_FREE else []
        values = {"up": int(answers), "certificate_days": f"{days:.1f}", "free_bytes": free}
        lines = "".join(f"fclseg_server_{name} {value}\n" for name, value in values.items())
        known = find_runs(runs) if runs.is_dir() else ()
        return {
            "/health": (503 if faults else 200, "text/plain", "\n".join(faults or ["ok"]) + "\n"),
            "/metrics": (200, "text/plain", lines + "".join(map(metrics, known))),
        }

    return read


def _answers(kit: Path) -> bool:
    target = json.loads((kit / CONFIG).read_text())["servers"][0]["service"]["target"]
    try:
        socket.create_connection(("127.0.0.1", int(target.rpartition(":")[2])), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def _days(kit: Path) -> float:
    certificate = x509.load_pem_x509_certificate((kit / CERTIFICATE).read_bytes())
    return (certificate.not_valid_after_utc.timestamp() - time.time()) / 86400
