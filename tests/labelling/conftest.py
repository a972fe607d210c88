"""Sessions on images of which every voxel is known, without a network's outlines."""

import pytest
from known_images import marked, write_patient

from fclseg.labelling.answers import Answers
from fclseg.labelling.session import Session
from fclseg.labelling.training import Training
from fclseg.resources import shipped_model


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    for name in ("anna", "bert"):
        write_patient(folder, name, [marked(), marked()[:, ::-1].copy() + 1])
    return folder


@pytest.fixture
def begin(data, tmp_path):
    """Starts a session on the data, or starts it again."""
    return lambda: Session(data, tmp_path / "labels", shipped_model("acdc_unet"), "anna")


@pytest.fixture
def answers(begin):
    session = begin()
    return Answers(session, Training(session.out / "models", session.use))
