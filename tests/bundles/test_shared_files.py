"""What bundles share is a copy in each of them, because links break a checkout on Windows."""

import subprocess
from pathlib import Path

import pytest

from fclseg.resources import BUNDLES, resource_folder, resource_names

CHECKOUT = Path(__file__).parents[2]
SHARED = ("configs/train.json", "configs/evaluate.json", "configs/inference.json", "configs/logging.conf", "LICENSE")


@pytest.mark.parametrize("file", SHARED)
def test_all_bundles_have_the_same_file(file):
    source = resource_folder(BUNDLES) / "acdc_unet" / file
    for name in resource_names(BUNDLES):
        copy = resource_folder(BUNDLES) / name / file
        assert copy.read_bytes() == source.read_bytes(), f"copy {source} to {copy}"


def test_the_licence_is_that_of_the_project():
    assert (resource_folder(BUNDLES) / "acdc_unet" / "LICENSE").read_bytes() == (CHECKOUT / "LICENSE").read_bytes()


def test_there_are_no_links_in_the_repository():
    listed = subprocess.run(["git", "ls-files", "-s"], cwd=CHECKOUT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is not a git checkout")
    assert not [line for line in listed.stdout.splitlines() if line.startswith("120000")]
