"""What the summarising presets share, and the requests for summaries that they make.

A request may also be for a single result, to be summarised before it is first sent instead of cut.
This module calls no model. It names what a policy would cut, and puts finished summaries in place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from trimtab.engine.log.event import Edit
from trimtab.engine.log.message import Message, Text, ToolResult, extract_text_or_arguments
from trimtab.engine.policy.config import PolicyConfig
from trimtab.engine.policy.planning.plan import Decision, MessageSpan, Plan
from trimtab.engine.policy.rejections import build_message_without_rejected_parts
from trimtab.engine.summaries.extract import (
    extract_summary,
    select_messages_missing_in_summary,
)
from trimtab.engine.summaries.facts import add_verbatim_list, compute_list_room
from trimtab.engine.summaries.format import (
    DEFAULT_LIST_TOKENS,
    MAX_SECTIONS_TOKENS,
    compute_list_cap,
    cut_summary_to_caps,
    format_verbatim_list,
    split_summary,
)
from trimtab.engine.summaries.validation import InvalidSummaryError, remove_instruction_lines
from trimtab.engine.tokens.counter import TokenCounter
from trimtab.engine.window.structure import Group, ToolResultView
from trimtab.engine.window.window import Window
from trimtab.errors import UnusableSummary

EXTRACTIVE_REASON = "the summary has lines of the conversation; no model wrote it"
"""Added to the reason of an extractive summary."""
TOKENS_PER_NAME = 8
"""Approximate tokens of one name in a list of names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """Messages that a model should summarise now."""

    messages: tuple[Message, ...]
    """The messages that the summary will replace, oldest first."""
    prior_summary: str
    """The previous summary, which the new one must continue; empty for the first."""
    span: MessageSpan
    """The position of the messages in the log."""
    replaced_tokens: int = 0
    """Tokens of the messages and the previous summary together."""
    max_tokens: int = MAX_SECTIONS_TOKENS
    """Maximum tokens of the summary's sections."""
    list_tokens: int = DEFAULT_LIST_TOKENS
    """Maximum tokens of the summary's list, in addition to the sections."""
    visible_text: str = ""
    """The text after these messages that stays visible. The list does not need to repeat it."""


def replace_groups_by_extractive_summary(
    plan: Plan,
    groups: list[Group],
    reason: str,
    max_tokens: int | None = None,
    list_tokens: int | None = None,
) -> bool:
    """Replace the groups by an extractive summary, which needs no model."""
    text = write_extractive_summary(plan, groups, max_tokens=max_tokens, list_tokens=list_tokens)
    return plan.summarise(groups, text, f"{reason}; {EXTRACTIVE_REASON}")


def hide_groups_of_short_messages(
    plan: Plan, groups: list[Group], reason: str, *, max_tokens: int, list_tokens: int | None
) -> None:
    """Hide groups of messages that are so short that an extract of all of them is not smaller.

    The summary grows by at most a quarter of their size. If that is too little for an extract, they
    are dropped with a notice.
    """
    before = plan.bound()
    prior = plan.summary
    most = sum(map(plan.group_tokens, groups)) // 4
    if prior is not None:
        most += plan.window.counter.count(split_summary(prior.text)[0])
    with plan.undo_unless(lambda: plan.bound() < before):
        replace_groups_by_extractive_summary(
            plan, groups, reason, min(most, max_tokens), list_tokens
        )
    with plan.undo_unless(lambda: plan.bound() < before):
        for group in groups:
            plan.drop(group, reason)


def summarise_extractively_to_target(
    plan: Plan,
    groups: list[Group],
    target_tokens: int,
    reason: str,
    *,
    min_groups: int = 0,
    max_names: int = 0,
    max_tokens: int | None = None,
    list_tokens: int | None = None,
) -> None:
    """Replace oldest groups by an extractive summary until at most `target_tokens` are left.

    Always replace at least the first `min_groups` groups.
    """
    before = count_framed_summary_tokens(plan.window, plan.summary)
    text = ""
    count = 0
    tokens = 0
    need = plan.tokens - plan.user_words_tokens - target_tokens
    while count < len(groups) and (tokens < need or count < min_groups):
        while count < len(groups) and (tokens < need or count < min_groups):
            tokens += plan.group_tokens(groups[count])
            count += 1
        in_order = sorted(groups[:count], key=lambda group: group.index)
        text = write_extractive_summary(
            plan, in_order, max_names=max_names, max_tokens=max_tokens, list_tokens=list_tokens
        )
        need = (
            plan.tokens
            - plan.user_words_tokens
            - target_tokens
            + plan.count_summary_tokens(in_order, text)
            - before
        )
    plan.summarise(groups[:count], text, f"{reason}; {EXTRACTIVE_REASON}")


def append_missing_groups(groups: list[Group], others: list[Group]) -> list[Group]:
    """Return the groups, followed by the others that are not among them."""
    indexes = {group.index for group in groups}
    return [*groups, *(group for group in others if group.index not in indexes)]


def compute_plan_tokens_to_reach(
    plan: Plan, groups: list[Group], lowest_tokens: int, highest_tokens: int
) -> int:
    """Return the tokens to which groups are summarised: `lowest_tokens`, or more if what must stay
    is large.

    In that case half of what may be hidden stays.
    """
    stays = plan.tokens - sum(map(plan.tokens_freed_by, groups))
    return min(highest_tokens, max(lowest_tokens, (stays + highest_tokens) // 2))


def write_extractive_summary(
    plan: Plan,
    groups: list[Group],
    *,
    max_names: int = 0,
    max_tokens: int | None = None,
    list_tokens: int | None = None,
) -> str:
    """Write the previous summary and what the groups add to it, in at most `max_tokens`.

    With `max_names`, the names are a line of the summary. Without it, or if there was a list
    before, they are a list as in a model's summary.
    """
    prior = plan.summary
    messages = _messages_to_tell(plan, groups)
    before = prior.text if prior else ""
    counter = plan.window.counter
    body, prior_list = split_summary(before)
    if max_tokens is None:
        text = extract_summary(body, messages, counter, max_names=max_names)
    else:
        # A cap of the user's own is on the whole text: at most half of it are names.
        lines = max_tokens // 2 if max_names else max_tokens
        names = min(max_names, (max_tokens - lines) // TOKENS_PER_NAME)
        extract = partial(extract_summary, body, messages, counter, max_tokens=lines)
        text = extract(max_names=names)
        while names and counter.count(text) > max_tokens:
            names //= 2
            text = extract(max_names=names)
    if max_names and not prior_list:
        return text
    replaced_tokens = sum(
        plan.group_tokens(group) for group in groups
    ) + count_framed_summary_tokens(plan.window, prior)
    most = (
        compute_default_list_tokens(before, replaced_tokens, counter)
        if list_tokens is None
        else list_tokens
    )
    room = compute_list_room(text, prior_list, counter, replaced_tokens, most)
    visible_text = collect_visible_text_after(plan.window, groups[-1].last) if groups else ""
    return add_verbatim_list(
        before, messages, text, counter, list_tokens=room, visible_text=visible_text
    )


def _messages_to_tell(plan: Plan, groups: list[Group]) -> list[Message]:
    """Return what a summary of groups must contain.

    It repeats no words of users that stay in the list. It contains words that leave it now or soon,
    unless the previous summary contains them.
    """
    entries = [entry for group in groups for entry in group.entries()]
    messages = map(build_message_without_rejected_parts, entries)
    if not plan.lists_user_words:
        return list(messages)
    leaving = plan.find_user_messages_leaving(groups)
    text = plan.summary.text if plan.summary else ""
    user_words = plan.window.conversation.user_words.messages
    list_messages = select_messages_missing_in_summary(
        text, (user_words[seq].message for seq in sorted(leaving & user_words.keys()))
    )
    sources = [
        message if entry.seq in leaving else _without_user_text(message)
        for entry, message in zip(entries, messages, strict=True)
    ]
    return [*list_messages, *(message for message in sources if message.parts)]


def _without_user_text(message: Message) -> Message:
    if message.speaker != "user":
        return message
    parts = tuple(part for part in message.parts if not isinstance(part, Text))
    return replace(message, parts=parts)


def compute_default_list_tokens(
    prior_summary: str, replaced_tokens: int, counter: TokenCounter
) -> int:
    """Return the tokens that the list of a summary may take if nobody has set them."""
    return compute_list_cap(
        replaced_tokens, counter.count(format_verbatim_list(split_summary(prior_summary)[1]))
    )


def collect_visible_text_after(window: Window, last_seq: int) -> str:
    """Return all text after a position that the model sees unchanged."""
    return "\n".join(
        text
        for group in window.conversation.groups
        if group.hidden is None and group.first > last_seq
        for entry in group.entries()
        for index, part in enumerate(entry.message.parts)
        if index not in entry.edits and (text := extract_text_or_arguments(part))
    )


def count_framed_summary_tokens(window: Window, summary: Edit | None) -> int:
    """Return the tokens of the current summary as it is sent."""
    conversation = window.conversation
    return conversation.measure_summary_and_notice(conversation.framed_summary(summary), "").tokens


def build_span_to_summarise(plan: Plan, groups: list[Group]) -> MessageSpan | None:
    """Return the span of messages that a model should summarise; None if there are none."""
    if not groups:
        return None
    first = min(group.first for group in groups)
    last = max(group.last for group in groups)
    indexes = {group.index for group in groups}
    between = plan.window.conversation.visible_groups_between(first, last)
    spares = tuple(
        g.first
        for g in between
        if g.index not in indexes
        and (plan.holds_keep_last_result(g) or plan.is_needed(g, indexes) or plan.keeps_group(g))
    )
    return MessageSpan(first=first, last=last, spares=spares)


def build_summary_request(
    window: Window, decision: Decision, *, take_extractive_span: bool = False
) -> SummaryRequest | None:
    """Return the request for the messages that a policy wants summarised and that are still
    visible.

    With `take_extractive_span`, use the messages that the policy would replace by an extractive
    summary. Return None if there is nothing to summarise.
    """
    edits = (edit for edit in decision.edits if edit.op == "summarise")
    spans = (MessageSpan(first=edit.first, last=edit.last, spares=edit.spares) for edit in edits)
    span = next(spans, None) if take_extractive_span else decision.span_to_summarise
    if span is None:
        return None
    groups = [
        group
        for group in window.conversation.groups_between(span.first, span.last)
        if span.replaces(group)
    ]
    tokens = sum(group.tokens for group in groups) + count_framed_summary_tokens(
        window, window.summary
    )
    prior = window.summary.text if window.summary else ""
    list_tokens = decision.list_tokens
    tells = (window.summary.first, window.summary.last) if window.summary else None
    return SummaryRequest(
        messages=tuple(
            build_message_without_rejected_parts(entry)
            for group in groups
            for entry in group.entries()
        ),
        prior_summary=prior,
        span=replace(span, log_position=window.seq, prior_summary_span=tells),
        replaced_tokens=tokens,
        max_tokens=MAX_SECTIONS_TOKENS
        if decision.summary_tokens is None
        else decision.summary_tokens,
        list_tokens=compute_default_list_tokens(prior, tokens, window.counter)
        if list_tokens is None
        else list_tokens,
        visible_text=collect_visible_text_after(window, span.last),
    )


def build_summary_edits(
    plan: Plan, span: MessageSpan, text: str, decision: Decision
) -> tuple[Edit, ...]:
    """Return the edits that replace a span by a summary. The oldest lines of a too long summary are
    cut.

    Raises:
        UnusableSummary: The messages have changed, or the summary is empty, not accepted or not
            smaller.
    """
    label = f"the summary of m{span.first}-m{span.last}"
    window = plan.window
    if _was_rewritten(window, span):
        raise UnusableSummary(
            f"{label} was made from messages that have been undone or erased since then; "
            "request a new summary"
        )
    groups = [
        group
        for group in window.conversation.groups_between(span.first, span.last)
        if span.replaces(group)
    ]
    replaced_tokens = sum(group.tokens for group in groups) + count_framed_summary_tokens(
        window, window.summary
    )
    prior = window.summary.text if window.summary else ""
    list_tokens = decision.list_tokens
    if list_tokens is None and decision.summary_tokens is not None:
        list_tokens = compute_default_list_tokens(prior, replaced_tokens, window.counter)
    try:
        text = remove_instruction_lines(text)
    except InvalidSummaryError as why:
        raise UnusableSummary(
            f"{label} was not accepted: {why}; the messages stay unchanged"
        ) from why
    if not text.strip():
        raise UnusableSummary(f"{label} is empty; the messages stay unchanged")
    size = window.counter.count(text)
    smaller = size < replaced_tokens
    text = cut_summary_to_caps(text, window.counter, decision.summary_tokens, list_tokens)
    if not smaller or not plan.summarise(groups, text, "summary"):
        if smaller and groups:
            size = plan.count_summary_tokens(groups, text)
        raise UnusableSummary(
            f"{label} is not smaller than what it replaces: it has {size} tokens, including "
            f"its list and frame, and replaces {replaced_tokens}; the messages stay unchanged"
        )
    return plan.to_decision().edits


def _was_rewritten(window: Window, span: MessageSpan) -> bool:
    """Whether the summarised messages were undone or erased after the request, or the previous
    summary is no longer in force."""
    since = window.seq if span.log_position is None else span.log_position
    begin = span.first
    end = span.last
    if span.prior_summary_span is not None:
        if window.summary is None or window.summary.first > span.prior_summary_span[0]:
            return True
        begin = min(begin, span.prior_summary_span[0])
        end = max(end, span.prior_summary_span[1])
    undone = any(at > since and to < end for at, to in window.base.rewinds)
    return undone or any(
        at > since and first <= end and begin <= last
        for first, last, _, at in window.base.erased_ranges
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSummaryRequest:
    """A tool result above its cap that may be replaced by a summary."""

    seq: int
    """Position of the message that carries it."""
    part: int
    """Index of the result in the message."""
    tool: str
    """Name of the tool that returned it."""
    result: ToolResult
    """The result."""
    tokens: int
    """Tokens of the result now."""
    max_total_tokens: int
    """Tokens of the result if it were cut. The summary must not take more."""
    max_tokens: int = MAX_SECTIONS_TOKENS
    """Maximum tokens of the summary's lines."""
    list_tokens: int
    """Maximum tokens of the summary's list, in addition to its lines."""

    @property
    def handle(self) -> str:
        """The handle by which the whole text can be recalled."""
        return f"m{self.seq}.{self.part}"

    @property
    def message(self) -> Message:
        """The result as a message of its own."""
        return Message(role="tool", parts=(self.result,))


def list_result_summary_requests(
    window: Window, decision: Decision, config: PolicyConfig
) -> tuple[ResultSummaryRequest, ...]:
    """Return the results that a policy would cut now and the user wants summarised, oldest first.

    Only results that the model has never seen are returned, because editing them costs no cache
    write.
    """
    unsent = {result.key: result for result in window.unsent_results() if result.edit is None}
    requests: list[ResultSummaryRequest] = []
    for edit in decision.edits:
        result = unsent.get((edit.first, -1 if edit.part is None else edit.part))
        if (
            edit.op != "truncate"
            or result is None
            or config.truncation_for_tool(result.tool) != "summary"
        ):
            continue
        text_result = _text_only_result(result)
        if text_result is not None:
            tokens = result.size.tokens
            limits = config.summary
            list_tokens = limits.list_tokens_under(None)
            requests.append(
                ResultSummaryRequest(
                    seq=result.seq,
                    part=result.part,
                    tool=result.tool,
                    result=text_result,
                    tokens=tokens,
                    max_total_tokens=edit.size.tokens,
                    max_tokens=limits.max_tokens or MAX_SECTIONS_TOKENS,
                    list_tokens=compute_list_cap(tokens) if list_tokens is None else list_tokens,
                )
            )
    return tuple(sorted(requests, key=lambda each: (each.seq, each.part)))


def build_result_summary_edits(
    plan: Plan, request: ResultSummaryRequest, text: str, summariser_name: str
) -> tuple[Edit, ...]:
    """Return the edit that replaces a result by a summary.

    Raises:
        UnusableSummary: The result has changed or was sent, or the summary is empty or too large.
    """
    label = f"the summary of {request.handle}"
    unsent = {each.key: each for each in plan.window.unsent_results() if each.edit is None}
    result = unsent.get((request.seq, request.part))
    if result is None or _text_only_result(result) != request.result:
        raise UnusableSummary(
            f"{label} came too late: the result was sent, cut, undone or erased in the meantime"
        )
    why = (
        f"{request.tool}: {request.tokens} tokens, "
        f"summarised{f' by {summariser_name}' if summariser_name else ''}"
    )
    put = text.strip() and plan.summarise_part(result.entry, result.part, text, why)
    if not put or plan.part_size(result.entry, result.part).tokens > request.max_total_tokens:
        raise UnusableSummary(
            f"{label} is empty or larger than the shortened result that it would replace"
        )
    return plan.to_decision().edits


def _text_only_result(result: ToolResultView) -> ToolResult | None:
    """Return the result if it consists only of texts. A summary in its place would lose a
    picture."""
    part = result.entry.message.parts[result.part]
    if not isinstance(part, ToolResult) or result.entry.pinned:
        return None
    return part if all(isinstance(each, Text) for each in part.content) else None
