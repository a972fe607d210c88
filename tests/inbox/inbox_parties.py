"""The parties of the inbox's tests: an archive, the inbox as a process of its own, and an exam of a scanner."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import nibabel as nib
import numpy as np
import pydicom
import pynetdicom

sys.path.insert(0, str(Path(__file__).parents[1] / "dicom"))
from series_writer import write_series

from fclseg.phantom.dataset import write_phantom

FIND = "1.2.840.10008.5.1.4.1.2.2.1"
WAIT_SECONDS = 900


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def free_port():
    return free_ports(1)[0]


def until(question, what):
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if (answer := question()) is not None:
            return answer
        time.sleep(0.5)
    raise AssertionError(f"never: {what}")


class Archive:
    """A real DICOM node that keeps what it gets, by UID, and counts how often it got it."""

    def __init__(self, port):
        self.port, self.got, self.answers = port, {}, []
        self.lists, self.series, self.loses = False, {}, 0
        self.server = None

    def start(self):
        entity = pynetdicom.AE("ARCHIVE")
        for context in pynetdicom.AllStoragePresentationContexts:
            entity.add_supported_context(context.abstract_syntax)
        if self.lists:
            entity.add_supported_context(FIND)
        handlers = [(pynetdicom.evt.EVT_C_STORE, self.store), (pynetdicom.evt.EVT_C_FIND, self.find)]
        self.server = entity.start_server(("127.0.0.1", self.port), block=False, evt_handlers=handlers)

    def store(self, event):
        uid = str(event.request.AffectedSOPInstanceUID)
        answer = self.answers.pop(0) if self.answers else 0x0000
        if answer == 0x0000:
            self.got[uid] = self.got.get(uid, 0) + 1
            self.loses -= 1
            if self.loses < 0:
                self.series[uid] = (event.dataset.StudyInstanceUID, event.dataset.SeriesInstanceUID)
        return answer

    def find(self, event):
        """What it has of one series; ``answers`` can refuse the question."""
        if self.answers:
            yield self.answers.pop(0), None
            return
        asked = event.identifier
        for uid, where in self.series.items():
            if where == (asked.StudyInstanceUID, asked.SeriesInstanceUID):
                found = pydicom.Dataset()
                found.QueryRetrieveLevel, found.SOPInstanceUID = "IMAGE", uid
                yield 0xFF00, found

    def stop(self):
        if self.server is not None:
            self.server.shutdown()
            self.server = None


def start_inbox(folder, port, send_to, *options):
    """The queue is in ``folder``."""
    code = "import sys; from fclseg.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "inbox", str(folder / "queue"), "--port", str(port), "--send", send_to]
    command += ["--allow", "ORTHANC@127.0.0.1", "--allow", "TEST", "--quiet-seconds", "3", *options]
    with open(folder / "inbox.out", "ab") as output:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdout=output, stderr=output, env=environment)


def write_exam(folder):
    """A phantom as a scanner would export it, with a long-axis view beside it."""
    write_phantom(folder / "phantom", "acdc", patients=1, seed=3, frames=3)
    cine = nib.load(next((folder / "phantom").glob("*/*_4d.nii.gz")))
    voxels = np.asarray(cine.dataobj)[:, :, 1:6].astype(np.uint16)
    write_series(folder / "exam" / "short", voxels[:, :, ::-1], (1.5, 1.5, 10.0))
    first = pydicom.dcmread(next((folder / "exam" / "short").iterdir()))
    write_series(folder / "exam" / "long", voxels[:, :, :1], (1.5, 1.5, 10.0))
    for path in (folder / "exam" / "long").iterdir():
        image = pydicom.dcmread(path)
        image.StudyInstanceUID, image.SeriesDescription = first.StudyInstanceUID, "4ch"
        image.save_as(path)
    return folder / "exam"
