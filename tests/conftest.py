"""What all tests share."""

import contextlib
import os
import signal
import tempfile
from pathlib import Path

import pytest
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


@pytest.fixture(autouse=True)
def usual_umask():
    """The command ``fclseg`` makes the files of its process private; the tests that follow must not inherit that."""
    before = os.umask(0o022)
    yield
    os.umask(before)


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
