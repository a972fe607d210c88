"""The list of mutants matches the code: this fails if somebody changes a mutated line."""

from collections import Counter

import pytest
from catalogue import ROOT, read_mutants

MUTANTS = read_mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_and_names_tests(mutant):
    assert mutant.fault(ROOT) is None
    assert mutant.new != mutant.old and mutant.old.count("\n") == 0, "one line"
    for name in mutant.tests:
        assert (ROOT / "tests" / name.partition("::")[0]).is_file(), name
    assert mutant.tests


def test_names_are_unique_and_every_wire_has_some():
    assert [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1] == []
    assert len(MUTANTS) >= 35
