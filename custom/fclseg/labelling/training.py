"""Fine-tuning in the background, in a process of its own; the page shows its progress."""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fclseg.errors import FCLSegError
from fclseg.networks.model_file import MODEL

Finished = Callable[[Path], None]


class Training:
    """At most one training at a time. ``status`` is what the page shows."""

    def __init__(self, models: Path, finished: Finished):
        self.models, self.finished = models, finished
        self.status: dict[str, Any] = {"running": False, "step": 0, "of": 0, "error": "", "model": ""}
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def begin(self, labels: Path, start: Path) -> None:
        with self._lock:
            if self.status["running"]:
                raise FCLSegError("a training is running: wait until it has ended")
            out = self.models / str(1 + max((int(p.name) for p in self.models.glob("[0-9]*") if p.is_dir()), default=0))
            command = [sys.executable, "-m", "fclseg.labelling.train_job", str(labels), str(start), str(out)]
            self.status = {"running": True, "step": 0, "of": 0, "error": "", "model": ""}
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            threading.Thread(target=self._follow, args=(self._process, out), name="training", daemon=True).start()

    def _follow(self, process: subprocess.Popen[str], out: Path) -> None:
        assert process.stdout is not None and process.stderr is not None
        errors: list[str] = []
        reader = threading.Thread(target=lambda: errors.extend(process.stderr or ()), daemon=True)
        reader.start()
        for line in process.stdout:
            with contextlib.suppress(ValueError, TypeError):  # frameworks print their own lines
                self.status |= json.loads(line)
        code = process.wait()
        reader.join()
        if code:
            sentence = self.status["error"] or "".join(errors[-1:]).strip() or f"it ended with code {code}"
            self.status |= {"running": False, "error": sentence}
            return
        self.finished(out / MODEL)
        self.status |= {"running": False, "model": str(out / MODEL)}

    def end(self) -> None:
        """End a running training. Nothing of it is kept."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()


def latest(models: Path) -> Path | None:
    """The network of the last finished training."""
    found = [path for path in models.glob(f"[0-9]*/{MODEL}") if path.parent.name.isdigit()]
    return max(found, key=lambda path: int(path.parent.name), default=None)
