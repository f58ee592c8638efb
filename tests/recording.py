"""What tests do with a context behind its verbs: single steps, and events of their own."""

from typing import Any

from trimtab import Context
from trimtab.engine.log.event import Event, EventBody, ModelCall
from trimtab.engine.prompt.render import IncrementalRenderer
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.engine.window.open_calls import build_repairs_for_open_calls
from trimtab.verbs import requesting
from trimtab.verbs.state import record


def append(context: Context, *bodies: EventBody) -> int:
    """Add events to the log, and return the position of the last one."""
    context._run(record(bodies))
    return context.window.seq


def decide(context: Context, *, volatile: str | None = None) -> list[EventBody]:
    """Return the edits that would be made before the next call; record nothing."""
    return [*next(requesting.decide(context._state, volatile=volatile))]


def apply_decided(context: Context, *, volatile: str | None = None) -> None:
    """Make the edits that are wanted before the next call."""
    context._run(requesting.decide(context._state, volatile=volatile))


def repair(context: Context) -> list[Event]:
    """Add results of calls that have none, and return their events."""
    before = len(context.events)
    append(context, *build_repairs_for_open_calls(context.window))
    return context.events[before:]


def request_anyway(context: Context, **how: Any) -> dict[str, Any]:
    """Return the request of the window as it is, also if nobody waits for a reply.

    Only a list that was passed to `sync` may end with a reply, but what is shown of a conversation
    does not depend on its end.
    """
    return context._run(requesting.request_whatever_is_due(context._state, **how))


def render_request(context: Context) -> dict[str, Any]:
    """Return the request of the last call."""
    return requesting.render_request(context._state)


def build_call(context: Context) -> ModelCall:
    """Return the call that would be recorded now; record nothing."""
    return requesting.build_call(context._state)


def record_external_call(context: Context, **how: Any) -> None:
    """Record a call that was made elsewhere."""
    context._run(requesting.record_external_call(context._state, context.budget(), **how))


def checkpoint(context: Context) -> Snapshot:
    """Remove hidden messages and the log so far from memory."""
    snapshot = context.window.checkpoint()
    context.events.clear()
    return snapshot


def rendering(context: Context) -> IncrementalRenderer:
    """Return the rendered window, up to date."""
    return context._state.rendering
