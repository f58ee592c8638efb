"""The demo's log as it grows: what was said in all, and what is hidden of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.cli.demo.seen import Hidden, Seen
from trimtab.context import Context
from trimtab.core.edits import text_of
from trimtab.core.event import Edit, Said
from trimtab.core.message import ToolCall, ToolResult
from trimtab.session import Session

STATES = {"truncate": "truncated", "mask": "masked", "summarise": "summarised", "drop": "dropped"}
ENDLESS = 100_000_000
"""Tokens of a window that is never full."""


class Watch:
    """Reads what is new in the log."""

    def __init__(self, seen: Seen, options: Mapping[str, Any]) -> None:
        self._seen = seen
        self._whole = Context(**options, policy="full", context_window=ENDLESS)
        self._read = 0
        self._said: dict[int, Said] = {}
        self._names: dict[str, str] = {}
        self._edits: list[Edit] = []

    async def look(self, session: Session) -> None:
        """Read on, and note what is hidden now."""
        async for event in session.store.events(session.id, [(self._read + 1, None)]):
            self._read = event.seq
            match event.body:
                case Said() as said:
                    self._said[event.seq] = said
                    self._whole.add(said.message)
                    calls = (part for part in said.message.parts if isinstance(part, ToolCall))
                    self._names.update({call.id: call.name for call in calls})
                case Edit() as edit if edit.op in STATES:
                    self._edits.append(edit)
                    self._seen.hidden.append(self._hidden(edit))
                case _:
                    pass
        self._seen.ledger = session.report()

    def everything(self) -> dict[str, Any]:
        """The request that would send all that was said."""
        return dict(self._whole.preview().request)

    def hiding(self, words: str) -> str | None:
        """The handle of what hides the first result with these words; None where it is seen."""
        for seq, said in self._said.items():
            for index, part in enumerate(said.message.parts):
                if isinstance(part, ToolResult) and words in part.text:
                    hides = [edit for edit in self._edits if _covers(edit, seq, index)]
                    return f"m{seq}.{index}" if hides else None
        return None

    def _hidden(self, edit: Edit) -> Hidden:
        covered = [said for seq, said in self._said.items() if edit.first <= seq <= edit.last]
        sizes = [size.tokens for said in covered for size in said.sizes]
        what = f"{len(covered)} messages"
        if edit.part is not None and covered:
            part = covered[0].message.parts[edit.part]
            what = self._names.get(getattr(part, "call_id", ""), "") or text_of(part)[:20]
            sizes = [covered[0].sizes[edit.part].tokens]
        return Hidden(
            handle=edit.handle, how=STATES[edit.op], what=what, tokens=sum(sizes) - edit.size.tokens
        )


def _covers(edit: Edit, seq: int, part: int) -> bool:
    return edit.first <= seq <= edit.last and edit.part in (None, part)
