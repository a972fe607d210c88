"""Secure sums behind real gates: certificates, policies with a minimum of sites and a privacy budget, and a server that
dies in the middle of a round."""

import json
import shutil

import pytest
from inprocess import InProcess
from sum_parties import Authority

from fclseg.engine.messages import SUM_TASK, Message
from fclseg.engine.place import LOCAL_FILE, Place
from fclseg.engine.sums import SUM, trust_of
from fclseg.hospital.audit import Audit
from fclseg.phantom.dataset import write_phantom
from fclseg.privacy.accountant import epsilon
from fclseg.secure_sums.identity import RootTrust

SITES = ("site-1", "site-2", "site-3")
SIGMA = 4.0
NOISE = {"clip": 0.1, "sigma": SIGMA}


@pytest.fixture
def hospitals(tmp_path, monkeypatch):
    """A run of three hospitals with certificates of one root."""
    pytest.importorskip("dp_accounting", reason="the extra 'privacy' is not installed")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("FCLSEG_DEVICE", "cpu")
    write_phantom(tmp_path / "data", patients=1, frames=2)
    authority = Authority(tmp_path)

    def make(rounds=2, sites=3, job="fedbyol", noise=NOISE, **policy):
        monkeypatch.setattr(InProcess, "policy", {**InProcess.policy, "sum_of": 3, **policy})
        names = [f"site-{number + 1}" for number in range(sites)]
        data = dict.fromkeys(names, tmp_path / "data")
        run = InProcess(tmp_path / "run", data, job, rounds=rounds, sums_only=True, **noise)
        for site in names:
            startup = run.folder / site / "startup"
            startup.mkdir(parents=True, exist_ok=True)
            authority.issue(site)
            shutil.copy(authority.folder / f"{site}.crt", startup / "client.crt")
            shutil.copy(authority.folder / f"{site}.key", startup / "client.key")
            shutil.copy(authority.path, startup / "rootCA.pem")
        run.loop.trust = RootTrust(authority.path)
        run.trust = run.loop.trust
        return run

    return make


def step(run, site, **about):
    """A site's answer to a step that the server makes up."""
    meta = {"round": 0, "run": run.loop.run_info, SUM: {"step": "keys", "task": "pretrain", "attempt": 1, **about}}
    return run._exchange(site, SUM_TASK, Message(meta=meta), broken=False)


@pytest.mark.parametrize("task", ["../../../../../pretrain", "keys", "", None, 3, ["pretrain"]])
def test_the_task_of_a_sum_cannot_name_a_file(hospitals, task):
    run = hospitals()
    before = set(run.folder.rglob("*.json"))
    with pytest.raises(Exception, match="for no known task"):
        step(run, "site-1", task=task)
    new = set(run.folder.rglob("*.json")) - before
    assert {path.parent.name for path in new} <= {"admitted"}
    step(run, "site-1")


def test_a_hospitals_update_is_in_one_sum_only(hospitals, tmp_path):
    """The same settings as another run of four hospitals, of which one is left out the second time."""
    run = hospitals(rounds=1, sites=4)
    run.complete()
    shutil.rmtree(run.run)  # the server starts the run over, with a new identity
    run.start()
    run.loop.trust = run.trust
    run.broken = {("site-4", SUM_TASK, 0)}
    with pytest.raises(Exception, match="already summed with other sites"):
        run.complete()


def test_a_hospitals_distance_is_in_one_sum_only(hospitals):
    """The server asks for the same distances in the next round without site 4: the difference would be its distance."""
    run = hospitals(rounds=4, sites=4, job="fclopt_dp", noise={})
    run.dies_in = 2
    with pytest.raises(KeyboardInterrupt):
        run.complete()
    run.dies_in, loop = None, run.loop
    networks = loop.coding.networks(2)

    def distances(number):
        loop.model.next_round = number
        messages = {site: loop._message(site, networks, {}, None, number) for site in run.sites}
        return loop._sums(networks, run.ask).distances(messages)

    assert set(distances(2)[0]) == set(run.sites)
    run.broken = {("site-4", SUM_TASK, 3)}
    with pytest.raises(Exception, match="already summed with other sites"):
        distances(3)


LIES = {
    "every number becomes its sign": {"weight": 1e-12},
    "small numbers become zero": {"weight": 1e12},
    "an update is shortened after the noise": {"norms": {"online": 1e-9}},
    "few bits": {"ranges": {"online": [1e-9]}},
}


@pytest.mark.parametrize("lie", LIES)
def test_the_server_cannot_spoil_noise_that_sites_add_together(hospitals, lie):
    """A third of the noise on each of three signs is not the noise that the budget was charged for."""
    run = hospitals(rounds=1)

    def ask(task, messages, timeout, accept):
        for message in messages.values():
            message.meta.get(SUM, {}).get("scales", {}).update(LIES[lie])
        return run.ask(task, messages, timeout, accept)

    with pytest.raises(Exception, match="not those of the run"):
        run.loop.run(ask, lambda text: None)


def test_the_servers_own_certificate_is_no_site(hospitals, tmp_path):
    """Each party reads the server's name from its own kit."""
    run = hospitals()
    kit = run.folder / "site-1"
    (kit / "startup" / "fed_client.json").write_text('{"servers": [{"identity": "server.org"}]}')
    server = Place("server", tmp_path / "server-kit")
    (server.workspace / "startup").mkdir(parents=True)
    (server.workspace / "startup" / "fed_server.json").write_text('{"servers": [{"admin_server": "server.org"}]}')
    assert trust_of(Place("site-1", kit)).server == trust_of(server).server == "server.org"


def entries(run, site):
    return Audit(run.folder / site / "runs").entries()


def test_a_server_that_dies_between_updates_and_sum_continues_within_the_budget(hospitals):
    """The noise is the sites' together, so each one is charged for the whole sigma of what the server can see."""
    run = hospitals(epsilon=epsilon([SIGMA / 2] * 4, 1e-5))
    real, died = run.ask, []

    def ask(task, messages, timeout, accept):
        step = {message.meta.get(SUM, {}).get("step") for message in messages.values()}
        if task == SUM_TASK and step == {"agreement"} and next(iter(messages.values())).round_number == 1 and not died:
            died.append(True)
            raise KeyboardInterrupt
        return real(task, messages, timeout, accept)

    with pytest.raises(KeyboardInterrupt):
        run.loop.run(ask, lambda text: None)
    run.start()
    run.loop.trust = run.trust
    run.loop.run(ask, lambda text: None)
    assert [set(one["sites"]) for one in run.loop.folder.rounds()] == [set(SITES)] * 2
    for site in SITES:
        sent = [entry for entry in entries(run, site) if entry["task"] == "pretrain"]
        assert [(entry["round"], entry["outcome"]) for entry in sent] == [(0, "sent"), (1, "sent"), (1, "sent")]
        assert all(entry["covered"] for entry in sent)
        assert sent[-1]["epsilon"] == pytest.approx(epsilon([SIGMA / 2] * 3, 1e-5), rel=1e-6)


def test_a_spent_budget_of_one_hospital_ends_the_sums_of_three(hospitals):
    run = hospitals()
    local = run.folder / "site-2" / LOCAL_FILE
    own = json.loads(local.read_text())
    own["policy"]["epsilon"] = epsilon([SIGMA / 2], 1e-5) * 1.01  # one round
    local.write_text(json.dumps(own))
    with pytest.raises(Exception, match=r"site-2.*the privacy budget of this site is spent"):
        run.complete()
    assert len(run.loop.folder.rounds()) == 1
    assert [entry["outcome"] for entry in entries(run, "site-2") if entry["task"] == "pretrain"][:1] == ["sent"]
