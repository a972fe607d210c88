"""Benchmarks without a simulator, at their smallest size: changes elsewhere must not break rarely used scripts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

SMALLEST = {
    "codec_costs": ("--codecs tiny --batch 2", "codec tiny:"),
    "gsm_alignment": ("--preset demo --sites 2 --rounds 1", "fcl: across"),
    "ratios": ("--preset demo --repeats 1", "two views of a batch of"),
    "secure_sums": ("--preset demo --sites 3", "sums_only, 8 bits"),
    "sum_protocol": ("--sites 4", "     4"),
}
"""Options and a part of the printed line. The default preset is used if that takes only seconds."""


@pytest.mark.nightly
@pytest.mark.parametrize("name", SMALLEST)
def test_benchmark_runs(name, tmp_path):
    options, line = SMALLEST[name]
    command = [sys.executable, BENCHMARKS / f"{name}.py", *options.split()]
    environment = {**os.environ, "FCLSEG_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert line in run.stdout
