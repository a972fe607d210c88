"""What a release says about itself: one version everywhere, and a lock file that is within the users' ranges."""

import importlib.metadata
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fclseg import __version__

CHECKOUT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
EXTRAS = ("dicom", "inbox", "privacy", "test", "docs")
"""What `make` installs. The other extras are installed by whoever needs them."""


def ranges() -> list[Requirement]:
    optional = PROJECT["optional-dependencies"]
    return [
        Requirement(text) for text in [*PROJECT["dependencies"], *(one for name in EXTRAS for one in optional[name])]
    ]


def locked() -> dict[str, str]:
    lines = (line for line in (CHECKOUT / "requirements.txt").read_text().splitlines() if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


@pytest.mark.parametrize("wanted", ranges(), ids=lambda wanted: wanted.name)
def test_the_lock_file_has_every_package_within_its_range(wanted):
    assert wanted.specifier.contains(locked()[canonicalize_name(wanted.name)])


def test_the_lock_file_is_complete():
    """Every package that a locked one needs here is locked, too; torch's GPU build brings libraries of its own."""
    pins = locked()
    for name in pins.keys() - {"torch"}:
        for text in importlib.metadata.requires(name) or []:
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                assert canonicalize_name(needed.name) in pins, f"{name} needs {needed.name}: run `make lock`"


def test_one_version_everywhere():
    assert PROJECT["dynamic"] == ["version"]
    citation = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text())
    assert citation["version"] == __version__ and citation["authors"] and citation["date-released"]
    newest = re.search(r"^## (\S+) \((\S+)\)$", (CHECKOUT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest and newest.groups() == (__version__, str(citation["date-released"]))
    for path in CHECKOUT.glob("bundles/*/configs/metadata.json"):
        assert json.loads(path.read_text())["required_packages_version"]["fclseg"] == __version__


def test_the_package_says_that_it_is_typed():
    assert (CHECKOUT / "custom" / "fclseg" / "py.typed").is_file()
    assert "Typing :: Typed" in PROJECT["classifiers"]
