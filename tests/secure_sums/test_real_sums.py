"""Four real sites with mutual TLS and a server that records everything: what it sees and computes, one site killed."""

import copy
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

from fclseg.engine.job_defaults import DEFAULTS
from fclseg.engine.state_files import read_state
from fclseg.federation.averaging import WeightedMean
from fclseg.federation.states import to_arrays
from fclseg.flare.jobs import write_job
from fclseg.methods.exchange import get_row
from fclseg.phantom.dataset import write_phantom

pytestmark = pytest.mark.nightly
SITES = ["site-1", "site-2", "site-3", "site-4"]
ROUNDS = 2
CHANGES = {"channels": [4, 16, 16], "hidden": 8, "calibration_rounds": 2, "local_epochs": 5}


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    sys.path.insert(0, str(Path(__file__).parents[2] / "poc"))
    from parties import SERVER, Federation

    made = Federation(tmp_path_factory.mktemp("federation"))
    (pattern,) = [party for party in made.project["participants"] if party["name"] == "site-2"]
    for name in SITES[2:]:
        made.project["participants"].append({**copy.deepcopy(pattern), "name": name})
    made.sites = SITES
    made.provision()
    (made.out / "recorded").mkdir()
    for number, site in enumerate(SITES):
        # the first three have the same phantom and so the same weight; the last one trains longest
        write_phantom(made.out / "data" / site, patients=24 if site == "site-4" else 1, frames=2, seed=number // 3)
        made.configure(site, **settings_of(made, site, {"sum_of": 3}))
    usual = dict(made.environment)
    made.environment |= {
        "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).with_name("recorder")), *filter(None, [usual.get("PYTHONPATH")])]
        ),
        "RECORDED": str(made.out / "recorded"),
    }
    made.start(SERVER)
    made.environment = usual
    for site in SITES:
        made.start(site)
    made.wait_for(SITES)
    yield made
    made.stop()


def settings_of(federation, site, policy):
    own = {"data": str(federation.out / "data" / site), "cache": str(federation.out / "cache" / site), "device": "cpu"}
    return {**own, "policy": {"changes": list(CHANGES), **policy}}


def submitted(federation, name, **settings):
    job = federation.out / "jobs" / name / "fclopt_dp"
    given = {**DEFAULTS, "rounds": ROUNDS, "run": name, "changes": CHANGES, "sums_only": True, **settings}
    given |= {"pickup_timeout": 900, "pretrain_timeout": 900, "distance_timeout": 900, "min_sites": 3}
    write_job(job, get_row("fclopt_dp"), given, simulator=False)
    return federation.submit(job)


def recorded(federation, run):
    """(about, arrays) of every answer in a run that reached the server."""
    config = federation.kit("localhost") / "runs" / run / "config.json"
    identity = json.loads(config.read_text())["id"] if config.exists() else None
    for path in sorted((federation.out / "recorded").glob("*.json")):
        about = json.loads(path.read_text())
        if about["run"] != identity:
            continue
        with np.load(path.with_suffix(".npz")) as parts:
            yield about, {name: parts[name] for name in parts.files}


def final(federation, run):
    checkpoints = sorted((federation.kit("localhost") / "runs" / run / "checkpoints").glob("*"))
    states, info = read_state(checkpoints[-1])
    return states, info


def lines(federation, run):
    path = federation.kit("localhost") / "runs" / run / "rounds.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_masks_change_no_bit(federation):
    """The same job with and without masks. Without them, the sites must allow it."""
    for name, masks in (("masked", True), ("open", False)):
        for site in SITES:
            federation.configure(site, **settings_of(federation, site, {"sum_of": 3} if masks else {}))
        job = submitted(federation, name, sum_masks=masks)
        assert federation.wait(job, 1500) == "FINISHED:COMPLETED", federation.log("localhost")[-3000:]
    one, other = final(federation, "masked")[0], final(federation, "open")[0]
    assert one.keys() == other.keys()
    for part, state in one.items():
        for key, tensor in state.items():
            assert np.array_equal(tensor.numpy(), other[part][key].numpy()), (part, key)


@pytest.fixture(scope="module")
def killed(federation):
    """A run in which site 4 is killed while it trains in the last round."""
    for site in SITES:
        federation.configure(site, **settings_of(federation, site, {"sum_of": 3}))
    job = submitted(federation, "killed", seed=1)  # with the seed of the first run, its updates are in sums of four

    known = set((federation.out / "recorded").glob("*.json"))

    def trained():
        """Whether the first of the others has answered in the last round. Each file is read once, to be fast."""
        new = set((federation.out / "recorded").glob("*.json")) - known
        known.update(new)
        about = [json.loads(path.read_text()) for path in new]
        return any(one["task"] == "pretrain" and one["meta"]["round"] == ROUNDS - 1 for one in about)

    deadline = time.monotonic() + 1500
    while not trained() and time.monotonic() < deadline:
        time.sleep(0.02)
    federation.stop("site-4")
    assert federation.wait(job, 1500) == "FINISHED:COMPLETED", federation.log("localhost")[-3000:]
    return lines(federation, "killed")


def test_a_killed_site_is_repaired_in_the_same_round(federation, killed):
    assert [killed[0]["sites"][site]["status"] for site in SITES] == ["ok"] * 4
    assert [killed[1]["sites"][site]["status"] for site in SITES[:3]] == ["ok"] * 3
    assert killed[1]["sites"]["site-4"]["status"] != "ok"


def test_the_sum_is_that_of_the_three_sites_own_networks(federation, killed):
    """From what the sites have on their disks: the weighted mean, up to the rounding to 8 bits."""
    states, _ = final(federation, "killed")
    found, mean = to_arrays(states["mean:online"]), None
    for site in SITES[:3]:
        folder = federation.kit(site) / "runs" / "killed" / "sites" / site
        method = read_state(folder / f"round-{ROUNDS - 1:04d}.safetensors")[0]["method"]
        online = to_arrays(
            {key.removeprefix("online."): part for key, part in method.items() if key.startswith("online.")}
        )
        mean = mean or WeightedMean("online", online)
        mean.add(online, 1, site)
    expected = mean.result()
    for key, array in found.items():
        if array.dtype.kind == "f":
            assert np.abs(array - expected[key]).max() < 0.02 * max(np.abs(expected[key]).max(), 1e-3), key


def test_what_the_server_saw_is_uniform(federation, killed):
    """Every masked upload of the last round, as it was on the wire: single bits and bytes."""
    tested = 0
    for about, parts in recorded(federation, "killed"):
        assert not about["components"] and about["d"] is None
        if about["task"] == "pretrain" and about["meta"]["round"] == ROUNDS - 1:
            bits = np.unpackbits(parts["narrow"])
            assert chisquare(np.bincount(bits, minlength=2)).pvalue > 1e-6
            assert chisquare(np.bincount(parts["narrow"], minlength=256)).pvalue > 1e-6
            tested += 1
    assert tested >= 3
