"""The run that a submitted job works on, as the server's own process sees it: without importing torch."""

import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fclseg.documents import UNUSABLE, read_json
from fclseg.engine.place import Place
from fclseg.engine.run_files import CONFIG, FAILURE, RESULT, ROUNDS
from fclseg.engine.run_settings import RunSettings
from fclseg.errors import FCLSegError
from fclseg.files import whole_lines
from fclseg.text import one_line

SERVER_CONFIG = "config/config_fed_server.json"


@dataclass(frozen=True)
class SubmittedRun:
    """A run folder of the server."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def complete(self) -> bool:
        return (self.folder / RESULT).exists()

    @property
    def lasting_failure(self) -> bool:
        """Whether the run ended because of something that another attempt would not change."""
        return bool(failure := self._read(FAILURE)) and not failure.get("passing", False)

    @property
    def rounds(self) -> int:
        """Finished rounds."""
        return len(whole_lines(self.folder / ROUNDS))

    @property
    def sites(self) -> list[str]:
        """Sites that have taken part."""
        return self._read(CONFIG).get("sites", [])

    def _read(self, name: str) -> dict[str, Any]:
        try:
            return read_json(self.folder / name) if (self.folder / name).exists() else {}
        except FCLSegError:  # written at this moment, or damaged: the run itself reports that
            return {}


def refusal(details: object) -> str:
    """The first refusal by a party in what NVFlare notes about deploying a job; "" if none has refused it.

    A party that does not answer may do so later. A party that refuses a job will refuse it again.
    """
    notes = [str(note) for note in details] if isinstance(details, list) else []
    answers = [(note, note.partition(": ")[2]) for note in notes if ": " in note]
    passing = ("OK", "no reply")
    refused = [
        note for note, text in answers if not text.startswith(passing) and not note.startswith("invalid_clients")
    ]
    return one_line(refused[0]) if refused else ""


def run_of_job(app: bytes, workspace: Path) -> SubmittedRun | None:
    """The run of a job on the server with this workspace; None if it is not a job of this package."""
    try:
        with zipfile.ZipFile(io.BytesIO(app)) as files:
            document = json.loads(files.read(SERVER_CONFIG))
        settings = RunSettings.read(document["workflows"][0]["args"]["settings"])
    except (zipfile.BadZipFile, FCLSegError, *UNUSABLE):
        return None
    return SubmittedRun(Place("server", workspace).runs / settings.run)
