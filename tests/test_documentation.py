"""The documentation stays short, its links lead somewhere, and the commands that it prints exist."""

import argparse
import csv
import importlib
import re
import shlex
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

import fclseg.api
from fclseg.cli import build_parser

CHECKOUT = Path(__file__).parents[1]
GENERATED = CHECKOUT / "docs" / "reference" / "generated"
PAGES = sorted(path for path in (CHECKOUT / "docs").rglob("*.md") if GENERATED not in path.parents)
TEXTS = [*PAGES, *sorted(CHECKOUT.glob("*.md")), *sorted(CHECKOUT.glob("bundles/*/docs/*.md"))]
MOST_WORDS = {"README.md": 900, "docs/results.md": 2500, "CHANGELOG.md": 600}
LINK = re.compile(r"\]\(([^)\s]+)\)")


def words(path: Path) -> int:
    """As ``wc -w`` counts them."""
    return len(path.read_text(encoding="utf-8").split())


def name(path: Path) -> str:
    return str(path.relative_to(CHECKOUT))


def test_the_documentation_is_short():
    assert sum(words(path) for path in PAGES) <= 16_000
    for page, most in MOST_WORDS.items():
        assert words(CHECKOUT / page) <= most, page


def hospitals(page: str) -> dict[str, list[str]]:
    """The rows of hospitals in a page: patients, Dice, RV, MYO, LV, and the other columns."""
    lines = (CHECKOUT / page).read_text(encoding="utf-8").splitlines()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(r"\| (ACDC|M&Ms) ", line)
    ]
    return {row[0]: row[1:] for row in rows}


def test_the_readme_has_the_figures_of_the_model_card():
    card, readme = hospitals("bundles/acdc_unet/docs/weights.md"), hospitals("README.md")
    assert len(readme) == 4 and readme == {name: [*row[:5], row[-2]] for name, row in card.items()}


@cache
def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", TEXTS, ids=name)
def test_links_lead_to_files_and_headings(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue  # an address on the web
        file, _, anchor = unquote(target).partition("#")
        there = (page.parent / file).resolve() if file else page
        if GENERATED in there.parents:
            continue  # `make docs` checks these
        assert there.exists(), f"{name(page)}: {target}"
        assert not anchor or anchor in anchors(there), f"{name(page)}: {target}"


CODE = re.compile(r"`((?:\w+/)*\w+\.py)(?::(\w+)[^`]*)?`")
SOURCES = [
    path for folder in ("custom", "benchmarks", "poc", "tests", "docs") for path in CHECKOUT.glob(f"{folder}/**/*.py")
]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_named_source_files_exist(page):
    for path, symbol in CODE.findall(page.read_text(encoding="utf-8")):
        files = [file for file in SOURCES if str(file).endswith(f"/{path}") or "NAME" in path]
        assert files, f"{name(page)}: {path}"
        texts = [file.read_text(encoding="utf-8") for file in files if symbol]
        assert not symbol or any(symbol in text for text in texts), f"{name(page)}: {path}:{symbol}"


def test_every_page_is_in_the_table_of_contents():
    index = (CHECKOUT / "docs" / "index.md").read_text(encoding="utf-8").splitlines()
    for page in PAGES:
        place = str(page.relative_to(CHECKOUT / "docs").with_suffix(""))
        assert place == "index" or place in index


def test_every_table_of_results_is_listed():
    folder = CHECKOUT / "docs" / "results"
    with (folder / "index.csv").open(newline="") as file:
        listed = {row["file"] for row in csv.DictReader(file) if row["command"]}
    assert listed == {path.name for path in folder.iterdir()} - {"index.csv"}


def test_tests_named_by_the_list_of_faults_exist():
    with (CHECKOUT / "docs" / "results" / "inbox_faults.csv").open(newline="") as file:
        named = [row["test"].split("::") for row in csv.DictReader(file)]
    assert len(named) > 20
    for path, function in named:
        assert f"def {function}(" in (CHECKOUT / path).read_text(encoding="utf-8"), function


def test_the_reference_lists_the_whole_api(monkeypatch):
    monkeypatch.syspath_prepend(CHECKOUT / "docs")
    text = importlib.import_module("generate").api()
    missing = [one for one in fclseg.api.__all__ if not re.search(rf":: fclseg\.[\w.]*\b{one}$", text, re.MULTILINE)]
    assert not missing


def command_lines(page: Path) -> list[str]:
    """The lines of code blocks that call fclseg, without comments and with continued lines joined."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    calls = (re.match(r"(?:\w+\$ +)?(fclseg .*)", line) for line in lines)
    return [re.split(r"\s+#\s", match[1])[0].split(";")[0] for match in calls if match]


COMMANDS = [(page, line) for page in TEXTS for line in command_lines(page)]


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=[f"{name(page)}: {line}" for page, line in COMMANDS])
def test_commands_can_be_parsed(page, line, monkeypatch):
    """Names and options are those of today; missing files are no concern of this test."""

    def fail(parser, message):
        raise AssertionError(f"{name(page)}: {line}: {message}")

    monkeypatch.setattr(argparse.ArgumentParser, "error", fail)
    try:
        build_parser().parse_args(shlex.split(line)[1:])
    except SystemExit as end:  # --help and --version
        assert end.code == 0
