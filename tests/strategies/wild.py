"""A policy without sense: whatever it asks for, the laws must hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trimtab.engine.log.edits import format_mask_placeholder
from trimtab.engine.log.event import Edit
from trimtab.engine.log.text_cuts import add_recall_handle, format_truncation_indicator
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.planning.plan import Decision
from trimtab.engine.window.window import Window


def wild(window: Window, budget: Budget) -> Decision:
    """Hide by numbers alone, in parts, groups and ranges: calls and the newest and pinned, too."""
    return Decision(edits=(*_parts(window), *_groups(window)))


def _parts(window: Window) -> Iterator[Edit]:
    for seq, entry in window.entries.items():
        for part in range(len(entry.message.parts) + 1):
            match 1 if entry.pinned else (seq * 3 + part) % 7:
                case 0:
                    text = _named(window, format_mask_placeholder(seq), seq, part)
                    yield Edit(op="mask", first=seq, last=seq, part=part, text=text, why="wild")
                case 1:
                    text = _named(window, format_truncation_indicator("head", 3, seq), seq, part)
                    cut = Edit(op="truncate", first=seq, last=seq, part=part, text=text, why="wild")
                    yield replace(cut, head=3)
                case _:
                    pass


def _named(window: Window, words: str, seq: int, part: int) -> str:
    return add_recall_handle(words, f"m{seq}.{part}", window.settings.recall_hint)


def _groups(window: Window) -> Iterator[Edit]:
    for group in window.conversation.groups:
        match group.index % 5:
            case 1:
                yield Edit(op="drop", first=group.first, last=group.last, why="wild")
            case 2:
                last = min(window.seq, group.last + 4)
                yield Edit(op="drop", first=group.first, last=last, why="wild")
            case 3 if group.index == 3:
                text = "it went on " * 3
                first = max(1, group.first - 6)
                yield Edit(op="summarise", first=first, last=group.last, text=text, why="wild")
            case 4:
                yield Edit(op="reveal", first=group.first, last=group.last, why="wild")
            case _:
                pass
