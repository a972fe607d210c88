"""NVFlare's received streams are forgotten in time, by one thread."""

import threading
import time

from nvflare.fuel.f3.streaming.byte_receiver import RxTask

from fclseg.flare.stream_timers import Clock, share_stream_timers


def _until(done) -> bool:
    deadline = time.monotonic() + 30
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


def test_every_job_process_shares_its_timers():
    import fclseg.flare.controller
    import fclseg.flare.executor  # noqa: F401

    assert RxTask._schedule_remove_task.__module__ == "fclseg.flare.stream_timers"
