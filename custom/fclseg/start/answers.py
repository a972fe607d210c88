"""What the start page may ask for: a list of a folder, one command, and an end."""

import json
import time
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fclseg.dicom.read import holds_dicom
from fclseg.errors import FCLSegError
from fclseg.start.folders import beside, listing
from fclseg.start.job import Job

Query = Mapping[str, str]
WORDS = {"segment": "results", "label": "labels"}
"""The commands of the page, and how their folders are called."""


class StartAnswers:
    def __init__(self, job: Job, home: Path, end: Callable[[], None]):
        self.job, self.home, self.end, self.asked = job, home, end, time.monotonic()
        self.routes: dict[tuple[str, str], Callable[..., Any]] = {
            ("GET", "/api/folder"): self.folder,
            ("GET", "/api/job"): self.state,
            ("POST", "/api/begin"): self.begin,
            ("POST", "/api/open"): self.open,
            ("POST", "/api/stop"): self.stop,
            ("POST", "/api/end"): self.finish,
        }

    def find(self, method: str, path: str) -> tuple[Callable[..., Any], list[int]] | None:
        self.asked = time.monotonic()
        function = self.routes.get((method, path))
        return None if function is None else (function, [])

    def folder(self, query: Query, body: bytes) -> dict[str, Any]:
        return listing(Path(query.get("path") or self.home))

    def state(self, query: Query, body: bytes) -> dict[str, Any]:
        return self.job.state()

    def begin(self, query: Query, body: bytes) -> dict[str, Any]:
        asked = json.loads(body)
        what, source = str(asked["what"]), Path(str(asked["source"])).expanduser()
        if what not in WORDS:
            raise FCLSegError("the page asked for something that does not exist: reload the page")
        if not source.is_absolute() or not source.exists():
            raise FCLSegError(f"{source}: there is no such file or folder; choose another")
        out = Path(str(asked.get("out") or beside(source, WORDS[what]))).expanduser()
        self.job.begin(what, commands(what, source, out), out)
        return self.job.state()

    def open(self, query: Query, body: bytes) -> dict[str, Any]:
        """Results are files, which a page must not link to: the browser is asked to open them."""
        index = Path(self.job.out) / "index.html"
        if not self.job.out or not index.is_file():
            raise FCLSegError("there are no results to open yet: wait a moment")
        webbrowser.open(index.absolute().as_uri())
        return {}

    def stop(self, query: Query, body: bytes) -> dict[str, Any]:
        self.job.stop()
        return {}

    def finish(self, query: Query, body: bytes) -> dict[str, Any]:
        self.job.stop()
        self.end()
        return {}


def commands(what: str, source: Path, out: Path) -> list[list[str]]:
    """The command lines. DICOM images are converted before they are labelled."""
    if what == "segment":
        return [["segment", str(source), "--out", str(out), "--pdf"]]
    images, lines = source, []
    if holds_dicom(source):
        images = beside(source, "images")
        lines = [] if images.exists() else [["data", "import", str(source), str(images)]]
    return [*lines, ["label", str(images), "--out", str(out), "--no-browser"]]
