"""What a failed task tells the server and the log, and what stays in the site's own file."""

import logging
from types import SimpleNamespace

import pytest
from contexts import site_context
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fclseg.engine.messages import PRETRAIN_TASK, Message
from fclseg.engine.state_files import StateError
from fclseg.errors import DataError, FCLSegError, PublicError
from fclseg.flare.executor import SiteExecutor
from fclseg.flare.wire import REASON, read_result, to_shareable

SENTENCE = "/data/Mueller_Anna/frame01.nii.gz: the image is constant"


def fail(tmp_path, error):
    """The answer of a site whose training ends with this error."""

    def open_(message, fl_ctx):
        raise error

    learner = SimpleNamespace(open=open_)
    executor = SiteExecutor("learner")
    executor.learner, executor.is_initialized = learner, True
    task = to_shareable(Message(meta={"round": 0}))
    return executor.execute(PRETRAIN_TASK, task, site_context(tmp_path), Signal())


@pytest.mark.parametrize("error", [DataError, OSError, ZeroDivisionError, FCLSegError, StateError])
def test_what_may_name_a_patient_or_a_path_stays_at_the_site(error, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    reply = fail(tmp_path, error(SENTENCE))
    told = f"{error.__name__}, see problems.log in the site's folder of runs"
    assert reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION and reply.get_header(REASON) == told
    assert "Mueller" not in str(dict(reply)) and "Mueller" not in caplog.text and "/data" not in caplog.text
    with pytest.raises(FCLSegError, match=f"^{told}$"):
        read_result(reply)
    own = tmp_path / "runs" / "problems.log"
    assert SENTENCE in own.read_text() and own.stat().st_mode & 0o077 == 0


def test_a_sentence_that_was_written_for_the_server_reaches_it(tmp_path):
    with pytest.raises(FCLSegError, match=r"^site-3: the loss became nan$"):
        read_result(fail(tmp_path, PublicError("site-3: the loss became nan")))


def test_a_task_that_nobody_knows_is_not_done(tmp_path):
    reply = SiteExecutor("learner").execute("read_disk", Shareable(), site_context(tmp_path), Signal())
    assert reply.get_return_code() == ReturnCode.TASK_UNKNOWN
