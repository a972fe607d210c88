"""The family of phantoms that studies use has nothing in common with the one that shipped networks were trained on."""

from dataclasses import fields

import pytest

from fclseg.errors import DataError
from fclseg.phantom.dataset import draw_heart, draw_scanner, write_phantom
from fclseg.phantom.family import FAMILIES, SEEN, UNSEEN
from fclseg.phantom.slices import SEED
from fclseg.study.datasets import phantom_dataset

DIFFERENT = {"pixel", "slice_spacing", "noise", "blur", "bias", "myocardium"}
HEARTS = range(1, 201)


def test_no_unseen_heart_could_belong_to_a_seen_group():
    """In at least one of LV ejection fraction, radius, wall and RV volume, it lies outside of every seen group."""
    for patient in HEARTS:
        heart = draw_heart(0, patient, FAMILIES[UNSEEN])
        values = (heart.ejection_fraction, heart.radius, heart.wall, heart.rv.volume / heart.volume)
        for group, seen in FAMILIES[SEEN].groups.items():
            ranges = (seen.lv_fraction, seen.radius, seen.wall, seen.rv_volume)
            inside = [low <= value <= high for value, (low, high) in zip(values, ranges, strict=True)]
            assert not all(inside), f"{heart.group} {values} could be {group}"


def test_unseen_scanners_lie_outside_of_the_seen_ranges():
    seen, unseen = FAMILIES[SEEN].protocol, FAMILIES[UNSEEN].protocol
    for name in DIFFERENT:
        (low, high), (other_low, other_high) = getattr(seen, name), getattr(unseen, name)
        assert other_low > high or other_high < low, name
    assert {field.name for field in fields(seen)} >= DIFFERENT
    for site in range(20):
        scanner = draw_scanner(0, site, FAMILIES[UNSEEN])
        drawn = {name: getattr(scanner, name, None) for name in DIFFERENT - {"myocardium"}}
        for name, value in {**drawn, "myocardium": scanner.contrast.myocardium}.items():
            low, high = getattr(unseen, name)
            assert low <= value <= high, name


def test_training_phantoms_are_of_the_seen_family_and_those_of_studies_are_not(tmp_path):
    data = phantom_dataset("acdc", tmp_path, sites=1, patients=4)
    texts = [path.read_text() for path in data.root.rglob("Info.cfg")]
    groups = {line.split(": ")[1] for text in texts for line in text.splitlines() if line.startswith("Group")}
    assert groups and groups <= set(FAMILIES[UNSEEN].groups)
    assert {draw_heart(SEED, patient).group for patient in HEARTS} == set(FAMILIES[SEEN].groups)


def test_an_unknown_family_is_refused(tmp_path):
    with pytest.raises(DataError, match="no phantom family 'other': choose one of seen, unseen"):
        write_phantom(tmp_path / "data", family="other")
