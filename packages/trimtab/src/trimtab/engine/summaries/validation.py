"""Check whether a model's text may replace the messages that it summarises, and repair it.

Lines that name invented facts or give orders are removed. Missing items go into the list. If a text
cannot be repaired, the messages stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trimtab.engine.log.message import Message
from trimtab.engine.summaries.facts import (
    QUESTION_MARKS,
    SUMMARY_FRAME_TOKENS,
    add_items_of_sections,
    build_verbatim_list,
    compute_list_room,
    find_invented_items,
    find_missing_items,
    find_needed_facts,
    is_instruction_line,
    is_order_that_nobody_gave,
    list_message_texts,
    list_spoken_texts,
    normalise_source,
)
from trimtab.engine.summaries.format import (
    DEFAULT_LIST_TOKENS,
    MAX_SECTIONS_TOKENS,
    MIN_SECTIONS,
    VerbatimList,
    cut_sections,
    format_lines_as_bullets,
    format_sections,
    iter_lines_of_all_sections,
    join_summary,
    parse_sections,
    remove_section_lines,
    split_summary,
)
from trimtab.engine.summaries.format import find_largest_fitting as most_of
from trimtab.engine.tokens.counter import TokenCounter

MAX_WRONG_LINE_SHARE = 0.34
"""Maximum share of invented lines in a summary. Above it the whole text is rejected."""
MIN_NAMED_ITEMS = 3
"""Number of names, figures and dates of the messages that a text without our headings must contain,
or all if there are fewer. Without any it must at least use the same words."""
MIN_DISTINCT_WORDS = 5
"""Minimum number of different words of four or more characters in such a text."""
MIN_SHARED_WORDS_SHARE = 0.5
"""Minimum share of these words that the messages or the previous summary must also contain."""

_LONG_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{2}|[^\W\d_\u3040-\u30ff\u3400-\u9fff]{4,}")
"""A word of four or more characters, or two characters of a script without spaces."""


class InvalidSummaryError(ValueError):
    """A text that may not replace what it summarises. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedSummary:
    text: str
    """The accepted summary: sections within their limit, then the list within its own."""
    patched: int = 0
    """Items that the sections miss and the list carries."""
    lost: int = 0
    """Items for which neither has room. They can still be recalled."""
    removed: int = 0
    """Lines that were removed because they were invented or gave orders."""
    cut: bool = False
    """True if lines were removed because of the limit."""

    @property
    def changed(self) -> bool:
        """Whether the model's text had to be changed."""
        return bool(self.patched or self.removed or self.cut)


def validate_summary(
    text: str,
    prior_summary: str,
    messages: Sequence[Message],
    counter: TokenCounter,
    *,
    max_tokens: int = MAX_SECTIONS_TOKENS,
    list_tokens: int = DEFAULT_LIST_TOKENS,
    replaced_tokens: int | None = None,
    visible_text: str = "",
) -> ValidatedSummary:
    """Return the summary of `prior_summary` and `messages` that a model's text gives.

    `replaced_tokens` is their current size, and the summary must be smaller. `visible_text` is the
    text after the messages that stays visible.

    Raises:
        InvalidSummaryError: The text may not replace the messages.
    """
    if not text.strip():
        raise InvalidSummaryError("it is empty")
    has_list = list_tokens > 0
    body, _ = split_summary(text)
    prior_sections, prior_list = split_summary(prior_summary)
    facts = find_needed_facts(messages)
    sections = parse_sections(body)
    has_sections = len(sections) >= MIN_SECTIONS
    lines = (
        list(iter_lines_of_all_sections(sections))
        if has_sections
        else format_lines_as_bullets(body)
    )
    if not lines:
        raise InvalidSummaryError("its sections are empty")
    sources = [prior_summary, *list_message_texts(messages)]
    wrong = _find_wrong_lines(lines, sources, [prior_summary, *list_spoken_texts(messages)])
    if has_sections:
        whole = format_sections(remove_section_lines(sections, wrong))
    else:
        whole = "\n".join(line for line in lines if line not in set(wrong))
        _require_coverage(whole, sources, facts.items, len(sections))
    body = cut_sections(whole, counter, max_tokens)
    if replaced_tokens is not None:
        if (size := counter.count(body)) >= replaced_tokens - SUMMARY_FRAME_TOKENS:
            raise InvalidSummaryError(
                f"it is not smaller: it has {size} tokens, its frame has {SUMMARY_FRAME_TOKENS}, "
                f"and the replaced messages have {replaced_tokens}"
            )
        list_tokens = compute_list_room(body, prior_list, counter, replaced_tokens, list_tokens)
    verbatim_list = build_verbatim_list(
        add_items_of_sections(prior_sections, prior_list),
        messages,
        body,
        counter,
        facts=facts,
        max_tokens=list_tokens,
        visible_text=visible_text,
    )
    missing = find_missing_items(facts.items, f"{body}\n{visible_text}")
    verdict = _build_validated_summary(
        body, verbatim_list, missing, removed=len(wrong), cut=body != whole
    )
    if verdict.lost and has_list and not has_sections:
        raise InvalidSummaryError(
            f"it has {len(sections)} of the sections, and {verdict.lost} names, figures or "
            "dates are missing in its text and in its list"
        )
    return verdict


def validate_result_summary(
    text: str,
    result: Message,
    counter: TokenCounter,
    *,
    max_tokens: int = MAX_SECTIONS_TOKENS,
    list_tokens: int = DEFAULT_LIST_TOKENS,
    max_total_tokens: int,
) -> ValidatedSummary:
    """Return the summary of one tool result that a model's text gives, line by line.

    `max_total_tokens` is the size of the result if it were cut. The summary, with its list and the
    line before it, must not take more.

    Raises:
        InvalidSummaryError: The text may not replace the result.
    """
    body, _ = split_summary(text)
    lines = format_lines_as_bullets(body)
    if not lines:
        raise InvalidSummaryError("it is empty")
    # It stands in the result's own place, as data: what the result tells to do may be told.
    wrong = _find_wrong_lines(lines, list_message_texts([result]), None)
    right = [line for line in lines if line not in set(wrong)]
    room = min(max_tokens, max_total_tokens - SUMMARY_FRAME_TOKENS)
    lines_that_fit = right[
        : most_of(len(right), lambda n: counter.count("\n".join(right[:n])) <= room)
    ]
    if not lines_that_fit:
        size = counter.count(right[0])
        raise InvalidSummaryError(
            f"its first line has {size} tokens, but only {max(0, room)} are allowed"
        )
    body = "\n".join(lines_that_fit)
    room_for_list = max(0, max_total_tokens - SUMMARY_FRAME_TOKENS - counter.count(body) - 1)
    list_tokens = min(list_tokens, room_for_list)
    facts = find_needed_facts([result])
    verbatim_list = build_verbatim_list(
        VerbatimList(), [result], body, counter, facts=facts, max_tokens=list_tokens
    )
    missing = find_missing_items(facts.items, body)
    has_cut = len(lines_that_fit) < len(right)
    return _build_validated_summary(body, verbatim_list, missing, removed=len(wrong), cut=has_cut)


def _require_coverage(
    text: str, source_texts: Sequence[str], items: Sequence[str], section_count: int
) -> None:
    """Raise an error if a text without our headings does not report the messages.

    A text that continues the conversation or declines to write does not.
    """
    if items and len(items) - len(find_missing_items(items, text)) >= min(
        MIN_NAMED_ITEMS, len(items)
    ):
        return
    source = set(_LONG_WORD.findall("\n".join(source_texts).casefold()))
    summary_words = set(_LONG_WORD.findall(text.casefold()))
    asks = text.rstrip().endswith(QUESTION_MARKS)
    if (
        asks
        or len(summary_words) < MIN_DISTINCT_WORDS
        or len(summary_words & source) < MIN_SHARED_WORDS_SHARE * len(summary_words)
    ):
        raise InvalidSummaryError(
            f"it has {section_count} of the sections and needs at least {MIN_SECTIONS}; "
            "without them it says too little of the messages"
        )


def remove_instruction_lines(text: str) -> str:
    """Remove lines that give orders or imitate a speaker from a summary that the user wrote.

    Raise `InvalidSummaryError` if there are too many of them.
    """
    body, verbatim = split_summary(text)
    lines = body.splitlines()
    wrong = [line for line in lines if is_instruction_line(line)]
    if len(wrong) > MAX_WRONG_LINE_SHARE * sum(bool(line.strip()) for line in lines):
        raise InvalidSummaryError(f"{len(wrong)} of its lines give orders or imitate a speaker")
    if not wrong:
        return text
    return join_summary("\n".join(line for line in lines if line not in wrong), verbatim)


def _find_wrong_lines(
    lines: Sequence[str], source_texts: Iterable[str], spoken_texts: Sequence[str] | None
) -> list[str]:
    """Return lines that name invented facts or give orders. Raise an error if there are too many.

    With `spoken_texts`, orders are kept only if the user or the agent gave them.
    """
    source = normalise_source(source_texts)
    wrong = [
        line
        for line in lines
        if is_instruction_line(line)
        or find_invented_items(line, source)
        or (spoken_texts is not None and is_order_that_nobody_gave(line, spoken_texts))
    ]
    if len(wrong) > MAX_WRONG_LINE_SHARE * len(lines):
        raise InvalidSummaryError(
            f"{len(wrong)} of its {len(lines)} lines invent facts or give orders"
        )
    return wrong


def _build_validated_summary(
    sections_text: str,
    verbatim_list: VerbatimList,
    missing_items: Sequence[str],
    *,
    removed: int,
    cut: bool,
) -> ValidatedSummary:
    listed_items = set(verbatim_list.items)
    patch_count = sum(item in listed_items for item in missing_items)
    return ValidatedSummary(
        text=join_summary(sections_text, verbatim_list),
        patched=patch_count,
        lost=len(missing_items) - patch_count,
        removed=removed,
        cut=cut,
    )
