"""A text and how parts of it look: what Markdown becomes, in no platform's format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

ALONE = ("code", "pre")
"""Kinds that share no character with another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How a stretch of a text looks."""

    kind: str
    """In Telegram's word: `bold`, `italic`, `strikethrough`, `code`, `pre`, `text_link`,
    `blockquote`."""
    start: int
    """The first code point."""
    end: int
    """The code point behind the last."""
    url: str | None = None
    """Where a link leads."""
    language: str | None = None
    """What a block of code is written in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Styled:
    """What is sent as one message."""

    text: str
    """Plain, without any signs of markup."""
    marks: tuple[Mark, ...] = ()
    """In order of their beginnings, the longer first."""

    def cut(self, start: int, end: int) -> Styled:
        """A stretch of it, without the white space at its edges; marks that reach out are cut."""
        while start < end and self.text[start].isspace() and not _in_block(self.marks, start):
            start += 1
        while end > start and self.text[end - 1].isspace():
            end -= 1
        inside = [
            replace(mark, start=max(mark.start, start) - start, end=min(mark.end, end) - start)
            for mark in self.marks
            if max(mark.start, start) < min(mark.end, end)
        ]
        return Styled(text=self.text[start:end], marks=tuple(inside))


def styled(text: str, marks: Iterable[Mark]) -> Styled:
    """A text with marks that Telegram takes as they are: trimmed, ordered, and none in another
    that may not hold it."""
    kept: list[Mark] = []
    links = [mark for mark in marks if mark.kind == "text_link"]
    alone = [
        mark
        for mark in marks
        if mark.kind in ALONE and not any(_meet(mark, link) for link in links)
    ]
    for mark in marks:
        if mark.kind in ALONE:
            kept += [mark] if mark in alone else []
        elif mark.kind in ("text_link", "blockquote"):
            kept.append(mark)
        else:
            kept += _around(mark, alone)
    trimmed = [found for mark in kept if (found := _trimmed(text, mark)) is not None]
    ordered = sorted(trimmed, key=lambda mark: (mark.start, -mark.end))
    return Styled(text=text, marks=tuple(ordered)).cut(0, len(text))


def moved(marks: Iterable[Mark], by: int) -> tuple[Mark, ...]:
    """The same marks so many code points further on."""
    return tuple(replace(mark, start=mark.start + by, end=mark.end + by) for mark in marks)


def _around(mark: Mark, others: Iterable[Mark]) -> list[Mark]:
    """What is left of a mark outside of others."""
    left = [mark]
    for other in others:
        left = [
            part
            for one in left
            for part in (
                [one]
                if not _meet(one, other)
                else [
                    replace(one, end=min(one.end, other.start)),
                    replace(one, start=max(one.start, other.end)),
                ]
            )
            if part.start < part.end
        ]
    return left


def _meet(one: Mark, other: Mark) -> bool:
    return one.start < other.end and other.start < one.end


def _trimmed(text: str, mark: Mark) -> Mark | None:
    start, end = mark.start, mark.end
    while end > start and text[end - 1].isspace():
        end -= 1
    while mark.kind != "pre" and start < end and text[start].isspace():
        start += 1
    return replace(mark, start=start, end=end) if start < end else None


def _in_block(marks: Iterable[Mark], position: int) -> bool:
    """Whether white space there is code, and means something."""
    return any(mark.kind == "pre" and mark.start <= position < mark.end for mark in marks)
