"""What a finished run has made, and the command to type next."""

from pathlib import Path

from fclseg.engine.run_folder import GLOBAL, RunFolder


def next_steps(run: RunFolder) -> list[str]:
    """Lines for the end of a run: its encoder, its network if it trained one, and how to fine-tune from it."""
    networks = run.site_networks if run.network is None else {GLOBAL: run.network}
    lines = [_line("encoder", site, path) for site, path in run.encoders.items()]
    lines += [_line("network", site, path) for site, path in networks.items()]
    start = networks if run.model or run.site_networks else {}  # one that segments is the better start
    option, found = ("--network", start) if start else ("--encoder", run.encoders)
    path = found.get(GLOBAL) or next(iter(found.values()), None)
    if path is not None:
        lines.append(f"next: fclseg finetune LABELLED --out my_model {option} {path}")
    return lines


def _line(what: str, site: str, path: Path) -> str:
    return f"{what}: {path}" if site == GLOBAL else f"{what} of {site}: {path}"
