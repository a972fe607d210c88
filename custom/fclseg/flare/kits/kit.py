"""A site's startup kit on its own disk: the server's address, the certificate, and the site's own settings."""

import json
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fclseg.engine.place import LOCAL_FILE, Place, read_site_file
from fclseg.errors import FCLSegError
from fclseg.files import write_text

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

CONFIG, RESOURCES = "startup/fed_client.json", "local/resources.json"
CERTIFICATE, KEY, AUTHORITY = "startup/client.crt", "startup/client.key", "startup/rootCA.pem"
START = "startup/start.sh"
FILES = (CONFIG, CERTIFICATE, KEY, AUTHORITY, START, LOCAL_FILE)
"""The files of a kit. ``local/resources.json`` may still be NVFlare's ``.default``."""


@dataclass(frozen=True)
class Kit:
    """The folder that the coordinator sent, or that ``nvflare package`` built."""

    path: Path

    @property
    def missing(self) -> list[str]:
        return [name for name in FILES if not (self.path / name).is_file()]

    @property
    def unusable(self) -> str:
        """Why this account cannot use the folder as a kit; empty if it can. A kit is private to one account, and a
        container may run as another one."""
        account = os.geteuid()
        if self.path.is_dir() and not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
            return (
                f"account {account} cannot use {self.path}, which belongs to account {self.path.stat().st_uid}: chown "
                f"-R {account} {self.path}, or run as its owner (a container: USER_ID or --userns=keep-id)"
            )
        missing = self.missing
        return f"{self.path} is not a complete startup kit (no {missing[0]}): unpack the kit again" if missing else ""

    @cached_property
    def _client(self) -> dict[str, Any]:
        return json.loads((self.path / CONFIG).read_text())

    @property
    def site(self) -> str:
        return str(self._client["client"]["fqsn"])

    @property
    def server(self) -> tuple[str, int]:
        """Host and port that the site connects to."""
        host, _, port = self._client["servers"][0]["service"]["target"].rpartition(":")
        return host, int(port)

    @property
    def resources(self) -> dict[str, Any]:
        """NVFlare's settings for the site: the hospital's own file, or the one in the kit."""
        own = self.path / RESOURCES
        return json.loads((own if own.exists() else own.with_name("resources.json.default")).read_text())

    def certificate(self, name: str = CERTIFICATE) -> "Certificate":
        from cryptography import x509

        return x509.load_pem_x509_certificate((self.path / name).read_bytes())

    @property
    def place(self) -> Place:
        return Place(self.site, self.path)

    def set_data(self, folder: Path) -> None:
        """Set the image folder in the site's own file. Comments and everything else in it stay."""
        path = self.path / LOCAL_FILE
        before = read_site_file(path)
        entry, text = f'"data": {json.dumps(str(folder))}', path.read_text(encoding="utf-8")
        present = re.compile(r'^(\s*)"data":\s*(null|"(?:[^"\\]|\\.)*")', re.MULTILINE)
        if present.search(text):
            changed = present.sub(lambda found: found[1] + entry, text, count=1)
        else:
            changed = re.sub(r"^\{", lambda _: "{\n  " + entry + ("," if before else ""), text, count=1, flags=re.M)
        write_text(path, changed)
        if read_site_file(path) != before | {"data": str(folder)}:
            write_text(path, text)
            raise FCLSegError(f'{path} has no entry "data" to set: add {entry}')
