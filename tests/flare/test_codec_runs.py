"""Whole runs with codecs, all parts real except the network: sizes, absent sites, restarts, damage, lost memories."""

import numpy as np
import pytest
import torch
from inprocess import SITES, TINY, InProcess

from fclseg.engine import site_coding
from fclseg.engine.state_files import read_state
from fclseg.federation.codecs.presets import CODECS
from fclseg.federation.distance import distance
from fclseg.federation.payload import component_arrays, mean_traffic, with_prototypes
from fclseg.federation.states import to_arrays
from fclseg.methods.exchange import ROWS

CHANGES = {**TINY, "channels": [8, 16], "hidden": 64, "bank_size": 128, "epoch_share": 0.4}
"""Large enough to have tensors that are encoded; a few steps change them enough."""


@pytest.fixture
def start(tmp_path, data, own_slots):
    def begin(job, codec=None, name="", **settings):
        folder = tmp_path / f"{job}-{codec}{name}"
        return InProcess(folder, data, job, **{"changes": CHANGES, "codec": codec, **settings})

    return begin


def final(run):
    """All tensors of the last checkpoint."""
    states, info = read_state(sorted((run.run / "checkpoints").glob("*"))[-1])
    return {f"{part}/{name}": tensor for part, state in states.items() for name, tensor in state.items()}, info


def kept(run, site, number):
    states, _ = read_state(run.memory(site) / f"global-{number:04d}.safetensors")
    return {name: to_arrays(state) for name, state in states.items()}


def identical(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def statuses(record):
    return {site: report["status"] for site, report in record["sites"].items()}


def nightly(*jobs):
    return [pytest.param(job, marks=pytest.mark.nightly) for job in jobs]


@pytest.mark.parametrize("job", ["fclopt_dp", "fcl", *nightly("fclopt_ptnu", "fclopt", "fedca")])
def test_lossless_runs_are_plain_runs(start, job):
    """The same networks to the bit, in fewer bytes."""
    plain, lossless = start(job, rounds=3), start(job, "lossless", rounds=3)
    expected, found = plain.complete(), lossless.complete()
    ours, theirs = final(lossless)[0], final(plain)[0]
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())
    for before, after in zip(expected, found, strict=True):
        assert after["loss"] == before["loss"] and after["d"] == before["d"]
        assert after.get("d_predicted") == before.get("d_predicted")
        for site in SITES:
            for way in ("up", "down"):
                sizes, plain_sizes = (record["bytes"][site][way]["payload"] for record in (after, before))
                assert sizes.keys() == plain_sizes.keys()
                assert sum(sizes.values()) <= sum(plain_sizes.values()) + 100 * len(sizes)


@pytest.mark.parametrize(("job", "codec"), [("fclopt_dp_tiny", None), ("fclopt_dp", "8bit"), ("fcl", "tiny")])
def test_what_crosses_is_within_the_plan(start, job, codec):
    run = start(job, codec, rounds=3)
    records, row, preset = run.complete(), ROWS[job], run.loop.preset
    for record in records:
        plan = mean_traffic(
            row,
            component_arrays(row, preset),
            sites=3,
            rounds=[record["round"]],
            calibration_rounds=preset.pretraining.calibration_rounds,
            codec=CODECS[codec or "tiny"],
        )
        if record["round"] == 0:
            plan.down.pop("bank", None)
        assert set(statuses(record).values()) == {"ok"}
        for counts in record["bytes"].values():
            for way, bound in (("up", plan.up), ("down", plan.down)):
                sizes = counts[way]["payload"]
                assert sizes.keys() == bound.keys()
                assert all(0 < sizes[name] <= bound[name] for name in sizes), (sizes, bound)


def test_prototypes_cross_with_a_codec(start):
    """One mean per partition and site, coded: every site has those of the two others in its second round."""
    run = start("fcl", "tiny", rounds=2, prototypes=1)
    records = run.complete()
    row, preset = ROWS["fcl"], run.loop.preset
    components = with_prototypes(row, component_arrays(row, preset), 4)
    plan = mean_traffic(row, components, sites=3, rounds=[1], calibration_rounds=10, codec=CODECS["tiny"])
    for site in SITES:
        counts = records[1]["bytes"][site]
        assert statuses(records[1])[site] == "ok"
        assert (
            counts["up"]["payload"]["bank"] <= plan.up["bank"]
            and counts["down"]["payload"]["bank"] <= plan.down["bank"]
        )
        others = [len(run.loop.model.others["bank"][other]["features"]) for other in SITES if other != site]
        assert all(1 <= rows <= 4 for rows in others) and 2 <= len(run.state(site, 1)["remote.features"]) <= 8


def test_both_ends_hold_the_same_networks_and_distances_are_between_those(start):
    run = start("fclopt_dp_tiny", rounds=3)
    records = run.complete()
    for site in SITES:
        for name, arrays in run.loop.model.downlink.held.items():
            assert identical(kept(run, site, 2)[name], arrays)
    online = kept(run, "site-1", 1)["online"]
    states, _ = read_state(run.run / "checkpoints" / "round-0001.safetensors")
    target = to_arrays(states["mean:target"])  # as round 0 left it: round 1 uploads none
    assert records[1]["d"] == distance(online, target) > 0
    own = {k.removeprefix("target."): v for k, v in run.state("site-2", 0).items() if k.startswith("target.")}
    assert records[1]["distances"]["site-2"] == distance(online, to_arrays(own))


def test_what_rounding_lost_is_remembered_and_sent(start):
    run = start("fedbyol", "tiny", rounds=2)
    run.complete()
    lost = [read_state(run.memory("site-1") / f"feedback-{number:04d}.safetensors")[0] for number in (0, 1)]
    trained = {k.removeprefix("online."): v for k, v in run.state("site-1", 1).items() if k.startswith("online.")}
    online = kept(run, "site-1", 1)["online"]
    name = max(online, key=lambda key: online[key].size)
    wanted = trained[name].numpy() + lost[0]["online"][name].numpy()
    sent = wanted - lost[1]["online"][name].numpy()  # what the server decoded
    share = np.abs(sent - wanted).sum() / np.abs(wanted - online[name]).sum()
    assert 0 < share < 0.7
    assert len(np.unique((sent - online[name]).round(7))) <= 15  # seven levels, their opposites and zero


def test_absent_sites_get_what_they_missed(start):
    run = start("fclopt_dp_tiny", rounds=4)
    run.absent = {"site-3": {1, 2}}
    records = run.complete()
    sent = run.loop.model.downlink.sent
    assert statuses(records[3]) == dict.fromkeys(SITES, "ok")
    for name in ("online", "predictor"):
        missed = sum(sent[number][name].size for number in (1, 2, 3))
        assert records[3]["bytes"]["site-3"]["down"]["payload"][name] == missed
        assert records[3]["bytes"]["site-1"]["down"]["payload"][name] == sent[3][name].size
    assert identical(kept(run, "site-3", 3)["online"], kept(run, "site-1", 3)["online"])


@pytest.mark.parametrize("job", ["fclopt_dp_tiny", *nightly("fcl")])
def test_killed_and_continued_gives_the_same_bits(start, job):
    """The server dies after the sites have answered the first task of a round, and all parties restart."""
    codec = None if job == "fclopt_dp_tiny" else "tiny"
    whole, broken = start(job, codec, rounds=4), start(job, codec, "-killed", rounds=4)
    for run in (whole, broken):
        run.absent = {"site-2": {1}}
    whole.complete()
    broken.dies_in = 2
    with pytest.raises(KeyboardInterrupt):
        broken.complete()
    broken.dies_in = None
    broken.start()
    broken.loop._round(2, broken.ask)  # every site finishes the round, and the server dies before it is recorded
    broken.start()
    broken.complete()
    (ours, our_info), (theirs, their_info) = final(broken), final(whole)
    assert our_info == their_info
    assert all(torch.equal(ours[name], theirs[name]) for name in {*ours, *theirs})
    for site in SITES:
        for path in sorted(whole.memory(site).glob("*.safetensors")):
            left, right = read_state(path)[0], read_state(broken.memory(site) / path.name)[0]
            assert all(torch.equal(left[part][key], right[part][key]) for part in left for key in left[part])


def test_a_lost_memory_costs_one_round_and_a_whole_network(start):
    run = start("fclopt_dp_tiny", rounds=5)
    ask = run.ask

    def lose(task, messages, timeout, accept):
        if task == "distance" and next(iter(messages.values())).round_number == 2:
            for path in run.memory("site-2").glob("global-*"):
                path.unlink()
        return ask(task, messages, timeout, accept)

    run.ask = lose
    records = run.complete()
    assert [statuses(record)["site-2"] == "ok" for record in records] == [True, True, False, True, True]
    reason = statuses(records[2])["site-2"]
    assert reason.startswith("site-2 cannot decode the networks of round 2") and "whole networks" in reason
    down = [record["bytes"]["site-2"]["down"]["payload"]["online"] for record in records]
    assert down[3] > 3 * down[1] and down[4] < 1.1 * down[1]
    assert identical(kept(run, "site-2", 4)["online"], kept(run, "site-1", 4)["online"])


def test_a_hostile_upload_costs_that_site_its_round(start, monkeypatch):
    """In each round another kind of damage; a fifth one is honest again."""
    run, damages = start("fclopt_dp_tiny", rounds=5), iter(["flip", "cut", "plain", "text"])
    honest = site_coding.encode_upload

    def change(site, codec, message):
        plain = dict(message.components)
        honest(site, codec, message)
        damage = next(damages, None) if site.name == "site-2" and "samples" in message.meta else None
        if damage is None:
            return
        if damage == "plain":
            message.components, message.encoded = plain, {}
        for parts in message.encoded.values():
            for key, array in parts.items():
                bad = array.copy()
                bad[bad.size // 2] ^= 255
                parts[key] = {"flip": bad, "cut": array[:-5], "text": np.array(["x"])}[damage]

    monkeypatch.setattr(site_coding, "encode_upload", change)
    found = [statuses(record) for record in run.complete()]
    assert all(one["site-1"] == one["site-3"] == "ok" for one in found)
    assert all(one["site-2"].startswith("site-2: ") for one in found[:4]) and found[4]["site-2"] == "ok"


def test_an_update_that_is_far_too_long_is_refused_after_decoding(start, monkeypatch):
    """The message itself is valid. Only the decoded network shows that the site multiplied it by a thousand."""
    run = start("fclopt_dp_tiny", rounds=2)
    honest = site_coding.encode_upload

    def change(site, codec, message):
        if site.name == "site-2" and "samples" in message.meta:
            for arrays in message.components.values():
                for name, array in arrays.items():
                    if array.dtype == np.float32:
                        arrays[name] = array * np.float32(1000)
        honest(site, codec, message)

    monkeypatch.setattr(site_coding, "encode_upload", change)
    for record in run.complete():
        found = statuses(record)
        assert found["site-1"] == found["site-3"] == "ok" and "times the median" in found["site-2"]


def test_a_damaged_download_is_refused_and_sent_whole(start, monkeypatch):
    run = start("fedbyol", "tiny", rounds=3)
    honest = site_coding.decode_download

    def change(site, codec, message):
        if site.name == "site-1" and message.round_number == 1:
            message.encoded["online"] = {key: array[::-1].copy() for key, array in message.encoded["online"].items()}
        honest(site, codec, message)

    monkeypatch.setattr(site_coding, "decode_download", change)
    records = run.complete()
    assert "whole networks are sent next time" in statuses(records[1])["site-1"]
    assert statuses(records[2]) == dict.fromkeys(SITES, "ok")
    down = [record["bytes"]["site-1"]["down"]["payload"]["online"] for record in records]
    assert down[2] > 3 * down[0]
