"""A server, sites and a lead as processes on this machine, with the mutual-TLS kits made by ``nvflare provision``.

The steps are those that docs/howto/ describes for each party.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from fclseg.engine.place import LOCAL_FILE
from fclseg.errors import FCLSegError
from fclseg.files import private_folder
from fclseg.flare.kits.project import TEMPLATE, find_value

BIN = Path(sys.executable).parent
SERVER, LEAD, COORDINATOR = "localhost", "lead@coordinator.org", "admin@coordinator.org"
ENDED = ("FINISHED", "ABANDONED", "FAILED")
PATIENCE = 1800
"""Seconds to wait for anything: a loaded machine takes minutes for a second of work."""


def free_ports(count: int) -> list[int]:
    """Ports that are currently free."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


class Federation:
    """All parties of one project, below one folder."""

    def __init__(self, out: Path, project: Path = TEMPLATE):
        self.out = out
        self.project: dict[str, Any] = yaml.safe_load(project.read_text())
        self.sites = [party["name"] for party in self.project["participants"] if party["type"] == "client"]
        self.environment = {
            **os.environ,
            "HOME": str(out / "home"),
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        self._processes: dict[str, subprocess.Popen] = {}

    def kit(self, party: str) -> Path:
        return self.out / "kits" / self.project["name"] / "prod_00" / party

    @property
    def store(self) -> Path:
        """The folder where the server stores jobs and their results."""
        return self.out / "store"

    def provision(self) -> None:
        """Make startup kits for all parties, with free ports and our own store."""
        fed_learn, admin = free_ports(2)
        for party in self.project["participants"]:
            if party["type"] == "server":
                party |= {"fed_learn_port": fed_learn, "admin_port": admin}
        for builder in self.project["builders"]:
            if builder["path"].endswith("HospitalKits"):
                builder["args"] = {"store": str(self.store)}
        private_folder(self.out / "home")
        shutil.rmtree(self.out / "kits", ignore_errors=True)
        path = self.out / "project.yml"
        path.write_text(yaml.safe_dump(self.project))
        self.nvflare("provision", "-p", str(path), "-w", str(self.out / "kits"))

    def configure(self, site: str, **settings: object) -> None:
        """Write a hospital's own file."""
        (self.kit(site) / LOCAL_FILE).write_text(json.dumps(settings, indent=2))

    def start(self, party: str, kit: Path | None = None) -> None:
        """Run the party's own start script (or that of another kit) in a separate process group."""
        with open(self.out / f"{party}.log", "a") as log:
            self._processes[party] = subprocess.Popen(
                ["bash", str((kit or self.kit(party)) / "startup" / "sub_start.sh"), "--once"],
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def pid(self, party: str) -> int:
        """Of the party's start script, which becomes its parent process; that of a job is a child."""
        return self._processes[party].pid

    def start_all(self, seconds: int = PATIENCE) -> None:
        """Start the server and the sites, and wait until every site has registered."""
        self.start(SERVER)
        for site in self.sites:
            self.start(site)
        self.wait_for(self.sites, seconds)

    def wait_for(self, sites: Sequence[str], seconds: int = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while missing := [site for site in sites if f"New client {site}@" not in self.log(SERVER)]:
            if time.monotonic() > deadline:
                raise FCLSegError(f"{missing[0]} did not reach the server in {seconds} s: see {self.out}/*.log")
            time.sleep(0.5)

    def stop(self, *parties: str) -> None:
        for party in parties or list(self._processes):
            process = self._processes.pop(party)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def log(self, party: str) -> str:
        path = self.out / f"{party}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def nvflare(self, *arguments: str, timeout: int = PATIENCE) -> str:
        """Run NVFlare's command line. Raises with its output if it fails."""
        command = [str(BIN / "nvflare"), "--connect-timeout", str(PATIENCE), *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=timeout)
        if done.returncode:
            raise FCLSegError(f"nvflare {' '.join(arguments)} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def job(self, *arguments: str, by: str = LEAD, timeout: int = PATIENCE) -> str:
        return self.nvflare("job", *arguments, "--startup-kit", str(self.kit(by)), timeout=timeout)

    def submit(self, job: Path, by: str = LEAD) -> str:
        """The id of the job."""
        while True:
            try:
                answer = json.loads(self.job("submit", "-j", str(job), "--format", "json", by=by))
                return str(find_value(answer, "job_id"))
            except FCLSegError as error:  # NVFlare gives a busy server few seconds to take a job
                if "failed to stream file" not in str(error):
                    raise

    def wait(self, job_id: str, seconds: int, by: str = LEAD) -> str:
        """How the job ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with contextlib.suppress(FCLSegError):  # NVFlare waits 5 s for an answer; a busy server is asked again
                meta = json.loads(self.job("meta", job_id, "--format", "json", by=by))
                status = str(find_value(meta["data"], "status"))
                if status.startswith(ENDED):
                    return status
            time.sleep(2)
        raise FCLSegError(f"job {job_id} did not end in {seconds} s: see {self.out}/*.log")

    def download(self, job_id: str, by: str = LEAD) -> Path:
        """The folder with the job's results for the lead."""
        self.job("download", job_id, "-o", str(self.out / "download"), "--force", by=by)
        return self.out / "download" / job_id
