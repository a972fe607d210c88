"""Packages import in one direction only, and only ``flare`` imports NVFlare."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fclseg

PACKAGE = Path(fclseg.__file__).parent
ORDER = [
    {"anatomy"},
    {"presets"},
    {"data", "networks", "dicom"},
    {"phantom"},
    {"methods", "inference"},
    {"federation"},
    {"secure_sums"},
    {"privacy"},
    {"engine"},
    {"hospital"},
    {"flare"},
    {"finetune", "attacks", "inbox"},
    {"labelling"},
    {"evaluation", "start"},
    {"study"},
    {"api"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}


def imported(path):
    """The modules that a file imports anywhere, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=str)
def test_imports_point_downwards(file):
    layer = file.parts[0]
    modules = set(imported(PACKAGE / file))
    if layer != "flare":
        assert not {module for module in modules if module.split(".")[0] == "nvflare"}
    ours = {module for module in modules if module.startswith("fclseg.") and module.split(".")[1] in LEVEL}
    below = {name for name, level in LEVEL.items() if level < LEVEL.get(layer, 0)} | {layer}
    assert {module for module in ours if module.split(".")[1] not in below} == set()


def test_the_command_line_starts_without_torch():
    code = "import sys, fclseg.cli as cli; cli.build_parser(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
