"""``fclseg inbox``: a DICOM node that segments exams and sends the results to the archive."""

import argparse
from pathlib import Path

from fclseg.cli.options import Commands

DESCRIPTION = """Receive exams by DICOM or from a watched folder, segment their short-axis cines, and send the results
back: segmentations (SEG), measurements (SR) and the report (PDF).

Only the titles given with --allow may send. DIR holds the queue: what was received survives a restart, and nothing is
sent twice. The log has hashes instead of names. Stop with Ctrl-C; the same command continues. Research only, not for
clinical use."""

EXAMPLES = """examples:
  fclseg inbox queue --allow PACS --dry-run                           # receive and segment, send nothing
  fclseg inbox queue --allow PACS@10.0.0.5 --host 10.0.0.9 --send PACS@10.0.0.5:104 --status-port 8080
  fclseg inbox queue --watch /exports --send PACS@10.0.0.5:104        # a folder instead of, or beside, a sender
  echoscu -aec FCLSEG -aet PACS 10.0.0.9 11112                        # does it answer? (dcmtk)"""


def register(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "inbox",
        help="a DICOM node that segments exams and sends results back",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of the queue, only for this account")
    parser.add_argument("--title", default="FCLSEG", help="our application entity title (default FCLSEG)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this machine only)"
    )
    parser.add_argument("--port", type=int, default=11112, help="port to listen on (default 11112)")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="TITLE[@ADDRESS]", help="who may send; repeat for several"
    )
    parser.add_argument("--send", metavar="TITLE@HOST:PORT", help="where results go (default: they stay in DIR)")
    parser.add_argument("--watch", type=Path, metavar="FOLDER", help="also take DICOM files that are copied there")
    parser.add_argument(
        "--quiet-seconds", type=float, default=60.0, metavar="S",
        help="a study is complete if nothing arrived for so long (default 60)",
    )  # fmt: skip
    parser.add_argument(
        "--keep-days", type=float, default=7.0, metavar="D", help="keep images of finished studies (default 7 days)"
    )
    parser.add_argument("--dry-run", action="store_true", help="segment, but send nothing; a later run sends it")
    parser.add_argument(
        "--no-verify", action="store_true",
        help="do not ask whether the archive lists the results (for a router that passes them on)",
    )  # fmt: skip
    parser.add_argument("--model", type=Path, metavar="FILE", help="fine-tuned model (default: the shipped weights)")
    parser.add_argument("--status-port", type=int, metavar="P", help="show a status page on http://127.0.0.1:P")
    parser.add_argument(
        "--tls", nargs=3, type=Path, metavar=("CERT", "KEY", "CA"), help="PEM files; both sides must show certificates"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from fclseg.errors import FCLSegError
    from fclseg.inbox.service import inbox
    from fclseg.inbox.settings import Caller, Node, Settings, Tls

    if not arguments.allow and arguments.watch is None:
        raise FCLSegError("nobody may send: give --allow TITLE[@ADDRESS], or --watch FOLDER")
    if arguments.watch is not None and not arguments.watch.is_dir():
        raise FCLSegError(f"--watch {arguments.watch}: there is no such folder; create it first")
    inbox(
        Settings(
            folder=arguments.folder,
            title=arguments.title,
            host=arguments.host,
            port=arguments.port,
            callers=tuple(Caller.parse(text) for text in arguments.allow),
            send_to=Node.parse(arguments.send) if arguments.send else None,
            watch=arguments.watch,
            quiet_seconds=arguments.quiet_seconds,
            keep_days=arguments.keep_days,
            dry_run=arguments.dry_run,
            verify=not arguments.no_verify,
            model=arguments.model,
            status_port=arguments.status_port,
            tls=Tls(*arguments.tls) if arguments.tls else None,
        )
    )
    return 0
