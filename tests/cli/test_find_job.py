"""``--job NAME``: a folder, a name below ./jobs, one of the package's jobs, or a row of the plan without a folder."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fclseg
from fclseg.cli import main
from fclseg.errors import FCLSegError
from fclseg.flare.find_job import find_job
from fclseg.flare.launch import read_job
from fclseg.methods.exchange import ROWS, Flow, Row

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def test_the_packages_own_job_is_found_by_name_anywhere(here, tmp_path):
    assert find_job("fclopt_dp", tmp_path / "made").samefile(CHECKOUT / "jobs" / "fclopt_dp")
    assert not (tmp_path / "made").exists()


def test_a_job_of_ones_own_comes_first(here, tmp_path):
    shutil.copytree(CHECKOUT / "jobs" / "fedbyol", here / "jobs" / "fclopt_dp")
    assert find_job("fclopt_dp", tmp_path) == Path("jobs/fclopt_dp")
    assert find_job("jobs/fclopt_dp", tmp_path) == Path("jobs/fclopt_dp")
    assert find_job(str(here / "jobs" / "fclopt_dp"), tmp_path) == here / "jobs" / "fclopt_dp"
    shutil.copytree(CHECKOUT / "jobs" / "fcl", here / "fclopt_dp")
    assert find_job("fclopt_dp", tmp_path) == Path("fclopt_dp")


def test_a_folder_that_is_no_job_does_not_hide_the_job(here, tmp_path):
    (here / "fclopt_dp").mkdir()
    assert find_job("fclopt_dp", tmp_path).samefile(CHECKOUT / "jobs" / "fclopt_dp")


def test_a_row_without_a_folder_gets_a_job(here, tmp_path, monkeypatch):
    monkeypatch.setitem(ROWS, "toy", Row("toy", "Toy", "byol:BYOL", (Flow("online"), Flow("predictor"))))
    job = find_job("toy", tmp_path / "made")
    assert job == tmp_path / "made" / "toy"
    assert read_job(job)[1]["job"] == "toy" and json.loads((job / "meta.json").read_text())["name"] == "toy"


def test_the_error_names_the_known_jobs(here, tmp_path, capsys):
    with pytest.raises(FCLSegError, match="there is no job 'fclop'") as error:
        find_job("fclop", tmp_path)
    assert all(f" {job}" in str(error.value) for job in ROWS)
    assert main(["pretrain", "--job", "fclop"]) == 1
    assert capsys.readouterr().err == f"fclseg: {error.value}\n"


METHOD = '''
import torch
from fclseg.methods.base import Method


class Mean(Method):
    """Predicts the mean grey value of an image: not a good idea, but a method."""

    learning_rates = {"sgd": 0.05, "adam": 1e-3, "adamw": 1e-3}

    def loss(self, batch, generator):
        return (self.online(batch.images).mean(dim=1) - batch.images.mean(dim=(1, 2, 3))).square().mean()
'''
ENTRY = '\nROWS["toy"] = Row("toy", "Toy", "toy:Mean", (Flow("online"),))\n'


@pytest.mark.nightly
@pytest.mark.simulator
def test_a_new_method_is_one_file_and_one_entry(here, tmp_path):
    """A copy of the package with both, and nothing else, pre-trains with it in the simulator."""
    package = tmp_path / "custom" / "fclseg"
    shutil.copytree(Path(fclseg.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(CHECKOUT / "jobs", tmp_path / "jobs")
    (package / "methods" / "toy.py").write_text(METHOD)
    with open(package / "methods" / "exchange.py", "a") as plan:
        plan.write(ENTRY)
    command = [sys.executable, "-c", "import sys, fclseg.cli; sys.exit(fclseg.cli.main())"]
    command += ["pretrain", "--job", "toy", "--preset", "demo", "--rounds", "1"]
    variables = os.environ | {"PYTHONPATH": str(package.parent), "FCLSEG_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("Toy, preset demo, 2 sites, 1 rounds")
    assert (here / "runs" / "toy-demo" / "encoder.safetensors").is_file()
