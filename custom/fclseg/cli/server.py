"""``fclseg server``: for the coordinator. Makes and renews the kits of all parties, and looks after the server."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands
from fclseg.text import printable

if TYPE_CHECKING:
    from fclseg.flare.kits.project import Party

EXAMPLES = """examples:
  fclseg server init federation --host fl.hospital.org --sites hospital-a,hospital-b --start
  fclseg server add federation --sites hospital-c
  fclseg server renew federation hospital-a fl.hospital.org
  fclseg server service federation/kits/fclseg/prod_00/fl.hospital.org
  fclseg server watch federation/kits/fclseg/prod_00/fl.hospital.org --port 8767"""
STEPS = {
    "server": "bash {kit}/startup/start.sh, or: fclseg server service {kit}",
    "client": "send it; there: fclseg site join {kit.name} --data DIR --service",
    "admin": "fclseg submit JOB --kit {kit}",
}


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "server",
        help="for the coordinator: set up a federation and look after its server",
        description="For the coordinator: set up a federation of hospitals, and look after its server.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    making = _command(
        commands, "init", "make a startup kit for the server, each hospital, the coordinator and the lead", init
    )
    making.description = (
        "Make a startup kit for every party. The folder contains the private keys of all: send each "
        "hospital only its own kit. docs/howto/hospital.md explains how hospitals can make their own keys."
    )
    making.add_argument("folder", type=Path, metavar="DIR", help="new folder for the project, kits and results")
    making.add_argument(
        "--host", required=True, help="the server's fully qualified host name, which every hospital can reach"
    )
    making.add_argument("--sites", required=True, metavar="A,B,...", help="names of the hospitals")
    making.add_argument(
        "--port", type=int, default=8102, metavar="P", help="port for the sites; P+1 is used for the lead"
    )
    making.add_argument("--start", action="store_true", help="also start the server")
    adding = _command(commands, "add", "make kits for further hospitals; all others keep theirs", add)
    adding.add_argument("folder", type=Path, metavar="DIR", help="the folder that `fclseg server init` made")
    adding.add_argument("--sites", required=True, metavar="A,B,...", help="names of the new hospitals")
    renewing = _command(commands, "renew", "make kits with new keys and certificates for some parties", renew)
    renewing.add_argument("folder", type=Path, metavar="DIR", help="the folder that `fclseg server init` made")
    renewing.add_argument("names", nargs="+", metavar="PARTY", help="hospital, server, lead or coordinator")
    serving = _command(commands, "service", "run the server as a systemd service that also starts at boot", service)
    serving.add_argument("kit", type=Path, metavar="KIT", help="the folder of the server's startup kit")
    watching = _command(commands, "watch", "answer /health and /metrics (Prometheus) on this machine", watch)
    watching.add_argument("kit", type=Path, metavar="KIT", help="the folder of the server's startup kit")
    watching.add_argument("--port", type=int, required=True, metavar="P", help="at http://localhost:P")


def _command(
    commands: Commands, name: str, text: str, run: Callable[[argparse.Namespace], Answer]
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.set_defaults(run=run)
    return parser


def init(arguments: argparse.Namespace) -> Answer:
    from fclseg.flare.kits.project import make_kits
    from fclseg.flare.kits.service import start_kit

    parties = make_kits(arguments.folder.absolute(), arguments.host, arguments.sites.split(","), arguments.port)
    answer = _shown(parties, STEPS)
    if arguments.start:
        start_kit(parties[0].kit)
        print(f"{parties[0].name} was started on the ports {arguments.port} and {arguments.port + 1}")
    return answer


def add(arguments: argparse.Namespace) -> Answer:
    from fclseg.flare.kits.project import add_sites

    return _shown(add_sites(arguments.folder.absolute(), arguments.sites.split(",")), STEPS)


def renew(arguments: argparse.Namespace) -> Answer:
    from fclseg.flare.kits.project import renew

    step = "stop the party, replace the folder startup of its kit by this one's, start it; nothing else changes"
    return _shown(renew(arguments.folder.absolute(), arguments.names), dict.fromkeys(STEPS, step))


def _shown(parties: "Sequence[Party]", steps: dict[str, str]) -> Answer:
    for party in parties:
        coordinator = steps is STEPS and party.name.startswith("admin@")
        next_step = "stops jobs: nvflare job abort" if coordinator else steps[party.kind]
        print(printable(f"{party.name:<24} {party.kit}"))
        print(printable(f"{'':<24} {next_step.format(kit=party.kit)}"))
    return Answer({"parties": [{"name": one.name, "kind": one.kind, "kit": one.kit} for one in parties]})


def service(arguments: argparse.Namespace) -> Answer:
    from fclseg.flare.kits.server_pages import server_kit
    from fclseg.flare.kits.service import install_service

    kit = server_kit(arguments.kit)
    name = install_service(kit.name, kit)
    print(f"{kit.name} runs as the service {name}")
    return Answer({"service": name})


def watch(arguments: argparse.Namespace) -> Answer:
    from fclseg.flare.kits.server_pages import server_kit, server_pages
    from fclseg.flare.runs.watch_page import open_pages

    with open_pages(server_pages(server_kit(arguments.kit)), arguments.port) as server:
        server.serve_forever()
    return Answer({})
