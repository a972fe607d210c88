"""A hospital's own policy: what it refuses, that no job can bypass it, and that everything is recorded."""

import json
import time
from dataclasses import replace

import numpy as np
import pytest
from contexts import LEAD, site_context

from fclseg.cli import main
from fclseg.engine.job_defaults import completed
from fclseg.engine.messages import FORMAT, Message
from fclseg.engine.place import LOCAL_FILE, read_site_file
from fclseg.engine.run_settings import RunSettings
from fclseg.engine.site import Site
from fclseg.errors import FCLSegError
from fclseg.federation.states import to_arrays
from fclseg.flare.executor import check_logs_stay
from fclseg.flare.wire import site_place
from fclseg.hospital.admission import Admissions
from fclseg.hospital.audit import Audit
from fclseg.hospital.gate import Gate
from fclseg.hospital.policy import EVERYTHING, SAMPLE, Policy, PolicyError
from fclseg.methods.exchange import DISTANCE, OTHERS, ROWS
from fclseg.methods.registry import build_method

TINY = {"channels": [2, 4], "hidden": 4, "bank_size": 8}


@pytest.fixture
def gate(tmp_path):
    """The gate of a site with this policy, for a task of a run of this job."""
    context = site_context(tmp_path)

    def make(job="fclopt_dp", task="pretrain", round_number=0, received=None, policy=None, run_id="run-1", **settings):
        given = {"changes": list(TINY), **(policy or {})}
        (tmp_path / LOCAL_FILE).write_text(json.dumps({"policy": given}))
        chosen = RunSettings.read({"job": job, "changes": TINY, **settings}, {})
        run = {"id": run_id, "format": FORMAT, "settings": chosen.to_dict(), "sites": ["site-1"], "shared": {}}
        message = Message(received or {}, meta={"round": round_number, "run": run})
        return Gate(Site.of(site_place(context), message), task, message)

    make.audit = lambda: Audit(tmp_path / "runs").entries()
    return make


def networks(gate, seed=0):
    """Everything that a method of the run could send."""
    settings = gate.site.settings
    method = build_method(settings.row, settings.build_preset(), seed)
    names = {flow.component for flow in settings.row.flows} - {DISTANCE}
    return {name: to_arrays(method.send(name)) for name in names}


def answer(gate, parts):
    passed_on = {flow.component for flow in gate.site.settings.row.flows if flow.combine == OTHERS}
    components = {name: part for name, part in parts.items() if name not in passed_on}
    others = {name: {"site-1": part} for name, part in parts.items() if name in passed_on}
    return Message(components, others, meta=gate.task.meta)


def _job_with(component):
    return next(row.job for row in ROWS.values() if component in {flow.component for flow in row.flows})


@pytest.mark.parametrize("component", sorted(EVERYTHING - {DISTANCE}))
def test_each_component_stays_where_the_policy_keeps_it(gate, component):
    door = gate(_job_with(component), policy={"components": sorted(EVERYTHING - {component})})
    with pytest.raises(PolicyError, match=f"^this site does not let component '{component}' leave$"):
        door.release(answer(door, networks(door)))
    (entry,) = gate.audit()
    assert entry["outcome"] == "refused" and component in entry["reason"] and "components" not in entry
    door = gate(_job_with(component), policy={"components": sorted(EVERYTHING)})
    released = door.release(answer(door, networks(door)))
    assert component in {*released.components, *released.others}


def test_the_distance_stays_where_the_policy_keeps_it(gate):
    door = gate(task="distance", policy={"components": sorted(EVERYTHING - {DISTANCE})})
    with pytest.raises(PolicyError, match="component 'distance'"):
        door.release(Message(distance=0.5, meta=door.task.meta))


@pytest.mark.parametrize("job", ["fcl", "fcl_fe", "fcl_fe_ns", "fedca"])
def test_features_do_not_leave_unless_the_hospital_says_so(gate, job):
    door = gate(job)
    with pytest.raises(PolicyError, match=r"'(bank|dictionary)' leave"):
        door.release(answer(door, networks(door)))


def test_what_the_plan_does_not_send_in_a_round_stays(gate):
    """Also where a job leaves out what would withhold it."""
    for number in range(4):
        door = gate("fclopt_dp", round_number=number)
        sent = door.release(answer(door, networks(door)))
        assert ("target" in sent.components) == (number % 2 == 0) and "online" in sent.components


def test_a_component_that_no_plan_has_does_not_leave(gate):
    door = gate("fedbyol")
    sent = door.release(answer(door, {**networks(door), "images": {"x": np.zeros(4)}}))
    assert set(sent.components) == {"online", "predictor"}


@pytest.mark.parametrize(
    ("policy", "settings", "complaint"),
    [
        ({"jobs": ["fclopt"]}, {}, "this site does not allow job 'fclopt_dp'"),
        ({"presets": ["paper"]}, {}, "this site does not allow preset 'demo'"),
        ({"changes": []}, {}, "a run to change 'networks.channels'"),
        ({}, {"changes": {"batch_size": 2}}, "a run to change 'pretraining.batch_size'"),
        ({"rounds": 3}, {"rounds": 4}, "has 4 rounds, but this site allows at most 3"),
    ],
)
def test_a_run_that_the_hospital_does_not_want_gets_nothing(gate, policy, settings, complaint):
    door = gate(policy=policy, **settings)
    with pytest.raises(PolicyError, match=complaint):
        door.admit()
    (entry,) = gate.audit()
    assert entry["outcome"] == "refused" and entry["job"] == "fclopt_dp" and entry["submitter"] == LEAD
    gate(policy={}, rounds=4).admit()


@pytest.mark.parametrize("network", [None, "shipped", "/srv/model.safetensors"])
def test_the_settings_that_a_job_needs_are_not_a_change(gate, network):
    """A hospital that allows no changes still takes part in fine-tuning, from whichever network."""
    settings = completed(ROWS["finetune_federated"], {"preset": "small", "network": network})
    gate("finetune_federated", policy={"changes": []}, **settings).admit()
    own = {**settings["changes"], "finetuning.lr": 0.5}
    with pytest.raises(PolicyError, match=r"a run to change 'finetuning\.lr'"):
        gate("finetune_federated", policy={"changes": []}, **{**settings, "changes": own}).admit()


@pytest.mark.parametrize("number", [-1, 4, 10**9])
def test_a_round_that_the_run_does_not_have_is_refused(gate, number):
    with pytest.raises(PolicyError, match=f"round {number}, outside the run's 4 rounds"):
        gate(round_number=number).admit()


def test_a_run_ends_after_its_hours(gate, tmp_path):
    gate(policy={"hours": 2}).admit()
    admissions = Admissions(tmp_path / "runs")
    (known,) = admissions.named("fclopt_dp-demo")
    admissions._write(replace(known, asked=time.time() - 3 * 3600))
    for again in ({}, {"run_id": "started-over"}, {"seed": 5}):  # the hours are those of the name
        with pytest.raises(PolicyError, match="longer than the 2 hours"):
            gate(policy={"hours": 2}, **again).admit()


def test_too_few_patients_train_nothing(gate, tmp_path, monkeypatch):
    monkeypatch.setattr(Site, "volumes", [type("Volume", (), {"patient": f"p{number % 4}"}) for number in range(9)])
    gate(policy={"patients": 4}).admit()
    with pytest.raises(PolicyError, match=r"^this site has fewer patients for the run than its policy requires$"):
        gate(policy={"patients": 5}).admit()


def test_nothing_happens_before_a_person_has_approved(gate, tmp_path, capsys):
    kit = ["--kit", str(tmp_path)]
    with pytest.raises(PolicyError, match="run 'fclopt_dp-demo' is waiting for approval"):
        gate(policy={"approval": True}).admit()
    assert main(["site", "runs", *kit]) == 0
    shown = capsys.readouterr().out
    assert "waits for approval" in shown
    fingerprint = shown.split()[0]
    for other in ("fclopt_dp-demo", "../../etc", fingerprint[:-1], fingerprint[::-1], ""):
        assert main(["site", "approve", other, *kit]) == 1
        assert "give the first 12 digits" in capsys.readouterr().err
    with pytest.raises(
        PolicyError, match="is waiting for approval"
    ):  # another run under the same name comes in between
        gate(policy={"approval": True}, seed=1).admit()
    assert main(["site", "approve", fingerprint, *kit]) == 0
    gate(policy={"approval": True}).admit()
    gate(policy={"approval": True}, pretrain_timeout=5).admit()  # patience is no part of what a run computes
    with pytest.raises(PolicyError, match="is waiting for approval"):  # what was approved is not what came in between
        gate(policy={"approval": True}, seed=1).admit()


def test_what_leaves_is_clipped_whatever_the_job_says(gate):
    door = gate("fedbyol")
    start = networks(door)
    moved = {name: {k: v + 1 if v.dtype == np.float32 else v for k, v in part.items()} for name, part in start.items()}

    def length(sent):
        parts = [
            (sent[n][k].astype(float) - start[n][k]) for n in start for k in start[n] if sent[n][k].dtype.kind == "f"
        ]
        return np.sqrt(sum((part**2).sum() for part in parts))

    door = gate("fedbyol", received=start, policy={"clip": 0.5})
    sent = door.release(answer(door, moved))
    assert length(moved) > 10 and length(sent.components) == pytest.approx(0.5, rel=1e-3)
    assert gate.audit()[-1]["norm"] == pytest.approx(0.5, rel=1e-3)
    noisy = gate("fedbyol", received=start, policy={"clip": 0.5, "sigma": 2.0})
    sizes = [length(noisy.release(answer(noisy, moved)).components) for _ in range(3)]
    assert len(set(sizes)) == 1 and min(sizes) > 5  # asked again, the same noise: nobody can average it away
    less = {name: {k: v * 0.5 if v.dtype == np.float32 else v for k, v in part.items()} for name, part in moved.items()}
    assert length(noisy.release(answer(noisy, less)).components) not in sizes
    with pytest.raises(FCLSegError, match="'online' was not received in this round"):  # no beginning, no update to clip
        unknown = gate("fedbyol", policy={"clip": 0.5})
        unknown.release(answer(unknown, moved))


def test_features_do_not_pass_where_everything_is_clipped(gate):
    door = gate("fcl", policy={"components": sorted(EVERYTHING), "clip": 1.0})
    with pytest.raises(PolicyError, match="'bank' cannot be clipped"):  # before training, too
        door.admit()
    with pytest.raises(PolicyError, match="'bank' cannot be clipped"):
        door.release(answer(door, networks(door)))


def test_the_audit_tells_what_left_and_notices_changes(gate, tmp_path, capsys):
    start = networks(gate("fedbyol"))
    door = gate("fedbyol", received=start)
    door.release(answer(door, networks(door, seed=1)))
    gate(task="distance").release(Message(distance=0.5, meta=door.task.meta))
    first, second = gate.audit()
    sizes = {name: sum(array.nbytes for array in part.values()) for name, part in start.items()}
    assert first["components"] == sizes and first["norm"] > 0 and first["round"] == 0 and first["job"] == "fedbyol"
    assert (first["submitter"], first["job_id"], first["run"]) == (LEAD, "job-4711", "fedbyol-demo")
    assert second["components"] == {"distance": 8} and second["norm"] is None
    assert main(["site", "audit", "--kit", str(tmp_path)]) == 0
    assert "2 entries" in (shown := capsys.readouterr().out) and f"online {sizes['online']} bytes" in shown
    file = tmp_path / "runs" / "audit.jsonl"
    assert file.stat().st_mode & 0o077 == 0
    lines = file.read_text().splitlines(keepends=True)
    for forged in (lines[1:], [lines[0].replace(LEAD, "somebody else"), lines[1]], [lines[1], lines[0]]):
        file.write_text("".join(forged))
        assert main(["site", "audit", "--kit", str(tmp_path)]) == 1
        assert "was changed in or before line" in capsys.readouterr().err


def test_the_audit_survives_long_lines(tmp_path):
    """The next line's checksum needs the whole last line, however long it is."""
    file = Audit(tmp_path / "runs")
    for length in (10, 70_000, 10, 2**18, 3):
        file.note(outcome="sent", run="x" * length)
    assert [len(entry["run"]) for entry in file.entries()] == [10, 70_000, 10, 2**18, 3]


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        ({"component": ["online"]}, "no 'component'"),
        ({"components": "online"}, "give a list of names"),
        ({"components": ["onlin"]}, "'onlin' in 'components'"),
        ({"jobs": ["all"]}, "'all' in 'jobs'"),
        ({"presets": ["tiny"]}, "'tiny' in 'presets'"),
        ({"changes": ["depth"]}, "no setting 'depth'"),
        ({"clip": 0}, "'clip'"),
        ({"clip": "1"}, "'clip'"),
        ({"sigma": 1.0}, "'sigma' but no 'clip'"),
        ({"rounds": 2.5}, "'rounds'"),
        ({"hours": float("nan")}, "'hours'"),
        ({"patients": True}, "'patients'"),
        ({"approval": "yes"}, "give true or false"),
        ([], "not an object"),
    ],
)
def test_a_slip_of_the_pen_does_not_loosen_a_policy(policy, complaint):
    with pytest.raises(FCLSegError, match=complaint):
        Policy.read(policy)


def test_the_sample_of_a_new_kit_is_in_order_and_strict(tmp_path):
    (tmp_path / "fclseg.json").write_text(SAMPLE)
    document = read_site_file(tmp_path / "fclseg.json")
    assert document["data"] is None
    assert Policy.read(document["policy"]) == Policy()
    assert not {"bank", "dictionary"} & set(Policy().components) and Policy().changes == ()


def test_a_site_whose_logs_are_sent_away_does_not_work(tmp_path):
    context = site_context(tmp_path)
    check_logs_stay(context)
    (tmp_path / "local" / "resources.json").write_text("{}")  # NVFlare's default is to send
    with pytest.raises(FCLSegError, match='set "allow_log_streaming" to false'):
        check_logs_stay(context)
    check_logs_stay(site_context(tmp_path / "simulated", simulated=True))


def test_phantoms_stand_in_only_where_nobody_gave_images_and_the_server_is_on_this_machine(tmp_path, monkeypatch):
    """`nvflare poc` as typed: its kits send log files and know no images. A hospital's kit names a server elsewhere."""
    monkeypatch.setenv("FCLSEG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FCLSEG_DATA", raising=False)
    context = site_context(tmp_path)
    (tmp_path / "local" / "resources.json").write_text("{}")  # log files are sent
    settings = RunSettings.read({"job": "fedbyol"}, {}).to_dict()
    run = {"id": "1", "format": FORMAT, "settings": settings, "sites": ["site-1"], "shared": {}}

    def connect(host):
        document = {"servers": [{"service": {"target": f"{host}:8002"}}]}
        (tmp_path / "startup" / "fed_client.json").write_text(json.dumps(document))
        return Site.of(site_place(context), Message(meta={"round": 0, "run": run}))

    site = connect("localhost")
    check_logs_stay(context)
    assert site.patient_count == 3 and {volume.image.is_relative_to(tmp_path / "cache") for volume in site.volumes} == {
        True
    }
    for elsewhere in ("fl.hospital.org", "localhost.hospital.org", "192.168.0.7"):
        far = connect(elsewhere)
        with pytest.raises(FCLSegError, match="has no data folder"):
            _ = far.volumes
        with pytest.raises(FCLSegError, match="allow_log_streaming"):
            check_logs_stay(context)
    (tmp_path / "own").mkdir()
    monkeypatch.setenv("FCLSEG_DATA", str(tmp_path / "own"))  # real patients, and a server on this machine
    assert not connect("localhost").place.on_phantoms
    with pytest.raises(FCLSegError, match="allow_log_streaming"):
        check_logs_stay(context)
