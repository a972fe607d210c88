"""A hospital can insist on sums: its update leaves only inside a sum of at least so many sites."""

import json
from pathlib import Path

import pytest

from fclseg.errors import FCLSegError
from fclseg.flare.jobs import client
from fclseg.flare.launch import derive_job
from fclseg.hospital.policy import Policy, PolicyError
from fclseg.methods.exchange import get_row


@pytest.mark.parametrize("value", [2, 0, 3.5, "4", True, None])
def test_a_sum_of_fewer_than_three_sites_is_refused(value):
    with pytest.raises(FCLSegError, match="sum_of"):
        Policy.read({"sum_of": value})


def test_a_run_that_is_not_in_sums_is_refused():
    policy = Policy.read({"sum_of": 4})
    policy.check_sums(True)
    with pytest.raises(PolicyError, match="sums of at least 4 sites"):
        policy.check_sums(False)
    Policy().check_sums(False)


def test_only_jobs_with_sums_have_the_task():
    row = get_row("fclopt_dp")
    (with_sums,), (without,) = (client(row, settings)["executors"] for settings in ({"sums_only": True}, {}))
    assert with_sums["tasks"] == ["distance", "pretrain", "sum"] and without["tasks"] == ["distance", "pretrain"]


def test_a_job_that_is_given_sums_later_has_the_task_once(tmp_path):
    """As `fclseg pretrain` does with a committed job."""
    jobs = Path(__file__).parents[2] / "jobs"
    for _ in range(2):  # a run may be continued from its own copy
        source = tmp_path / "fclopt_dp" if (tmp_path / "fclopt_dp").exists() else jobs / "fclopt_dp"
        made = derive_job(source, tmp_path, {"sums_only": True})
        (executor,) = json.loads((made / "app/config/config_fed_client.json").read_text())["executors"]
        assert executor["tasks"] == ["distance", "pretrain", "sum"]
    plain = derive_job(jobs / "fedbyol", tmp_path, {})
    assert '"sum"' not in (plain / "app/config/config_fed_client.json").read_text()
