"""The start page until somebody ends it, or its window was closed and nothing runs any more."""

import threading
import time
import webbrowser
from pathlib import Path

from fclseg.local_page import Page, PageServer
from fclseg.start.answers import StartAnswers
from fclseg.start.job import Job

PAGE = Page(Path(__file__).parent / "page", "fclseg start")
CLOSED_SECONDS = 300.0
"""An open page asks every two seconds, in the background at least once a minute."""


def start(home: Path, port: int = 0, browser: bool = True, closed_seconds: float = CLOSED_SECONDS) -> None:
    job, ended = Job(), threading.Event()
    answers = StartAnswers(job, home, ended.set)
    server = PageServer(PAGE, port, answers, lambda text: None)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True).start()
    try:
        print(f"open {server.link}", flush=True)
        if browser:
            webbrowser.open(server.link)
        while not ended.wait(min(1.0, closed_seconds)):
            if not job.running and time.monotonic() - answers.asked > closed_seconds:
                break
    except KeyboardInterrupt:  # Ctrl-C is one way to end, from the moment at which the link is shown
        pass
    finally:
        job.stop()
        server.shutdown()
        server.server_close()
