"""A summary as text: sections under fixed headings, then a list of what is kept to the letter.

The headings are always the same, so that the next summary, a check and a cut find their way; what
stands under them is in the user's language. The list is not the model's: `fidelity.py` makes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from trimtab.core.extract import newest_lines
from trimtab.core.tokens import Counter

SECTIONS = (
    "Goal and latest request",
    "Facts",
    "Preferences",
    "Decisions",
    "Work done",
    "Errors and fixes",
    "Open questions and tasks",
    "Files and artefacts",
)
"""In the order they stand in."""
LEAST_SECTIONS = 3
"""Headings from which on a reply is taken for a summary by its form alone."""
ASKED_TOKENS = 300
"""Tokens that a model is asked for."""
MAX_TOKENS = 500
"""Tokens that the sections may take."""
LIST_TOKENS = 500
"""Tokens that the list may take beside them, however little is replaced."""
MOST_LIST_TOKENS = 4_000
"""Tokens that it may take, however much is."""
LIST_SHARE = 0.08
"""Of what is replaced, which the list may take in between."""

VERBATIM = "Verbatim:"
"""The heading of the list."""
OPEN = "- open: "
"""How a line of the list begins that is a question or a request, not a row of names."""
BETWEEN = " | "
"""What stands between two items of one line."""
SHORT_LINE = 80
"""Characters up to which a line is not cut within."""
ITEM_CHARS = 200
"""Of one item that are kept."""

_FOLDED = {section.casefold(): section for section in SECTIONS}
_HEADING = re.compile(
    r"^\s*(?:#{1,6}\s*|\d{1,2}[.)]\s*)?\**\s*([^:*#]{3,40}?)\s*\**\s*:?\s*\**\s*$"
)
_INLINE = re.compile(r"^\s*(?:#{1,6}\s*|\d{1,2}[.)]\s*)?\**([^:*#]{3,40}?)\**\s*:\**\s+(\S.*)$")
_NOTHING = re.compile(
    r"^\W*(?:none|nothing|n/?a|keine?|nichts|aucune?|rien|ninguno|nada)?\W*$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What is kept to the letter, most likely needed first."""

    open: tuple[str, ...] = ()
    """Questions and requests that nobody has answered yet."""
    items: tuple[str, ...] = ()
    """Names, paths, figures, dates and addresses."""

    def __bool__(self) -> bool:
        return bool(self.open or self.items)


def list_cap(replaced: int, before: int = 0) -> int:
    """Tokens that a list may take beside a summary that replaces so many.

    What it took `before` it may go on to take: items must not fall out because little was said.
    """
    return min(MOST_LIST_TOKENS, max(LIST_TOKENS, round(LIST_SHARE * replaced), before))


def split(text: str) -> tuple[str, Listed]:
    """A summary's sections, or whatever stands in their place, and its list."""
    lines = text.splitlines()
    if VERBATIM not in lines:
        return text, Listed()
    at = lines.index(VERBATIM)
    open_: list[str] = []
    items: list[str] = []
    for line in lines[at + 1 :]:
        if line.startswith(OPEN):
            open_.append(line.removeprefix(OPEN))
        elif line.strip():
            items += [item for item in line.removeprefix("- ").split(BETWEEN) if item]
    return "\n".join(lines[:at]).rstrip("\n"), Listed(open=tuple(open_), items=tuple(items))


def joined(body: str, listed: Listed) -> str:
    """The inverse of `split`."""
    return "\n".join(line for line in (body, listed_text(listed)) if line)


def listed_text(listed: Listed) -> str:
    """The list as it stands in a summary; nothing where it is empty."""
    if not listed:
        return ""
    lines = [VERBATIM, *(f"{OPEN}{question}" for question in listed.open)]
    if listed.items:
        lines.append(f"- {BETWEEN.join(listed.items)}")
    return "\n".join(lines)


def plain(item: str) -> str:
    """An item that can stand in the list: of one line, without what separates items."""
    text = " ".join(item.replace("|", "¦").split())
    return text if len(text) <= ITEM_CHARS else f"{text[: ITEM_CHARS - 1]}…"


def sections_of(body: str) -> dict[str, list[str]]:
    """By heading: the lines under it that say something. What stands before the first is lost.

    Models write headings as they like: bold, numbered, with a colon or hashes.
    """
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in body.splitlines():
        name, told = _heading(line)
        if name is not None:
            current = found.setdefault(name, [])
        if current is not None and not _NOTHING.match(told):
            current.append(bullet(told))
    return found


def written(sections: Mapping[str, list[str]]) -> str:
    """Sections in their order, those without a line left out."""
    lines: list[str] = []
    for name in SECTIONS:
        if told := sections.get(name):
            lines += [f"{name}:", *told]
    return "\n".join(lines)


def fitted(text: str, counter: Counter, max_tokens: int | None, list_tokens: int | None) -> str:
    """A summary within its caps: the sections within theirs, the list within its own."""
    body, listed = split(text)
    if max_tokens is not None:
        body = cut(body, counter, max_tokens)
    if list_tokens is not None:
        listed = within(listed, counter, list_tokens)
    return joined(body, listed)


def cut(body: str, counter: Counter, max_tokens: int) -> str:
    """The oldest lines of the longest sections go until the rest fits; headings stay.

    Without sections, or where headings alone are too long, the oldest lines go.
    """
    if counter.count(body) <= max_tokens:
        return body
    sections = {name: list(told) for name, told in sections_of(body).items() if told}
    while sections:
        text = written(sections)
        if counter.count(text) <= max_tokens:
            return text
        longest = max(sections.values(), key=lambda told: sum(map(len, told)))
        if len(longest) > 1:
            del longest[0]
        elif len(longest[0]) > SHORT_LINE:
            longest[0] = f"- …{longest[0][2 + len(longest[0]) // 4 :]}"
        else:
            break
    return newest_lines(written(sections) or body, counter, max_tokens)


def within(listed: Listed, counter: Counter, max_tokens: int) -> Listed:
    """As much of a list, from its start, as fits."""
    whole = (*((True, each) for each in listed.open), *((False, each) for each in listed.items))

    def first(count: int) -> Listed:
        taken = whole[:count]
        return Listed(
            open=tuple(text for is_open, text in taken if is_open),
            items=tuple(text for is_open, text in taken if not is_open),
        )

    return first(most(len(whole), lambda n: counter.count(listed_text(first(n))) <= max_tokens))


def most(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to a limit that fits, where fewer fit if more do."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def lines_in(body: str) -> list[str]:
    """The lines of a text that has no sections, each as it stands under a heading."""
    return [bullet(line) for line in body.splitlines() if line.strip()]


def lines_of(sections: Mapping[str, list[str]]) -> Iterable[str]:
    for told in sections.values():
        yield from told


def without(sections: Mapping[str, list[str]], wrong: Sequence[str]) -> dict[str, list[str]]:
    """The sections without some of their lines."""
    gone = set(wrong)
    return {name: [line for line in told if line not in gone] for name, told in sections.items()}


def _heading(line: str) -> tuple[str | None, str]:
    """The section that a line begins, and what else the line says."""
    if (match := _HEADING.match(line)) and (name := _FOLDED.get(match[1].casefold())):
        return name, ""
    if (match := _INLINE.match(line)) and (name := _FOLDED.get(match[1].casefold())):
        return name, match[2]
    return None, line


def bullet(line: str) -> str:
    """A line as it stands under a heading, however a model has marked it."""
    told = re.sub(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+", "", line).strip()
    return f"- {told}"
