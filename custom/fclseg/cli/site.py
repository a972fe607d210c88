"""``fclseg site``: for hospital staff. What left the site, what was refused, and which runs may start."""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fclseg.cli import site_join
from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands, positive
from fclseg.errors import FCLSegError
from fclseg.text import printable

EXAMPLES = """examples:
  fclseg site join site-1 --data /data/cardiac        set the image folder, check everything, start
  fclseg site check site-1
in the folder of the site's startup kit:
  fclseg site policy
  fclseg site runs
  fclseg site approve 3f9a1c27d0b4                    the fingerprint that `fclseg site runs` shows
  fclseg site audit --run fclopt_dp-small
  fclseg site budget --rounds 40
  fclseg site watch --port 8766                       for a monitoring program on this machine"""


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "site",
        help="for hospital staff: the site's policy, the runs it approves, and what left it",
        description="For hospital staff: the site's policy, the runs that asked for tasks, and the audit log.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    site_join.register(commands)
    _command(commands, "policy", "show what the site allows, and whether its policy file is valid", policy)
    _command(commands, "runs", "list the runs that asked this site for tasks", runs)
    approving = _command(commands, "approve", "allow a run to start", approve)
    approving.add_argument("fingerprint", metavar="FINGERPRINT", help="as `fclseg site runs` shows it")
    budget_parser = _command(commands, "budget", "show how much of the privacy budget has been spent", budget)
    budget_parser.add_argument(
        "--rounds", type=int, metavar="R", help="also show epsilon after another run of R rounds"
    )
    watching = _command(commands, "watch", "answer /health and /metrics (Prometheus) on this machine", watch)
    watching.add_argument("--port", type=int, required=True, metavar="P", help="at http://localhost:P")
    audit_parser = _command(commands, "audit", "show what left this site and what was refused", audit)
    audit_parser.add_argument("--run", dest="name", metavar="RUN", help="only the entries of this run")


def _command(
    commands: Commands, name: str, text: str, run: Callable[[argparse.Namespace], object]
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.add_argument(
        "--kit", type=Path, default=Path(), metavar="DIR", help="the site's startup kit (default: this folder)"
    )
    parser.set_defaults(run=run)
    return parser


def _place(arguments: argparse.Namespace) -> Any:
    from fclseg.engine.place import LOCAL_FILE, Place

    kit = arguments.kit.absolute()
    if not (kit / LOCAL_FILE).exists():
        raise FCLSegError(
            f"{kit} is not a site's startup kit (it has no {LOCAL_FILE}): give the kit's folder with --kit"
        )
    return Place("", kit)


def policy(arguments: argparse.Namespace) -> Answer:
    from fclseg.hospital.policy import Policy

    chosen = Policy.of(_place(arguments))
    for name, value in vars(chosen).items():
        print(f"{name:<13} {', '.join(value) if isinstance(value, tuple) else value}")
    return Answer(vars(chosen))


def runs(arguments: argparse.Namespace) -> Answer:
    from fclseg.hospital.admission import SHOWN, Admissions
    from fclseg.hospital.policy import Policy

    place = _place(arguments)
    waits = Policy.of(place).approval
    known = Admissions(place.runs).all()
    if not known:
        print("no run has asked this site for a task yet")
    for entry in known:
        asked = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.asked))
        state = "approved" if entry.approved else "waits for approval" if waits else "needs no approval"
        what = f"{entry.job}, preset {entry.preset}, {entry.rounds} rounds, submitted by {entry.submitter}"
        print(printable(f"{entry.fingerprint[:SHOWN]}  {entry.run}: {what}; asked on {asked}; {state}"))
    return Answer({"runs": known})


def approve(arguments: argparse.Namespace) -> Answer:
    from fclseg.hospital.admission import Admissions

    entry = Admissions(_place(arguments).runs).approve(arguments.fingerprint)
    print(
        f"approved: run {printable(entry.run)}, job {entry.job}, preset {entry.preset}, {entry.rounds} rounds, "
        f"submitted by {printable(entry.submitter)}; no other run is, also under this name"
    )
    return Answer(entry)


def budget(arguments: argparse.Namespace) -> Answer:
    from fclseg.hospital.budget import Budget
    from fclseg.hospital.policy import Policy
    from fclseg.privacy.accountant import UPDATE_SENSITIVITY, epsilon

    place = _place(arguments)
    policy, kept = Policy.of(place), Budget(place.runs)
    spent = kept.spent()
    limit = "no limit in the policy" if policy.epsilon is None else f"the policy allows {policy.epsilon:g}"
    facts = {"epsilon": epsilon(spent, policy.delta), "delta": policy.delta, "allowed": policy.epsilon}
    print(f"epsilon {facts['epsilon']:.3f} at delta {policy.delta:g} has been spent; {limit}")
    if arguments.rounds is not None:
        if not policy.sigma:
            raise FCLSegError("a run without noise on its updates has no epsilon: set 'clip' and 'sigma' in the policy")
        further = [policy.sigma / UPDATE_SENSITIVITY] * positive(arguments.rounds, "--rounds")
        after = epsilon([*spent, *further], policy.delta)
        facts["after"] = after
        print(f"epsilon {after:.3f} after {arguments.rounds} more rounds with sigma {policy.sigma:g} on the networks")
    if left := kept.uncounted():
        print(f"{left} results left with parts that had no noise; epsilon does not cover them")
    return Answer(facts | {"uncounted": left})


def watch(arguments: argparse.Namespace) -> Answer:
    from fclseg.flare.kits.site_pages import site_pages
    from fclseg.flare.runs.watch_page import open_pages

    _place(arguments)
    with open_pages(site_pages(arguments.kit.absolute()), arguments.port) as server:
        server.serve_forever()
    return Answer({})


def audit(arguments: argparse.Namespace) -> Answer:
    from fclseg.hospital.audit import SENT, Audit

    file = Audit(_place(arguments).runs)
    entries = [entry for entry in file.entries() if arguments.name in (None, entry["run"])]
    for entry in entries:
        what = _sent(entry) if entry["outcome"] == SENT else f"refused: {entry['reason']}"
        line = f"{entry['time']}  {entry['run']}  round {entry['round'] + 1}  {entry['task']:<8}  {what}"
        print(printable(f"{line}  (job {entry['job']}, submitted by {entry['submitter']})"))
    print(f"{len(entries)} entries; {file.path} is complete and unchanged")
    return Answer({"file": file.path, "entries": entries})


def _sent(entry: dict[str, Any]) -> str:
    parts = ", ".join(f"{name} {size} bytes" for name, size in entry["components"].items()) or "a report only"
    text = f"sent {parts}" + (f", update of norm {entry['norm']:.4g}" if entry["norm"] is not None else "")
    if privacy := entry.get("privacy"):
        text += ", protected by " + " ".join(f"{name}={value:g}" for name, value in privacy.items())
    return text + (f", epsilon {entry['epsilon']:.3f} so far" if entry.get("epsilon") is not None else "")
