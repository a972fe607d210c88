"""The server continues interrupted runs by itself: when, which ones, and what it reads about them."""

import io
import json
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from fclseg.engine.messages import FORMAT, Message
from fclseg.engine.place import Place
from fclseg.engine.run_folder import RunFolder
from fclseg.engine.site import Site
from fclseg.errors import FCLSegError, PublicError
from fclseg.flare.jobs import write_job
from fclseg.flare.runs.attempts import Attempts
from fclseg.flare.runs.keeper import RunKeeper
from fclseg.flare.runs.submitted import SubmittedRun, refusal, run_of_job
from fclseg.methods.exchange import get_row


def _app(folder: Path) -> bytes:
    """A job's app as NVFlare's job store gives it to the server."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in folder.rglob("*.json"):
            archive.write(path, str(path.relative_to(folder)))
    return content.getvalue()


def test_attempts_without_a_finished_round_wait_longer_and_end():
    attempts = Attempts()
    assert [attempts.pause("run", 3) for _ in range(7)] == [2, 10, 60, 300, 900, 900, 900]
    assert attempts.pause("other", 3) == 2
    assert attempts.pause("run", 4) == 2  # a round was finished
    assert [attempts.pause("run", 4) for _ in range(24)][-2:] == [900, None]


def test_the_run_of_a_job_is_found_by_its_settings(tmp_path):
    write_job(tmp_path / "job", get_row("fclopt_dp"), {"preset": "demo", "run": "spring"}, simulator=False)
    assert run_of_job(_app(tmp_path / "job" / "app"), tmp_path) == SubmittedRun(tmp_path / "runs" / "spring")
    (tmp_path / "kit" / "local").mkdir(parents=True)
    (tmp_path / "kit" / "local" / "fclseg.json").write_text(json.dumps({"runs": str(tmp_path / "elsewhere")}))
    assert run_of_job(_app(tmp_path / "job" / "app"), tmp_path / "kit").folder == tmp_path / "elsewhere" / "spring"


@pytest.mark.parametrize("content", [b"", b"PK not a zip", _app(Path(__file__).parent / "none")])
def test_a_job_of_somebody_else_is_no_run(tmp_path, content):
    assert run_of_job(content, tmp_path) is None


def test_only_failures_that_may_pass_are_tried_again(tmp_path):
    run, folder = SubmittedRun(tmp_path / "run"), RunFolder(tmp_path / "run")
    assert (run.lasting_failure, run.complete, run.rounds, run.sites) == (False, False, 0, [])
    folder.fail("the settings differ")
    assert run.lasting_failure
    folder.fail("a site is not connected", passing=True)
    assert not run.lasting_failure
    (tmp_path / "run" / "rounds.jsonl").write_text('{"round": 0}\n{"round": 1}\n{"rou')
    (tmp_path / "run" / "config.json").write_text('{"sites": ["a", "b"]}')
    assert (run.rounds, run.sites) == (2, ["a", "b"])


@pytest.mark.parametrize("run", [{"format": FORMAT + 1}, {"format": FORMAT - 1}, {"format": str(FORMAT)}, {}])
def test_a_site_refuses_a_server_of_another_format_before_it_reads_its_settings(tmp_path, run):
    sentence = f"the server has format {run.get('format')}, but fclseg has format {FORMAT} here: install the same"
    with pytest.raises(PublicError, match=sentence):
        Site.of(Place("site-1", tmp_path), Message(meta={"run": {**run, "settings": {"new": 1}}}))


def test_a_run_folder_of_another_format_is_not_continued(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.open({"settings": {}}, fresh=False)
    config = json.loads((folder.path / "config.json").read_text())
    assert config["format"] == FORMAT
    folder.open({"settings": {}}, fresh=False)
    for other in ({**config, "format": FORMAT - 1}, {name: config[name] for name in config if name != "format"}):
        (folder.path / "config.json").write_text(json.dumps(other))
        with pytest.raises(FCLSegError, match=f"has format (1|None), but this version of fclseg has format {FORMAT}"):
            folder.open({"settings": {}}, fresh=False)


def test_kits_keep_their_runs_and_wait_for_the_server(federation):
    server = json.loads((federation.kit("localhost") / "local" / "resources.json.default").read_text())
    components = {entry["id"]: entry for entry in server["components"]}
    assert components["run_keeper"]["path"] == "fclseg.flare.runs.keeper.RunKeeper"
    assert components["job_scheduler"]["args"]["max_schedule_count"] >= 1_000_000
    assert "fclseg.flare.runs.keeper.RunKeeper" not in server["class_allow_list"]  # no job can name it
    client = json.loads((federation.kit("site-1") / "startup" / "fed_client.json").read_text())
    assert client["client"]["engine_create_timeout"] > 365 * 86400
    assert client["client"]["communication_timeout"] == 30


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        (None, ""),
        (["server: OK", "site-1: OK"], ""),
        (["server: OK", "site-1: no reply (deployment timeout)", "num_ok_sites 0 < required_min_sites 1"], ""),
        (["server: OK", "invalid_clients: site-9"], ""),
        (["server: BYOC not permitted"], "server: BYOC not permitted"),
        (["server: OK", "site-1: OK", "site-2: the job brings code\nx"], "site-2: the job brings code\\nx"),
    ],
)
def test_a_job_that_a_party_refuses_is_not_tried_again(details, expected):
    assert refusal(details) == expected


def test_a_second_server_on_the_same_store_ends_no_jobs(tmp_path):
    """A copied kit: the jobs of the server that runs are not lost."""
    ended = []

    def start():
        manager = SimpleNamespace(uri_root=str(tmp_path), get_jobs_by_status=lambda *arguments: [])
        runner = SimpleNamespace(update_unfinished_jobs=lambda context: ended.append(1))
        engine = SimpleNamespace(job_runner=runner, get_component=lambda name: manager)
        keeper = RunKeeper()
        keeper._work = lambda: None
        keeper.log_error = lambda context, text: ended.append(text)
        keeper._start(SimpleNamespace(get_engine=lambda: engine))
        return keeper

    first = start()
    assert ended == [1]
    start()
    assert len(ended) == 2 and "this server continues no run: the store of jobs is in use by process" in ended[1]
    first._life.close()
    start()
    assert ended[2:] == [1]
