"""Command line options that several commands share."""

import argparse
from typing import Any, TypeAlias

from fclseg.errors import FCLSegError

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""What a command adds itself to."""


def add_run_options(parser: argparse.ArgumentParser, network: str) -> None:
    """What can be chosen for every run, simulated or not; ``network`` says where the file to start from is."""
    parser.add_argument("--preset", default="small", help="demo, small, standard or paper (default small)")
    parser.add_argument("--rounds", type=int, metavar="R", help="number of rounds (default: the preset's)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="random seed of the whole run (default 0)")
    parser.add_argument(
        "--network",
        metavar="FILE",
        help=f"start from this whole network, {network}; 'shipped': the weights that come with the bundle "
        "(default: the job's own start)",
    )
    parser.add_argument("--codec", help="how networks are encoded: plain, lossless, 8bit or tiny (default: the job's)")
    parser.add_argument(
        "--sums-only",
        nargs="?",
        const=8,
        type=int,
        metavar="BITS",
        help="the server learns only sums over the sites, of numbers with 4 to 16 bits (default 8)",
    )
    parser.add_argument("--tracking", help="also write the curves to this tracker: mlflow or wandb")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change one setting of the preset; repeatable"
    )


def sum_settings(bits: int | None) -> dict[str, Any]:
    """The settings of ``--sums-only``."""
    return {} if bits is None else {"sums_only": True, "sum_bits": bits}


def preset_change(text: str) -> tuple[str, object]:
    """``--set NAME=VALUE``: replaces one value of the preset."""
    return named_value(text, "--set", "local_epochs=2")


def parse_value(text: str) -> object:
    """A whole number, a number, a tuple of whole numbers (8,16,32), true, false or a word."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float, lambda t: tuple(int(part) for part in t.split(","))):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def named_value(text: str, option: str, example: str) -> tuple[str, object]:
    """Splits ``NAME=VALUE``, the form that several options take."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise FCLSegError(f"{option} {text} is not of the form NAME=VALUE, for example {option} {example}")
    return name, parse_value(value)


def positive(value: int, option: str) -> int:
    if value < 1:
        raise FCLSegError(f"{option} must be at least 1, not {value}")
    return value
