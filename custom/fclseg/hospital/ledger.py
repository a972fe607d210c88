"""What a site has answered in each run, so that nobody learns more by asking again.

Asking the same round many times would average a site's noise away. A site therefore answers each task of a round once.
The same question again, as after a lost reply or a crashed server, gets the same answer: training is repeatable, and
the noise depends on a secret of the site and the question. A round that is asked again with other networks
counts as a repeat, and the site's policy bounds the repeats of a run.
"""

import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from fclseg.documents import read_json, understood
from fclseg.files import private_folder, write_text
from fclseg.hospital.policy import PolicyError

FOLDER, SECRET = "answered", "secret.key"
"""In the site's folder of runs."""
SECRET_BYTES = 32


def question(networks: Mapping[str, Mapping[str, np.ndarray]], numbers: Iterable[object] = ()) -> str:
    """The checksum of what a task brings: networks and numbers, whatever their order."""
    digest = hashlib.blake2b(digest_size=16)
    for component, arrays in sorted(networks.items()):
        for name, array in sorted(arrays.items()):
            digest.update(f"{component}/{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr(list(numbers)).encode())
    return digest.hexdigest()


class Ledger:
    """The answers of one run, which is identified by its name and settings."""

    def __init__(self, runs: Path, run: str, settings: str):
        self._runs = runs
        self._path = runs / FOLDER / f"{hashlib.sha256(f'{run} {settings}'.encode()).hexdigest()[:32]}.json"

    def check(self, task: str, round_number: int, asked: str, repeats: int) -> None:
        """Refuse a round that was answered for other networks more often than the policy allows."""
        answered = self._answered()
        if asked in answered.get(f"{task} {round_number}", []):
            return
        again = sum(len(questions) - 1 for questions in answered.values())
        if f"{task} {round_number}" in answered and again >= repeats:
            raise PolicyError(
                f"this site has already answered task {task} of round {round_number} of this run for other networks: "
                "choose another name for the run, or allow more 'repeats' in the site's policy"
            )

    def note(self, task: str, round_number: int, asked: str) -> None:
        """Record an answer, before it leaves."""
        answered = self._answered()
        questions = answered.setdefault(f"{task} {round_number}", [])
        if asked not in questions:
            questions.append(asked)
            write_text(self._path, json.dumps(answered) + "\n")

    def noise(self, asked: str) -> int:
        """The seed of the noise on this answer: nobody without the site's secret can compute it. The same in all runs,
        so that settings which no site computes with cannot be changed to average the noise away."""
        return int.from_bytes(hmac.digest(self._secret(), asked.encode(), "sha256"), "little")

    def _answered(self) -> dict[str, list[str]]:
        if not self._path.exists():
            return {}
        with understood(self._path, "restore it from a backup"):
            document = read_json(self._path)
            return {str(key): [str(one) for one in questions] for key, questions in document.items()}

    def _secret(self) -> bytes:
        path = self._runs / SECRET
        private_folder(self._runs)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            return path.read_bytes()
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.urandom(SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        return path.read_bytes()
