"""A summary as text: sections under fixed headings, then a list of what is kept to the letter.

The headings are always the same, so that the next summary, a check and a cut find their way; what
stands under them is in the user's language. The list is not the model's: `fidelity.py` makes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from trimtab.summaries.extract import keep_newest_lines
from trimtab.tokens.counter import TokenCounter

SUMMARY_SECTIONS = (
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
MIN_SECTIONS = 3
"""Headings from which on a reply is taken for a summary by its form alone."""
REQUESTED_SUMMARY_TOKENS = 300
"""Tokens that a model is asked for."""
MAX_SECTIONS_TOKENS = 500
"""Tokens that the sections may take."""
DEFAULT_LIST_TOKENS = 500
"""Tokens that the list may take beside them, however little is replaced."""
MAX_LIST_TOKENS = 4_000
"""Tokens that it may take, however much is."""
LIST_SHARE_OF_REPLACED = 0.08
"""Of what is replaced, which the list may take in between."""

VERBATIM_HEADING = "Verbatim:"
"""The heading of the list."""
OPEN_LINE_PREFIX = "- open: "
"""How a line of the list begins that is a question or a request, not a row of names."""
ITEM_SEPARATOR = " | "
"""What stands between two items of one line."""
MAX_UNCUT_LINE_CHARS = 80
"""Characters up to which a line is not cut within."""
MAX_ITEM_CHARS = 200
"""Of one item that are kept."""

_SECTION_BY_FOLDED_NAME = {section.casefold(): section for section in SUMMARY_SECTIONS}
_HEADING = re.compile(
    r"^\s*(?:#{1,6}\s*|\d{1,2}[.)]\s*)?\**\s*([^:*#]{3,40}?)\s*\**\s*:?\s*\**\s*$"
)
_INLINE_HEADING = re.compile(
    r"^\s*(?:#{1,6}\s*|\d{1,2}[.)]\s*)?\**([^:*#]{3,40}?)\**\s*:\**\s+(\S.*)$"
)
_EMPTY_LINE = re.compile(
    r"^\W*(?:none|nothing|n/?a|keine?|nichts|aucune?|rien|ninguno|nada)?\W*$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbatimList:
    """What is kept to the letter, most likely needed first."""

    open_questions: tuple[str, ...] = ()
    """Questions and requests that nobody has answered yet."""
    items: tuple[str, ...] = ()
    """Names, paths, figures, dates and addresses."""

    def __bool__(self) -> bool:
        return bool(self.open_questions or self.items)


def compute_list_cap(replaced_tokens: int, previous_tokens: int = 0) -> int:
    """Tokens that a list may take beside a summary that replaces so many.

    What it took `before` it may go on to take: items must not fall out because little was said.
    """
    return min(
        MAX_LIST_TOKENS,
        max(DEFAULT_LIST_TOKENS, round(LIST_SHARE_OF_REPLACED * replaced_tokens), previous_tokens),
    )


def split_summary(text: str) -> tuple[str, VerbatimList]:
    """A summary's sections, or whatever stands in their place, and its list."""
    lines = text.splitlines()
    if VERBATIM_HEADING not in lines:
        return text, VerbatimList()
    at = lines.index(VERBATIM_HEADING)
    open_: list[str] = []
    items: list[str] = []
    for line in lines[at + 1 :]:
        if line.startswith(OPEN_LINE_PREFIX):
            open_.append(line.removeprefix(OPEN_LINE_PREFIX))
        elif line.strip():
            items += [item for item in line.removeprefix("- ").split(ITEM_SEPARATOR) if item]
    return "\n".join(lines[:at]).rstrip("\n"), VerbatimList(
        open_questions=tuple(open_), items=tuple(items)
    )


def join_summary(sections_text: str, verbatim_list: VerbatimList) -> str:
    """The inverse of `split`."""
    return "\n".join(line for line in (sections_text, format_verbatim_list(verbatim_list)) if line)


def format_verbatim_list(verbatim_list: VerbatimList) -> str:
    """The list as it stands in a summary; nothing where it is empty."""
    if not verbatim_list:
        return ""
    lines = [
        VERBATIM_HEADING,
        *(f"{OPEN_LINE_PREFIX}{question}" for question in verbatim_list.open_questions),
    ]
    if verbatim_list.items:
        lines.append(f"- {ITEM_SEPARATOR.join(verbatim_list.items)}")
    return "\n".join(lines)


def sanitise_verbatim_item(item: str) -> str:
    """An item that can stand in the list: of one line, without what separates items."""
    text = " ".join(item.replace("|", "¦").split())
    return text if len(text) <= MAX_ITEM_CHARS else f"{text[: MAX_ITEM_CHARS - 1]}…"


def parse_sections(sections_text: str) -> dict[str, list[str]]:
    """By heading: the lines under it that say something. What stands before the first is lost.

    Models write headings as they like: bold, numbered, with a colon or hashes.
    """
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in sections_text.splitlines():
        name, told = _parse_heading(line)
        if name is not None:
            current = found.setdefault(name, [])
        if current is not None and not _EMPTY_LINE.match(told):
            current.append(format_bullet(told))
    return found


def format_sections(sections: Mapping[str, list[str]]) -> str:
    """Sections in their order, those without a line left out."""
    lines: list[str] = []
    for name in SUMMARY_SECTIONS:
        if told := sections.get(name):
            lines += [f"{name}:", *told]
    return "\n".join(lines)


def cut_summary_to_caps(
    text: str, counter: TokenCounter, max_sections_tokens: int | None, max_list_tokens: int | None
) -> str:
    """A summary within its caps: the sections within theirs, the list within its own."""
    body, listed = split_summary(text)
    if max_sections_tokens is not None:
        body = cut_sections(body, counter, max_sections_tokens)
    if max_list_tokens is not None:
        listed = cut_verbatim_list(listed, counter, max_list_tokens)
    return join_summary(body, listed)


def cut_sections(sections_text: str, counter: TokenCounter, max_tokens: int) -> str:
    """The oldest lines of the longest sections go until the rest fits; headings stay.

    Without sections, or where headings alone are too long, the oldest lines go.
    """
    if counter.count(sections_text) <= max_tokens:
        return sections_text
    sections = {name: list(told) for name, told in parse_sections(sections_text).items() if told}
    while sections:
        text = format_sections(sections)
        if counter.count(text) <= max_tokens:
            return text
        longest = max(sections.values(), key=lambda told: sum(map(len, told)))
        if len(longest) > 1:
            del longest[0]
        elif len(longest[0]) > MAX_UNCUT_LINE_CHARS:
            longest[0] = f"- …{longest[0][2 + len(longest[0]) // 4 :]}"
        else:
            break
    return keep_newest_lines(format_sections(sections) or sections_text, counter, max_tokens)


def cut_verbatim_list(
    verbatim_list: VerbatimList, counter: TokenCounter, max_tokens: int
) -> VerbatimList:
    """As much of a list, from its start, as fits."""
    whole = (
        *((True, each) for each in verbatim_list.open_questions),
        *((False, each) for each in verbatim_list.items),
    )

    def first(count: int) -> VerbatimList:
        taken = whole[:count]
        return VerbatimList(
            open_questions=tuple(text for is_open, text in taken if is_open),
            items=tuple(text for is_open, text in taken if not is_open),
        )

    return first(
        find_largest_fitting(
            len(whole), lambda n: counter.count(format_verbatim_list(first(n))) <= max_tokens
        )
    )


def find_largest_fitting(limit: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to a limit that fits, where fewer fit if more do."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def format_lines_as_bullets(unsectioned_text: str) -> list[str]:
    """The lines of a text that has no sections, each as it stands under a heading."""
    return [format_bullet(line) for line in unsectioned_text.splitlines() if line.strip()]


def iter_lines_of_all_sections(sections: Mapping[str, list[str]]) -> Iterable[str]:
    for told in sections.values():
        yield from told


def remove_section_lines(
    sections: Mapping[str, list[str]], unwanted_lines: Sequence[str]
) -> dict[str, list[str]]:
    """The sections without some of their lines."""
    gone = set(unwanted_lines)
    return {name: [line for line in told if line not in gone] for name, told in sections.items()}


def _parse_heading(line: str) -> tuple[str | None, str]:
    """The section that a line begins, and what else the line says."""
    if (match := _HEADING.match(line)) and (
        name := _SECTION_BY_FOLDED_NAME.get(match[1].casefold())
    ):
        return name, ""
    if (match := _INLINE_HEADING.match(line)) and (
        name := _SECTION_BY_FOLDED_NAME.get(match[1].casefold())
    ):
        return name, match[2]
    return None, line


def format_bullet(line: str) -> str:
    """A line as it stands under a heading, however a model has marked it."""
    told = re.sub(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+", "", line).strip()
    return f"- {told}"
