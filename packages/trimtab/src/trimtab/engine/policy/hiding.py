"""The order in which content is hidden if not everything fits. All policies share it.

Older pictures are hidden first, then older results, older replies and calls, and the summary. New
content of the active round, the newest todo list, older user messages and the pictures of the
newest message follow. The text of the newest message and other user messages of the active round
are cut last. A quarter of the room always stays for them, first of all for the newest message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise

from trimtab.engine.log.message import Media, Text, ToolCall, ToolResult
from trimtab.engine.log.text_cuts import TextCap
from trimtab.engine.policy.planning.plan import PLACEHOLDER_TOKENS, Plan
from trimtab.engine.tokens.counter import MESSAGE_OVERHEAD_TOKENS
from trimtab.engine.window.structure import Entry, Group
from trimtab.engine.window.user_words import USER_WORDS_ROOM_DIVISOR

LONG_ARGUMENT_CHARS = 200
"""Minimum characters of an argument of an older call that may be left out."""
KEPT_REPLY_TOKENS = (200, 40)
"""Tokens that are kept of an older reply if it cannot be hidden with its round; the second number
if the first is not enough."""
MIN_NEWEST_TEXT_TOKENS = 40
"""Tokens that are kept of the newest user message even if there is no room by estimate."""
KEPT_INSTRUCTION_TOKENS = (400, 40)
"""The same of a system or developer message."""

CUT_INDICATOR_TOKENS = 32
"""Maximum tokens of the indicator that says how much of a text was cut."""

PartRef = tuple[Entry, int]
"""A message, and the index of one of its parts."""
EnoughCheck = Callable[[], bool]
BatchCheckMaker = Callable[[int], EnoughCheck]
"""Returns the check that ends a batch, for the tokens of older content that may be hidden."""


def hide_in_order(
    plan: Plan,
    is_enough: EnoughCheck,
    reason: str,
    make_batch_check: BatchCheckMaker | None = None,
) -> None:
    """Hide content in order until it is enough, or until nothing more may be hidden.

    Revealed content that the model has not read comes last, and stays if the plan only has to reach
    a target. If `make_batch_check` is given, older content is hidden until its check is true. So
    the next calls need no edit. Everything else is hidden only until it is enough.
    """
    if is_enough():
        return
    is_done = make_batch_check(_count_older_tokens(plan)) if make_batch_check else is_enough
    for step, is_step_done in (
        (_mask_older_media, is_done),
        (_mask_older_results, is_done),
        (partial(_mask_older_results, keep_last=True), is_enough),
        (_hide_older_replies, is_done),
    ):
        if is_done():
            return
        if not is_step_done():
            step(plan, is_step_done, reason)
    for step in (
        Plan.shorten_summary,
        _cut_active_results,
        _cut_active_replies,
        _give_up_kept_calls,
        partial(_drop_older_user_words, make_batch_check=make_batch_check),
        _cut_instructions,
        _mask_newest_media,
        _cut_newest_texts,
    ):
        if is_enough():
            return
        step(plan, is_enough, reason)


def list_active_round_entries(plan: Plan) -> list[Entry]:
    """Return the messages of the active round, and the newest user message."""
    window = plan.window
    entries = list(window.conversation.rounds[-1].entries) if window.conversation.rounds else []
    newest = window.newest_user_entry
    return entries if newest is None or newest in entries else [*entries, newest]


def list_active_round_results(plan: Plan) -> list[PartRef]:
    """Return the tool results of the active round, including late answers."""
    active = plan.window.conversation.rounds[-1] if plan.window.conversation.rounds else None
    if active is None:
        return []
    answers = [call.result for call in active.calls if call.result is not None]
    places = [(result.entry, result.part) for result in answers]
    places += [(entry, part) for entry in active.entries for part in entry.unpaired_results]
    return [place for place in places if not place[0].pinned]


def list_newest_user_text_parts(plan: Plan) -> list[PartRef]:
    """Return the texts of the newest user message and of other user messages in the active
    round."""
    return [
        (entry, part)
        for entry in list_active_round_entries(plan)
        if entry.message.role in ("user", "tool") and not entry.pinned
        for part, content in enumerate(entry.message.parts)
        if isinstance(content, Text)
    ]


def compute_min_newest_text_tokens(plan: Plan) -> int:
    """Return the tokens of the newest user message that always stay, including the truncation
    indicator."""
    # A cut goes a little deeper than it must. Some words stay even if there is no room by estimate.
    share = plan.budget.room // USER_WORDS_ROOM_DIVISOR * 6 // 5
    return max(share, MIN_NEWEST_TEXT_TOKENS) + CUT_INDICATOR_TOKENS


def build_text_cap_for_part(entry: Entry, part: int, max_tokens: int) -> TextCap:
    """Return the cap of a text. A user's message also keeps its end, because questions are often
    there."""
    is_text = isinstance(entry.message.parts[part], Text) or part in entry.unpaired_results
    return TextCap(amount=max_tokens, strategy="both" if is_text else "lines")


def cut_texts_to_common_size(
    plan: Plan,
    texts: list[PartRef],
    is_enough: EnoughCheck,
    reason: str,
    min_tokens: Sequence[int] | None = None,
) -> None:
    """Cut the largest texts to one common size, and lower it until it is enough. Each text keeps at
    least its `min_tokens`."""
    least = [0] * len(texts) if min_tokens is None else min_tokens
    low = min(least, default=0)
    high = max((plan.part_size(*place).tokens for place in texts), default=0)

    def cut(most: int) -> None:
        for (entry, part), floor in zip(texts, least, strict=True):
            cap = max(most, floor)
            if plan.part_size(entry, part).tokens > cap:
                plan.truncate(entry, part, build_text_cap_for_part(entry, part, cap), reason)

    # The largest size that is enough, to about a hundredth: more of a text is cut than has to be
    # where one goes down by large steps.
    while high - low > max(8, high // 100):
        middle = (low + high) // 2
        with plan.undo_unless(lambda: False):  # only to see
            cut(middle)
            fits = is_enough()
        low, high = (middle, high) if fits else (low, middle)
    cut(low)


def _compute_min_tokens_of_texts(plan: Plan, texts: list[PartRef]) -> list[int]:
    """Return the tokens of each text that must stay.

    The newest user message comes first. The other user messages of the active round share what it
    does not need.
    """
    least = [0] * len(texts)
    tokens = compute_min_newest_text_tokens(plan)
    for is_newest in (True, False):
        sizes = {
            index: plan.part_size(*place).tokens
            for index, place in enumerate(texts)
            if (place[0] is plan.window.newest_user_entry) is is_newest
        }
        share = _min_tokens_per_text(list(sizes.values()), tokens)
        for index in sizes:
            least[index] = share
        tokens = max(0, tokens - sum(sizes.values()))
    return least


def _min_tokens_per_text(sizes: list[int], min_total_tokens: int) -> int:
    """Return the size to which each text may be cut so that this number of tokens stays in
    total."""
    if sum(sizes) <= min_total_tokens:
        return max(sizes, default=0)
    tokens = min_total_tokens
    for index, size in enumerate(sorted(sizes)):
        share = tokens // (len(sizes) - index)
        if size > share:
            return share
        tokens -= size
    return 0


def _groups_oldest_first(plan: Plan) -> list[Group]:
    """Return visible groups, oldest first. Revealed groups that were not read come last, if they
    may be hidden."""
    groups = sorted(plan.visible_groups(), key=plan.is_unread)
    return [g for g in groups if not (plan.only_reaches_target and plan.is_unread(g))]


def _older_entries(plan: Plan) -> list[Entry]:
    active = {entry.seq for entry in list_active_round_entries(plan)}
    return [
        entry
        for group in _groups_oldest_first(plan)
        for round in group.rounds
        for entry in round.entries
        if entry.seq not in active and not entry.pinned
    ]


def _count_older_tokens(plan: Plan) -> int:
    """Count the tokens of older pictures, replies, calls and results."""
    return sum(
        plan.part_size(entry, part).tokens
        for entry in _older_entries(plan)
        for part, content in enumerate(entry.message.parts)
        if entry.message.role in ("assistant", "tool")
        or entry.message.results
        or isinstance(content, Media)
    )


def _mask_older_media(plan: Plan, is_enough: EnoughCheck, reason: str) -> None:
    if not plan.window.conversation.visible_media:
        return
    for entry in _older_entries(plan):
        for part, content in enumerate(entry.message.parts):
            holds = isinstance(content, ToolResult) and any(
                isinstance(inner, Media) for inner in content.content
            )
            if holds or isinstance(content, Media):
                plan.mask(entry, part, reason, _removed_media_text(content))
                if is_enough():
                    return


def _mask_older_results(
    plan: Plan, is_enough: EnoughCheck, reason: str, *, keep_last: bool = False
) -> None:
    """Mask the older results that the user wants hidden last, or all others."""
    for entry in _older_entries(plan):
        for part, content in enumerate(entry.message.parts):
            is_keep_last = (entry.seq, part) in plan.keep_last_results
            # A small one is about as short as the words that would stand for it.
            is_large = plan.part_size(entry, part).tokens > PLACEHOLDER_TOKENS
            if isinstance(content, ToolResult) and is_large and is_keep_last is keep_last:
                plan.mask(entry, part, reason)
                if is_enough():
                    return


def _hide_older_replies(plan: Plan, is_enough: EnoughCheck, reason: str) -> None:
    """Hide rounds without a user message, the oldest first. In rounds that must stay, cut long
    replies and arguments, and then all replies."""
    apart = _separating_groups(plan)
    quiet = [
        group
        for group in _groups_in_hiding_order(plan)
        if not group.has_user_words and group.index not in apart
    ]
    drop_groups(plan, quiet, is_enough, reason)
    for most in KEPT_REPLY_TOKENS:
        for entry in [] if is_enough() else _older_entries(plan):
            for part in range(len(entry.message.parts)):
                if _cut_reply(plan, (entry, part), most, reason) and is_enough():
                    return


def _cut_reply(plan: Plan, part_ref: PartRef, max_tokens: int, reason: str) -> bool:
    """Cut a reply or the arguments of a call. Return False if nothing changed."""
    entry, part = part_ref
    content = entry.message.parts[part]
    if isinstance(content, ToolCall):
        return plan.cut_arguments(entry, part, LONG_ARGUMENT_CHARS, reason)
    if entry.message.role != "assistant" or not isinstance(content, Text):
        return False
    if plan.part_size(entry, part).tokens <= max_tokens + MESSAGE_OVERHEAD_TOKENS:
        return False  # it need not be counted
    return plan.truncate(entry, part, TextCap(amount=max_tokens, strategy="both"), reason)


def _separating_groups(plan: Plan) -> set[int]:
    """Return the last group between each two groups with user messages.

    Without it two user messages would follow each other, and many servers refuse that. A group with
    signed thinking cannot be cut, so it is not among them.
    """
    apart: set[int] = set()
    after_user_words = False
    for before, after in pairwise(plan.visible_groups()):
        after_user_words = after_user_words or before.has_user_words
        if (
            after_user_words
            and after.has_user_words
            and not (before.has_user_words or before.has_thinking)
        ):
            apart.add(before.index)
    return apart


def _cut_active_results(plan: Plan, is_enough: EnoughCheck, reason: str) -> None:
    places = list_active_round_results(plan)
    cut_texts_to_common_size(plan, places, is_enough, reason)
    for entry, part in places:
        content = entry.message.parts[part]
        if not is_enough() and isinstance(content, ToolResult) and not content.text:
            plan.mask(entry, part, reason, _removed_media_text(content))


def _cut_active_replies(plan: Plan, is_enough: EnoughCheck, reason: str) -> None:
    """Cut texts beside the newest calls if no user has spoken: then a framework wrote them. The SDK
    of OpenAI Agents hands a whole conversation over as one text of a reply."""
    if plan.window.newest_user_entry is not None:
        return
    places = [
        (entry, part)
        for entry in list_active_round_entries(plan)
        if entry.message.role == "assistant" and not (entry.pinned or entry.paused)
        for part, content in enumerate(entry.message.parts)
        if isinstance(content, Text)
    ]
    least = [KEPT_REPLY_TOKENS[0]] * len(places)
    cut_texts_to_common_size(plan, places, is_enough, reason, least)


def _give_up_kept_calls(plan: Plan, is_enough: EnoughCheck, reason: str) -> None:
    """Hide the newest todo list and the newest calls of exempt tools like any other calls."""
    if not plan.give_up_kept_calls():
        return
    for step in (_mask_older_results, _hide_older_replies, _cut_active_results):
        if is_enough():
            return
        step(plan, is_enough, reason)


def _drop_older_user_words(
    plan: Plan, is_enough: EnoughCheck, reason: str, make_batch_check: BatchCheckMaker | None
) -> None:
    """Hide whole groups, the oldest first.

    If a list of the user's words is kept, the user messages go into it, and the list is shortened
    until it is enough. That is never done in advance.
    """
    before = plan.tokens
    groups = _groups_in_hiding_order(plan)
    is_done = is_enough
    if make_batch_check and not plan.lists_user_words:
        older = sum(plan.group_tokens(group) for group in groups if plan.may_hide(group))
        is_done = make_batch_check(older)
    with plan.undo_unless(lambda: plan.tokens < before or is_enough()):
        drop_groups(plan, groups, is_done, reason, even_if_not_smaller=True)
        while not is_enough() and plan.halve_user_words():
            plan.settle_user_words()


def _cut_instructions(plan: Plan, is_enough: EnoughCheck, reason: str) -> None:
    """Cut system and developer messages: first the longest, then the oldest. Finally hide the
    oldest."""
    texts = [
        (entry, part)
        for group in _groups_oldest_first(plan)
        for entry in group.entries()
        if entry.message.role == "system" and not entry.pinned
        for part in range(len(entry.message.parts))
    ]
    for most in KEPT_INSTRUCTION_TOKENS:
        for entry, part in texts:
            if is_enough():
                return
            plan.truncate(entry, part, TextCap(amount=most, strategy="both"), reason)
    groups = [group for group in _groups_in_hiding_order(plan) if group.has_instructions]
    drop_groups(plan, groups, is_enough, reason, include_instructions=True)


def cap_instructions_to_room_share(plan: Plan, reason: str) -> None:
    """Limit system and developer messages within the conversation to a quarter of the room
    together."""
    instructions = [
        e for g in plan.visible_groups() for e in g.entries() if e.message.role == "system"
    ]
    most = plan.budget.room // USER_WORDS_ROOM_DIVISOR

    def enough() -> bool:
        entries = (entry for entry in instructions if not plan.hides(entry.round.group))
        return (
            sum(plan.part_size(e, part).tokens for e in entries for part in range(len(e.sizes)))
            <= most
        )

    if not enough():
        _cut_instructions(plan, enough, reason)


def _mask_newest_media(plan: Plan, is_enough: EnoughCheck, reason: str) -> None:
    for entry in list_active_round_entries(plan):
        for part, content in enumerate(entry.message.parts):
            if isinstance(content, Media) and not is_enough():
                plan.mask(entry, part, reason, _removed_media_text(content))


def _cut_newest_texts(plan: Plan, is_enough: EnoughCheck, reason: str) -> None:
    texts = list_newest_user_text_parts(plan)
    least = _compute_min_tokens_of_texts(plan, texts)
    cut_texts_to_common_size(plan, texts, is_enough, reason, least)


def drop_groups(
    plan: Plan,
    groups: Iterable[Group],
    is_enough: EnoughCheck,
    reason: str,
    *,
    include_instructions: bool = False,
    even_if_not_smaller: bool = False,
) -> None:
    """Drop groups until it is enough. Undo this if the context does not become smaller, unless
    `even_if_not_smaller` is set."""
    before = plan.tokens
    with plan.undo_unless(lambda: even_if_not_smaller or plan.tokens < before):
        for group in groups:
            # A drop alone may make it fit because what was reported for the old prefix no longer
            # holds: it must save more than the notice of it takes, too.
            if plan.tokens < before and is_enough():
                return
            plan.drop(group, reason, include_instructions=include_instructions)


def _groups_in_hiding_order(plan: Plan) -> list[Group]:
    """Return groups in hiding order. Under `layered`, rounds of the active turn come first."""
    groups = plan.order_for_hiding(_groups_oldest_first(plan))
    if plan.window.settings.policy == "layered":
        start = plan.window.turn_start_group
        groups.sort(key=lambda group: group.index < start)
    return groups


def _removed_media_text(content: object) -> str | None:
    """Return the placeholder for content without a text."""
    if isinstance(content, Media):
        return f"[{content.kind} removed]"
    if isinstance(content, ToolResult) and not content.text:
        kinds = [inner.kind for inner in content.content if isinstance(inner, Media)]
        return f"[{kinds[0]} removed]" if kinds else None
    return None
