"""The names of a run's files. Imports nothing heavy, because commands that only look at runs must answer at once."""

from pathlib import Path

CONFIG = "config.json"
ROUNDS = "rounds.jsonl"
RESULT = "result.json"
FAILURE = "failure.json"
"""Why the last attempt ended early; ``fclseg pretrain`` reads it."""
SERVER = "server"
CONTINUED_AS, FACTS = "fclseg_continued_as", "fclseg_run"
"""Entries of a job's meta data on the server: the job that continues its run, and the run's facts for the lead."""


def lock_path(run: Path, by: str = SERVER) -> Path:
    """Next to the run's folder, because the folder itself may be removed."""
    return run.with_name(f".{run.name}.{by}.lock")
