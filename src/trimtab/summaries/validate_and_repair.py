"""Whether a model's text may stand for what it was made from, and in which form.

What can be put right is put right: lines that name what nobody said, or that give orders, go; what
is missing is carried in the list. What cannot be is a reason to leave the messages where they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trimtab.log.message import Message
from trimtab.summaries.format import (
    DEFAULT_LIST_TOKENS,
    MAX_SECTIONS_TOKENS,
    MIN_SECTIONS,
    cut_sections,
    format_lines_as_bullets,
    format_sections,
    iter_lines_of_all_sections,
    join_summary,
    parse_sections,
    remove_section_lines,
    split_summary,
)
from trimtab.summaries.format import find_largest_fitting as most_of
from trimtab.summaries.needed_and_invented_facts import (
    QUESTION_MARKS,
    SUMMARY_FRAME_TOKENS,
    add_verbatim_list,
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
from trimtab.tokens.counter import TokenCounter

MAX_WRONG_LINE_SHARE = 0.34
"""Share of a summary's lines that may be made up; above it none of the rest is believed."""
MIN_NAMED_ITEMS = 3
"""Of the names, figures and dates in the messages, which a text without our headings must say, or
all if there are fewer; without any of them it must at least speak of the same."""
MIN_DISTINCT_WORDS = 5
"""Different words of four letters or more that such a text must have."""
MIN_SHARED_WORDS_SHARE = 0.5
"""Share of them that the messages or the prior summary must have, too."""

_LONG_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{2}|[^\W\d_\u3040-\u30ff\u3400-\u9fff]{4,}")
"""A word of four letters or more, or two signs of a script that has no spaces."""


class InvalidSummaryError(ValueError):
    """A text that may not stand for what it was made from; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedSummary:
    text: str
    """The summary as it may stand: sections within their cap, then the list within its own."""
    patched: int = 0
    """Items that the sections do not say and the list carries."""
    lost: int = 0
    """Items that neither has room for; they stay recallable."""
    removed: int = 0
    """Lines that were taken out: made up, or orders."""
    cut: bool = False
    """True where lines had to go for the cap."""

    @property
    def changed(self) -> bool:
        """Whether the model's text was not good enough as it came."""
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
    """The summary of `prior` and `messages` that a model's text gives; raises
    `InvalidSummaryError`.

    `replaced` is what both take now, in tokens: the summary must be smaller. `seen` is what stands
    behind the messages and stays.
    """
    if not text.strip():
        raise InvalidSummaryError("it is empty")
    body = split_summary(text)[0]
    sections = parse_sections(body)
    headed = len(sections) >= MIN_SECTIONS
    lines = list(iter_lines_of_all_sections(sections)) if headed else format_lines_as_bullets(body)
    if not lines:
        raise InvalidSummaryError("its sections are empty")
    said = [prior_summary, *list_message_texts(messages)]
    wrong = _find_wrong_lines(lines, said, [prior_summary, *list_spoken_texts(messages)])
    if headed:
        whole = format_sections(remove_section_lines(sections, wrong))
    else:
        whole = "\n".join(line for line in lines if line not in set(wrong))
        _require_coverage(whole, said, messages, len(sections))
    body = cut_sections(whole, counter, max_tokens)
    if replaced_tokens is not None:
        if (size := counter.count(body)) >= replaced_tokens - SUMMARY_FRAME_TOKENS:
            raise InvalidSummaryError(
                f"it is not smaller: its {size} tokens and {SUMMARY_FRAME_TOKENS} for the words "
                "around it "
                f"would stand for {replaced_tokens}"
            )
        list_tokens = compute_list_room(
            body, split_summary(prior_summary)[1], counter, replaced_tokens, list_tokens
        )
    made = add_verbatim_list(
        prior_summary, messages, body, counter, list_tokens=list_tokens, visible_text=visible_text
    )
    verdict = _build_validated_summary(
        made, messages, visible_text, removed=len(wrong), shortened=body != whole
    )
    if verdict.lost and not headed:
        raise InvalidSummaryError(
            f"it has {len(sections)} of the sections, and {verdict.lost} names, figures or dates "
            "are neither in it nor in its list"
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
    """The summary of one tool result that a model's text gives, line by line; raises
    `InvalidSummaryError`.

    `most` is what the result would take if it were cut, in tokens: the summary, with its list and
    the line before it, must not take more.
    """
    body, _ = split_summary(text)
    lines = format_lines_as_bullets(body)
    if not lines:
        raise InvalidSummaryError("it is empty")
    # It stands in the result's own place, as data: what the result tells to do may be told.
    wrong = _find_wrong_lines(lines, list_message_texts([result]), None)
    right = [line for line in lines if line not in set(wrong)]
    room = min(max_tokens, max_total_tokens - SUMMARY_FRAME_TOKENS)
    kept = right[: most_of(len(right), lambda n: counter.count("\n".join(right[:n])) <= room)]
    if not kept:
        size = counter.count(right[0])
        raise InvalidSummaryError(
            f"its first line takes {size} tokens, and {max(0, room)} are left for it"
        )
    body = "\n".join(kept)
    left = max(0, max_total_tokens - SUMMARY_FRAME_TOKENS - counter.count(body) - 1)
    made = add_verbatim_list("", [result], body, counter, list_tokens=min(list_tokens, left))
    return _build_validated_summary(
        made, [result], "", removed=len(wrong), shortened=len(kept) < len(right)
    )


def _require_coverage(
    text: str, source_texts: Sequence[str], messages: Sequence[Message], section_count: int
) -> None:
    """Whether a text without our headings tells of what was said. One that goes on with the
    conversation, or declines to write, does not."""
    items = find_needed_facts(messages).items
    if items and len(items) - len(find_missing_items(items, text)) >= min(
        MIN_NAMED_ITEMS, len(items)
    ):
        return
    source = set(_LONG_WORD.findall("\n".join(source_texts).casefold()))
    used = set(_LONG_WORD.findall(text.casefold()))
    asks = text.rstrip().endswith(QUESTION_MARKS)
    if (
        asks
        or len(used) < MIN_DISTINCT_WORDS
        or len(used & source) < MIN_SHARED_WORDS_SHARE * len(used)
    ):
        raise InvalidSummaryError(
            f"it has {section_count} of the sections, at least {MIN_SECTIONS} are due, and it "
            "tells too "
            "little of the messages to be taken without them"
        )


def remove_instruction_lines(text: str) -> str:
    """A summary that its user answers for, without lines that give orders or let somebody speak;
    raises `InvalidSummaryError` where too many do."""
    body, carried = split_summary(text)
    lines = body.splitlines()
    wrong = [line for line in lines if is_instruction_line(line)]
    if len(wrong) > MAX_WRONG_LINE_SHARE * sum(bool(line.strip()) for line in lines):
        raise InvalidSummaryError(f"{len(wrong)} of its lines give orders or let somebody speak")
    if not wrong:
        return text
    return join_summary("\n".join(line for line in lines if line not in wrong), carried)


def _find_wrong_lines(
    lines: Sequence[str], source_texts: Iterable[str], spoken_texts: Sequence[str] | None
) -> list[str]:
    """Lines that name what nobody said, or give orders; with too many of them none is believed.

    With `spoken_texts`, what the user and the agent said, orders of nobody else stay.
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
        raise InvalidSummaryError(f"{len(wrong)} of its {len(lines)} lines name what nobody said")
    return wrong


def _build_validated_summary(
    summary_text: str,
    messages: Sequence[Message],
    visible_text: str,
    *,
    removed: int,
    shortened: bool,
) -> ValidatedSummary:
    body, carried = split_summary(summary_text)
    needed = find_missing_items(find_needed_facts(messages).items, f"{body}\n{visible_text}")
    listed = set(carried.items)
    patched = sum(item in listed for item in needed)
    return ValidatedSummary(
        text=summary_text,
        patched=patched,
        lost=len(needed) - patched,
        removed=removed,
        cut=shortened,
    )
