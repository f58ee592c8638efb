"""The retry layer, with a provider that fails as told and a sleep that does not."""

import asyncio
from typing import get_args

import pytest

from trimtab.errors import FailureKind, ProviderError, ProviderFailureDetails
from trimtab.providers.base import TRANSIENT_KINDS
from trimtab.providers.retries import with_retries

pytestmark = pytest.mark.anyio

START = {"type": "message_start", "message": {}}
TEXT = {"type": "content_block_delta", "delta": {"text": "a"}}
STOP = {"type": "message_stop"}


def failed(kind: FailureKind = "overloaded", after: float | None = None) -> ProviderError:
    return ProviderError(ProviderFailureDetails(kind=kind, message="no", retry_after=after))


class Scripted:
    """Each call takes the next script: events to pass on, errors to raise."""

    dialect = "anthropic"

    def __init__(self, *scripts):
        self.scripts = list(scripts)
        self.requests: list[object] = []
        self.left = 0
        self.closed = False

    async def send(self, request):
        self.requests.append(request)
        try:
            for step in self.scripts.pop(0):
                if isinstance(step, BaseException):
                    raise step
                yield step
        finally:
            self.left += 1

    async def close(self):
        self.closed = True


class Waits:
    def __init__(self):
        self.seconds: list[float] = []

    async def __call__(self, seconds):
        self.seconds.append(seconds)


async def gathered(provider):
    return [event async for event in provider.send({"model": "m"})]


async def test_a_request_is_retried_until_it_is_answered():
    inner = Scripted([failed()], [failed("network")], [START, TEXT, STOP])
    waits = Waits()
    provider = with_retries(inner, sleep=waits, random_fraction=lambda: 1.0)
    assert await gathered(provider) == [START, TEXT, STOP]
    assert inner.requests == [{"model": "m"}] * 3
    assert waits.seconds == [0.5, 1.0]


async def test_whoever_waits_hears_why_and_for_how_long():
    inner = Scripted([failed("rate_limit", 12.0)], [START, TEXT, STOP])
    heard: list[tuple[str, float]] = []
    await gathered(
        with_retries(
            inner,
            sleep=Waits(),
            random_fraction=lambda: 1.0,
            on_wait=lambda failure, seconds: heard.append((failure.kind, seconds)),
        )
    )
    assert heard == [("rate_limit", 12.5)]


async def test_a_failure_that_stays_is_raised_after_the_last_retry():
    inner, waits = Scripted(*[[failed()]] * 5), Waits()
    with pytest.raises(ProviderError) as caught:
        await gathered(with_retries(inner, sleep=waits, random_fraction=lambda: 1.0))
    assert caught.value.__notes__ == ["this was attempt 5 of 5"]
    assert waits.seconds == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize("kind", get_args(FailureKind))
async def test_only_transient_failures_are_retried(kind):
    inner = Scripted([failed(kind)], [TEXT])
    provider = with_retries(inner, sleep=Waits())
    if kind in TRANSIENT_KINDS:
        assert await gathered(provider) == [TEXT]
    else:
        with pytest.raises(ProviderError):
            await gathered(provider)
        assert len(inner.requests) == 1


async def test_the_backoff_is_a_random_part_of_the_step_and_never_above_the_longest():
    inner, waits = Scripted(*[[failed()]] * 9, [TEXT]), Waits()
    await gathered(
        with_retries(
            inner, max_attempts=10, max_wait_s=8.0, sleep=waits, random_fraction=lambda: 0.5
        )
    )
    assert waits.seconds == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0]


async def test_a_wait_that_the_provider_asks_for_is_honoured_up_to_the_longest():
    inner, waits = Scripted([failed(after=7.0)], [failed(after=900.0)], [TEXT]), Waits()
    await gathered(with_retries(inner, max_wait_s=60.0, sleep=waits, random_fraction=lambda: 0.5))
    assert waits.seconds == [7.25, 60.0]


async def test_a_stream_that_breaks_before_its_first_content_is_retried():
    inner = Scripted([START, failed()], [START, TEXT, STOP])
    assert await gathered(with_retries(inner, sleep=Waits())) == [START, TEXT, STOP]


async def test_a_stream_that_breaks_after_its_first_content_is_not():
    inner = Scripted([START, TEXT, failed()], [START, TEXT, STOP])
    events = with_retries(inner, sleep=Waits()).send({})
    assert [await anext(events), await anext(events)] == [START, TEXT]
    with pytest.raises(ProviderError):
        await anext(events)
    assert len(inner.requests) == 1


@pytest.mark.parametrize(
    ("early", "content"),
    [
        (
            [
                {"object": "chat.completion.chunk", "choices": []},
                {
                    "object": "chat.completion.chunk",
                    "choices": [{"delta": {"role": "assistant", "content": ""}}],
                },
            ],
            {"object": "chat.completion.chunk", "choices": [{"delta": {"tool_calls": [{}]}}]},
        ),
        (
            [{"type": "response.created"}, {"type": "response.in_progress"}],
            {"type": "response.output_item.added"},
        ),
    ],
)
async def test_events_without_content_do_not_count_in_any_dialect(early, content):
    again = Scripted([*early, failed()], [*early, content])
    assert await gathered(with_retries(again, sleep=Waits())) == [*early, content]
    broken = Scripted([*early, content, failed()], [content])
    with pytest.raises(ProviderError):
        await gathered(with_retries(broken, sleep=Waits()))


async def test_a_stream_of_nothing_but_a_start_is_passed_on():
    assert await gathered(with_retries(Scripted([START]), sleep=Waits())) == [START]


async def test_a_whole_reply_is_passed_on_as_it_is():
    reply = {"type": "message", "content": []}
    assert await gathered(with_retries(Scripted([reply]), sleep=Waits())) == [reply]


async def test_an_error_that_is_no_failure_of_the_provider_passes_through():
    inner = Scripted([TypeError("a wrong argument")])
    with pytest.raises(TypeError):
        await gathered(with_retries(inner, sleep=Waits()))
    assert len(inner.requests) == 1


async def test_cancelling_ends_a_wait_at_once():
    waiting = asyncio.Event()

    async def forever(_):
        waiting.set()
        await asyncio.Event().wait()

    inner = Scripted([failed()], [TEXT])
    task = asyncio.create_task(gathered(with_retries(inner, sleep=forever)))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(inner.requests) == 1


async def test_a_cancelled_call_is_not_tried_again():
    inner = Scripted([asyncio.CancelledError()], [TEXT])
    with pytest.raises(asyncio.CancelledError):
        await gathered(with_retries(inner, sleep=Waits()))
    assert len(inner.requests) == 1


async def test_a_stream_that_is_left_is_closed():
    inner = Scripted([START, TEXT, STOP])
    events = with_retries(inner, sleep=Waits()).send({})
    assert await anext(events) == START
    await events.aclose()  # pyright: ignore[reportAttributeAccessIssue] - a generator behind the protocol
    assert inner.left == 1


async def test_it_stands_for_the_provider_in_all_else():
    inner = Scripted()
    provider = with_retries(inner)
    assert provider.dialect == "anthropic"
    await provider.close()
    assert inner.closed


def test_no_attempt_at_all_is_refused():
    with pytest.raises(ValueError, match="attempts is 0"):
        with_retries(Scripted(), max_attempts=0)
