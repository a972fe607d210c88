"""The server answers this machine's browser with a fresh link, and nobody else."""

import http.client
import json
import signal
import subprocess
import sys
import threading

import pytest
from known_images import SHAPE

from fclseg.errors import FCLSegError
from fclseg.labelling.serve import PAGE, serving
from fclseg.local_page import PageServer


@pytest.fixture
def server(answers):
    made = PageServer(PAGE, 0, answers, tell=lambda text: None)
    threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def ask(server, path, method="GET", body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=600)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer, answer.read()


def cookie(server):
    answer, _ = ask(server, f"/?token={server.token}")
    assert answer.status == 303 and answer.headers["Location"] == "/"
    given = answer.headers["Set-Cookie"]
    assert "HttpOnly" in given and "SameSite=Strict" in given
    return given.split(";")[0]


def test_a_link_works_once(server):
    assert server.server_address[0] == "127.0.0.1"
    link = f"/?token={server.token}"
    key = cookie(server)
    assert ask(server, link)[0].status == 403
    assert ask(server, "/", Cookie=key)[0].status == 200
    assert ask(server, "/api/state", Cookie=key)[0].status == 200
    assert cookie(server) == key  # the next link lets the same person in again


@pytest.mark.parametrize("path", ["/", "/app.js", "/api/state", "/api/volume/0", "/?token=", "/?token=wrong"])
def test_without_a_link_nothing_is_shown(server, path):
    for headers in ({}, {"Cookie": f"{server.cookie[0]}=wrong"}):
        answer, body = ask(server, path, **headers)
        assert answer.status == 403 and b"link" in body


def test_other_hosts_and_pages_are_refused(server):
    key = cookie(server)
    assert ask(server, "/api/state", Cookie=key, Host="evil.example")[0].status == 403
    assert ask(server, "/api/train", "POST", Cookie=key, Origin="http://evil.example")[0].status == 403
    assert ask(server, "/", Cookie=key, Host=f"localhost:{server.server_port}")[0].status == 200


@pytest.mark.parametrize("path", ["/../server.py", "/%2e%2e/server.py", "/server.py", "/api/nothing", "/api/volume/x"])
def test_only_the_pages_own_files_are_given(server, path):
    assert ask(server, path, Cookie=cookie(server))[0].status == 404


def test_changes_are_checked_and_conflicts_told(server):
    key = cookie(server)
    good = bytes(SHAPE[0] * SHAPE[1])

    def save(body, query="revision=0&state=draft&seconds=1", path="/api/slice/0/1"):
        answer, content = ask(server, f"{path}?{query}", "POST", body, Cookie=key)
        return answer.status, json.loads(content)

    assert save(good[:-1])[0] == 400 and save(bytes([9]) + good[1:])[0] == 400
    assert save(good, path="/api/slice/0/77")[0] == 400 and save(good, path="/api/slice/99/0")[0] == 400
    assert save(good, "revision=0&state=nonsense")[0] == 400 and save(good, "revision=x&state=draft")[0] == 400
    assert save(good)[1]["record"]["revision"] == 1
    status, content = save(good)
    assert status == 409 and "changed meanwhile" in content["error"]


def test_training_without_labels_is_a_sentence(server):
    answer, body = ask(server, "/api/train", "POST", Cookie=cookie(server))
    assert answer.status == 400 and "no slice is labelled yet" in json.loads(body)["error"]


def test_one_program_per_folder(data, tmp_path):
    with serving(data, tmp_path / "labels", tell=lambda text: None) as first:
        first.answers.session.background.waiting.clear()
        with pytest.raises(FCLSegError, match="is in use by process"), serving(data, tmp_path / "labels"):
            pass


@pytest.mark.nightly
def test_the_command_prints_a_link_and_ends_with_control_c(data, tmp_path):
    command = [sys.executable, "-c", "import sys; from fclseg.cli import main; sys.exit(main())"]
    command += ["label", str(data), "--out", str(tmp_path / "labels"), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        link = next(line for line in process.stdout if line.startswith("open http://127.0.0.1:"))
        assert "?token=" in link
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=600) == 0
    finally:
        process.kill()
