"""How far a reply has come is known, and a failure says whether it came any further."""

from __future__ import annotations

import asyncio
import math

import pytest

from trimtab_serve.channels import reply_progress
from trimtab_serve.channels.reply_progress import ReplyProgress, ReplyProgressTracker
from trimtab_serve.queue.messages import OutboundMessage, ReplyRoute
from trimtab_serve.service.delivery import ReplyInterrupted, RetryDelivery, Undeliverable

pytestmark = pytest.mark.anyio


def reply(attempts: int = 0) -> OutboundMessage:
    route = ReplyRoute(channel="phone", address={})
    return OutboundMessage(session="s", seq=1, text="", route=route, key="k", attempts=attempts)


async def attempt(tracker: ReplyProgressTracker, *outcomes, attempts: int = 0) -> ReplyProgress:
    """Send pieces from where the reply is; an outcome is an exception, or None for one that
    arrives."""
    async with tracker.track_attempt(reply(attempts)) as progress:
        for outcome in outcomes:
            with progress.sending_piece(progress.sent_pieces):
                if outcome is not None:
                    raise outcome
    return progress


async def test_a_reply_that_is_there_is_forgotten():
    tracker = ReplyProgressTracker()
    assert (await attempt(tracker, None, None)).sent_pieces == 2
    assert (await attempt(tracker, None)).sent_pieces == 1


async def test_a_failure_before_the_first_piece_is_raised_as_it_is():
    tracker = ReplyProgressTracker()
    for error in (RetryDelivery(3.0, "wait"), Undeliverable("gone"), ConnectionError("reset")):
        with pytest.raises(type(error)) as caught:
            await attempt(tracker, error)
        assert caught.value is error


async def test_a_failure_after_a_piece_is_an_interruption_with_the_wait_that_was_asked_for():
    tracker = ReplyProgressTracker()
    with pytest.raises(ReplyInterrupted, match="have arrived: 1; wait") as caught:
        await attempt(tracker, None, RetryDelivery(3.0, "wait"))
    assert caught.value.delay_s == 3.0
    with pytest.raises(ReplyInterrupted, match="have arrived: 2; ConnectionError: reset") as caught:
        await attempt(tracker, None, ConnectionError("reset"), attempts=1)
    assert caught.value.delay_s is None
    with pytest.raises(ConnectionError):
        await attempt(tracker, ConnectionError("reset"), attempts=1)


async def test_what_the_platform_never_takes_is_undeliverable_wherever_it_happens():
    tracker = ReplyProgressTracker()
    with pytest.raises(Undeliverable):
        await attempt(tracker, None, Undeliverable("gone"))


async def test_a_piece_without_an_answer_is_unconfirmed_from_its_first_attempt_until_it_arrives():
    now = [100.0]
    tracker = ReplyProgressTracker(clock=lambda: now[0])
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await attempt(tracker, ConnectionError("reset"))
        now[0] += 10
    with pytest.raises(RetryDelivery):
        await attempt(tracker, RetryDelivery(1.0, "wait"))
    async with tracker.track_attempt(reply(1)) as progress:
        assert progress.unconfirmed_since == 100.0
        with progress.sending_piece(0):
            pass
        assert progress.unconfirmed_since is None


async def test_what_another_process_began_may_have_arrived_at_any_time():
    async with ReplyProgressTracker().track_attempt(reply(1)) as progress:
        assert progress.unconfirmed_since == -math.inf


async def test_an_attempt_that_takes_too_long_says_how_far_it_came(monkeypatch):
    monkeypatch.setattr(reply_progress, "SEND_TIMEOUT_S", 0.01)
    tracker = ReplyProgressTracker()

    async def hang_at_the_second_piece() -> None:
        async with tracker.track_attempt(reply()) as progress:
            with progress.sending_piece(0):
                pass
            with progress.sending_piece(1):
                await asyncio.Event().wait()

    with pytest.raises(ReplyInterrupted, match="have arrived: 1; TimeoutError"):
        await hang_at_the_second_piece()
    async with tracker.track_attempt(reply(1)) as progress:
        assert progress.unconfirmed_since is not None


async def test_a_cancelled_attempt_is_cancelled_and_its_piece_unconfirmed():
    tracker = ReplyProgressTracker()
    with pytest.raises(asyncio.CancelledError):
        await attempt(tracker, None, asyncio.CancelledError())
    async with tracker.track_attempt(reply(1)) as progress:
        assert progress.sent_pieces == 1
        assert progress.unconfirmed_since is not None
