"""The state of a run, read from its folder, during the run and afterwards. For ``fclseg runs`` and ``fclseg watch``.

Nothing is written, so this never disturbs a run.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fclseg.documents import read_json, read_json_lines, understood
from fclseg.engine.run_files import CONFIG, FAILURE, RESULT, ROUNDS, lock_path
from fclseg.engine.run_settings import RunSettings
from fclseg.errors import DataError, FCLSegError
from fclseg.locks import is_held

ENCODER = "encoder.safetensors"
COMPLETE, FAILED, RUNNING, STOPPED, DAMAGED = "complete", "failed", "running", "stopped", "damaged"


@dataclass(frozen=True)
class SiteLine:
    """One site in the last round in which it was asked."""

    name: str
    round_number: int  # counted from 1
    status: str  # "ok", or why its result is missing
    loss: float | None = None
    seconds: float | None = None
    bytes: int = 0  # sent to and from this site in all rounds


@dataclass(frozen=True)
class RunOverview:
    """One run folder."""

    path: Path
    state: str
    reason: str  # why the run failed, or what is damaged
    job: str
    preset: str
    rounds: int | None  # None: the run is of another version that cannot be read
    version: str
    started: float
    seen: float  # when the last round ended
    records: list[dict[str, Any]] = field(default_factory=list)
    sites: list[SiteLine] = field(default_factory=list)
    result: Path | None = None
    command: str = ""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def bytes(self) -> int:
        return sum(site.bytes for site in self.sites)

    @property
    def faults(self) -> list[str]:
        """The missing results of all rounds, newest first."""
        return [
            f"round {record['round'] + 1}: {site}: {report['status'].removeprefix(f'{site} ')}"
            for record in reversed(self.records)
            for site, report in sorted(record["sites"].items())
            if report["status"] != "ok"
        ]


def find_runs(folder: Path) -> Iterator[RunOverview]:
    """All runs at any depth below a folder (runs of a study are in its cells), newest first."""
    paths = [path.parent for path in folder.rglob(CONFIG) if (path.parent / ROUNDS).exists()]
    return iter(sorted(map(_readable, paths), key=lambda run: -run.seen))


def _readable(path: Path) -> RunOverview:
    """One damaged run must not hide the others."""
    try:
        return read_run(path)
    except DataError as error:
        changed = path.stat().st_mtime
        return RunOverview(path, DAMAGED, str(error), "", "", None, "", changed, changed)


def read_run(path: Path) -> RunOverview:
    """The state of the run in a folder. Raises ``DataError`` if one of its files is damaged."""
    with understood(path, "restore it from a backup, or remove it"):
        return _read_run(path)


def _read_run(path: Path) -> RunOverview:
    config = read_json(path / CONFIG)
    settings = config.get("settings", {})
    records = read_json_lines(path / ROUNDS)
    reason = read_json(path / FAILURE)["reason"] if (path / FAILURE).exists() else ""
    made = read_json(path / RESULT) if (path / RESULT).exists() else {}
    encoders = made["encoders"] if made else {}
    result = made.get("model") or made.get("network") or next(iter(encoders.values()), None)
    stamp = (path / ROUNDS).stat().st_mtime if (path / ROUNDS).exists() else (path / CONFIG).stat().st_mtime
    return RunOverview(
        path=path,
        state=_state(path, bool(encoders), bool(reason)),
        reason=reason,
        job=str(settings.get("job", "")),
        preset=str(settings.get("preset", "")),
        rounds=_rounds(settings),
        version=str(config.get("version", "")),
        started=float(config.get("started", stamp)),
        seen=stamp,
        records=records,
        sites=[_site_line(name, records) for name in config.get("sites", [])],
        result=path / result if result else None,
        command=str(config.get("command", "")),
    )


def _rounds(settings: dict[str, Any]) -> int | None:
    try:
        return RunSettings.read(settings, {}).build_preset().pretraining.rounds
    except FCLSegError:
        return None


def _state(path: Path, complete: bool, failed: bool) -> str:
    if complete:
        return COMPLETE
    if is_held(lock_path(path)):
        return RUNNING
    return FAILED if failed else STOPPED


def _site_line(name: str, records: list[dict[str, Any]]) -> SiteLine:
    moved = sum(
        direction.get("wire", 0) for record in records for direction in record.get("bytes", {}).get(name, {}).values()
    )
    for record in reversed(records):
        if (report := record["sites"].get(name)) is not None:
            return SiteLine(
                name, record["round"] + 1, report["status"], report.get("loss"), report.get("seconds"), moved
            )
    return SiteLine(name, 0, "no round yet", bytes=moved)


def age(seconds: float) -> str:
    """The age in the largest whole unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def facts(run: RunOverview) -> dict[str, Any]:
    """What everybody may know about a run, as the server stores it with the job for the lead."""
    return {
        "run": run.name,
        "state": run.state,
        "reason": run.reason,
        "job": run.job,
        "preset": run.preset,
        "started": run.started,
        "seen": run.seen,
        "version": run.version,
        "command": run.command,
        "round": len(run.records),
        "rounds": run.rounds,
        "loss": run.records[-1]["loss"] if run.records else None,
        "sites": [site.name for site in run.sites],
        "bytes": run.bytes,
        "result": str(run.result) if run.result else "",
    }


def describe_run(run: RunOverview, now: float | None = None) -> str:
    return describe_facts(facts(run), now)


def describe_facts(known: Mapping[str, Any], now: float | None = None) -> str:
    """One line: name, state, job, rounds, sites, megabytes, date, age, version, result or reason, and the command."""
    rounds = f"{known['round']}/{known['rounds']}" if known["rounds"] else str(known["round"])
    parts = [known["run"], known["state"], f"{known['job']} {known['preset']}", f"round {rounds}"]
    parts += [f"loss {known['loss']:.4f}"] if known["loss"] is not None else []
    parts += [f"{len(known['sites'])} sites", f"{known['bytes'] / 1e6:.1f} MB"]
    parts += [f"started {time.strftime('%Y-%m-%d %H:%M', time.localtime(known['started']))}"]
    parts += [f"{age((now or time.time()) - known['seen'])} ago"]
    parts += [f"version {known['version']}"] if known["version"] else []
    option = "--encoder" if known["result"].endswith(ENCODER) else "--network"  # of the next step
    parts += [f"{option} {known['result']}"] if known["result"] else [known["reason"]] if known["reason"] else []
    parts += [f"$ {known['command']}"] if known["command"] else []
    return "  ".join(parts)
