"""``fclseg doctor``: what a bug report needs to know about this machine."""

import argparse

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="print versions, devices, folders, caches and disk space, for bug reports",
        description="Print versions, devices, folders, caches and disk space. Nothing about patients.",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> Answer:
    from fclseg.api import doctor

    health = doctor()
    print(", ".join(f"{name} {version or 'not installed'}" for name, version in health.versions.items()))
    print(f"{health.system}; {health.processor}, {health.cores} cores, {health.memory / 1e9:.1f} GB memory")
    print(f"devices: {'; '.join(health.devices)}")
    for name, folder in health.folders.items():
        size = f"{folder.size / 1e6:.0f} MB, " if folder.size else "" if folder.exists else "does not exist yet, "
        print(f"{name:<8} {folder.path} ({size}{folder.free / 1e9:.1f} GB free)")
    for name, path in health.weights.items():
        print(f"weights  {name}: {path or 'none'}")
    for name, value in health.variables.items():
        print(f"{name}={value}")
    for problem in health.problems:
        print(f"problem: {problem}")
    return Answer(health, 1 if health.problems else 0)
