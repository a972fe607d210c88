"""A stored result that lacks something is named by its file, and no table is written from it."""

import json

import pytest
from full_study import write_study, write_tables

from fclseg.errors import DataError


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    write_study(folder, ("random",))
    return folder


DAMAGE = {
    "no losses": lambda result: result.pop("losses"),
    "no metrics": lambda result: result.update(metrics=[{}]),
    "a metric without a name": lambda result: result["metrics"][0].pop("name"),
    "no number": lambda result: result.update(dice="high"),
    "not finite": lambda result: result.update(dice=float("nan")),
    "seconds": lambda result: result.update(seconds=None),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_file_is_named(study, damage):
    path = next(path for path in sorted(study.rglob("cells/*/*.json")) if "losses" in path.read_text())
    intact = path.read_text()
    result = json.loads(intact)
    DAMAGE[damage](result)
    path.write_text(json.dumps(result))
    with pytest.raises(DataError, match=rf"{path.name}: is damaged .*; remove it"):
        write_tables(study, ("random",))
    path.write_text(intact)
    assert write_tables(study, ("random",))["entries"]
