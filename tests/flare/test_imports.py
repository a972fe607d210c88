"""Libraries that a site's task and the quick commands must not import, because importing takes longer than the work.

In a simulation with fewer threads than sites, every task is a separate process.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from inprocess import InProcess

from fclseg.phantom.dataset import write_phantom

HEAVY = ("monai", "matplotlib", "ignite", "tensorboard", "torch._dynamo")
REPORT = "import sys; print([name for name in {names!r} if name in sys.modules], file=sys.stderr)"
RUN = """
from pathlib import Path
from inprocess import InProcess
data, cache = {{"site-1": Path({data!r})}}, Path({cache!r})
InProcess(Path({folder!r}), data, {job!r}, cache, rounds=2, seed=0).complete()
"""


def _loaded(code: str, names: tuple[str, ...]) -> str:
    """Which of the modules a new process has loaded after ``code``."""
    script = f"{code}\n{REPORT.format(names=names)}"
    path = [str(Path(__file__).parent)]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path += {path!r}\n{script}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Images, and the slice store of a site that has taken part before."""
    root = tmp_path_factory.mktemp("imports")
    write_phantom(root / "data", patients=2, frames=2)
    InProcess(root / "first", {"site-1": root / "data"}, "fclopt", root / "cache", rounds=1, seed=0).complete()
    return root


@pytest.mark.parametrize("job", ["fclopt_dp", "fcl"])
def test_a_run_imports_nothing_heavy_once_the_slices_are_stored(folders, job):
    places = {"folder": folders / job, "data": folders / "data", "cache": folders / "cache"}
    assert _loaded(RUN.format(**{name: str(path) for name, path in places.items()}, job=job), HEAVY) == "[]"


def test_the_site_waits_for_neither_torch_nor_image_libraries_before_it_connects():
    code = "\n".join(f"import fclseg.flare.{name}" for name in ("executor", "learner", "curves", "filters"))
    assert _loaded(code, (*HEAVY, "nibabel", "scipy", "torch")) == "[]"


@pytest.mark.parametrize(
    ("arguments", "names"), [(["--help"], (*HEAVY, "torch", "nvflare", "nibabel")), (["bytes"], HEAVY)]
)
def test_the_quick_commands_are_quick(arguments, names):
    code = f"from fclseg.cli import main\ntry:\n    main({arguments!r})\nexcept SystemExit:\n    pass"
    assert _loaded(code, names) == "[]"
