"""A sample of what ``benchmarks/mutated_records.py`` does a thousand times: each kind of file a few times."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "mutated_records.py"


@pytest.mark.nightly
def test_damaged_files_end_in_a_result_or_in_one_sentence(monkeypatch):
    spec = importlib.util.spec_from_file_location("mutated_records", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mutated_records", module)
    monkeypatch.syspath_prepend(SCRIPT.parent)  # as Python does for a script
    spec.loader.exec_module(module)
    counts, faults = module.run(60, seed=1)
    assert faults == [] and sum(counts.values()) == 60
