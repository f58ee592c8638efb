"""The trace that a caller has begun goes on in the turn that answers it."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from opentelemetry import context, trace

from tests.observe.exported import Traced
from tests.serve.channels.http.running_apps import MESSAGES, house
from trimtab.observe import otel
from trimtab.observe.otel import TurnSpans, create_instruments
from trimtab.observe.trace_parents import accept_traceparent

pytestmark = pytest.mark.anyio

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FIRST = f"00-{TRACE}-{SPAN}-01"
SECOND = f"00-{TRACE[::-1]}-{SPAN[::-1]}-01"


@pytest.fixture
def traced(monkeypatch) -> Generator[Traced]:
    kept = Traced()
    instruments = create_instruments(kept.tracers, kept._meters)
    monkeypatch.setattr(otel, "create_turn_spans", lambda agent: TurnSpans(instruments, agent))
    yield kept
    kept.close()


def parents(traced: Traced) -> list[tuple[str, str] | None]:
    """Trace and span that each turn is in."""
    return [
        None
        if span.parent is None
        else (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}")
        for span in traced.named("invoke_agent")
    ]


async def test_a_turn_is_in_the_trace_of_its_newest_message_also_in_another_process(traced, caplog):
    async with house("One.", "Two.") as served, served.http() as web:
        served.leave_unanswered()
        for header in (FIRST, SECOND):
            await web.post(MESSAGES, json={"text": "Hi."}, headers={"traceparent": header})
        await served.service.run_turn("default/helper/one")
        await web.post(MESSAGES, json={"text": "Ho."})
        await served.service.run_turn("default/helper/one")
    assert parents(traced) == [(TRACE[::-1], SPAN[::-1]), None]
    assert "Failed to detach" not in caplog.text


async def test_a_message_keeps_the_span_of_a_request_that_is_traced(traced):
    async with house("One.") as served, served.http() as web:
        served.leave_unanswered()
        answer = served.server.config.loaded_app

        async def answer_in_a_span(scope, receive, send) -> None:
            span = trace.SpanContext(
                int(TRACE, 16), int(SPAN, 16), is_remote=False, trace_flags=trace.TraceFlags(1)
            )
            parent = trace.set_span_in_context(trace.NonRecordingSpan(span))
            token = context.attach(parent)
            try:
                await answer(scope, receive, send)
            finally:
                context.detach(token)

        served.server.config.loaded_app = answer_in_a_span
        await web.post(MESSAGES, json={"text": "Hi."}, headers={"traceparent": SECOND})
        await served.service.run_turn("default/helper/one")
    assert parents(traced) == [(TRACE, SPAN)]


@pytest.mark.parametrize(
    "given",
    [
        "",
        "garbage",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"{FIRST}\n",
        f"{FIRST}-x",
        f"00-{TRACE}-{SPAN}-1",
    ],
)
def test_what_is_no_traceparent_is_ignored(given):
    assert accept_traceparent(given) == ""
    assert accept_traceparent(FIRST) == FIRST
