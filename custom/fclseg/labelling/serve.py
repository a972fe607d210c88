"""Puts a session, its training and the server together, and takes them apart again."""

import getpass
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fclseg.anatomy.folders import folder_anatomy
from fclseg.anatomy.registry import ANATOMIES, DEFAULT
from fclseg.files import make_folder
from fclseg.labelling.answers import Answers
from fclseg.labelling.session import MODELS, Session
from fclseg.labelling.training import Training, latest
from fclseg.local_page import Page, PageServer
from fclseg.locks import held
from fclseg.resources import shipped_model

SLICES = 20
LOCK = ".lock"
PAGE = Page(Path(__file__).parent / "page", "fclseg label")


@contextmanager
def serving(
    data: Path,
    out: Path,
    model: Path | None = None,
    *,
    who: str = "",
    slices: int = SLICES,
    single_slices: bool = False,
    port: int = 0,
    tell: Callable[[str], None] = print,
) -> Iterator[PageServer]:
    """The server of one folder of labels, which answers in the background until the block ends.

    Outlines are those of the last training in this folder, or of ``model``, from which every training starts.
    """
    make_folder(out)
    with held(out / LOCK, str(out), 0.0, "fclseg label"):
        start = model or _shipped(data)
        trained = latest(out.resolve() / MODELS)
        session = Session(data, out, start, who or getpass.getuser(), slices, trained, single_slices)
        training = Training(session.out / MODELS, session.use)
        server = PageServer(PAGE, port, Answers(session, training), tell)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
        try:
            session.background.begin()
            thread.start()
            yield server
        finally:
            server.shutdown()
            server.server_close()
            training.end()
            session.background.end()


def _shipped(data: Path) -> Path:
    """The weights of the bundle for these images; those of the default bundle if there are none."""
    own = shipped_model(folder_anatomy(data).bundle)
    return own if own.is_file() else shipped_model(ANATOMIES[DEFAULT].bundle)
