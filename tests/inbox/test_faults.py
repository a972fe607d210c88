"""What the inbox keeps when something goes wrong: killed at each step, disk full, archive down, strange objects.

Both sides speak real DICOM on loopback. Only the segmentation is replaced, by one that writes a few real objects, so
that each fault takes milliseconds; ``test_orthanc.py`` has the real one. A kill is an exception that nothing catches,
followed by a new service on the same folder."""

import errno
import io
import time
import urllib.request
from pathlib import Path

import pytest

pydicom, highdicom = pytest.importorskip("pydicom"), pytest.importorskip("highdicom")
pynetdicom = pytest.importorskip("pynetdicom", reason="the extra inbox is not installed")

from inbox_parties import Archive, free_port  # noqa: E402

from fclseg.dicom.document import write_document  # noqa: E402
from fclseg.dicom.frames import Source  # noqa: E402
from fclseg.errors import FCLSegError, PassingError  # noqa: E402
from fclseg.inbox import service as service_module  # noqa: E402
from fclseg.inbox.log import Log  # noqa: E402
from fclseg.inbox.queue import Queue, digest  # noqa: E402
from fclseg.inbox.service import MOST_ATTEMPTS, Service  # noqa: E402
from fclseg.inbox.settings import Caller, Node, Settings  # noqa: E402
from fclseg.inbox.status import StatusPage  # noqa: E402
from fclseg.inbox.worker import REASON, REFUSED_CODE  # noqa: E402

VERIFICATION = "1.2.840.10008.1.1"
OBJECTS = 3


class Killed(BaseException):
    """Nothing catches it."""


def image(study, number, kind="1.2.840.10008.5.1.4.1.1.4"):
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = kind
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = f"{study}.{number}"
    dataset.StudyInstanceUID, dataset.SeriesInstanceUID = study, f"{study}.0"
    dataset.PatientName, dataset.PatientID, dataset.Modality = "Doe^Jane", "secret-number", "MR"
    return dataset


def content(dataset):
    buffer = io.BytesIO()
    dataset.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


@pytest.fixture
def archive():
    one = Archive(free_port())
    one.start()
    yield one
    one.stop()


def worker(folder, model):
    """Writes real objects that depend on the images alone."""
    images = sorted((folder / "images").glob("*.dcm"))
    if len(images) < 2:
        (folder / REASON).write_text("the study: no series is a short-axis cine")
        return REFUSED_CODE, (folder / REASON).read_text()
    (folder / "results").mkdir(exist_ok=True)
    for number in range(OBJECTS):
        pdf = b"".join(path.name.encode() for path in images) + bytes([number])
        write_document(folder / "results" / f"patient001_{number}.dcm", pdf, Source(images[0]), "net")
    return 0, ""


@pytest.fixture
def make(tmp_path, archive, monkeypatch):
    """Makes services on one folder, as restarts do."""
    monkeypatch.setattr(service_module, "run_worker", worker)
    lines = []

    class Kept(Log):
        def __call__(self, text):
            lines.append(text)

    def build(**changes):
        settings = {
            "folder": tmp_path / "queue",
            "port": free_port(),
            "callers": (Caller("PACS", "127.0.0.1"),),
            "send_to": Node("ARCHIVE", "127.0.0.1", archive.port),
            "quiet_seconds": 0.0,
            "retry_seconds": (0.0, 0.0),
        }
        return Service(Settings(**settings | changes), Kept())

    build.lines = lines
    return build


def fill(service, study="1.2.3", count=2, first=0):
    for number in range(first, first + count):
        service.queue.add(study, f"{study}.{number}", content(image(study, number)))
    return digest(study)


def work(service, steps=20):
    for _ in range(steps):
        if not service.step():
            return
    raise AssertionError("it never ends")


def kill_in(monkeypatch, owner, name, after=0):
    """The next call of a function but ``after`` kills."""
    real, calls = getattr(owner, name), []

    def killing(*arguments, **options):
        calls.append(1)
        if len(calls) > after:
            raise Killed
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, killing)


def test_a_study_is_sent_once_and_a_second_sending_of_it_changes_nothing(make, archive):
    service = make()
    key = fill(service)
    work(service)
    assert service.queue.study(key).state == "done" and list(archive.got.values()) == [1] * OBJECTS
    fill(service)
    work(service)
    again = make()
    fill(again)
    work(again)
    assert list(archive.got.values()) == [1] * OBJECTS


def test_killed_while_an_image_is_written(make, monkeypatch, archive):
    service = make()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_in(patch, Path, "write_bytes")
        fill(service)
    assert service.queue.images(digest("1.2.3")) == [], "the sender got no answer and sends it again"
    again = make()
    fill(again)
    work(again)
    assert len(archive.got) == OBJECTS


@pytest.mark.parametrize("state", ["new", "done"])
def test_killed_between_image_and_record(make, monkeypatch, archive, state):
    service = make()
    if state == "done":
        fill(service, first=10)
        work(service)
    before = len(archive.got)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_in(patch, service.queue, "save")
        service.queue.add("1.2.3", "1.2.3.0", content(image("1.2.3", 0)))
    again = make()
    fill(again)
    work(again)
    assert again.queue.study(digest("1.2.3")).state == "done" and len(archive.got) == before + OBJECTS


def test_killed_before_and_after_segmentation(make, monkeypatch, archive):
    service = make()
    key = fill(service)
    for owner, name, after in ((service_module, "run_worker", 0), (Queue, "update", 1)):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            kill_in(patch, owner, name, after)
            work(service)
        service = make()
        assert service.queue.study(key).state == "ready" and len(service.queue.images(key)) == 2
    work(service)
    assert list(archive.got.values()) == [1] * OBJECTS


def test_a_study_that_kills_its_process_is_given_up_and_kept(make, monkeypatch):
    monkeypatch.setattr(service_module, "run_worker", lambda folder, model: (-9, ""))
    service = make()
    key = fill(service)
    work(service)
    study = service.queue.study(key)
    assert (study.state, study.attempts, study.reason) == ("failed", MOST_ATTEMPTS, "the process ended with -9")
    assert len(service.queue.images(key)) == 2


@pytest.mark.parametrize("after", range(OBJECTS))
def test_killed_while_sending(make, monkeypatch, archive, after):
    """After an object is accepted and before that is remembered: the same object goes again, and no other."""
    service = make()
    key = fill(service)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        kill_in(patch, Service, "_accepted", after)
        work(service)
    work(make())
    assert len(archive.got) == OBJECTS and sorted(archive.got.values()) == [1] * (OBJECTS - 1) + [2]
    assert make().queue.study(key).state == "done"


def test_a_full_disk_is_answered_with_out_of_resources_and_leaves_nothing_half(make, monkeypatch, archive):
    service = make()
    service.receiver.start()
    try:
        with monkeypatch.context() as patch:

            def full(self, data):
                raise OSError(errno.ENOSPC, "No space left on device")

            patch.setattr(Path, "write_bytes", full)
            assert store(service, [image("1.2.3", 0)]) == [0xA700]
        assert not list(service.queue.folder.rglob("*.dcm"))
        assert store(service, [image("1.2.3", 0), image("1.2.3", 1)]) == [0, 0]
    finally:
        service.receiver.stop()
    work(service)
    assert len(archive.got) == OBJECTS


def test_an_archive_that_is_down_or_refuses_gets_everything_later(make, archive):
    service = make()
    archive.stop()
    key = fill(service)
    for _ in range(3):
        service.step()
    study = service.queue.study(key)
    assert study.state == "segmented" and "cannot be reached" in study.reason
    archive.start()
    archive.answers = [0x0000, 0xA700]
    work(make())
    assert list(archive.got.values()) == [1] * OBJECTS and service.queue.study(key).state == "done"


@pytest.fixture
def listing(archive):
    """An archive that says what it has."""
    archive.stop()
    archive.lists = True
    archive.start()
    return archive


def test_a_study_is_done_when_the_archive_lists_it_and_what_it_lost_goes_again(make, listing):
    service = make()
    key = fill(service)
    service.step(), service.step()
    study = service.queue.study(key)
    assert (study.state, study.listed) == ("done", True) and "which lists it" in make.lines[-1]

    before, listing.loses = len(listing.got), 1  # accepted, and never seen again
    lost = fill(service, "1.2.4")
    service.step(), service.step()
    study = service.queue.study(lost)
    assert study.state == "segmented" and len(study.sent) == OBJECTS - 1
    assert study.reason == f"the archive accepted all objects, but does not list 1 of {OBJECTS}"
    work(make())
    assert service.queue.study(lost).state == "done" and service.queue.study(lost).listed
    assert sorted(list(listing.got.values())[before:]) == [1] * (OBJECTS - 1) + [2]


def test_an_archive_that_answers_no_queries_is_believed(make, archive, listing):
    service = make()
    key = fill(service)
    service.step()
    listing.answers = [0x0000] * OBJECTS + [0xA900]  # the query is refused
    work(service)
    assert service.queue.study(key).state == "done" and not service.queue.study(key).listed
    listing.series.clear()
    unasked = make(verify=False)
    key = fill(unasked, "1.2.5")
    work(unasked)
    assert unasked.queue.study(key).state == "done" and list(listing.got.values()) == [1] * 2 * OBJECTS


def test_waiting_times_grow_to_a_limit(make, archive):
    archive.stop()
    service = make(retry_seconds=(10.0, 30.0))
    key = fill(service)
    service.step(), service.step()
    waits = []
    for _ in range(4):
        study = service.queue.study(key)
        waits.append(round(study.try_at - study.changed))
        service._send(study)
    assert waits == [10, 20, 30, 30] and not service.step(), "it is not tried before"


def test_an_incomplete_study_is_refused_with_a_reason_and_opened_by_late_images(make, archive):
    service = make()
    key = fill(service, count=1)
    work(service)
    study = service.queue.study(key)
    assert study.state == "refused" and "no series is a short-axis cine" in study.reason
    assert make().queue.study(key).state == "refused", "a restart does not try it again"
    fill(service, count=2)
    work(service)
    assert service.queue.study(key).state == "done" and len(archive.got) == OBJECTS


def test_images_that_arrive_during_segmentation_are_not_lost(make, monkeypatch, archive):
    service = make()
    key = fill(service)
    with monkeypatch.context() as patch:

        def slow(folder, model):
            fill(service, count=3)
            return worker(folder, model)

        patch.setattr(service_module, "run_worker", slow)
        service.step()
    assert service.queue.study(key).state == "receiving" and archive.got == {}
    work(service)
    assert len(service.queue.study(key).processed) == 3 and len(archive.got) == OBJECTS


def test_two_studies_of_one_patient_that_arrive_mixed_are_kept_apart(make, archive):
    service = make()
    keys = [fill(service, study, count=1, first=number) for number in range(2) for study in ("1.2.3", "1.2.4")]
    work(service)
    assert [service.queue.study(key).state for key in set(keys)] == ["done", "done"]
    assert [len(service.queue.images(key)) for key in set(keys)] == [2, 2] and len(archive.got) == 2 * OBJECTS


def test_a_study_waits_until_nothing_arrives(make):
    service = make(quiet_seconds=3600)
    key = fill(service)
    assert not service.step() and service.queue.study(key).state == "receiving"


def test_a_damaged_record_is_rebuilt_from_the_images(make, archive):
    service = make()
    key = fill(service)
    (service.queue.place(key) / "record.json").write_text('{"key": "torn')
    work(make())
    assert service.queue.study(key).state == "done" and len(archive.got) == OBJECTS


def associate(service, title="PACS", called=None, contexts=(VERIFICATION,), source="127.0.0.1"):
    entity = pynetdicom.AE(title)
    for context in contexts:
        entity.add_requested_context(context)
    settings = service.settings
    return entity.associate(settings.host, settings.port, ae_title=called or settings.title, bind_address=(source, 0))


def store(service, datasets, **who):
    association = associate(service, contexts=sorted({one.SOPClassUID for one in datasets}), **who)
    assert association.is_established
    try:
        return [association.send_c_store(one).Status for one in datasets]
    finally:
        association.release()


@pytest.fixture
def listening(make):
    service = make()
    service.receiver.start()
    yield service
    service.receiver.stop()


def test_echo_is_answered_and_strangers_are_turned_away(listening, make):
    association = associate(listening)
    assert association.is_established and association.send_c_echo().Status == 0
    association.release()
    for wrong in ({"title": "STRANGER"}, {"source": "127.0.0.2"}, {"called": "OTHER"}):
        assert not associate(listening, **wrong).is_established
    assert any("turned away STRANGER" in line for line in make.lines)
    assert any("turned away PACS at 127.0.0.2" in line for line in make.lines)


def test_other_modalities_broken_objects_and_duplicates(listening, archive):
    """Results that come back from the archive are no images: there is no loop."""
    pdf, sr = image("1.2.3", 50, "1.2.840.10008.5.1.4.1.1.104.1"), image("1.2.3", 51, "1.2.840.10008.5.1.4.1.1.88.33")
    assert store(listening, [pdf, sr, image("1.2.3", 0), image("1.2.3", 0), image("1.2.3", 1)]) == [0] * 5
    assert len(listening.queue.images(digest("1.2.3"))) == 2 and sum(listening.receiver.ignored.values()) == 2
    broken = image("1.2.9", 0)
    del broken.StudyInstanceUID
    assert store(listening, [broken]) == [0xC000]
    assert [folder.name for folder in listening.queue.folder.iterdir()] == [digest("1.2.3")]
    work(listening)
    assert len(archive.got) == OBJECTS


def test_a_dry_run_sends_nothing_and_the_next_run_does(make, archive):
    service = make(dry_run=True)
    key = fill(service)
    work(service)
    assert service.queue.study(key).state == "held" and archive.got == {}
    work(make())
    assert len(archive.got) == OBJECTS


def test_logs_page_and_folders_have_no_names(make):
    service = make(status_port=free_port())
    fill(service, "1.2.826.77.1", count=1)
    fill(service, "1.2.826.77.2")
    work(service)
    page = StatusPage(service.settings, service.queue, service.receiver)
    page.start()
    try:
        address = f"http://127.0.0.1:{service.settings.status_port}/"
        text = urllib.request.urlopen(address, timeout=600).read().decode()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(urllib.request.Request(address, headers={"Host": "evil.example"}), timeout=600)
    finally:
        page.stop()
    assert "1 done" in text and "1 refused" in text and "no series is a short-axis cine" in text
    names = "".join(str(path.relative_to(service.settings.folder)) for path in service.settings.folder.rglob("*"))
    for words in ("\n".join(make.lines), text, names):
        assert not any(secret in words for secret in ("Doe", "Jane", "secret-number", "1.2.826"))


def test_images_of_finished_studies_are_removed_and_remembered(make, archive):
    service = make(keep_days=0.0)
    key = fill(service)
    work(service)
    time.sleep(0.01)
    service.queue.forget_images(0.0)
    assert service.queue.images(key) == []
    fill(service)
    work(service)
    assert list(archive.got.values()) == [1] * OBJECTS


def test_two_inboxes_cannot_share_a_folder(make):
    from fclseg.locks import held

    service = make()
    with held(service.settings.folder / "inbox.lock", "it", 0.0), pytest.raises(PassingError, match="is in use by"):
        service.run()


def test_a_watched_folder_is_taken_and_left_as_it_is(make, tmp_path, archive):
    (tmp_path / "exports").mkdir()
    for number in range(2):
        (tmp_path / "exports" / f"{number}").write_bytes(content(image("1.2.3", number)))
    (tmp_path / "exports" / "notes.txt").write_text("no image")
    service = make(watch=tmp_path / "exports")
    service.watcher.settled = 0.0
    work(service)
    assert len(archive.got) == OBJECTS and len(list((tmp_path / "exports").iterdir())) == 3
    service.watcher.settled = 3600.0
    (tmp_path / "exports" / "fresh").write_bytes(content(image("1.2.4", 0)))
    assert service.watcher.scan() == 0, "it may still be copied"


def test_addresses_are_understood():
    assert Caller.parse("PACS") == Caller("PACS") and Caller.parse("PACS@10.0.0.5") == Caller("PACS", "10.0.0.5")
    assert Node.parse("PACS@host:104") == Node("PACS", "host", 104)
    for wrong in ("PACS", "PACS@host", "PACS@host:0", "@host:104", "A TITLE THAT IS TOO LONG@host:104"):
        with pytest.raises(FCLSegError, match="write TITLE@HOST:PORT"):
            Node.parse(wrong)
