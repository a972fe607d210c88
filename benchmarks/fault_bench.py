"""A small federation for measuring faults: a server and hospitals as real processes with mutual TLS on this machine.

Each site reaches the server through its own proxy, and the runs of each party are on their own small file system. A
process that ends is started again after five seconds, as the systemd unit of ``fclseg site join --service`` does.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from safetensors.numpy import load_file

sys.path.append(str(Path(__file__).parents[1] / "poc"))
from faulty_link import FaultyLink
from parties import SERVER, TEMPLATE, Federation

from fclseg.engine.place import LOCAL_FILE
from fclseg.errors import FCLSegError
from fclseg.flare.jobs import write_job
from fclseg.methods.exchange import get_row
from fclseg.phantom.dataset import write_phantom

SITES, LATE = ("site-1", "site-2"), "site-3"
ROUNDS = 20
LIMIT = 600
RESTART_SECONDS = 5
DISK = "64m"
CHANGES = ["networks.channels", "images.size", "images.pixel_scale", "pretraining.batch_size"]
"""Settings that the soak test changes, and that the sites' policies allow."""
KEPT = ("config.json", "result.json")
NAMES = {"parent": ("server_train", "client_train"), "job": ("runner_process", "worker_process")}


class FaultBench:
    """The federation and what a case may do to it."""

    def __init__(self, out: Path):
        self.out = out
        self.federation = Federation(out, self._project(out))
        self.links = {site: FaultyLink() for site in (*SITES, LATE)}
        self.supervised: set[str] = set()
        self.mounts: list[Path] = []

    @staticmethod
    def _project(out: Path) -> Path:
        """The project of the proof of concept with one more site, which starts late."""
        out.mkdir(parents=True, exist_ok=True)
        text = TEMPLATE.read_text().replace(
            "  - name: admin@", f"  - name: {LATE}\n    type: client\n    org: c\n  - name: admin@"
        )
        (out / "template.yml").write_text(text)
        return out / "template.yml"

    def prepare(self) -> None:
        """Kits, phantoms, settings and file systems of all parties."""
        federation = self.federation
        for party in federation.project["participants"]:
            if party["name"] in self.links:
                party["connect_to"] = {"host": "localhost", "port": self.links[party["name"]].port}
        federation.provision()
        (server,) = (one for one in federation.project["participants"] if one["type"] == "server")
        for number, (site, link) in enumerate(self.links.items()):
            link.start(server["fed_learn_port"])
            write_phantom(self.out / "data" / site, patients=2, frames=2, seed=number)
            folders = {"data": self.out / "data" / site, "cache": self.out / "cache" / site, "runs": self.disk(site)}
            settings = {name: str(folder) for name, folder in folders.items()}
            federation.configure(site, **settings, policy={"changes": CHANGES})
        (federation.kit(SERVER) / LOCAL_FILE).write_text(json.dumps({"runs": str(self.disk(SERVER))}))
        (self.out / "tmp").mkdir(exist_ok=True)
        federation.environment["TMPDIR"] = str(self.out / "tmp")  # not to wait for other trainings on this machine

    def disk(self, party: str) -> Path:
        """The party's own file system. Without the right to mount one, it is a plain folder that cannot be filled."""
        folder = self.out / "disks" / party
        if not folder.is_dir():
            folder.mkdir(parents=True)
            done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)], check=False)
            self.mounts += [folder] if done.returncode == 0 else []
        return folder

    def start(self) -> None:
        for party in (SERVER, *SITES):
            self.begin(party)
        self.federation.wait_for(SITES, LIMIT)
        threading.Thread(target=self._supervise, daemon=True).start()

    def begin(self, party: str, **environment: str) -> None:
        """Start a party and keep it running."""
        usual, self.federation.environment = self.federation.environment, self.federation.environment | environment
        self.federation.start(party)
        self.federation.environment = usual
        self.supervised.add(party)

    def halt(self, party: str) -> None:
        """Stop a party and do not restart it."""
        self.supervised.discard(party)
        self.federation.stop(party)

    def _supervise(self) -> None:
        while True:
            for party in list(self.supervised):
                if not psutil.pid_exists(pid := self.federation.pid(party)) or self._is_zombie(pid):
                    time.sleep(RESTART_SECONDS)
                    self.federation.stop(party)  # what is left of its process group
                    self.federation.start(party)
            time.sleep(0.2)

    @staticmethod
    def _is_zombie(pid: int) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        return True

    def processes(self, party: str, *kinds: str) -> list[psutil.Process]:
        """The party's own process (``parent``), the processes of its jobs (``job``), or both."""
        found = self._find(party, *kinds)
        if not found:
            raise FCLSegError(f"{party} has no process of the kind {' or '.join(kinds)}: see {self.out}/{party}.log")
        return found

    def _find(self, party: str, *kinds: str) -> list[psutil.Process]:
        wanted = [name for kind in kinds for name in NAMES[kind]]
        root = psutil.Process(self.federation.pid(party))
        return [one for one in (root, *root.children(recursive=True)) if _matches(one, wanted)]

    def strike(self, party: str, *kinds: str, number: int = signal.SIGKILL) -> list[psutil.Process]:
        struck = self.processes(party, *kinds)
        if "parent" in kinds and number == signal.SIGKILL:  # the shell that started it ends with it
            struck.append(psutil.Process(self.federation.pid(party)))
        for one in struck:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(number)
        return struck

    def submit(self, run: str, min_sites: int = 1, job: str = "fclopt_dp", **settings: object) -> str:
        folder = self.out / "job" / run
        shutil.rmtree(folder, ignore_errors=True)
        values = {"preset": "demo", "rounds": ROUNDS, "run": run, "min_sites": min_sites, "outliers": "off", **settings}
        write_job(folder, get_row(job), values, simulator=False)
        return self.federation.submit(folder)

    def folder(self, run: str) -> Path:
        return self.disk(SERVER) / run

    def rounds(self, run: str) -> list[dict]:
        file = self.folder(run) / "rounds.jsonl"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def complete(self, run: str) -> bool:
        return (self.folder(run) / "result.json").exists()

    def digest(self, run: str) -> str:
        """Of the encoder's numbers. Its file also has the name of the run."""
        tensors = load_file(self.folder(run) / "encoder.safetensors")
        parts = b"".join(name.encode() + tensors[name].tobytes() for name in sorted(tensors))
        return hashlib.sha256(parts).hexdigest()[:12]

    def forget(self, run: str) -> None:
        """Free the small file systems for the next runs, once the run's job has ended. What says that the run is
        complete stays, because the server would start the run over."""
        until(lambda: not self._find(SERVER, "job"), "the end of the job")
        for party in (SERVER, *self.links):
            for path in (self.disk(party) / run).glob("*"):
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name not in KEPT:
                    path.unlink()

    def meta(self, job_id: str) -> str:
        with contextlib.suppress(FCLSegError, subprocess.TimeoutExpired):
            return self.federation.job("meta", job_id, "--format", "json", timeout=60)
        return ""

    def stop(self) -> None:
        self.supervised.clear()
        self.federation.stop()
        for folder in self.mounts:
            subprocess.run(["umount", "-l", str(folder)], check=False)


def until(done: Callable[[], object], what: str, limit: float = LIMIT) -> float:
    """Seconds until ``done`` is true."""
    started = time.monotonic()
    while not done():
        if time.monotonic() - started > limit:
            raise FCLSegError(f"{what}: not within {limit:.0f} s")
        time.sleep(0.25)
    return time.monotonic() - started


def _matches(process: psutil.Process, names: list[str]) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return any(name in " ".join(process.cmdline()) for name in names) and "bash" not in process.name()
    return False


def fill(folder: Path) -> Path:
    """Write to a file system until it is full."""
    path = folder / "filler"
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            os.fsync(file.fileno())
    return path
