"""Commands of ``fclseg``, each in a process of its own; the page shows what they print."""

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from fclseg.errors import FCLSegError

CODE = "import sys; from fclseg.cli import main; sys.exit(main(sys.argv[1:]))"
LINK = re.compile(r"http://127\.0\.0\.1:\d+/\S+")
MOST_LINES = 200


class Job:
    """At most one at a time."""

    def __init__(self) -> None:
        self.what, self.out, self.lines = "", "", list[str]()
        self.link = ""  # of the page that the command has opened
        self.code: int | None = None
        self.running = self._stopped = False
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def begin(self, what: str, commands: list[list[str]], out: Path) -> None:
        """Run commands one after the other, as long as they succeed."""
        with self._lock:
            if self.running:
                raise FCLSegError("something is running already: wait for its end, or stop it")
            self.what, self.out, self.lines, self.link = what, str(out), [], ""
            self.code, self.running, self._stopped = None, True, False
            threading.Thread(target=self._run, args=(commands,), daemon=True).start()

    def _run(self, commands: list[list[str]]) -> None:
        for arguments in commands:
            with self._lock:
                if self._stopped:
                    break
                self._process = subprocess.Popen(
                    [sys.executable, "-u", "-c", CODE, *arguments],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    text=True, errors="replace",
                )  # fmt: skip
            self._follow(self._process)
            self.code = self._process.wait()
            if self.code:
                break
        self.running = False

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if (found := LINK.search(line)) is not None:
                self.link = found[0]
            else:
                self.lines = [*self.lines, line.rstrip()][-MOST_LINES:]

    def stop(self) -> None:
        """As Ctrl-C does: finished work is kept."""
        with self._lock:
            self._stopped = True
            process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            process.wait()

    def state(self) -> dict[str, Any]:
        known = {"what": self.what, "out": self.out, "lines": self.lines, "link": self.link, "code": self.code}
        return known | {"running": self.running, "index": (Path(self.out) / "index.html").is_file()}
