"""What all tests share."""

import contextlib
import gc
import os
import pickle
import shutil
import signal
import tempfile
from hashlib import sha256
from pathlib import Path

import psutil
import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

# `make test` runs one process per core. More threads wait for each other and make everything slower, on a loaded
# machine many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A command that a shell starts in the background ignores SIGINT. Processes that a test starts and interrupts would
# inherit this.
signal.signal(signal.SIGINT, signal.default_int_handler)


# No limit in seconds: a loaded machine takes minutes for a second of work.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


def pytest_collection_finish(session):
    """A site looks for garbage after each task. It need not look through all that the tests have imported, and between
    tasks Python need not look as often as it would: that is a tenth of the time of all tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True)
def usual_umask():
    """The command ``fclseg`` makes the files of its process private; the tests that follow must not inherit that."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Slices of earlier tests, and never those of a person."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FCLSEG_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def phantom(tmp_path_factory):
    """Four patients in the ACDC layout, written once."""
    from fclseg.phantom.dataset import write_phantom

    folder = tmp_path_factory.mktemp("phantom") / "acdc"
    write_phantom(folder, "acdc", patients=4, seed=3, frames=2)
    return folder


@pytest.fixture(scope="session", autouse=True)
def phantoms_are_drawn_once(tmp_path_factory):
    """Drawing a phantom patient takes longer than most of what tests do with it, and many tests ask for the same ones.
    Each patient is drawn once and then copied. The tests of the phantom itself draw their own."""
    from fclseg.phantom import dataset

    base = tmp_path_factory.getbasetemp()
    shelf = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "phantoms"

    def shelved(writer):
        def write(root, patient, heart, scanner, rng, frames):
            own = (root, patient, heart, scanner, rng, frames)
            if os.environ.get("PYTEST_CURRENT_TEST", "").startswith("tests/phantom/"):
                return writer(*own)
            key = pickle.dumps((writer.__name__, patient, heart, scanner, rng.bit_generator.state, frames))
            kept = shelf / sha256(key).hexdigest()
            if not kept.exists():
                drawn = Path(tempfile.mkdtemp(dir=base))
                writer(drawn, *own[1:])
                shelf.mkdir(exist_ok=True)
                with contextlib.suppress(OSError):  # the other test process was faster
                    drawn.rename(kept)
            shutil.copytree(kept, root, dirs_exist_ok=True)
            return root / max(path.name for path in kept.iterdir())

        return write

    with pytest.MonkeyPatch.context() as patch:
        for anatomy, writer in dataset.WRITERS.items():
            patch.setitem(dataset.WRITERS, anatomy, shelved(writer))
        yield


@pytest.fixture
def only_poc(tmp_path, monkeypatch):
    """The workspace of NVFlare's proof of concept. It always uses the ports 8002 and 8003, so tests take turns, and
    what NVFlare leaves running is ended."""
    with FileLock(Path(tempfile.gettempdir()) / "fclseg-tests-poc.lock"):
        monkeypatch.setenv("NVFLARE_POC_WORKSPACE", str(tmp_path / "poc"))
        yield tmp_path / "poc"
        left = [one for one in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(one.info["cmdline"] or [])]
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=600)


@pytest.fixture
def open_folder():
    """A new folder that everybody may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@contextlib.contextmanager
def as_nobody():
    if os.geteuid() != 0:
        yield
        return
    try:
        os.seteuid(65534)
    except PermissionError:
        pytest.skip("this user may do everything and cannot become another one")
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def ordinary_user():
    """``with ordinary_user():`` root may read and write everything, so as root use the permissions of ``nobody``."""
    return as_nobody
