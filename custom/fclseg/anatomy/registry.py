"""All anatomies by name, and how they are written into files.

A registered anatomy is written as its name. The anatomy of a plain folder is defined only by its ``labels.json``, so it
is written in full.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from fclseg.anatomy import families
from fclseg.anatomy.base import Anatomy, Tree
from fclseg.anatomy.families import plain
from fclseg.errors import FCLSegError


def _discover() -> dict[str, Anatomy]:
    names = sorted(module.name for module in pkgutil.iter_modules(families.__path__))
    found = [importlib.import_module(f"{families.__name__}.{name}").ANATOMY for name in names]
    return {anatomy.name: anatomy for anatomy in found}


ANATOMIES = _discover()
DEFAULT = "acdc"
"""The paper's data set."""


def get_anatomy(reference: str | Mapping[str, Any]) -> Anatomy:
    """The anatomy that ``reference`` wrote into a file or a job."""
    if isinstance(reference, Mapping):
        return plain.from_labels(reference, "the anatomy")
    if reference not in ANATOMIES:
        raise FCLSegError(f"there is no anatomy '{reference}': choose one of {', '.join(ANATOMIES)}")
    return ANATOMIES[reference]


def reference(anatomy: Anatomy) -> str | dict[str, Any]:
    """How an anatomy is written to a file, so that ``get_anatomy`` can find it again."""
    return anatomy.name if ANATOMIES.get(anatomy.name) == anatomy else plain.to_labels(anatomy)


def recognise(tree: Tree) -> Anatomy:
    """Recognise the anatomy by file names. A folder that no other family recognises is a plain folder."""
    for anatomy in ANATOMIES.values():
        if anatomy.name != plain.NAME and anatomy.recognises(tree):
            return anatomy
    return ANATOMIES[plain.NAME]
