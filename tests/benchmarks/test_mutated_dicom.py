"""A sample of what ``benchmarks/mutated_dicom.py`` does many times: each class once, and those that once failed."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("pydicom"), pytest.importorskip("highdicom")

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "mutated_dicom.py"
ONCE_WRONG = (
    "a series per slice", "a tag removed that may be unknown", "impossible pixel spacing",
    "a position that is no number", "a trigger time that is no number", "a file without trigger time",
)  # fmt: skip


@pytest.fixture
def module(monkeypatch):
    spec = importlib.util.spec_from_file_location("mutated_dicom", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mutated_dicom", module)
    monkeypatch.setattr(sys, "path", [str(SCRIPT.parent), *sys.path])  # as Python does for a script
    spec.loader.exec_module(module)
    return module


def test_what_once_failed_is_refused_or_harmless(module, monkeypatch):
    monkeypatch.setattr(module, "MUTATIONS", [one for one in module.MUTATIONS if one.name in ONCE_WRONG])
    counts, faults = module.run(len(ONCE_WRONG), seed=1)
    assert faults == [] and len(module.MUTATIONS) == sum(counts.values()) == len(ONCE_WRONG)


@pytest.mark.nightly
def test_every_class_of_mutated_export_is_refused_or_harmless(module):
    counts, faults = module.run(len(module.MUTATIONS), seed=2)
    assert faults == [] and sum(counts.values()) == len(module.MUTATIONS) >= 20
