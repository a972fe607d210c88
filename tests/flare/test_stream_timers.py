"""NVFlare's received streams are forgotten in time, by one thread."""

import gc
import threading
import time
import weakref

from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.stream_const import StreamDataType, StreamHeaderKey

from fclseg.flare import patches
from fclseg.flare.executor import SiteExecutor
from fclseg.flare.patches.stream_timers import Clock, FinishedStream, replace_by_note, share_stream_timers


def _until(done) -> bool:
    deadline = time.monotonic() + 1800
    while not done() and time.monotonic() < deadline:
        time.sleep(0.01)
    return done()


def test_actions_run_in_the_order_of_their_times_unless_cancelled():
    clock, seen = Clock(), []
    clock.after(0.3, lambda: seen.append("late"))
    clock.after(0.1, lambda: seen.append("early"))
    clock.after(0.2, lambda: seen.append("never")).cancel()
    assert _until(lambda: len(seen) == 2) and seen == ["early", "late"]


def test_a_hundred_streams_need_one_thread_and_are_all_forgotten(monkeypatch):
    monkeypatch.setattr(RxTask, "_schedule_remove_task", RxTask._schedule_remove_task)  # restored after the test
    share_stream_timers(Clock())
    tasks = [RxTask(number, "site-1", None, True) for number in range(100)]
    before = threading.active_count()
    for task in tasks:
        RxTask.rx_task_map[task.origin, task.sid] = task
        task._schedule_remove_task(0.5)
        task._schedule_remove_task(0.1)  # the first time stays
    assert threading.active_count() <= before + 1
    assert len([key for key in RxTask.rx_task_map if key[0] == "site-1"]) == 100
    assert _until(lambda: not [key for key in RxTask.rx_task_map if key[0] == "site-1"])


class Wire:
    """Notes what is sent."""

    def __init__(self):
        self.sent = []

    def fire_and_forget(self, channel, topic, target, message, optional):
        self.sent.append((channel, topic, target, dict(message.headers), optional))


def _received(sid, wire, parts=(b"one", b"two"), kept=60.0):
    """A stream whose parts have all arrived."""
    task = RxTask(sid, "site-1", wire, True)
    task.completed_task_ttl = kept
    RxTask.rx_task_map[task.origin, task.sid] = task
    for number, part in enumerate(parts):
        kind = StreamDataType.FINAL if number == len(parts) - 1 else StreamDataType.CHUNK
        headers = {StreamHeaderKey.SEQUENCE: number, StreamHeaderKey.DATA_TYPE: kind, StreamHeaderKey.SIZE: 6}
        task.process_chunk(Message(headers, part))
    assert task.completed
    return task


def test_a_note_confirms_repeated_parts_like_the_whole_stream(monkeypatch):
    monkeypatch.setattr(RxTask, "_schedule_remove_task", RxTask._schedule_remove_task)
    share_stream_timers(Clock(), settled=0.2)
    wire = Wire()
    task = _received(1, wire)
    again = Message({StreamHeaderKey.SEQUENCE: 0, StreamHeaderKey.DATA_TYPE: StreamDataType.CHUNK}, b"one")
    task.process_chunk(again)
    by_nvflare = wire.sent[-1]
    assert replace_by_note(task) is None and RxTask.rx_task_map["site-1", 1] is task, "nobody has read it yet"
    assert [bytes(task.read(3)), bytes(task.read(3))] == [b"one", b"two"]
    assert _until(lambda: isinstance(RxTask.rx_task_map["site-1", 1], FinishedStream) or replace_by_note(task))
    note = RxTask.rx_task_map["site-1", 1]
    wire.sent.clear()
    assert note.process_chunk(again) is False
    assert wire.sent == [by_nvflare]
    del RxTask.rx_task_map["site-1", 1]


def test_streams_become_notes_and_notes_are_forgotten(monkeypatch):
    monkeypatch.setattr(RxTask, "_schedule_remove_task", RxTask._schedule_remove_task)
    share_stream_timers(Clock(), settled=1.0)
    tasks = [_received(sid, Wire(), kept=4.0) for sid in range(10, 20)]
    gone = [weakref.ref(task) for task in tasks]
    for task in tasks:
        assert [bytes(task.read(3)), bytes(task.read(3))] == [b"one", b"two"]
    del task, tasks
    ours = lambda: [one for key, one in RxTask.rx_task_map.items() if key[1] in range(10, 20)]  # noqa: E731
    assert _until(lambda: all(isinstance(one, FinishedStream) for one in ours())) and len(ours()) == 10
    assert _until(lambda: gc.collect() is not None and not any(reference() for reference in gone))
    assert _until(lambda: not ours())


def test_every_job_process_shares_its_timers():
    patches.apply.cache_clear()
    SiteExecutor("learner")
    assert RxTask._schedule_remove_task.__module__ == "fclseg.flare.patches.stream_timers"
