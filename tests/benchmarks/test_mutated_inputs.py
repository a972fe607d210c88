"""A sample of what ``benchmarks/mutated_inputs.py`` does a thousand times: each class of mutation, twice
(an organ that is located first, and one that is not)."""

import importlib.util
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "mutated_inputs.py"


def test_every_class_of_mutated_input_is_refused_or_harmless(monkeypatch):
    spec = importlib.util.spec_from_file_location("mutated_inputs", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mutated_inputs", module)
    monkeypatch.syspath_prepend(SCRIPT.parent)  # as Python does for a script
    spec.loader.exec_module(module)
    counts, faults = module.run(2 * len(module.MUTATIONS), seed=1)
    assert faults == [] and sum(counts.values()) == 2 * len(module.MUTATIONS) >= 40
