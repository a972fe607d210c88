"""A job's process at a site that cannot reach the site's own process."""

from types import SimpleNamespace

import pytest
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.message import Message
from nvflare.private.fed.client.client_app_runner import ClientAppRunner

from fclseg.flare.patches import lost_parent


class Cell:
    """The answers of a parent, one per request; the last one is repeated."""

    core_cell = SimpleNamespace(get_fqcn=lambda: "site-1.job")

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), 0

    def send_request(self, **request):
        assert request["target"] == "site-1"
        self.asked += 1
        code = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return Message(headers={MessageHeaderKey.RETURN_CODE: code})


@pytest.fixture
def notify(monkeypatch):
    monkeypatch.setattr(ClientAppRunner, "notify_job_status", ClientAppRunner.notify_job_status)
    monkeypatch.setattr(lost_parent, "PATIENCE", 2.0)
    lost_parent.end_without_parent()
    return lambda cell, **more: ClientAppRunner().notify_job_status(
        SimpleNamespace(cell=cell), "job", "started", timeout=1.0, **more
    )


def test_it_ends_instead_of_asking_for_ever(notify):
    cell = Cell(ReturnCode.TARGET_UNREACHABLE)
    with pytest.raises(lost_parent.ParentLost, match="has not answered for 2 s"):
        notify(cell, retry_timeout=1.0)
    assert cell.asked <= 5, "two requests a second"


def test_a_parent_that_answers_late_is_enough(notify):
    cell = Cell(ReturnCode.TARGET_UNREACHABLE, ReturnCode.TIMEOUT, ReturnCode.OK)
    notify(cell, retry_timeout=1.0)
    assert cell.asked == 3


def test_the_end_of_a_job_is_told_once(notify):
    cell = Cell(ReturnCode.TARGET_UNREACHABLE)
    notify(cell)
    assert cell.asked == 1
