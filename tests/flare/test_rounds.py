"""The round loop, all parts real except the network: which sites are asked, what is recorded, what sites keep."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from inprocess import SITES, TINY, InProcess
from nvflare.apis.fl_context import FLContext

from fclseg.engine.messages import Message
from fclseg.engine.run_settings import RunSettings
from fclseg.engine.state_files import read_state
from fclseg.errors import FCLSegError
from fclseg.flare.controller import RoundController
from fclseg.flare.wire import to_shareable
from fclseg.methods.registry import build_method
from fclseg.networks.loading import read_tensors, save_network
from fclseg.study.report.curves import run_charts


@pytest.fixture
def start(tmp_path, data, own_slots, monkeypatch):
    monkeypatch.setenv("FCLSEG_CACHE", str(tmp_path / "cache"))
    return lambda job, **settings: InProcess(tmp_path / job, data, job, **settings)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("job", ["fclopt_dp", "fcl", "fedu", "fedca", "fedgl", "fedswav", "finetune_federated"])
def test_two_rounds_on_a_gpu(start, monkeypatch, job):
    monkeypatch.setenv("FCLSEG_DEVICE", "cuda")
    run = start(job, rounds=2)
    for record in run.complete():
        assert {report["status"] for report in record["sites"].values()} == {"ok"} and np.isfinite(record["loss"])
    assert {tensor.device.type for tensor in run.state("site-1", 1).values()} == {"cpu"}


def _target(state):
    return {name.removeprefix("target."): tensor for name, tensor in state.items() if name.startswith("target.")}


def test_a_site_that_was_away_measures_its_old_target_and_does_not_change_the_prediction(start):
    run = start("fclopt_dp", rounds=5)
    run.absent = {"site-3": {1, 2}}
    records = run.complete()
    assert [record["drawn"] for record in records] == [[*SITES], [*SITES], [*SITES[:2]], [*SITES], [*SITES]]
    assert records[1]["sites"]["site-3"] == {"status": "site-3 fetched no task"}
    back = records[3]
    others = [back["distances"][site] for site in SITES[:2]]
    assert back["distances"]["site-3"] > max(others)  # its target is as round 0 left it
    assert back["d_predicted"] == back["alpha"] * sum(others) / 2
    assert back["sites"]["site-3"]["status"] == "ok"
    assert set(records[4]["distances"]) == set(SITES) and records[4]["d_predicted"] > 0


def test_a_site_without_a_distance_is_not_asked_to_train(start):
    run = start("fclopt_dp", rounds=2)
    run.broken = {("site-2", "distance", 1)}
    first, second = run.complete()
    assert run.asked == [
        ("distance", 0, [*SITES]),
        ("pretrain", 0, [*SITES]),
        ("distance", 1, [*SITES]),
        ("pretrain", 1, ["site-1", "site-3"]),
    ]
    assert set(second["distances"]) == {"site-1", "site-3"} and first["sites"]["site-2"]["status"] == "ok"
    assert second["sites"]["site-2"] == {"status": "ValueError, see problems.log in the site's folder of runs"}
    assert run.loop.model.trained == ["site-1", "site-3"]
    weights = {site: second["sites"][site]["samples"] for site in ("site-1", "site-3")}
    mean = sum(second["sites"][site]["loss"] * weight for site, weight in weights.items()) / sum(weights.values())
    assert second["loss"] == pytest.approx(mean)


def test_too_few_answers_end_the_run_with_the_reasons_and_keep_what_was_finished(start):
    run = start("fclopt_dp", rounds=3, min_sites=2)
    run.absent = {"site-1": {1}, "site-3": {1}}
    with pytest.raises(FCLSegError, match=r"round 1 has 1 valid answers but needs 2 \(site-1: site-1 fetched no task;"):
        run.complete()
    assert not run.loop.folder.complete and [line["round"] for line in run.loop.folder.rounds()] == [0]
    run.absent = {}
    run.start()
    assert [record["round"] for record in run.complete()] == [0, 1, 2]


def test_a_calibration_round_with_a_site_missing_calibrates_with_the_others(start):
    run = start("fclopt_dp", rounds=4)
    run.absent = {"site-2": {2}}  # calibration_rounds is 2: targets are uploaded in rounds 0 and 2
    records = run.complete()
    assert records[2]["sites"]["site-2"]["status"] == "site-2 fetched no task"
    uploads = {site for site, counts in records[2]["bytes"].items() if "target" in counts["up"]["payload"]}
    assert uploads == {"site-1", "site-3"}
    after = records[3]
    recent = [after["distances"][site] for site in ("site-1", "site-3")]
    assert after["alpha"] == pytest.approx(after["d"] / (sum(recent) / 2), rel=1e-12)
    assert after["alpha"] != records[2]["alpha"]
    assert after["d_predicted"] == pytest.approx(after["d"], rel=1e-12)
    targets = {site: _target(run.state(site, 2)) for site in ("site-1", "site-3")}
    samples = {site: records[2]["sites"][site]["samples"] for site in targets}
    for name, mean in run.loop.model.means["target"].items():  # of round 2, since round 3 uploads none
        expected = sum(targets[site][name].double() * samples[site] for site in targets) / sum(samples.values())
        if mean.dtype.kind == "f":
            np.testing.assert_array_equal(mean, expected.float().numpy())


def test_a_share_of_the_sites_in_each_round(start):
    run = start("fcl", rounds=4, fraction=0.5)  # two of three
    records = run.complete()
    assert [record["drawn"] for record in records] == [run.attendance.draw(number) for number in range(4)]
    trained: set[str] = set()
    for record in records:
        assert len(record["drawn"]) == 2 and set(record["sites"]) == set(record["drawn"])
        for site in record[
            "drawn"
        ]:  # the newest bank of every site comes down, regardless of which sites were drawn last
            assert record["bytes"][site]["down"]["payload"].get("bank", 0) == 136 * len(trained - {site})
        trained |= set(record["drawn"])
    assert trained == set(SITES)
    last = records[-1]["drawn"][0]
    assert len(run.state(last, 3)["remote.features"]) == 2 * 8


def test_banks_of_absent_sites_survive_a_restart(start):
    run = start("fcl", rounds=3)
    run.absent = {"site-1": {1}, "site-2": {1, 2}}
    run.dies_in = 2
    with pytest.raises(KeyboardInterrupt):
        run.complete()
    run.dies_in = None
    run.start()
    run.complete()
    sent = run.state("site-2", 0)["bank.features"]
    received = run.state("site-1", 2)["remote.features"]
    torch.testing.assert_close(received[:8], torch.nn.functional.normalize(sent, dim=1))


@pytest.mark.parametrize("job", ["fedbyol", "fedu"])
def test_a_site_that_joins_late_starts_with_the_global_network_as_its_target(start, job):
    run = start(job, rounds=3, changes={**TINY, "ema_momentum": 1.0})  # so that a target stays as it started
    run.absent = {"site-3": {0, 1}}
    run.complete()
    parts, _ = read_state(run.run / "checkpoints" / "round-0001.safetensors")
    joined, early = _target(run.state("site-3", 2)), _target(run.state("site-1", 2))
    weights = [name for name in joined if name.endswith("weight")]
    assert all(torch.equal(joined[name], parts["mean:online"][name]) for name in weights)
    initial = _target(run.loop.method.state_dict())
    assert all(torch.equal(early[name], initial[name]) for name in weights)  # round 0 is as it was


@pytest.mark.parametrize("job", ["mean_teacher", "mean_teacher_dp"])
def test_a_run_that_starts_from_a_network_gives_every_site_that_network_as_its_target(start, tmp_path, job):
    changes = {**TINY, "ema_momentum": 1.0}
    network = build_method(job, RunSettings(job=job, changes=changes).build_preset(), seed=5).online
    save_network(tmp_path / "network.safetensors", network, {})
    run = start(job, rounds=2, changes=changes, network=str(tmp_path / "network.safetensors"))
    records = run.complete()
    if job == "mean_teacher_dp":
        assert set(records[0]["distances"].values()) == {0.0}
    for site in SITES:
        target = _target(run.state(site, 0))
        for name, parameter in network.named_parameters():
            torch.testing.assert_close(target[name], parameter, msg=f"{site}: {name}")


def test_fine_tuning_ends_with_the_average_of_its_start_and_what_the_sites_trained(start, tmp_path):
    """The exported network, by hand from the last checkpoint; the checkpoint is what the sites trained."""
    share = "finetuning.start_share"
    network = build_method("finetune_federated", RunSettings(job="finetune_federated", changes=TINY).build_preset(), 5)
    save_network(tmp_path / "network.safetensors", network.online, {})
    run = start(
        "finetune_federated", rounds=1, changes={**TINY, share: 0.25}, network=str(tmp_path / "network.safetensors")
    )
    run.complete()
    trained = read_state(run.run / "checkpoints" / "round-0000.safetensors")[0]["mean:online"]
    first, last = network.online.state_dict(), read_tensors(run.run / "model.safetensors")[0]
    floating = [name for name in trained if trained[name].is_floating_point()]
    assert any((trained[name] - first[name]).abs().max() > 1e-3 for name in floating)
    for name in floating:
        torch.testing.assert_close(last[name], 0.25 * first[name] + 0.75 * trained[name])


def test_an_answer_that_comes_too_late_is_metered(start):
    run = start("fedbyol", rounds=2, fraction=0.3)
    drawn = [run.attendance.draw(number)[0] for number in range(2)]
    late = next(site for site in SITES if site != drawn[1])
    meta = {"round": 0, "run": {}}
    online = run.loop.model.means["online"]
    ask = run.ask

    def with_straggler(task, messages, timeout, accept):
        if messages[next(iter(messages))].round_number == 1:
            result = to_shareable(Message({"online": online}, meta=meta))
            controller = RoundController({"job": "fedbyol"})
            controller._meter = run.meter
            controller.process_result_of_unknown_task(SimpleNamespace(name=late), task, "", result, FLContext())
        return ask(task, messages, timeout, accept)

    run.ask = with_straggler
    second = run.complete()[1]
    assert second["drawn"] == [drawn[1]] and set(second["bytes"]) == {drawn[1], late}
    size = sum(array.nbytes for array in online.values())
    assert second["bytes"][late] == {"up": {"payload": {"online": size}, "wire": 0}, "down": {"payload": {}, "wire": 0}}
    assert run_charts(run.loop.folder.rounds())  # the report can show it
