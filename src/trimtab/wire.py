"""From a recorded call to keyword arguments for an SDK, now or long after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.core.event import Call, Event, Settings
from trimtab.core.prompt import Prompt, Rendering, call_record
from trimtab.core.tokens import Counter
from trimtab.core.window import Window
from trimtab.dialects import dialect


class RequestChanged(ValueError):
    """A past request, rendered again, is not what its call recorded."""


def rendering_of(settings: Settings) -> Rendering:
    """An empty rendering in the settings' dialect."""
    wire = dialect(settings.dialect)
    return Rendering(wire.blocks, system_notices=wire.system_notices)


def request_of(settings: Settings, rendering: Rendering, call: Call) -> dict[str, Any]:
    """The request of a call whose window is rendered."""
    prompt = Prompt(
        model=settings.model,
        system=settings.system,
        tools=settings.tools,
        blocks=rendering.blocks,
        marks=call.marks,
        max_output=call.max_output,
        output_param=_output_param(settings),
        params=settings.params,
        stream=call.stream,
        volatile=call.volatile,
    )
    return dialect(settings.dialect).request(prompt)


def rebuild(
    events: Sequence[Event], seq: int, counters: Mapping[str, Counter] | None = None
) -> dict[str, Any]:
    """The exact request of a past call, from the log alone and checked against its hash."""
    body = events[seq - 1].body if 0 < seq <= len(events) else None
    if not isinstance(body, Call):
        # Not the type of an argument: the position is wrong.
        raise LookupError(f"event {seq} is not a call")  # noqa: TRY004
    window = Window(counters)
    for event in events[: body.position]:
        window.apply(event)
    rendering = rendering_of(window.settings)
    rendering.update(window)
    if body.hash and rendering.digest(call_record(window.settings.params, body)) != body.hash:
        raise RequestChanged(
            f"the request of call {seq} cannot be shown as it was sent: rendered from the log it "
            "has another hash (something it held was erased, or the renderer changed)"
        )
    return request_of(window.settings, rendering, body)


def _output_param(settings: Settings) -> str:
    match settings.dialect:
        case "openai_responses":
            return "max_output_tokens"
        case "anthropic":
            return "max_tokens"
        case _:
            return str(settings.entry.get("output_param", "max_tokens"))
