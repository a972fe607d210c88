"""Protections in whole runs: they act at the site, the stricter one wins, and a spent budget stops only one site."""

import json

import numpy as np
import pytest
import torch
from inprocess import InProcess

from fclseg.cli import main
from fclseg.engine.place import LOCAL_FILE
from fclseg.hospital.audit import Audit
from fclseg.hospital.policy import EVERYTHING
from fclseg.phantom.dataset import write_phantom
from fclseg.privacy.accountant import epsilon

SITES = ("site-1", "site-2")
BANK, SIZE = 8, 4  # of InProcess's tiny networks: features per bank, numbers per feature


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hospitals")
    for number, site in enumerate(SITES):
        write_phantom(folder / site, patients=2, frames=2, seed=number)
    return {site: folder / site for site in SITES}


@pytest.fixture
def run(data, tmp_path, monkeypatch):
    """A run whose sites have these additions to their policies."""
    monkeypatch.setenv("FCLSEG_DEVICE", "cpu")

    def make(job, policies=None, **settings):
        made = InProcess(tmp_path / f"run{len(list(tmp_path.iterdir()))}", data, job, **settings)
        for site, policy in (policies or {}).items():
            file = made.folder / site / LOCAL_FILE
            own = json.loads(file.read_text())
            own["policy"] = {key: value for key, value in {**own["policy"], **policy}.items() if value is not None}
            file.write_text(json.dumps(own))
        return made

    return make


def audit(run, site):
    return Audit(run.folder / site / "runs").entries()


def banks(run):
    return run.loop.model.others["bank"]


@pytest.mark.parametrize(
    "settings",
    [
        {"perturb": 0.5},
        {"mix": 4},
        {"feature_noise": 0.2},
        {"prototypes": 1},
        {"perturb": 0.5, "mix": 2, "prototypes": 1},
    ],
    ids=str,
)
def test_what_leaves_is_protected_and_the_audit_says_so(run, settings):
    rounds = 2 if "prototypes" in settings else 1
    made = run("fcl", rounds=rounds, **settings)
    assert [line["sites"][site]["status"] for line in made.complete() for site in SITES] == ["ok"] * 2 * rounds
    for site in SITES:
        assert [(entry["outcome"], entry["privacy"]) for entry in audit(made, site)] == [("sent", settings)] * rounds
        sent, own = banks(made)[site], made.state(site, rounds - 1)
        rows = len(set(sent["partitions"])) if "prototypes" in settings else BANK
        assert sent["features"].shape == (rows, SIZE) and sent["partitions"].shape == (rows,)
        assert np.allclose(np.linalg.norm(sent["features"], axis=1), 1, atol=1e-5)
        apart = (torch.from_numpy(sent["features"])[:, None] - own["bank.features"][None]).norm(dim=2)
        assert apart.min() > 1e-3, "a feature of the site's own bank has left"
        if settings == {"perturb": 0.5}:
            assert ((sent["features"] == 0).sum(axis=1) == SIZE // 2).all()
        if "prototypes" in settings:
            assert 1 <= len(own["remote.features"]) <= 4, "the other site's prototypes, one per partition, arrived"


@pytest.mark.nightly
def test_fedca_s_dictionary_is_protected_too(run):
    made = run("fedca", rounds=1, perturb=0.5)
    made.complete()
    sent = made.loop.model.others["dictionary"]["site-1"]["features"]
    assert ((sent == 0).sum(axis=1) == SIZE // 2).all()


def test_the_stricter_of_job_and_policy_holds(run):
    made = run("fcl", {"site-1": {"perturb": 0.5}, "site-2": {"perturb": 0.1}}, rounds=1, perturb=0.25)
    made.complete()
    assert audit(made, "site-1")[0]["privacy"] == {"perturb": 0.5}
    assert audit(made, "site-2")[0]["privacy"] == {"perturb": 0.25}
    removed = {site: set((banks(made)[site]["features"] == 0).sum(axis=1).tolist()) for site in SITES}
    assert removed == {"site-1": {2}, "site-2": {1}}


def test_a_job_that_asks_for_features_gets_none_where_they_are_forbidden(run):
    kept = sorted(EVERYTHING - {"bank"})
    made = run("fcl", {"site-2": {"components": kept}}, rounds=2, perturb=0.5)
    lines = made.complete()
    for line in lines:
        assert line["sites"]["site-1"]["status"] == "ok"
        assert "does not let component 'bank' leave" in line["sites"]["site-2"]["status"]
    assert set(banks(made)) == {"site-1"}
    assert {entry["outcome"] for entry in audit(made, "site-2")} == {"refused"}


def trained(made, site):
    """The rounds of which the site has a state."""
    return sorted(int(path.stem.rpartition("-")[2]) for path in made.memory(site).glob("round-*.safetensors"))


def test_a_spent_budget_stops_that_site_only(run, capsys):
    """sigma 4 is a noise multiplier of 2 per round: two rounds fit into the budget of site-2, the third does not."""
    pytest.importorskip("dp_accounting", reason="the extra 'privacy' is not installed")
    one, two, three = (epsilon([2.0] * rounds, 1e-5) for rounds in (1, 2, 3))
    noise = {"clip": 0.1, "sigma": 4.0}
    made = run(
        "fedbyol", {"site-1": noise, "site-2": {**noise, "epsilon": (two + three) / 2}}, rounds=4, outliers="off"
    )
    lines = made.complete()
    assert [line["sites"]["site-1"]["status"] for line in lines] == ["ok"] * 4
    states = [line["sites"]["site-2"]["status"] for line in lines]
    assert states[:2] == ["ok", "ok"] and all("the privacy budget of this site is spent" in text for text in states[2:])
    entries = audit(made, "site-2")
    assert [entry["outcome"] for entry in entries] == ["sent", "sent", "refused", "refused"]
    assert trained(made, "site-2") == [0, 1], "what cannot be paid for is not trained"
    assert [entry["epsilon"] for entry in entries[:2]] == pytest.approx([one, two])
    assert entries[0]["multipliers"] == {"networks": 2.0}
    assert main(["site", "budget", "--kit", str(made.folder / "site-2"), "--rounds", "1"]) == 0
    shown = capsys.readouterr().out
    assert f"epsilon {two:.3f} at delta 1e-05 has been spent" in shown and f"epsilon {three:.3f} after 1 more" in shown
    assert main(["site", "audit", "--kit", str(made.folder / "site-2")]) == 0
    assert f"protected by clip=0.1 sigma=4, epsilon {two:.3f} so far" in capsys.readouterr().out


def test_the_budget_is_kept_over_runs(run, data):
    pytest.importorskip("dp_accounting", reason="the extra 'privacy' is not installed")
    policy = {"clip": 0.1, "sigma": 4.0, "epsilon": epsilon([2.0], 1e-5) * 1.01}
    made = run("fedbyol", {"site-2": policy}, rounds=1, outliers="off")
    assert made.complete()[0]["sites"]["site-2"]["status"] == "ok"
    made.settings = type(made.settings).read({**made.settings.to_dict(), "run": "second", "seed": 1}, {})
    made.run = made.run.with_name("second")
    made.start()
    (line,) = made.complete()
    assert (
        line["sites"]["site-1"]["status"] == "ok"
        and "budget of this site is spent" in line["sites"]["site-2"]["status"]
    )


@pytest.mark.parametrize(
    ("job", "policy", "open_one"),
    [
        ("fedbyol", {}, "online"),
        ("fcl", {"clip": 1.0, "sigma": 1.0, "perturb": 0.5}, "bank"),
        ("fcl", {"feature_noise": 1.0}, "online"),
        ("fclopt_dp", {"clip": 1.0, "sigma": 1.0}, "distance"),
    ],
)
def test_where_a_budget_is_kept_nothing_leaves_without_noise(run, job, policy, open_one):
    made = run(job, {"site-2": {**policy, "epsilon": 1e6}}, rounds=1, outliers="off")
    (line,) = made.complete()
    assert f"has a privacy budget, but '{open_one}' would leave without noise" in json.dumps(line["sites"]["site-2"])
    assert {entry["outcome"] for entry in audit(made, "site-2")} == {"refused"}
    assert trained(made, "site-1") == [0] and not trained(made, "site-2"), "it must be refused before training"


def test_features_count_by_how_much_of_them_is_one_patient_s(run):
    """Two patients with as many slices each: one is in half of the bank's features, more or less."""
    pytest.importorskip("dp_accounting", reason="the extra 'privacy' is not installed")
    made = run("fcl", {"site-1": {"feature_noise": 3.0, "clip": 1.0, "sigma": 2.0, "epsilon": 1e6}}, rounds=1)
    made.complete()
    (entry,) = audit(made, "site-1")
    assert entry["multipliers"]["networks"] == 1.0
    counts = {3.0 / (2 * number**0.5) for number in range(BANK // 2, BANK + 1)}
    assert min(abs(entry["multipliers"]["bank"] - value) for value in counts) < 1e-6
    assert entry["epsilon"] == pytest.approx(epsilon(entry["multipliers"].values(), 1e-5))
