"""Labelling from Python: the local page, until it is interrupted."""

import contextlib
import threading
import webbrowser
from pathlib import Path

from fclseg.labelling.serve import SLICES, serving


def label(
    data: Path | str,
    out: Path | str,
    model: Path | str | None = None,
    *,
    who: str = "",
    slices: int = SLICES,
    single_slices: bool = False,
    port: int = 0,
    browser: bool = True,
) -> None:
    """Open a page on this machine on which the images of ``data`` are labelled. Labels are saved to ``out`` at once.

    ``out`` can be given to ``finetune`` as it is. The page closes when the program is interrupted (Ctrl-C).
    ``single_slices``: in label maps that another program wrote to ``out``, slices without any structure are not
    labelled.
    """
    start = Path(model) if model else None
    with (
        serving(Path(data), Path(out), start, who=who, slices=slices, single_slices=single_slices, port=port) as server,
        contextlib.suppress(KeyboardInterrupt),  # Ctrl-C is how this ends, from the moment at which the link is shown
    ):
        print(f"labels are saved to {out}; Ctrl-C ends.\nopen {server.link}", flush=True)
        if browser:
            webbrowser.open(server.link)
        threading.Event().wait()
