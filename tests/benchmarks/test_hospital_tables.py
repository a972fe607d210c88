"""Each stage of the tables on real hospitals is a command that ``fclseg study`` accepts, with one set of settings."""

import importlib.util
import shlex
from pathlib import Path

from fclseg.cli import build_parser
from fclseg.study.tables import TABLES, choose_methods

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "hospitals.py"


def test_stages_are_commands():
    spec = importlib.util.spec_from_file_location("hospitals", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = []
    for stage in module.STAGES:
        table, *options = shlex.split(stage.options)
        given = build_parser().parse_args(["study", table, *shlex.split(module.SETTINGS), *options])
        found += choose_methods(TABLES[given.table], given.methods)
        assert given.sites_by == "centre" and given.preset == "small" and given.baseline is None
        assert "random" in given.methods  # what every row is compared with
    assert {"fedmoco", "fedbyol", "fedu", "fcl", "fcl_own", "fclopt", "fclopt_ptnu", "fclopt_dp"} < set(found)
