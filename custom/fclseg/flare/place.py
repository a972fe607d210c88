"""Where one party (the server or a site) finds and keeps things. Each party decides that for itself.

A party learns its name, its workspace and whether this is a simulation from NVFlare's own context, never from a job or
a message. A site's own settings are in ``local/fclseg.json`` of its NVFlare workspace or in the environment. They are
never sent anywhere.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import JobMetaKey

from fclseg.device import choose_device
from fclseg.documents import UNUSABLE, read_json
from fclseg.errors import DataError, FCLSegError
from fclseg.hospital.policy import Policy, read_site_file

if TYPE_CHECKING:
    import torch

LOCAL_FILE = "local/fclseg.json"
"""A site's own settings, relative to its NVFlare workspace: data, splits, runs, cache, threads, device, policy."""

SIMULATED_JOB = "simulate_job"
"""The job id that NVFlare's simulator gives to every job. Ids of real jobs come from the NVFlare server."""


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

    @classmethod
    def of_site(cls, fl_ctx: FLContext) -> "Place":
        """A site detects a simulation by the flag that NVFlare's simulator sets in its own process."""
        return cls._of(fl_ctx, fl_ctx.get_identity_name(), fl_ctx.get_prop(FLContextKey.SIMULATE_MODE, False) is True)

    @classmethod
    def of_server(cls, fl_ctx: FLContext) -> "Place":
        return cls._of(fl_ctx, "server", fl_ctx.get_job_id() == SIMULATED_JOB)

    @classmethod
    def _of(cls, fl_ctx: FLContext, name: str, simulated: bool) -> "Place":
        if not name or name != Path(name).name or name.startswith("."):
            raise FCLSegError(
                f"site name '{name}' cannot be used as a folder name: choose plain names when you provision"
            )
        meta = fl_ctx.get_prop(FLContextKey.JOB_META) or {}
        root = Path(fl_ctx.get_workspace().get_root_dir())
        return cls(name, root, fl_ctx.get_job_id(), simulated, str(meta.get(JobMetaKey.SUBMITTER_NAME, "")))

    @property
    def _own(self) -> dict[str, Any]:
        """The party's own file, read each time because people edit it. A simulation has none."""
        return {} if self.simulated else read_site_file(self.workspace / LOCAL_FILE)

    def option(self, name: str) -> str | None:
        """The party's own file first (several sites may share one machine and its environment), then FCLSEG_<NAME>."""
        if self.shared.get(name):
            return self.shared[name]
        if (value := self._own.get(name)) is not None:
            return str(value)
        return os.environ.get(f"FCLSEG_{name.upper()}") or None

    @property
    def policy(self) -> Policy:
        """What the hospital allows."""
        return Policy.read(self._own.get("policy", {}))

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
