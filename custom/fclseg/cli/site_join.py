"""``fclseg site join`` and ``fclseg site check``: from an unpacked startup kit to a site that takes part."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands
from fclseg.errors import FCLSegError
from fclseg.text import printable

if TYPE_CHECKING:
    from fclseg.flare.kits.kit_check import Result


def register(commands: Commands) -> None:
    joining = commands.add_parser(
        "join",
        help="set the image folder, check everything, and start the site",
        description="Write the image folder into the kit's local/fclseg.json, check everything that "
        "`fclseg site check` checks, and start the site: as a systemd service (--service), in the background "
        "(--start), or not yet.",
    )
    joining.add_argument("kit", type=Path, metavar="KIT", help="the folder of the site's startup kit")
    joining.add_argument("--data", type=Path, metavar="DIR", help="folder of images (default: the one already set)")
    how = joining.add_mutually_exclusive_group()
    how.add_argument("--service", action="store_true", help="run as a systemd service that also starts at boot")
    how.add_argument("--start", action="store_true", help="start now, without a service")
    joining.set_defaults(run=join)
    checking = commands.add_parser(
        "check",
        help="check versions, certificate, policy, images, disk and the connection to the server",
        description="Check everything that could prevent the site from taking part. Every fault is one sentence.",
    )
    checking.add_argument("kit", type=Path, metavar="KIT", help="the folder of the site's startup kit")
    checking.set_defaults(run=check)


def check(arguments: argparse.Namespace) -> Answer:
    results = _report(arguments.kit.absolute())
    faults = sum(bool(result.fault) for result in results)
    print("no faults: the site can take part" if not faults else f"{faults} faults: fix them and check again")
    return Answer({"checks": results, "faults": faults}, 1 if faults else 0)


def _report(kit: Path) -> "list[Result]":
    """Print one line per check."""
    from fclseg.flare.kits.kit_check import check_kit

    results = []
    for result in check_kit(kit):
        results.append(result)
        print(f"{_word(result):<6} {result.name:<12} {printable(result.fault or result.found)}")
    return results


def _word(result: "Result") -> str:
    from fclseg.flare.kits.kit_check import Notice

    return "FAULT" if result.fault else "SOON" if isinstance(result.found, Notice) else "ok"


def join(arguments: argparse.Namespace) -> Answer:
    from fclseg.flare.kits.kit import Kit
    from fclseg.flare.kits.service import install_service, start_kit

    kit = Kit(arguments.kit.absolute())
    if kit.unusable:
        raise FCLSegError(kit.unusable)
    if arguments.data is not None:
        kit.set_data(arguments.data.absolute())
    if faults := [one for one in _report(kit.path) if one.fault]:
        raise FCLSegError(
            f"{kit.site} has {len(faults)} faults and was not started: fix them and run the command again"
        )
    if arguments.service:
        print(f"{kit.site} runs as the service {install_service(kit.site, kit.path)}")
    elif arguments.start:
        start_kit(kit.path)
        print(f"{kit.site} was started; {kit.path / 'log.txt'} shows what it does")
    else:
        print(f"{kit.site} is ready: run the same command with --service or --start to start it")
    state = "service" if arguments.service else "started" if arguments.start else "ready"
    return Answer({"site": kit.site, "kit": kit.path, "state": state})
