"""Heartbeats of a process whose event loop is busy, stands still, or is back."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager, suppress

import pytest

pytest.importorskip("psycopg", reason="psycopg is not installed")

from tests.serve.service.served_agents import until
from trimtab_serve.process.heartbeat import Heartbeat, WorkerPoolTimings

pytestmark = pytest.mark.anyio

TIMINGS = WorkerPoolTimings(heartbeat_s=0.01, self_cancel_after_s=0.4, max_stall_s=0.3)


class CountedHeartbeat(Heartbeat):
    """Notes its beats instead of sending them."""

    def __init__(self, timings):
        self.beats = []
        self.cancelled = []
        super().__init__(
            "", timings, list_worker_ids=lambda: [1], cancel_jobs=self.cancelled.append
        )

    def _beat(self):
        self._last_beat_at = self.heard_since = time.monotonic()
        self.beats.append(self._last_beat_at)


@asynccontextmanager
async def beating(timings=TIMINGS):
    heartbeat = CountedHeartbeat(timings)
    task = asyncio.create_task(heartbeat.run())
    try:
        await until(lambda: heartbeat.beats)
        yield heartbeat
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_process_is_heard_of_while_its_event_loop_stands_still():
    async with beating(WorkerPoolTimings(heartbeat_s=0.01)) as heartbeat:
        before, begun = len(heartbeat.beats), time.monotonic()
        while len(heartbeat.beats) < before + 2:
            assert time.monotonic() - begun < 10
            time.sleep(0.01)  # noqa: ASYNC251 - the loop is to stand still
        assert heartbeat.cancelled == []


async def test_a_process_that_stands_still_for_too_long_falls_silent_and_cancels_its_jobs_first(
    monkeypatch,
):
    loop = asyncio.get_running_loop()
    call_soon = loop.call_soon_threadsafe
    is_asked_to_cancel = threading.Event()

    def note_call(*arguments):
        call_soon(*arguments)
        is_asked_to_cancel.set()

    async with beating() as heartbeat:
        monkeypatch.setattr(loop, "call_soon_threadsafe", note_call)
        assert is_asked_to_cancel.wait(10)  # the loop stands still
        monkeypatch.undo()
        beat_count = len(heartbeat.beats)
        time.sleep(0.1)  # noqa: ASYNC251 - the loop still stands still
        assert len(heartbeat.beats) == beat_count
        # The next thing that the loop does is to cancel, before any task goes on.
        await asyncio.sleep(0)
        assert set(heartbeat.cancelled) == {True}
        await until(lambda: len(heartbeat.beats) > beat_count)  # it is heard of again


async def test_a_process_whose_beats_fail_cancels_jobs_that_it_does_not_blame(monkeypatch):
    async with beating() as heartbeat:
        monkeypatch.setattr(CountedHeartbeat, "_beat", lambda _: None)
        await until(lambda: heartbeat.cancelled)
        assert set(heartbeat.cancelled) == {False}
