"""What the presets that summarise share, and what they ask of those who can do better.

Single results that somebody may summarise before they are first sent, instead of cutting them.

No model is asked here: what a policy would cut is named, and a summary that came is put in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from trimtab.errors import UnusableSummary
from trimtab.log.event import Edit
from trimtab.log.message import Message, Part, Text, ToolResult, extract_text_or_arguments
from trimtab.policy.config import PolicyConfig
from trimtab.policy.planning.plan import Decision, MessageSpan, Plan
from trimtab.policy.planning.result_relevance import get_reference_index
from trimtab.policy.provider_rejections import build_message_without_rejected_parts
from trimtab.summaries.extract import (
    count_part_identifiers,
    extract_summary,
    summary_has_message_lines,
)
from trimtab.summaries.format import (
    DEFAULT_LIST_TOKENS,
    MAX_SECTIONS_TOKENS,
    compute_list_cap,
    cut_summary_to_caps,
    format_verbatim_list,
    split_summary,
)
from trimtab.summaries.needed_and_invented_facts import add_verbatim_list, compute_list_room
from trimtab.summaries.validate_and_repair import InvalidSummaryError, remove_instruction_lines
from trimtab.tokens.counter import TokenCounter
from trimtab.window.entries_rounds_groups import Group, ToolResultView
from trimtab.window.window import Window

TOKENS_PER_NAME = 8
"""Of one name in a list of names, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """What should be summarised now, by someone who can."""

    messages: tuple[Message, ...]
    """The messages that the summary will replace, oldest first."""
    prior_summary: str
    """The summary so far, which the new one must carry on; empty for the first."""
    span: MessageSpan
    """Where the messages stand in the log."""
    replaced_tokens: int = 0
    """Tokens that both take now."""
    max_tokens: int = MAX_SECTIONS_TOKENS
    """Tokens that the summary's sections may take."""
    list_tokens: int = DEFAULT_LIST_TOKENS
    """Tokens that its list may take beside them."""
    visible_text: str = ""
    """What is said behind the messages and stays: the list need not repeat it."""


def replace_groups_by_extractive_summary(
    plan: Plan,
    groups: list[Group],
    reason: str,
    max_tokens: int | None = None,
    list_tokens: int | None = None,
) -> bool:
    """Replace the groups by an extractive summary, which needs no model."""
    text = write_extractive_summary(plan, groups, max_tokens=max_tokens, list_tokens=list_tokens)
    return plan.summarise(groups, text, f"{reason}; extractive")


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
    """The same for as many of the oldest groups as leave no more tokens than `low`, and for the
    first `least` of them at any rate."""
    before = count_framed_summary_tokens(plan.window, plan.summary)
    text, taken, freed, need = "", 0, 0, plan.tokens - plan.user_words_tokens - target_tokens
    while taken < len(groups) and (freed < need or taken < min_groups):
        while taken < len(groups) and (freed < need or taken < min_groups):
            freed += plan.group_tokens(groups[taken])
            taken += 1
        given = sorted(groups[:taken], key=lambda group: group.index)
        text = write_extractive_summary(
            plan, given, max_names=max_names, max_tokens=max_tokens, list_tokens=list_tokens
        )
        need = (
            plan.tokens
            - plan.user_words_tokens
            - target_tokens
            + plan.count_summary_tokens(given, text)
            - before
        )
    plan.summarise(groups[:taken], text, f"{reason}; extractive")


def append_missing_groups(groups: list[Group], others: list[Group]) -> list[Group]:
    """Groups, and after them the others that are not among them."""
    known = {group.index for group in groups}
    return [*groups, *(group for group in others if group.index not in known)]


def compute_plan_tokens_to_reach(
    plan: Plan, groups: list[Group], lowest_tokens: int, highest_tokens: int
) -> int:
    """Tokens down to which groups are summarised: `low`, or more where what must stay is large.
    Not all that was said goes then: half of what may is enough."""
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
    """The summary so far and what the groups add to it, in no more than `max_tokens`.

    With `max_names` its names are a line of its own. Without, and wherever there was a list
    before, they are a list as of a summary that a model made.
    """
    prior = plan.summary
    messages = [
        build_message_without_rejected_parts(entry) for group in groups for entry in group.entries()
    ]
    if plan.lists_all_user_words(groups):
        # What users said is not told: it stands in the list, word for word.
        messages = [message for message in map(_without_user_text, messages) if message.parts]
    elif plan.lists_user_words:
        messages = [*_user_messages_to_retell(plan, groups), *messages]
    before, counter = prior.text if prior else "", plan.window.counter
    body, listed = split_summary(before)
    count_names = _make_name_counter(plan.window, groups) if max_names else None
    if max_tokens is None:
        text = extract_summary(
            body, messages, counter, max_names=max_names, count_names=count_names
        )
    else:
        # A cap of the user's own is on the whole text: at most half of it are names.
        lines = max_tokens // 2 if max_names else max_tokens
        names = min(max_names, (max_tokens - lines) // TOKENS_PER_NAME)
        extract = partial(
            extract_summary, body, messages, counter, max_tokens=lines, count_names=count_names
        )
        text = extract(max_names=names)
        while names and counter.count(text) > max_tokens:
            names //= 2
            text = extract(max_names=names)
    if max_names and not listed:
        return text
    replaced = sum(plan.group_tokens(group) for group in groups) + count_framed_summary_tokens(
        plan.window, prior
    )
    most = (
        compute_default_list_tokens(before, replaced, counter)
        if list_tokens is None
        else list_tokens
    )
    room = compute_list_room(text, listed, counter, replaced, most)
    seen = collect_visible_text_after(plan.window, groups[-1].last) if groups else ""
    return add_verbatim_list(before, messages, text, counter, list_tokens=room, visible_text=seen)


def _make_name_counter(window: Window, groups: list[Group]) -> Callable[[Part], Mapping[str, int]]:
    """What counts the identifiers of a part; of results, as they were read when they came."""
    index = get_reference_index(window)
    known = {
        id(entry.message.parts[part]): index.stats_by_result[entry.seq, part].identifiers.counts
        for group in groups
        for entry in group.entries()
        for part in range(len(entry.message.parts))
        if (entry.seq, part) in index.stats_by_result
    }
    return lambda part: known[id(part)] if id(part) in known else count_part_identifiers(part)


def _user_messages_to_retell(plan: Plan, groups: list[Group]) -> list[Message]:
    """What users said and the list may have no room for any more, as far as the summary that is to
    be made covers it and the one before it does not tell of it."""
    prior, text = plan.summary, plan.summary.text if plan.summary else ""
    first = min([group.first for group in groups] + ([prior.first] if prior else []))
    listed = sorted(plan.window.conversation.user_words.messages.items())
    return [
        said
        for seq, (said, _) in listed
        if seq >= first and not summary_has_message_lines(text, said)
    ]


def _without_user_text(message: Message) -> Message:
    if message.role != "user":
        return message
    parts = tuple(part for part in message.parts if not isinstance(part, Text))
    return replace(message, parts=parts)


def compute_default_list_tokens(
    prior_summary: str, replaced_tokens: int, counter: TokenCounter
) -> int:
    """Tokens that the list of a summary may take where nobody has set them."""
    return compute_list_cap(
        replaced_tokens, counter.count(format_verbatim_list(split_summary(prior_summary)[1]))
    )


def collect_visible_text_after(window: Window, last_seq: int) -> str:
    """All that is said behind a position and that the model sees as it was said."""
    return "\n".join(
        text
        for group in window.conversation.groups
        if group.hidden is None and group.first > last_seq
        for entry in group.entries()
        for index, part in enumerate(entry.message.parts)
        if index not in entry.edits and (text := extract_text_or_arguments(part))
    )


def count_framed_summary_tokens(window: Window, summary: Edit | None) -> int:
    """Tokens of the summary so far, as it is sent."""
    conversation = window.conversation
    return conversation.measure_summary_and_notice(conversation.framed_summary(summary), "").tokens


def build_span_to_summarise(plan: Plan, groups: list[Group]) -> MessageSpan | None:
    """The messages that someone should summarise; None where there are none."""
    if not groups:
        return None
    first, last = min(group.first for group in groups), max(group.last for group in groups)
    taken = {group.index for group in groups}
    between = plan.window.conversation.visible_groups_between(first, last)
    spares = tuple(
        g.first for g in between if g.index not in taken and plan.holds_keep_last_result(g)
    )
    return MessageSpan(first=first, last=last, spares=spares)


def build_summary_request(
    window: Window, decision: Decision, *, take_extractive_span: bool = False
) -> SummaryRequest | None:
    """The messages that a policy wants summarised and are still seen, with the summary before them.

    Where it is `forced`, those instead that the policy would put a stand-in for.
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
    prior, listed = window.summary.text if window.summary else "", decision.list_tokens
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
        if listed is None
        else listed,
        visible_text=collect_visible_text_after(window, span.last),
    )


def build_summary_edits(
    plan: Plan, span: MessageSpan, text: str, decision: Decision
) -> tuple[Edit, ...]:
    """The edits that put a summary in place of a span; its oldest lines go if it is too long."""
    named = f"the summary of m{span.first}-m{span.last}"
    window = plan.window
    if _was_rewritten(window, span):
        raise UnusableSummary(
            f"{named} was made from messages that have been undone or erased since; ask again for "
            "what should be summarised"
        )
    groups = [
        group
        for group in window.conversation.groups_between(span.first, span.last)
        if span.replaces(group)
    ]
    replaced = sum(group.tokens for group in groups) + count_framed_summary_tokens(
        window, window.summary
    )
    prior, listed = window.summary.text if window.summary else "", decision.list_tokens
    if listed is None and decision.summary_tokens is not None:
        listed = compute_default_list_tokens(prior, replaced, window.counter)
    try:
        text = remove_instruction_lines(text)
    except InvalidSummaryError as why:
        raise UnusableSummary(f"{named} was not taken: {why}; the messages stay") from why
    if not text.strip():
        raise UnusableSummary(f"{named} is empty; the messages stay")
    size = window.counter.count(text)
    smaller = size < replaced
    text = cut_summary_to_caps(text, window.counter, decision.summary_tokens, listed)
    if not smaller or not plan.summarise(groups, text, "summary"):
        if smaller and groups:
            size = plan.count_summary_tokens(groups, text)
        raise UnusableSummary(
            f"{named} is not smaller than what it replaces: {size} tokens, the list and the words "
            f"around it included, in place of {replaced}; the messages stay"
        )
    return plan.to_decision().edits


def _was_rewritten(window: Window, span: MessageSpan) -> bool:
    """Whether messages that the text tells of were undone or destroyed after it was asked for, or
    the summary that it carries on is no longer in force."""
    since = window.seq if span.log_position is None else span.log_position
    begin, end = span.first, span.last
    if span.prior_summary_span is not None:
        if window.summary is None or window.summary.first > span.prior_summary_span[0]:
            return True
        begin, end = min(begin, span.prior_summary_span[0]), max(end, span.prior_summary_span[1])
    undone = any(at > since and to < end for at, to in window.base.rewinds)
    return undone or any(
        at > since and first <= end and begin <= last
        for first, last, _, at in window.base.erased_ranges
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSummaryRequest:
    """A tool result that is over its cap, and that a summary may be sent in place of."""

    seq: int
    """Position of the message that carries it."""
    part: int
    """Its index there."""
    tool: str
    """The name of the tool that gave it."""
    result: ToolResult
    """What it gave."""
    tokens: int
    """Tokens that it takes now."""
    max_total_tokens: int
    """Tokens that it would take if it were cut: the summary must not take more."""
    max_tokens: int = MAX_SECTIONS_TOKENS
    """Tokens that the summary's lines may take."""
    list_tokens: int
    """Tokens that its list may take beside them."""

    @property
    def handle(self) -> str:
        """By what the whole text is recalled."""
        return f"m{self.seq}.{self.part}"

    @property
    def message(self) -> Message:
        """The result as a message of its own."""
        return Message(role="tool", parts=(self.result,))


def list_result_summary_requests(
    window: Window, decision: Decision, config: PolicyConfig
) -> tuple[ResultSummaryRequest, ...]:
    """What a policy would cut now and the user wants summarised, oldest first.

    Only texts that the model has never seen: an edit of those costs no cache write.
    """
    unsent = {result.key: result for result in window.unsent_results() if result.edit is None}
    wanted: list[ResultSummaryRequest] = []
    for edit in decision.edits:
        result = unsent.get((edit.first, -1 if edit.part is None else edit.part))
        if (
            edit.op != "truncate"
            or result is None
            or config.truncation_for_tool(result.tool) != "summary"
        ):
            continue
        given = _text_only_result(result)
        if given is not None:
            tokens, own = result.size.tokens, config.summary
            wanted.append(
                ResultSummaryRequest(
                    seq=result.seq,
                    part=result.part,
                    tool=result.tool,
                    result=given,
                    tokens=tokens,
                    max_total_tokens=edit.size.tokens,
                    max_tokens=own.max_tokens or MAX_SECTIONS_TOKENS,
                    list_tokens=compute_list_cap(tokens)
                    if own.effective_list_tokens is None
                    else own.effective_list_tokens,
                )
            )
    return tuple(sorted(wanted, key=lambda each: (each.seq, each.part)))


def build_result_summary_edits(
    plan: Plan, request: ResultSummaryRequest, text: str, summariser_name: str
) -> tuple[Edit, ...]:
    """The edit that puts a summary in place of a result; refused where that is no longer so."""
    named = f"the summary of {request.handle}"
    unsent = {each.key: each for each in plan.window.unsent_results() if each.edit is None}
    result = unsent.get((request.seq, request.part))
    if result is None or _text_only_result(result) != request.result:
        raise UnusableSummary(
            f"{named} came too late: the result was sent, cut, undone or erased meanwhile"
        )
    why = (
        f"{request.tool}: {request.tokens} tokens, "
        f"summarised{f' by {summariser_name}' if summariser_name else ''}"
    )
    put = text.strip() and plan.summarise_part(result.entry, result.part, text, why)
    if not put or plan.part_size(result.entry, result.part).tokens > request.max_total_tokens:
        raise UnusableSummary(f"{named} is empty or larger than the cut that it stands for")
    return plan.to_decision().edits


def _text_only_result(result: ToolResultView) -> ToolResult | None:
    """The result, where it is made of texts: a summary in its place would lose a picture."""
    part = result.entry.message.parts[result.part]
    if not isinstance(part, ToolResult) or result.entry.pinned:
        return None
    return part if all(isinstance(each, Text) for each in part.content) else None
