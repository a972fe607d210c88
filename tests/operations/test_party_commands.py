"""One command per party: the coordinator's, the hospital's and the lead's."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from parties import free_ports

from fclseg.cli import main
from fclseg.engine.place import LOCAL_FILE, read_site_file
from fclseg.flare.kits.kit import Kit
from fclseg.flare.kits.project import TEMPLATE, describe_project
from fclseg.flare.kits.service import OUTPUT, search_path, unit
from fclseg.flare.runs.overview import read_run
from fclseg.hospital.policy import SAMPLE
from fclseg.networks.loading import read_tensors
from fclseg.networks.model_file import MODEL
from fclseg.resources import shipped_model


def _init(folder: Path, sites: str, port: int = 8102) -> int:
    return main(["server", "init", str(folder), "--host", "localhost", "--sites", sites, "--port", str(port)])


def test_the_project_has_the_named_parties_and_keeps_the_rest_of_the_template(tmp_path):
    document = describe_project("fl.example.org", ["hospital-a", "b"], 9000, tmp_path / "store")
    template = yaml.safe_load(TEMPLATE.read_text())
    parties = {party["name"]: party for party in document["participants"]}
    assert list(parties) == ["fl.example.org", "hospital-a", "b", "admin@coordinator.org", "lead@coordinator.org"]
    assert (parties["fl.example.org"]["fed_learn_port"], parties["fl.example.org"]["admin_port"]) == (9000, 9001)
    assert parties["hospital-a"] == {"name": "hospital-a", "type": "client", "org": "hospital_a"}
    assert document["allow_log_streaming"] is False
    assert [builder["path"] for builder in document["builders"]] == [one["path"] for one in template["builders"]]


def test_the_proof_of_concept_differs_from_it_only_in_who_may_submit():
    poc, real = (
        yaml.safe_load(path.read_text()) for path in (Path(__file__).parents[2] / "poc" / "project.yml", TEMPLATE)
    )
    kits = next(builder for builder in poc["builders"] if builder["path"].endswith("HospitalKits"))
    assert kits.pop("args") == {"alone": True} and poc == real


@pytest.mark.parametrize(
    ("host", "sites", "port", "sentence"),
    [
        ("a b", ["x"], 1, "'a b' is not a valid name for a machine"),
        ("a", ["../x"], 1, "'../x' is not a valid name"),
        ("a", ["x", "x"], 1, "name each hospital once"),
        ("a", ["x"], 65535, "65535 is not a valid port"),
    ],
)
def test_what_cannot_be_a_project_is_refused(tmp_path, host, sites, port, sentence):
    from fclseg.errors import FCLSegError

    with pytest.raises(FCLSegError, match=sentence):
        describe_project(host, sites, port, tmp_path)


def test_the_coordinator_makes_all_kits_once(tmp_path, capsys):
    assert _init(tmp_path / "federation", "hospital-a,hospital-b") == 0
    printed = capsys.readouterr().out
    kits = tmp_path / "federation" / "kits" / "fclseg" / "prod_00"
    assert Kit(kits / "hospital-a").missing == [] and Kit(kits / "hospital-b").server == ("localhost", 8102)
    assert f"fclseg submit JOB --kit {kits / 'lead@coordinator.org'}" in printed
    assert (kits / "hospital-a" / LOCAL_FILE).read_text() == SAMPLE
    assert _init(tmp_path / "federation", "hospital-a") == 1
    assert "already contains a project" in capsys.readouterr().err


def test_joining_names_the_images_keeps_comments_and_starts_nothing_that_is_faulty(kit, images, capsys):
    path = kit.path / LOCAL_FILE
    before = read_site_file(path)
    assert main(["site", "join", str(kit.path), "--data", str(images / "no\\such")]) == 1
    assert path.read_text().count("//") == SAMPLE.count("//")
    assert read_site_file(path) == before | {"data": str(images / "no\\such")}
    assert "was not started" in capsys.readouterr().err
    path.write_text('{"threads": 2}')
    kit.set_data(images)
    assert read_site_file(path) == {"threads": 2, "data": str(images)}


def test_a_job_is_submitted_with_a_leads_kit_only(kit, capsys):
    assert main(["submit", "fclopt_dp", "--kit", str(kit.path)]) == 1
    assert "is not the startup kit of a lead" in capsys.readouterr().err


def test_the_unit_starts_the_party_again_and_ends_all_of_its_processes(tmp_path):
    text = unit("site-1", tmp_path)
    assert f'ExecStart=/bin/bash "{tmp_path}/startup/sub_start.sh" --once\n' in text
    assert "Restart=always\n" in text and "KillMode=control-group\n" in text and "WantedBy=" in text
    strange = unit("site-1", Path('/srv/50%h "kits"/$HOME'))
    assert 'ExecStart=/bin/bash "/srv/50%%h \\"kits\\"/$$HOME/startup/sub_start.sh" --once\n' in strange


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")
def test_systemd_accepts_the_unit(tmp_path):
    path = tmp_path / "fclseg-site-1.service"
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    for text, complaints in ((unit("site-1", tmp_path / "50% kits"), 0), (unit("a", tmp_path) + "[Service]\nX", 1)):
        path.write_text(text)
        done = subprocess.run(
            ["systemd-analyze", "--user", "--man=no", "verify", str(path)],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert bool(done.stderr) == complaints, done.stderr


PYTHON = """#!/bin/bash
# stands for the party's process: says where Python would import from, then stays
{python} -c 'import sys; print(sys.flags.safe_path, "" in sys.path, "{here}" in sys.path)' > {said}.part
mv {said}.part {said}
echo $PPID $$ > {pids}
sleep 60
"""


def test_a_started_site_lets_go_of_the_callers_output_and_imports_nothing_from_its_folder(kit, tmp_path):
    """`fclseg site join --start | tee log` returns at once, and a sitecustomize.py where it is typed is not run."""
    here, proof, pids = tmp_path / "here", tmp_path / "ran", tmp_path / "pids"
    (tmp_path / "bin").mkdir()
    here.mkdir()
    (here / "sitecustomize.py").write_text(f"open({str(proof)!r}, 'w')\n")
    python = tmp_path / "bin" / "python3"
    python.write_text(PYTHON.format(python=sys.executable, here=here, pids=pids, said=tmp_path / "said"))
    python.chmod(0o755)
    code = f"import sys; sys.executable = {str(python)!r}; from pathlib import Path\n"
    code += f"from fclseg.flare.kits.service import start_kit; start_kit(Path({str(kit.path)!r}))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said, deadline = tmp_path / "said", time.monotonic() + 1800
    command = [sys.executable, "-P", "-c", code]
    try:
        subprocess.run(
            command, cwd=here, env=environment, capture_output=True, timeout=1800, check=True
        )  # through a pipe
        while not (said.exists() and pids.exists()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert said.read_text() == "True False False\n" and not proof.exists()
        assert "WORKSPACE" in (kit.path / OUTPUT).read_text()
    finally:
        for pid in pids.read_text().split() if pids.exists() else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@pytest.fixture
def parties(tmp_path, images, capsys):
    """A server and a hospital, started with these commands only. The folder of all kits."""
    port = free_ports(1)[0]
    assert _init(tmp_path / "fl", "site-1", port) == 0
    kits = tmp_path / "fl" / "kits" / "fclseg" / "prod_00"
    running = [_start(kits / "localhost", tmp_path / "server.log")]
    try:
        _until(lambda: main(["site", "join", str(kits / "site-1"), "--data", str(images)]) == 0)
        capsys.readouterr()
        running.append(_start(kits / "site-1", tmp_path / "site.log"))
        _until(lambda: "New client site-1@" in (tmp_path / "server.log").read_text())
        yield kits
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _complete(kits: Path, job: str, *options: str) -> Path:
    """Submit a job and wait for its end; the folder of the run."""
    lead = str(kits / "lead@coordinator.org")
    command = ["submit", job, "--preset", "demo", "--rounds", "2", "--kit", lead, *options]
    _until(lambda: main(command) == 0)  # NVFlare gives a busy server few seconds to take a job
    folder = kits / "localhost" / "runs" / f"{job}-demo"
    _until(lambda: (folder / "result.json").exists())
    return folder


@pytest.mark.nightly
def test_a_run_between_real_parties_with_these_commands_only(parties, capsys):
    folder = _complete(parties, "fclopt_dp")
    assert capsys.readouterr().out.startswith("run fclopt_dp-demo was submitted as job ")
    assert read_run(folder).state == "complete"
    assert main(["runs", str(folder.parent)]) == 0
    assert "complete  fclopt_dp demo  round 2/2" in capsys.readouterr().out


@pytest.mark.nightly
def test_real_parties_adapt_the_shipped_network_and_fine_tune_the_result(parties):
    """Each run stays near the network that it starts from; random weights would be far away."""
    adapted = _complete(parties, "mean_teacher") / MODEL
    tuned = _complete(parties, "finetune_federated", "--network", str(adapted)) / MODEL
    for start, end in ((shipped_model("acdc_unet", "demo"), adapted), (adapted, tuned)):
        first, last = (read_tensors(path)[0] for path in (start, end))
        kernels = [name for name in first if first[name].ndim == 4]
        moved = [float((last[name] - first[name]).norm() / first[name].norm()) for name in kernels]
        assert len(kernels) > 15 and 0 < max(moved) < 0.3, (end, moved)


def _start(kit: Path, log: Path) -> subprocess.Popen:
    command = ["bash", str(kit / "startup" / "sub_start.sh"), "--once"]
    environment = {**os.environ, "PATH": search_path(os.environ["PATH"])}
    with open(log, "w") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )


def _until(done) -> None:
    deadline = time.monotonic() + 1800
    while not done():
        assert time.monotonic() < deadline
        time.sleep(1)


def test_versions_and_dates_stand_in_every_run(tmp_path):
    from fclseg import __version__
    from fclseg.engine.run_folder import RunFolder

    folder = RunFolder(tmp_path / "run")
    folder.open({"settings": {"job": "fclopt"}}, fresh=False)
    config = json.loads((folder.path / "config.json").read_text())
    assert config["version"] == __version__ and abs(config["started"] - time.time()) < 600
