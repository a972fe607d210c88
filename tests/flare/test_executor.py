"""What a failed task tells the server, and what stays in the site's own log."""

import pytest
from nvflare.apis.fl_constant import ReturnCode

from fclseg.errors import DataError, FCLSegError
from fclseg.flare.controller import read_result
from fclseg.flare.executor import failed
from fclseg.flare.messages import REASON
from fclseg.flare.tensors import StateError


@pytest.mark.parametrize("error", [DataError, OSError, ZeroDivisionError])
def test_what_may_name_a_patient_stays_at_the_site(error):
    reply = failed(error("/data/Mueller_Anna/frame01.nii.gz: the image is constant"))
    assert reply.get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert reply.get_header(REASON) == f"{error.__name__}, explained in the site's own log"
    assert "Mueller" not in str(dict(reply))
    with pytest.raises(FCLSegError, match=f"^{error.__name__}, explained in the site's own log$"):
        read_result(reply)


@pytest.mark.parametrize("error", [FCLSegError, StateError])
def test_a_sentence_about_the_run_reaches_the_server(error):
    with pytest.raises(FCLSegError, match=r"^site-3: the loss became nan$"):
        read_result(failed(error("site-3: the loss became nan")))
