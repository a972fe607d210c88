"""Inference and fine-tuning on a system without POSIX file locks, such as Windows."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fclseg
from fclseg.files import make_folder, write_text

WITHOUT = """
import os, sys
for name in ("fcntl", "resource", "termios"):
    sys.modules[name] = None  # importing it fails
for name in ("O_NOFOLLOW", "getuid", "mkfifo", "fork"):
    if hasattr(os, name):
        delattr(os, name)
os.supports_effective_ids = set()
from pathlib import Path
from fclseg.cli import build_parser
build_parser()
import fclseg.finetune.file_evaluation, fclseg.finetune.dataset, fclseg.data.slices, fclseg.study.cache
import fclseg.locks, fclseg.flare.runs.overview
from fclseg.data.store_files import store_lock
from fclseg.inference.patients import Inference
from fclseg.inference.cases import find_cases
with store_lock(Path(sys.argv[1]) / "store"):
    pass
print("fine")
"""


@pytest.mark.nightly
def test_nothing_that_inference_and_training_import_needs_posix(tmp_path):
    environment = {**os.environ, "USERNAME": "clinic"}  # which Windows sets and MONAI asks for
    command = [sys.executable, "-c", WITHOUT, tmp_path]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.stdout.strip() == "fine", run.stderr


def test_no_module_imports_posix_file_locks_itself():
    """``filelock`` chooses the system's own locks."""
    for file in Path(str(fclseg.__file__)).parent.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        imported = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
        imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        assert not imported & {"fcntl", "msvcrt"}, file


def test_files_are_written_where_the_system_knows_no_effective_account(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "supports_effective_ids", set())
    make_folder(tmp_path / "results")
    write_text(tmp_path / "results" / "a.txt", "text")
    assert (tmp_path / "results" / "a.txt").read_text() == "text"
