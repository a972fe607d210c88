"""The inbox between real programs: dcmtk stores an exam in Orthanc, Orthanc sends it to the inbox, results come back.

They are read again with highdicom and through DICOMweb. The inbox is killed once while it segments."""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

pydicom, highdicom = pytest.importorskip("pydicom"), pytest.importorskip("highdicom")
pytest.importorskip("pynetdicom", reason="the extra inbox is not installed")

from inbox_parties import WAIT_SECONDS, free_ports, start_inbox, until, write_exam  # noqa: E402

from fclseg.dicom.document import read_document  # noqa: E402
from fclseg.dicom.measurements import read_measurements  # noqa: E402
from fclseg.dicom.segmentation import read_segmentation  # noqa: E402

ORTHANC = shutil.which("Orthanc") or shutil.which("Orthanc", path="/usr/sbin")
OUTSIDE = os.pathsep.join(one for one in os.get_exec_path() if Path(one) != Path(sys.executable).parent)
STORE, ECHO = (shutil.which(name, path=OUTSIDE) for name in ("storescu", "echoscu"))  # pynetdicom has such names, too
PLUGINS = Path("/usr/share/orthanc/plugins")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        not (ORTHANC and STORE and ECHO and (PLUGINS / "libOrthancDicomWeb.so").exists()),
        reason="needs Orthanc with DICOMweb and dcmtk: apt-get install orthanc orthanc-dicomweb dcmtk",
    ),
]


class Orthanc:
    def __init__(self, folder, web, dicom, inbox):
        self.web, self.dicom = web, dicom
        settings = {
            "Name": "test", "StorageDirectory": str(folder / "storage"), "IndexDirectory": str(folder / "storage"),
            "HttpPort": web, "DicomPort": dicom, "DicomAet": "ORTHANC", "RemoteAccessAllowed": False,
            "AuthenticationEnabled": False, "Plugins": [str(PLUGINS)],
            "DicomWeb": {"Enable": True, "Root": "/dicom-web/"},
            "DicomModalities": {"inbox": ["FCLSEG", "127.0.0.1", inbox]}, "DicomAlwaysAllowStore": True,
        }  # fmt: skip
        folder.mkdir()
        (folder / "orthanc.json").write_text(json.dumps(settings))
        self.log = open(folder / "orthanc.log", "wb")  # noqa: SIM115
        self.process = subprocess.Popen([ORTHANC, str(folder / "orthanc.json")], stdout=self.log, stderr=self.log)

    def ask(self, path, data=None, accept="application/json"):
        request = urllib.request.Request(f"http://127.0.0.1:{self.web}{path}", data, {"Accept": accept})
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
            return answer.read()

    def answers(self):
        try:
            return json.loads(self.ask("/system"))
        except (urllib.error.URLError, ConnectionError):
            return None

    def series(self):
        """Modality -> ids, through DICOMweb."""
        found = {}
        for one in json.loads(self.ask("/dicom-web/series")):
            found.setdefault(one["00080060"]["Value"][0], []).append(one["0020000E"]["Value"][0])
        return found

    def instances(self, modality, folder):
        """Every object of a modality as a file."""
        query = json.dumps({"Level": "Instance", "Query": {"Modality": modality}}).encode()
        files = []
        for name in json.loads(self.ask("/tools/find", query)):
            files.append(folder / f"{name}.dcm")
            files[-1].write_bytes(self.ask(f"/instances/{name}/file", accept="*/*"))
        return files

    def stop(self):
        self.process.terminate()
        self.process.wait(WAIT_SECONDS)
        self.log.close()


@pytest.fixture
def exam(tmp_path):
    return write_exam(tmp_path)


def test_an_exam_goes_from_orthanc_through_the_inbox_and_back(tmp_path, exam):
    web, dicom, port, status = free_ports(4)
    orthanc = Orthanc(tmp_path / "orthanc", web, dicom, port)
    inbox = start_inbox(tmp_path, port, f"ORTHANC@127.0.0.1:{orthanc.dicom}", "--status-port", str(status))
    try:
        until(orthanc.answers, "Orthanc answers")
        echo = [ECHO, "-aet", "TEST", "-aec", "FCLSEG", "127.0.0.1", str(port)]
        until(lambda: True if subprocess.run(echo, capture_output=True).returncode == 0 else None, "C-ECHO")
        stranger = [ECHO, "-aet", "STRANGER", "-aec", "FCLSEG", "127.0.0.1", str(port)]
        assert subprocess.run(stranger, capture_output=True).returncode != 0
        command = [STORE, "-aec", "ORTHANC", "127.0.0.1", str(dicom), "+sd", "+r", str(exam)]
        assert subprocess.run(command, capture_output=True).returncode == 0
        (study,) = json.loads(orthanc.ask("/studies"))
        orthanc.ask("/modalities/inbox/store", study.encode())
        results = tmp_path / "queue" / "studies"
        until(lambda: next(results.glob("*/results/*_seg.nii.gz"), None), "it segments")
        inbox.send_signal(signal.SIGKILL)
        inbox.wait(WAIT_SECONDS)
        inbox = start_inbox(tmp_path, port, f"ORTHANC@127.0.0.1:{orthanc.dicom}", "--status-port", str(status))
        until(lambda: True if {"SEG", "SR", "DOC"} <= set(orthanc.series()) else None, "results in Orthanc")
        until(lambda: True if '"state": "done"' in next(results.glob("*/record.json")).read_text() else None, "done")
        assert json.loads(next(results.glob("*/record.json")).read_text())["listed"], "Orthanc was asked what it has"
        compare(orthanc, tmp_path, next(results.iterdir()))
        before = orthanc.series()
        orthanc.ask("/modalities/inbox/store", study.encode())  # with the results, which are no images
        time.sleep(8)
        assert orthanc.series() == before, "nothing is sent twice"
        page = urllib.request.urlopen(f"http://127.0.0.1:{status}/", timeout=WAIT_SECONDS).read().decode()
        assert "1 done" in page and "Doe" not in page and "Doe" not in (tmp_path / "queue" / "inbox.log").read_text()
    finally:
        inbox.terminate()
        inbox.wait(WAIT_SECONDS)
        orthanc.stop()


def compare(orthanc, tmp_path, study):
    """What came back against what the worker left on disk."""
    series = orthanc.series()
    assert {name: len(series[name]) for name in ("SEG", "SR", "DOC")} == {"SEG": 1, "SR": 1, "DOC": 1}
    labels = np.asarray(nib.load(study / "results" / "patient001_4d_seg.nii.gz").dataobj)
    (tmp_path / "back").mkdir()
    segmentations = orthanc.instances("SEG", tmp_path / "back")
    assert len(segmentations) == labels.shape[3]
    for path in segmentations:
        number = int(pydicom.dcmread(path).InstanceNumber) - 1
        np.testing.assert_array_equal(read_segmentation(path), labels[..., number])
    (report,) = orthanc.instances("SR", tmp_path / "back")
    stored = json.loads((study / "results" / "measurements.json").read_text())["patients"]["patient001"]["coded"]
    assert read_measurements(report) == {row["meaning"]: (row["value"], row["unit"]) for row in stored}
    (document,) = orthanc.instances("DOC", tmp_path / "back")
    assert read_document(document) == (study / "results" / "patient001_report.pdf").read_bytes()
    address = f"/dicom-web/studies/{pydicom.dcmread(report).StudyInstanceUID}/series/{series['SEG'][0]}/metadata"
    meanings = {
        item["0062000F"]["Value"][0]["00080104"]["Value"][0]
        for item in json.loads(orthanc.ask(address))[0]["00620002"]["Value"]
    }
    assert meanings == {"Left ventricle", "Right ventricle", "Left Ventricle Myocardium"}
    assert base64.b64encode(read_document(document)[:5]) == base64.b64encode(b"%PDF-")
