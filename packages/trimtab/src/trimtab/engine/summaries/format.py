"""The text of a summary: sections with fixed headings, then a list of exact items.

The headings are always the same, so that the next summary, a check and a cut can find them. The
text under them is in the user's language. The model does not write the list:
`needed_and_invented_facts.py` builds it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from trimtab.engine.summaries.extract import keep_newest_lines
from trimtab.engine.text.quoting import collapse_whitespace
from trimtab.engine.tokens.counter import TokenCounter

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
"""The sections in their order."""
MIN_SECTIONS = 3
"""Minimum number of headings for a reply to be accepted as a summary by its form alone."""
REQUESTED_SUMMARY_TOKENS = 300
"""Tokens that a model is asked for."""
MAX_SECTIONS_TOKENS = 500
"""Maximum tokens of the sections."""
DEFAULT_LIST_TOKENS = 500
"""Tokens of the list, in addition to the sections, even if little is replaced."""
MAX_LIST_TOKENS = 4_000
"""Maximum tokens of the list, however much is replaced."""
LIST_SHARE_OF_REPLACED = 0.08
"""Between these limits, the share of the replaced tokens that the list may take."""

VERBATIM_HEADING = "Verbatim:"
"""The heading of the list."""
OPEN_LINE_PREFIX = "- open: "
"""Prefix of a line of the list with a question or a request, not with names."""
ITEM_SEPARATOR = " | "
"""Separator between two items of one line."""
MAX_UNCUT_LINE_CHARS = 80
"""Maximum characters of a line that is never cut inside."""
MAX_ITEM_CHARS = 200
"""Maximum characters of one item."""

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
    """Items that are kept exactly, the most likely needed first."""

    open_questions: tuple[str, ...] = ()
    """Questions and requests without an answer."""
    items: tuple[str, ...] = ()
    """Names, paths, figures, dates and addresses."""

    def __bool__(self) -> bool:
        return bool(self.open_questions or self.items)


def compute_list_cap(replaced_tokens: int, previous_tokens: int = 0) -> int:
    """Return the tokens of the list of a summary that replaces this many tokens.

    The list may keep the size that it had before, so that no items are lost when little was added.
    """
    return min(
        MAX_LIST_TOKENS,
        max(DEFAULT_LIST_TOKENS, round(LIST_SHARE_OF_REPLACED * replaced_tokens), previous_tokens),
    )


def split_summary(text: str) -> tuple[str, VerbatimList]:
    """Split a summary into its sections, or the text in their place, and its list."""
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
    """Join what `split_summary` has split."""
    return "\n".join(line for line in (sections_text, format_verbatim_list(verbatim_list)) if line)


def format_verbatim_list(verbatim_list: VerbatimList) -> str:
    """Return the list as it appears in a summary; empty if it has no items."""
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
    """Return an item in the form of the list: one line, without the separator."""
    text = collapse_whitespace(item.replace("|", "¦"))
    return text if len(text) <= MAX_ITEM_CHARS else f"{text[: MAX_ITEM_CHARS - 1]}…"


def parse_sections(sections_text: str) -> dict[str, list[str]]:
    """Return the non-empty lines by heading. Text before the first heading is dropped.

    Models write headings in many ways: bold, numbered, with a colon or hashes.
    """
    sections: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in sections_text.splitlines():
        name, rest = _parse_heading(line)
        if name is not None:
            current = sections.setdefault(name, [])
        if current is not None and not _EMPTY_LINE.match(rest):
            current.append(format_bullet(rest))
    return sections


def format_sections(sections: Mapping[str, list[str]]) -> str:
    """Return the sections in their order, without empty ones."""
    lines: list[str] = []
    for name in SUMMARY_SECTIONS:
        if section := sections.get(name):
            lines += [f"{name}:", *section]
    return "\n".join(lines)


def cut_summary_to_caps(
    text: str, counter: TokenCounter, max_sections_tokens: int | None, max_list_tokens: int | None
) -> str:
    """Cut a summary to its limits: the sections to theirs, and the list to its own."""
    body, verbatim = split_summary(text)
    if max_sections_tokens is not None:
        body = cut_sections(body, counter, max_sections_tokens)
    if max_list_tokens is not None:
        verbatim = cut_verbatim_list(verbatim, counter, max_list_tokens)
    return join_summary(body, verbatim)


def cut_sections(sections_text: str, counter: TokenCounter, max_tokens: int) -> str:
    """Remove the oldest lines of the longest sections until the rest fits. Headings stay.

    Without sections, or if the headings alone are too long, the oldest lines are removed.
    """
    if counter.count(sections_text) <= max_tokens:
        return sections_text
    sections = {
        name: list(section) for name, section in parse_sections(sections_text).items() if section
    }
    while sections:
        text = format_sections(sections)
        if counter.count(text) <= max_tokens:
            return text
        longest = max(sections.values(), key=lambda section: sum(map(len, section)))
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
    """Return as much of a list, from its start, as fits."""
    whole = (
        *((True, each) for each in verbatim_list.open_questions),
        *((False, each) for each in verbatim_list.items),
    )

    def first(count: int) -> VerbatimList:
        head = whole[:count]
        return VerbatimList(
            open_questions=tuple(text for is_open, text in head if is_open),
            items=tuple(text for is_open, text in head if not is_open),
        )

    return first(
        find_largest_fitting(
            len(whole), lambda n: counter.count(format_verbatim_list(first(n))) <= max_tokens
        )
    )


def find_largest_fitting(limit: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to a limit that fits. If a number fits, smaller ones must also
    fit."""
    low = 0
    high = limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def format_lines_as_bullets(unsectioned_text: str) -> list[str]:
    """Return the lines of a text without sections, each in the form of a line under a heading."""
    return [format_bullet(line) for line in unsectioned_text.splitlines() if line.strip()]


def iter_lines_of_all_sections(sections: Mapping[str, list[str]]) -> Iterable[str]:
    for section in sections.values():
        yield from section


def remove_section_lines(
    sections: Mapping[str, list[str]], unwanted_lines: Sequence[str]
) -> dict[str, list[str]]:
    """Return the sections without some of their lines."""
    lines_to_drop = set(unwanted_lines)
    return {
        name: [line for line in section if line not in lines_to_drop]
        for name, section in sections.items()
    }


def _parse_heading(line: str) -> tuple[str | None, str]:
    """Return the section that a line begins, and the rest of the line."""
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
    """Return a line in the form of a line under a heading, however a model has marked it."""
    content = re.sub(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+", "", line).strip()
    return f"- {content}"
