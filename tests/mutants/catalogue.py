"""Deliberate one-line faults, as data: each must be noticed by the tests that it names.

The ``.toml`` files beside this one list them by the part of the package they cut. ``file`` is relative to the
repository, ``old`` occurs in it exactly once, and ``tests`` (relative to ``tests/``) take seconds.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def fault(self, root: Path) -> str | None:
        """Why the mutant cannot be applied, or None."""
        path = root / self.file
        times = path.read_text(encoding="utf-8").count(self.old) if path.is_file() else 0
        return None if times == 1 else f"{self.name}: its old text occurs {times} times in {self.file}, not once"

    def apply(self, root: Path) -> None:
        path = root / self.file
        path.write_text(path.read_text(encoding="utf-8").replace(self.old, self.new), encoding="utf-8")


def read_mutants() -> list[Mutant]:
    """All mutants, in the order of a file's path from NIfTI to the report."""
    parts = ("data", "methods", "federation", "secure_sums", "flare", "security", "finetune", "clinic", "study")
    found = [entry for part in parts for entry in tomllib.loads((HERE / f"{part}.toml").read_text())["mutant"]]
    return [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in found]
