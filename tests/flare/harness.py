"""Starts real simulators for the tests of this folder."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import torch

from fclseg.engine.state_files import read_state
from fclseg.flare.jobs import write_job
from fclseg.methods.exchange import get_row

HERE = Path(__file__).parent
NVFLARE = Path(sys.executable).with_name("nvflare")


class Simulation:
    """One folder with a job, runs and a workspace; ``start`` may be called again, as a user would type it again."""

    def __init__(self, folder: Path, cache: Path, job: str, settings: dict, data: Path | None = None):
        self.folder, self.job, self.settings = folder, folder / "jobs" / job, settings
        self.behave()
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("FCLSEG_")}
        path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))  # the tests' own package first
        self.environment |= {"FCLSEG_CACHE": str(cache), "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        if data:
            self.environment["FCLSEG_DATA"] = str(data)
        self.run = folder / "runs" / f"{job}-demo"

    def behave(self) -> None:
        """The job as the product writes it."""
        write_job(self.job, get_row(self.job.name), self.settings)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen:
        with open(self.folder / "log.txt", "a") as log:
            return subprocess.Popen(
                [NVFLARE, "simulator", f"jobs/{self.job.name}", *arguments],
                cwd=self.folder,
                env=self.environment | environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def finish(self, process: subprocess.Popen, timeout: float = 3000) -> int:
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill(process)
            raise AssertionError(f"the simulator did not end:\n{self.log[-3000:]}") from None

    def complete(self, *arguments: str, **environment: str) -> int:
        return self.finish(self.start(*arguments, **environment))

    @staticmethod
    def kill(process: subprocess.Popen) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    @property
    def log(self) -> str:
        return (self.folder / "log.txt").read_text(errors="replace")

    @property
    def rounds(self) -> list[dict]:
        path = self.run / "rounds.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def final(self) -> dict[str, torch.Tensor]:
        """All tensors of the last checkpoint."""
        states, _ = read_state(sorted((self.run / "checkpoints").glob("*"))[-1])
        return {f"{part}/{name}": tensor for part, state in states.items() for name, tensor in state.items()}


def misbehave(simulation: Simulation, faults: dict[str, str]) -> None:
    """Give the job's sites an executor with ``faults``."""
    path = simulation.job / "app/config/config_fed_client.json"
    document = json.loads(path.read_text())
    executor = document["executors"][0]["executor"]
    executor["path"], executor["args"]["faults"] = "faults.FaultyExecutor", faults
    path.write_text(json.dumps(document))


def identical(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
