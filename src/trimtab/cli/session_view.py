"""What there is to see of a session now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from trimtab.cli.session_calls import Made, newest
from trimtab.cli.storing import known
from trimtab.context import Context
from trimtab.core.edits import shown
from trimtab.core.event import Said
from trimtab.core.ledger import Ledger
from trimtab.core.message import Media, Opaque, Part, Text, ToolCall, ToolResult
from trimtab.core.rewinding import undone_in
from trimtab.core.rounds import Entry
from trimtab.core.window import Window
from trimtab.session.opening import opened
from trimtab.stores.store import Store

STATES = {"truncate": "truncated", "mask": "masked", "summarise": "summarised", "drop": "dropped"}
"""What an edit makes of what it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A part of a message."""

    handle: str
    """By what it is recalled."""
    role: str
    """Who said it."""
    state: str
    """`shown`, or what hides it."""
    tokens: int
    """Estimated, as the model sees it; 0 where it does not."""
    text: str
    """What the model sees, or what was said where it sees nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    session: str
    """Its id."""
    position: int
    """Events in its log."""
    updated: float
    """When the last one happened, in seconds since the epoch."""
    policy: str
    """What decides what is hidden."""
    said: int
    """Messages in force, hidden ones included."""
    undone: int
    """Messages that rewinds have taken back; a list of sessions counts them, too."""
    messages: int
    """Messages that the model sees."""
    calls: int
    """Requests handed out so far."""
    report: Ledger
    """Where the tokens of the next call would go."""
    hidden: dict[str, list[str]]
    """By kind of edit: handles of what it hides, oldest first, as far as they are in memory."""
    summary: str
    """What stands for the summarised messages; empty where none are."""
    lines: tuple[Line, ...]
    """The last messages, part by part."""
    newest: tuple[Made, ...]
    """The last calls, oldest first."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "id": self.session,
            "events": self.position,
            "updated": self.updated,
            "model": self.report.model,
            "policy": self.policy,
            "said": self.said,
            "undone": self.undone,
            "shown": self.messages,
            "calls": self.calls,
            "report": self.report.to_dict(),
            "hidden": self.hidden,
            "summary": self.summary,
            "messages": [asdict(line) for line in self.lines],
            "last_calls": [made.to_json() for made in self.newest],
        }


async def folded(store: Store, session: str) -> Context:
    """The context of a session, to be read only.

    Nothing is decided in it, and a policy of the caller's own is not in the log: any will do.
    """
    await known(store, session)
    return await opened(store, session, policy="full")


async def view(store: Store, session: str, last: int) -> View:
    """The session now, with its last messages and calls."""
    context = await folded(store, session)
    window = context.window
    end = [event async for event in store.events(session, [(window.seq, window.seq)])]
    entries = [*window.entries.values()][-last:] if last else []
    return View(
        session=session,
        position=window.seq,
        updated=end[0].at,
        policy=window.settings.policy,
        said=window.said,
        undone=await _undone(store, session, window),
        messages=window.messages,
        calls=window.calls,
        report=context.report(),
        hidden=_hidden(window),
        summary=window.summary.text if window.summary is not None else "",
        lines=tuple(line for entry in entries for line in lines_of(entry)),
        newest=tuple(await newest(store, session, window.seq, min(last, window.calls))),
    )


async def _undone(store: Store, session: str, window: Window) -> int:
    """Messages that are in the log and not in force; read only where something was undone."""
    spans = undone_in(window.rewinds)
    if not spans:
        return 0
    return sum([isinstance(each.body, Said) async for each in store.events(session, spans)])


def _hidden(window: Window) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    if window.dropped:
        found["drop"] = [f"m{window.dropped.first}-m{window.dropped.last}"]
    if window.summary is not None:
        found["summarise"] = [window.summary.handle]
    for group in window.visible.values():
        for entry in group.entries():
            for edit in entry.edits.values():
                found.setdefault(edit.op, []).append(edit.handle)
    return found


def lines_of(entry: Entry) -> Iterator[Line]:
    """A message, part by part."""
    parts = entry.message.parts
    hidden = entry.round.group.hidden
    for index, part in enumerate(parts):
        edit = hidden or entry.edits.get(index)
        seen = shown(part, edit) if edit is not None and edit is not hidden else part
        yield Line(
            handle=f"m{entry.seq}" if len(parts) == 1 else f"m{entry.seq}.{index}",
            role=entry.message.role,
            state=STATES.get(edit.op, "shown") if edit is not None else "shown",
            tokens=0 if hidden is not None else entry.shown(index).tokens,
            text=said_by(seen),
        )


def said_by(part: Part) -> str:
    """A part in few words."""
    match part:
        case Text():
            return part.text
        case ToolCall():
            return f"→ {part.name} {part.arguments}"
        case ToolResult():
            others = [said_by(item) for item in part.content if not isinstance(item, Text)]
            return " ".join(["←", *(["failed:"] if part.is_error else []), part.text, *others])
        case Media():
            return f"[{part.kind} {part.mime or part.url or ''}]".replace(" ]", "]")
        case Opaque():
            return "[thinking]" if part.thinking else f"[{part.data.get('type', 'opaque')}]"
