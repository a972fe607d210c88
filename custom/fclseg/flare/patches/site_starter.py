"""Starts sites of a simulation from one process that has already imported everything they need.

NVFlare's simulator starts a new interpreter for every task if it has fewer threads than sites, and importing NVFlare
and PyTorch takes longer than a task of a small run. This process imports them once. For each request it makes a copy
of itself (``fork``), which then runs exactly what NVFlare would have started: same module, arguments and environment.
Only ``fclseg.flare.patches.fast_simulator`` starts it. It ends when the simulator does.
"""

import gc
import importlib
import json
import os
import runpy
import socket
import sys
import time
from dataclasses import asdict, dataclass
from typing import Self

from nvflare.fuel.f3.streaming import stream_utils

IMPORTS = (
    "nibabel",
    "nvflare.app_common.decomposers.numpy_decomposers",
    "nvflare.app_common.executors.client_api_executor",
    "nvflare.fuel.f3.drivers.aio_grpc_driver",
    "nvflare.fuel.f3.drivers.aio_http_driver",
    "nvflare.fuel.f3.drivers.file_driver",
    "nvflare.fuel.f3.drivers.grpc_driver",
    "nvflare.fuel.f3.drivers.tcp_driver",
    "nvflare.private.fed.app.deployer.base_client_deployer",
    "nvflare.private.fed.client.client_engine",
    "nvflare.private.fed.simulator.simulator_app_runner",
    "nvflare.private.fed.simulator.simulator_audit",
    "fclseg.data.sampler",
    "fclseg.data.slices",
    "fclseg.data.sites",
    "fclseg.anatomy.folders",
    "fclseg.flare.executor",
    "fclseg.flare.learner",
    "fclseg.flare.curves",
    "fclseg.engine.memory",
    "fclseg.engine.run_folder",
    "fclseg.methods.byol",
    "fclseg.methods.registry",
    "fclseg.methods.training",
)
"""What the sites of a simulation import. Each site itself imports whatever is missing here."""

MOST_BYTES = 1 << 20
"""The largest request: a command and the environment variables."""


@dataclass(frozen=True)
class SiteCommand:
    """A command ``python -m MODULE ARGUMENTS`` and its environment variables."""

    module: str
    arguments: list[str]
    environment: dict[str, str]

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        return cls(**json.loads(data))

    def run(self) -> None:
        """Become this command, in a process that was forked for it."""
        os.setsid()
        os.environ.clear()
        os.environ.update(self.environment)
        paths = self.environment.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[1:1] = [path for path in paths if path and path not in sys.path]
        sys.argv = [self.module, *self.arguments]
        # NVFlare numbers its streams from the time of the import. The server ignores a number that it has seen before.
        stream_utils.sid_base = int(time.time() * stream_utils.MILLION)
        runpy.run_module(self.module, run_name="__main__", alter_sys=True)


def wait_for_request(requests: socket.socket) -> SiteCommand | None:
    """Returns in a new process for each request. In the process that waits: None, when the simulator is gone.

    A request comes with a socket. The process between the two writes the new process's number and exit code to it.
    """
    while True:
        data, (*answers,), _, _ = socket.recv_fds(requests, MOST_BYTES, 1)
        if not data:
            return None
        with socket.socket(fileno=answers[0]) as answer:
            watcher = os.fork()
            if watcher == 0:
                requests.close()
                process = os.fork()
                if process == 0:
                    return SiteCommand.decode(data)
                answer.sendall(f"{process}\n".encode())
                _, status = os.waitpid(process, 0)
                answer.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                os._exit(0)
        while any(os.waitpid(-1, os.WNOHANG)):  # watchers that have ended
            pass


def main(descriptor: int) -> None:
    for name in IMPORTS:
        importlib.import_module(name)
    gc.freeze()  # a collection in a copy would touch, and so duplicate, the memory that all copies share
    with socket.socket(fileno=descriptor) as requests:
        request = wait_for_request(requests)
    if request:
        request.run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
