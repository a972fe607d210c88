"""``/health`` and ``/metrics`` (Prometheus) of a hospital's site, for a monitoring program on the same machine."""

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from fclseg.engine.place import Place
from fclseg.flare.kits.kit_check import Result, check_kit
from fclseg.flare.runs.watch_page import Pages, label
from fclseg.hospital.audit import REFUSED, SENT, Audit

CHECK_SECONDS = 60.0
"""The checks look at images and at the server, which is too much for each question of a monitoring program."""


def site_pages(kit: Path) -> Callable[[], Pages]:
    """The pages of the site with this kit. Faults are those of ``fclseg site check``."""
    kept: tuple[float, list[Result]] = (-CHECK_SECONDS, [])

    def read() -> Pages:
        nonlocal kept
        if time.monotonic() - kept[0] >= CHECK_SECONDS:
            kept = (time.monotonic(), list(check_kit(kit)))
        faults = [f"{one.name}: {one.fault}" for one in kept[1] if one.fault]
        health = (503 if faults else 200, "text/plain", "\n".join(faults or ["ok"]) + "\n")
        return {"/health": health, "/metrics": (200, "text/plain", metrics(kit, len(faults)))}

    return read


def metrics(kit: Path, faults: int, now: float | None = None) -> str:
    """Of the site: its faults. Of each run, from the audit file: what left or was refused, and how long ago."""
    now, lines = now or time.time(), [f"fclseg_site_faults {faults}"]
    entries = Audit(Place("", kit).runs).entries()
    for run in sorted({entry["run"] for entry in entries}):
        own = [entry for entry in entries if entry["run"] == run]
        counts = {outcome: sum(entry["outcome"] == outcome for entry in own) for outcome in (SENT, REFUSED)}
        last = datetime.fromisoformat(own[-1]["time"]).timestamp()
        lines += [f"fclseg_site_{outcome}_total{{run={label(run)}}} {count}" for outcome, count in counts.items()]
        lines.append(f"fclseg_site_seconds_since_result{{run={label(run)}}} {max(0.0, now - last):.0f}")
    return "\n".join(lines) + "\n"
