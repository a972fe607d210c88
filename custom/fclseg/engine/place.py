"""Where one party (the server or a site) finds and keeps things. Each party decides that for itself.

A party learns its name, its workspace and whether this is a simulation from its transport (``fclseg.flare.wire``),
never from a job or a message. A site's own settings are in ``local/fclseg.json`` of its NVFlare workspace or in the
environment. They are never sent anywhere.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fclseg.device import choose_device
from fclseg.documents import UNUSABLE, read_json
from fclseg.errors import DataError, FCLSegError

if TYPE_CHECKING:
    import torch

LOCAL_FILE = "local/fclseg.json"
"""A site's own settings, relative to its NVFlare workspace: data, splits, runs, cache, threads, device, policy."""


HERE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Place:
    """One party in one job."""

    name: str
    workspace: Path  # this party's NVFlare workspace
    job_id: str = ""
    simulated: bool = False
    submitter: str = ""
    shared: Mapping[str, str | None] = field(default_factory=dict)  # only in a simulation: its sites share one machine

    @property
    def own(self) -> dict[str, Any]:
        """The party's own file, read each time because people edit it. A simulation has none."""
        return {} if self.simulated else read_site_file(self.workspace / LOCAL_FILE)

    def option(self, name: str) -> str | None:
        """The party's own file first (several sites may share one machine and its environment), then FCLSEG_<NAME>."""
        if self.shared.get(name):
            return self.shared[name]
        if (value := self.own.get(name)) is not None:
            return str(value)
        return os.environ.get(f"FCLSEG_{name.upper()}") or None

    @property
    def runs(self) -> Path:
        """The folder of all runs. In a simulation it is next to the workspace, because the simulator wipes that."""
        if chosen := self.option("runs"):
            return Path(chosen).expanduser().absolute()
        return (self.workspace.parents[1] if self.simulated else self.workspace) / "runs"

    @property
    def data(self) -> Path | None:
        """The image folder, or None if none is configured."""
        chosen = self.option("data")
        if chosen is None:
            return None
        folder = Path(chosen).expanduser().absolute()
        if not folder.is_dir():
            raise DataError(
                f"the data folder {folder} of {self.name} does not exist: set FCLSEG_DATA to an existing one"
            )
        return folder

    @property
    def on_phantoms(self) -> bool:
        """Whether the site trains on generated images: it has no data folder, and its server is on this machine, as in
        a proof of concept. A hospital's site, whose server is elsewhere, refuses tasks until it has a data folder."""
        return not self.simulated and self.data is None and server_host(self.workspace) in HERE

    @property
    def splits(self) -> Path | None:
        chosen = self.option("splits")
        return Path(chosen).expanduser().absolute() if chosen else None

    @property
    def threads(self) -> int:
        """Number of torch threads for training. It is fixed because it changes the last bits of a sum."""
        chosen = self.option("threads") or "1"
        if not chosen.isdecimal() or int(chosen) < 1:
            raise FCLSegError(f"{self.name} cannot train with '{chosen}' threads: give a whole number of at least 1")
        return int(chosen)

    @property
    def device(self) -> "torch.device":
        """The device for training: a GPU if there is one, unless the site chooses otherwise."""
        return choose_device(self.option("device"))

    @property
    def cache(self) -> Path:
        from fclseg.data.slices import default_cache

        chosen = self.option("cache")
        return Path(chosen).expanduser().absolute() if chosen else default_cache()


def server_host(kit: Path) -> str:
    """The name of the server that a site's startup kit connects to; "" if it cannot be read."""
    try:
        target = read_json(kit / "startup" / "fed_client.json")["servers"][0]["service"]["target"]
        return str(target).rpartition(":")[0].strip("[]")
    except (FCLSegError, *UNUSABLE):
        return ""


def server_name(kit: Path) -> str:
    """The name in the server's certificate, from a party's startup kit; "" if it cannot be read."""
    for name, entry in (("fed_client.json", "identity"), ("fed_server.json", "admin_server")):
        with contextlib.suppress(FCLSegError, *UNUSABLE):
            return str(read_json(kit / "startup" / name)["servers"][0][entry])
    return ""


def check_site_name(name: str) -> str:
    """The name, if it can be the name of a folder: it comes from outside."""
    if not name or name != Path(name).name or name.startswith("."):
        raise FCLSegError(f"site name '{name}' cannot be used as a folder name: choose plain names when you provision")
    return name


def read_site_file(path: Path) -> dict[str, Any]:
    """A site's own settings: JSON in which lines that start with // are comments."""
    if not path.exists():
        return {}
    if path.is_fifo():  # reading a named pipe would wait forever
        raise FCLSegError(f"{path} is not a regular file: write the site's settings to one")
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise FCLSegError(
            f"{path} cannot be read ({error.strerror}): give the account that runs NVFlare read permission"
        ) from None
    try:
        document = json.loads("\n".join(line for line in lines if not line.lstrip().startswith("//")))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise FCLSegError(f'{path} is not a JSON object: correct it, for example {{"data": "/folder"}}')
    return document
