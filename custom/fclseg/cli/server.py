"""``fclseg server``: for the coordinator. One command makes the startup kits of the server and all hospitals."""

import argparse
from pathlib import Path

from fclseg.cli.answers import Answer
from fclseg.cli.options import Commands
from fclseg.text import printable


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "server",
        help="for the coordinator: set up a federation",
        description="For the coordinator: set up a federation of hospitals.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    making = commands.add_parser(
        "init",
        help="make a startup kit for the server, each hospital, the coordinator and the lead",
        description="Make a startup kit for every party. The folder contains the private keys of all: send each "
        "hospital only its own kit. docs/howto/hospital.md explains how hospitals can make their own keys.",
        epilog="example:\n  fclseg server init federation --host fl.hospital.org --sites hospital-a,hospital-b --start",
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
    making.set_defaults(run=init)


def init(arguments: argparse.Namespace) -> Answer:
    from fclseg.flare.kits.project import make_kits
    from fclseg.flare.kits.service import start_kit

    parties = make_kits(arguments.folder.absolute(), arguments.host, arguments.sites.split(","), arguments.port)
    steps = {
        "server": "bash {kit}/startup/start.sh",
        "client": "send it; there: fclseg site join {kit.name} --data DIR --service",
        "admin": "fclseg submit JOB --kit {kit}",
    }
    for party in parties:
        next_step = "stops jobs: nvflare job abort" if party.name.startswith("admin@") else steps[party.kind]
        print(printable(f"{party.name:<24} {party.kit}"))
        print(printable(f"{'':<24} {next_step.format(kit=party.kit)}"))
    if arguments.start:
        start_kit(parties[0].kit)
        print(f"{parties[0].name} was started on the ports {arguments.port} and {arguments.port + 1}")
    return Answer({"parties": [{"name": one.name, "kind": one.kind, "kit": one.kit} for one in parties]})
