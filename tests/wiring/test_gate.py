"""A hospital's own policy in a whole run: what it does not allow is not trained and does not leave."""

from typing import ClassVar

import pytest
from inprocess import InProcess

from fclseg.errors import FCLSegError


class Strict(InProcess):
    policy: ClassVar = {**InProcess.policy, "jobs": ["fedbyol"], "rounds": 2}


class Shy(InProcess):
    policy: ClassVar = {**InProcess.policy, "components": ["online"]}


@pytest.mark.parametrize(
    ("kind", "job", "rounds", "reason"),
    [
        (Strict, "fclopt", 1, "this site does not allow job 'fclopt'"),
        (Strict, "fedbyol", 3, "the run has 3 rounds, but this site allows at most 2"),
        (Shy, "fedbyol", 1, "predictor"),
    ],
)
def test_a_run_that_the_hospitals_do_not_allow_gets_nothing(hospitals, tmp_path, kind, job, rounds, reason):
    run = kind(tmp_path / "run", hospitals, job, rounds=rounds)
    with pytest.raises(FCLSegError, match=reason):
        run.complete()
    assert run.loop.folder.rounds() == []
    if kind is Strict:
        assert not list(run.memory("site-1").glob("round-*")), "it was refused before it was trained"


def test_a_run_that_they_allow_is_trained(hospitals, tmp_path):
    run = Strict(tmp_path / "run", hospitals, "fedbyol", rounds=1)
    assert {report["status"] for report in run.complete()[0]["sites"].values()} == {"ok"}
