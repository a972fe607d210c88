"""Each family agrees with the paper and its challenge, and its bundle agrees with the family."""

import json
from pathlib import Path

import pytest

from fclseg.anatomy.registry import ANATOMIES, get_anatomy, reference
from fclseg.errors import FCLSegError

BUNDLES = Path(__file__).parents[2] / "bundles"


@pytest.mark.parametrize(
    ("name", "structures", "spacing", "partitions"),
    [
        ("acdc", [(1, "RV", "right ventricle"), (2, "MYO", "myocardium"), (3, "LV", "left ventricle")], 1.25, 4),
        ("hvsmr", [(1, "MYO", "myocardium"), (2, "BP", "blood pool")], 0.7, 4),
    ],
)
def test_labels_and_geometry_are_those_of_the_challenge_and_the_paper(name, structures, spacing, partitions):
    anatomy = ANATOMIES[name]
    assert [(one.value, one.name, one.title) for one in anatomy.structures] == structures
    assert (anatomy.spacing_mm, anatomy.partitions, anatomy.slice_axis) == (spacing, partitions, 2)
    assert anatomy.classes == 1 + len(structures)
    assert len({one.colour for one in anatomy.structures}) == len(structures)
    assert anatomy.describe_values() == ", ".join(f"{value} {short}" for value, short, _ in structures)


@pytest.mark.parametrize("name", ANATOMIES)
def test_a_bundle_agrees_with_its_anatomy(name):
    anatomy = ANATOMIES[name]
    metadata = json.loads((BUNDLES / anatomy.bundle / "configs" / "metadata.json").read_text())
    output = metadata["network_data_format"]["outputs"]["pred"]
    # The bundle of plain folders stands for any structures; its metadata show one.
    names = anatomy.names or ("structure",)
    assert metadata["anatomy"] == name
    assert output["num_channels"] == 1 + len(names)
    assert output["channel_def"] == {str(number): word for number, word in enumerate(("background", *names))}


def test_every_bundle_belongs_to_an_anatomy():
    folders = {path.parent.parent.name for path in BUNDLES.glob("*/configs/metadata.json")}
    assert folders == {anatomy.bundle for anatomy in ANATOMIES.values()}


@pytest.mark.parametrize("name", [name for name, anatomy in ANATOMIES.items() if anatomy.structures])
def test_a_registered_anatomy_is_written_as_its_name(name):
    assert reference(ANATOMIES[name]) == name and get_anatomy(name) is ANATOMIES[name]


def test_an_unknown_anatomy_is_one_sentence():
    with pytest.raises(FCLSegError, match=r"there is no anatomy 'knee': choose one of acdc, hvsmr, nifti"):
        get_anatomy("knee")
