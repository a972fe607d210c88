"""What a task imported is set aside, so that looking for garbage after each task stays quick."""

import gc
import sys
from types import ModuleType

from fclseg.flare.free_memory import return_free_memory

MANY = 5000


def test_what_a_later_task_imports_is_set_aside_too(monkeypatch):
    return_free_memory()
    monkeypatch.setitem(sys.modules, "imported_by_a_task", ModuleType("imported_by_a_task"))
    imported = [[] for _ in range(MANY)]
    return_free_memory()
    assert len(gc.get_objects()) < MANY, "half a million of them would be looked at after each task"
    made = [[] for _ in range(MANY)]
    return_free_memory()
    assert len(gc.get_objects()) >= MANY, "what a task makes is still looked at"
    assert len(imported) == len(made)
