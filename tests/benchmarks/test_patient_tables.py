"""``benchmarks/ingredients.py`` and ``few_labels.py``: what their rows are made of. The rows themselves take hours."""

import importlib
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fclseg.finetune.phantom_stream import phantom_windows

SCRIPTS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    def load(name):
        monkeypatch.syspath_prepend(SCRIPTS)
        for one in (name, "labelled_slices"):
            monkeypatch.delitem(sys.modules, one, raising=False)
        return importlib.import_module(name)

    return load


def test_every_phantom_variant_has_other_patients_and_leaves_the_phantom_as_it_was(script):
    ingredients = script("ingredients")
    changed = {name: one.replaced for name, one in ingredients.VARIANTS.items() if one.replaced}
    assert set(changed) == {"sizes", "still valves", "outlines"}
    drawn = range(1, 7)  # a thin wall stays thin in some of them
    usual = [phantom_windows(3, patient, 32, 6.0) for patient in drawn]
    for name, replaced in changed.items():
        with ingredients.phantom_with(replaced):
            other = [phantom_windows(3, patient, 32, 6.0) for patient in drawn]
        assert not all(_same(*pair) for pair in zip(usual, other, strict=True)), name
    assert all(_same(one, phantom_windows(3, patient, 32, 6.0)) for patient, one in zip(drawn, usual, strict=True))


def _same(one, other):
    return all(a.shape == b.shape and np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_row_of_few_labels_is_the_mean_over_hospitals_and_over_patients(script):
    few = script("few_labels")

    people = {name: SimpleNamespace(hospital=name[0]) for name in ("a1", "a2", "b1")}
    two = SimpleNamespace(names=["a", "b"], people=people)

    def scores(dice, found, true):
        return {"dice": dice} | {
            f"{kind}ef_{one}": ef for one in ("LV", "RV") for kind, ef in (("", found), ("true_", true))
        }

    patients = {"a1": scores(0.8, 50, 60), "a2": scores(0.9, 55, 50), "b1": scores(0.6, None, 40)}
    cell = few.Cell(few.ALONE, "", 0, 0)._asdict()
    row = list(few.table([{"cell": cell, "cpu_seconds": 3.0, "patients": patients}], two))[1]
    assert row == "alone,0,0.850,0.600,0.725,7.5,7.5,1/1,3"


def test_more_labels_contain_fewer(script):
    few = script("few_labels")
    hospitals = object.__new__(few.Hospitals)
    hospitals.names = ["a"]
    hospitals.people = {f"a{i}": SimpleNamespace(hospital="a", half=few.CHOOSE) for i in range(9)}
    drawn = [set(hospitals.drawn(few.Cell(few.TOGETHER, "", count, 1))) for count in (1, 2, 4, 8, 1000)]
    assert [len(one) for one in drawn] == [1, 2, 4, 8, 9]
    assert all(less < more for less, more in pairwise(drawn))
