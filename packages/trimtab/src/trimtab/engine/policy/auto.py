"""The default policy: compact when the prompt cache prices say that it pays.

After an edit, everything that follows it must be written to the provider's cache again. That is the
price of the edit. Without the edit, text that could be hidden is read once more at every call. A
meter adds up that waiting cost. The edit is made when the meter reaches `PAYBACK_FACTOR` times the
price. If the cache is cold, an edit is free. If the window is full, an edit is made in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from trimtab.engine.log.edits import extract_editable_text, format_mask_placeholder
from trimtab.engine.log.text_cuts import TextCap, add_quoted_identifiers
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.config import Goal, PolicyConfig, SummaryMode
from trimtab.engine.policy.costs import (
    CompactionOffer,
    RelativeCachePrices,
    count_calls_awaiting_summary,
    estimate_summary_cost_in_tokens,
    is_summary_unlikely,
    select_groups_to_summarise,
    was_summarised_since_last_call,
)
from trimtab.engine.policy.guard import cut_oversized_newest_texts
from trimtab.engine.policy.hiding import cap_instructions_to_room_share, hide_in_order
from trimtab.engine.policy.planning.plan import Decision, MessageSpan, Plan, Policy
from trimtab.engine.policy.planning.relevance import (
    get_result_identifiers,
    order_least_needed_first,
)
from trimtab.engine.policy.preset_steps import (
    apply_history_cap,
    iterate_older_groups,
    list_maskable_results,
    list_older_groups,
    order_kept_file_results_last,
    truncate_unsent_results,
)
from trimtab.engine.policy.summary_requests import (
    build_span_to_summarise,
    compute_plan_tokens_to_reach,
    summarise_extractively_to_target,
)
from trimtab.engine.summaries.format import REQUESTED_SUMMARY_TOKENS
from trimtab.engine.tokens.cost import resolve_prices_at
from trimtab.engine.window.structure import Group, ToolResultView
from trimtab.engine.window.window import Window

TARGET_TOKENS_BY_GOAL: dict[Goal, int] = {"cost": 12_000, "balanced": 64_000, "quality": 96_000}
"""Tokens of messages that remain after a compaction."""
RESULT_CAP_TOKENS_BY_GOAL: dict[Goal, int] = {"cost": 4_000, "balanced": 8_000, "quality": 8_000}
"""Tokens that one tool result may always take. It may take more as long as there is room."""
RESULT_CAP_SHARE_OF_ROOM = 0.25
"""Maximum share of the room for one result, if that is less than the goal's cap."""
MIN_RESULT_CAP_TOKENS = 500
"""Tokens that one result may take even in a small window."""
KEPT_NEWEST_RESULTS = 3
"""Number of newest results that are never masked."""
SUMMARY_NAMES_FACTOR_BY_GOAL: dict[Goal, int] = {"cost": 5, "balanced": 16, "quality": 16}
"""Maximum names in an extractive summary, as a multiple of `MAX_PLACEHOLDER_NAMES`."""
TARGET_TOKENS_PER_SUMMARY_NAME = 40
"""Tokens of the target for each name in a summary. In a small window a summary has fewer names."""
LIST_TOKENS_PER_NAME = 5
"""Tokens of each name in the list of a model's summary."""
KEPT_NEWEST_MESSAGES = 6
"""Number of newest messages that are never summarised."""
FORCED_SHARE_OF_ROOM = 0.95
"""Share of the room at which a compaction is forced."""
PAYBACK_FACTOR = 2.0
"""An edit is made when the waiting cost is this many times its price."""
MIN_GAIN_TOKENS = 1_000
"""Minimum number of tokens that a compaction must free."""
MAX_PLACEHOLDER_NAMES = 60
"""Maximum number of names in the placeholder of a masked result. A small result has fewer."""
RESULT_TOKENS_PER_NAME = 16
"""Tokens of a masked result for each name in its placeholder."""
BARE_PLACEHOLDER_TOKENS = 24
"""Tokens of a placeholder without names, for forecasts."""
PLACEHOLDER_TOKENS_PER_NAME = 5
"""Tokens that each name adds to a placeholder, for forecasts."""
CUT_NAMES_FACTOR = 5
"""Maximum names in the indicator of a cut result, as a multiple of `MAX_PLACEHOLDER_NAMES`."""

NO_ROOM_REASON = "no room left"
"""Prefix of the reason of edits without which too little room would be left."""

ResultOrder = Callable[[Window, list[ToolResultView]], list[ToolResultView]]
"""Returns the results in the order in which to hide them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionForecast:
    """The effect of one compaction, computed before any edit is written."""

    ordered_results: list[ToolResultView]
    """All results that may be masked, in hiding order."""
    chosen_results: list[ToolResultView]
    """The results that would be masked."""
    removed_tokens: int
    """Tokens that would be removed, minus the placeholders: *R* in docs/auto.md."""
    rewritten_tokens: int
    """Tokens that stay after the first edit and would otherwise have been read from the cache: *T*
    in docs/auto.md."""
    takes_groups: bool
    """Whether groups would go into a summary. They do not if masks are enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoTuning:
    """The configuration of one `auto` policy."""

    config: PolicyConfig
    """The user's configuration."""
    goal: Goal
    """The goal: `cost`, `balanced` or `quality`."""
    payback_factor: float
    """An edit is made when the waiting cost is this many times its price."""
    max_names: int
    """Maximum number of names in a placeholder."""

    @property
    def kept_results(self) -> int:
        """Number of newest results that are never masked."""
        keep_last = self.config.tool_result_keep_last
        return KEPT_NEWEST_RESULTS if keep_last is None else keep_last

    @property
    def max_summary_names(self) -> int:
        """Maximum number of names in an extractive summary."""
        return self.max_names * SUMMARY_NAMES_FACTOR_BY_GOAL[self.goal]

    def list_tokens(self, target_tokens: int) -> int:
        """Return the tokens for the list beside a model's summary."""
        if self.config.summary.list_tokens is not None:
            return self.config.summary.list_tokens
        return LIST_TOKENS_PER_NAME * self.count_summary_names(target_tokens)

    def count_summary_names(self, target_tokens: int) -> int:
        """Return how many names a summary may have beside so many tokens of messages."""
        return min(self.max_summary_names, target_tokens // TARGET_TOKENS_PER_SUMMARY_NAME)


def build_auto_policy(
    config: PolicyConfig,
    goal: Goal = "balanced",
    summary_mode: SummaryMode = "extractive",
    *,
    result_order: ResultOrder = order_least_needed_first,
    payback_factor: float = PAYBACK_FACTOR,
    max_names: int = MAX_PLACEHOLDER_NAMES,
) -> Policy:
    """Build the default policy. `result_order`, `payback_factor` and `max_names` are for
    benchmarks."""
    tuning = AutoTuning(
        config=config, goal=goal, payback_factor=payback_factor, max_names=max_names
    )
    manual = summary_mode == "manual"

    def decide(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        truncate_unsent_results(plan, config, make_result_cap_function(plan, goal, max_names))
        cut_oversized_newest_texts(plan, int(FORCED_SHARE_OF_ROOM * budget.room))
        apply_history_cap(plan, config)
        target = compute_target_tokens(budget, goal, plan.user_words_tokens)
        meter = float((window.policy_note or {}).get("meter", 0.0))
        if manual and was_summarised_since_last_call(window):
            meter = 0.0
        if plan.tokens - plan.user_words_tokens <= target + MIN_GAIN_TOKENS:
            return build_auto_decision(tuning, plan, meter)
        prices = compute_relative_cache_prices(window, budget)
        candidates = result_order(window, list_mask_candidates(plan, config, tuning.kept_results))
        maskable = [result for result in candidates if result.key not in plan.keep_last_results]
        forecast = forecast_compaction(plan, maskable, target)
        must_compact = plan.tokens > FORCED_SHARE_OF_ROOM * budget.room
        if manual and forecast.takes_groups and not must_compact:
            decision = decide_summary_request_or_wait(tuning, plan, forecast, prices, meter)
            if decision is not None:
                return decision
            forecast = forecast_compaction(plan, maskable, target, include_groups=False)
        meter += prices.read_price * forecast.removed_tokens
        edit_price = (prices.write_price - prices.read_price) * forecast.rewritten_tokens
        pays = prices.is_cold or meter >= payback_factor * edit_price
        if not must_compact and (forecast.removed_tokens < MIN_GAIN_TOKENS or not pays):
            first_seq = min((result.seq for result in forecast.chosen_results), default=None)
            return build_auto_decision(tuning, plan, meter, first_seq)
        cap_instructions_to_room_share(plan, "instructions larger than a quarter of the room")
        compact_to_target(tuning, plan, maskable, target, include_groups=must_compact or not manual)
        if must_compact and plan.tokens > target:
            results = order_kept_file_results_last(plan, list_mask_candidates(plan, config, 1))
            compact_forcibly(tuning, plan, results, target)
        apply_history_cap(plan, config)  # once more: a new summary counts as history
        return build_auto_decision(tuning, plan, 0.0)

    return decide


def build_auto_decision(
    tuning: AutoTuning,
    plan: Plan,
    waiting_cost: float,
    frontier_seq: int | None = None,
    span_to_summarise: MessageSpan | None = None,
) -> Decision:
    """Turn the plan into a decision with the meter, and record how long a summary has been
    awaited."""
    note: dict[str, float] = {}
    if waiting_cost:
        note["meter"] = round(waiting_cost, 1)
    if span_to_summarise is not None:
        note["waited"] = count_calls_awaiting_summary(plan.window) + 1
    return plan.to_decision(
        note=note or None,
        span_to_summarise=span_to_summarise,
        summary_tokens=tuning.config.summary.max_tokens,
        list_tokens=tuning.list_tokens(
            compute_target_tokens(plan.budget, tuning.goal, plan.user_words_tokens)
        ),
        frontier=frontier_seq or plan.oldest_maskable_seq(),
    )


def decide_summary_request_or_wait(
    tuning: AutoTuning,
    plan: Plan,
    forecast: CompactionForecast,
    prices: RelativeCachePrices,
    waiting_cost: float,
) -> Decision | None:
    """Decide whether to request a summary or wait for it; None if masks are the better choice."""
    window = plan.window
    target = compute_target_tokens(plan.budget, tuning.goal, plan.user_words_tokens)
    groups = select_groups_to_summarise(
        plan,
        list_summarisable_groups(plan),
        target,
        REQUESTED_SUMMARY_TOKENS + tuning.list_tokens(target) // 2,
    )
    rewrite_price = prices.write_price - prices.read_price
    summary_offer = CompactionOffer(
        removed_tokens=forecast.removed_tokens,
        rewrite_price=rewrite_price * forecast.rewritten_tokens,
        summary_price=estimate_summary_cost_in_tokens(window, groups, tuning.config),
    )
    mask_forecast = forecast_compaction(
        plan, forecast.ordered_results, target, include_groups=False
    )
    mask_offer = CompactionOffer(
        removed_tokens=mask_forecast.removed_tokens,
        rewrite_price=rewrite_price * mask_forecast.rewritten_tokens,
    )
    if mask_offer.removed_tokens >= MIN_GAIN_TOKENS and (
        is_summary_unlikely(window) or mask_offer.beats(summary_offer, prices)
    ):
        return None
    waiting_cost += prices.read_price * forecast.removed_tokens
    pays = forecast.removed_tokens >= MIN_GAIN_TOKENS and summary_offer.is_paid_by(
        waiting_cost, tuning.payback_factor, prices
    )
    return build_auto_decision(
        tuning,
        plan,
        waiting_cost,
        span_to_summarise=build_span_to_summarise(plan, groups) if pays else None,
    )


def make_result_cap_function(
    plan: Plan, goal: Goal, max_names: int
) -> Callable[[ToolResultView], TextCap]:
    """Return a function that gives the cap of each new result.

    The cap depends on the room that is free below the target. In a nearly empty window it is half
    of the target, so almost nothing is cut. It falls with the third power of the free share,
    because every call pays for a result that stays. The cap is never below the goal's own cap. In a
    small window it is lower, so that one result leaves room for the rest.
    """
    least_cap = min(
        RESULT_CAP_TOKENS_BY_GOAL[goal],
        max(MIN_RESULT_CAP_TOKENS, int(RESULT_CAP_SHARE_OF_ROOM * plan.budget.room)),
    )
    max_cut_names = max_names * CUT_NAMES_FACTOR * least_cap // RESULT_CAP_TOKENS_BY_GOAL[goal]
    target = min(
        compute_target_tokens(plan.budget, goal, plan.user_words_tokens),
        TARGET_TOKENS_BY_GOAL["balanced"],
    )
    new_tokens = {result.key: result.size.tokens for result in plan.window.unsent_results()}
    old_tokens = plan.tokens - plan.user_words_tokens - sum(new_tokens.values())
    free_tokens = target - old_tokens

    def cap_result(result: ToolResultView) -> TextCap:
        nonlocal free_tokens
        free_share = max(0, free_tokens) / max(1, target)
        cap = max(least_cap, int(target * free_share**3 / 2))
        free_tokens -= min(cap, new_tokens.get(result.key, 0))
        return TextCap(amount=cap, max_names=max_cut_names, strategy="lines")

    return cap_result


def compute_target_tokens(budget: Budget, goal: Goal, user_words_tokens: int = 0) -> int:
    """Return the target of a compaction: the goal's, but at most a share of the room.

    The user's earlier words are counted separately.
    """
    share = 0.7 if budget.limit <= 64_000 else 0.5
    # With the user's words, the target stays below the size at which a compaction is forced.
    max_tokens = int(FORCED_SHARE_OF_ROOM * budget.room) - MIN_GAIN_TOKENS - user_words_tokens
    return max(0, min(TARGET_TOKENS_BY_GOAL[goal], int(share * budget.room), max_tokens))


def compute_relative_cache_prices(window: Window, budget: Budget) -> RelativeCachePrices:
    """Return the catalog's cache prices, corrected by measured cache misses."""
    entry = resolve_prices_at(window.settings.entry, budget.now)
    write = float(entry.get("cache_write", 1.0))
    read = float(entry.get("cache_read", 1.0))
    miss_rate = window.accounting.cache_misses.miss_rate
    last_call = window.last_call
    is_cold = (
        last_call is None
        or window.accounting.cache_is_cold
        or budget.head.tokens + window.tokens < int(entry.get("cache_minimum", 0))
        or budget.now - last_call.at > float(entry.get("cache_ttl", 0))
    )
    return RelativeCachePrices(
        read_price=(1 - miss_rate) * read + miss_rate * write,
        write_price=write,
        is_cold=is_cold,
    )


def forecast_compaction(
    plan: Plan,
    ordered_results: list[ToolResultView],
    target_tokens: int,
    *,
    include_groups: bool = True,
) -> CompactionForecast:
    """Forecast a compaction that takes results in hiding order until the target is reached.

    If the results are not enough and `include_groups` is set, it also takes whole groups.
    """
    need = plan.tokens - plan.user_words_tokens - target_tokens
    chosen_results: list[ToolResultView] = []
    removed_tokens = 0
    for result in ordered_results:
        if removed_tokens >= need:
            break
        chosen_results.append(result)
        tokens = plan.part_size(result.entry, result.part).tokens
        names = min(MAX_PLACEHOLDER_NAMES, tokens // RESULT_TOKENS_PER_NAME)
        placeholder_tokens = BARE_PLACEHOLDER_TOKENS + PLACEHOLDER_TOKENS_PER_NAME * names
        removed_tokens += max(0, tokens - placeholder_tokens)
    takes_groups = False
    if include_groups and removed_tokens < need:
        # Masked results leave their calls behind; whole groups leave nothing.
        group_tokens = 0
        for group in iterate_summarisable_groups(plan):
            takes_groups = True
            group_tokens += plan.tokens_freed_by(group)
            if group_tokens >= need:
                break
        if takes_groups:
            removed_tokens = min(need, max(removed_tokens, group_tokens))
    first_edited_group = (
        0
        if takes_groups
        else min((result.entry.round.group.index for result in chosen_results), default=0)
    )
    sent_tokens = count_sent_tokens_from(plan, first_edited_group)
    return CompactionForecast(
        ordered_results=ordered_results,
        chosen_results=chosen_results,
        removed_tokens=removed_tokens,
        rewritten_tokens=max(0, sent_tokens - removed_tokens),
        takes_groups=takes_groups,
    )


def count_sent_tokens_from(plan: Plan, first_group: int) -> int:
    """Count the tokens of the shown groups, from one group on, that a call has already sent."""
    tokens = plan.message_tokens
    for group in plan.window.visible_groups.values():
        if group.index >= first_group:
            break
        if not plan.hides(group):
            tokens -= plan.group_tokens(group)
    for group in reversed(plan.window.visible_groups.values()):
        if group.first <= plan.window.accounting.sent_through_seq:
            break
        if not plan.hides(group):
            tokens -= plan.group_tokens(group)
    return max(0, tokens)


def compact_to_target(
    tuning: AutoTuning,
    plan: Plan,
    ordered_results: list[ToolResultView],
    target_tokens: int,
    *,
    include_groups: bool = True,
) -> None:
    """Compact to the target in one batch: first mask results, then summarise whole oldest
    groups."""
    reason = f"to shrink the conversation to {target_tokens:,} tokens"
    for result in ordered_results:
        if plan.tokens - plan.user_words_tokens <= target_tokens:
            return
        mask_result_with_names(plan, result, reason, tuning.max_names)
    if include_groups:
        summarise_to_target(tuning, plan, list_summarisable_groups(plan), target_tokens, reason)


def compact_forcibly(
    tuning: AutoTuning, plan: Plan, results: list[ToolResultView], target_tokens: int
) -> None:
    """Compact because there is no room: mask all results except the newest, then hide whole groups.

    If the content that must stay is large, half of what may be hidden is enough. Results that the
    user wants hidden last are hidden only as far as necessary.
    """
    reason = f"{NO_ROOM_REASON}: the conversation has to shrink to {target_tokens:,} tokens"
    forced_tokens = int(FORCED_SHARE_OF_ROOM * plan.budget.room)
    for result in results:
        if plan.tokens - plan.user_words_tokens <= target_tokens:
            return
        has_room = plan.tokens <= forced_tokens - MIN_GAIN_TOKENS
        if has_room and result.key in plan.keep_last_results:
            return
        mask_result_with_names(plan, result, reason)
    if plan.tokens <= forced_tokens - MIN_GAIN_TOKENS:
        return
    groups = list_older_groups(plan, 0)
    tokens_to_reach = compute_plan_tokens_to_reach(
        plan, groups, target_tokens + plan.user_words_tokens, forced_tokens
    )
    summarise_to_target(tuning, plan, groups, tokens_to_reach - plan.user_words_tokens, reason)
    if plan.tokens > tokens_to_reach:
        plan.only_reaches_target = True
        hide_in_order(plan, lambda: plan.tokens <= tokens_to_reach, reason)


def summarise_to_target(
    tuning: AutoTuning, plan: Plan, groups: list[Group], target_tokens: int, reason: str
) -> None:
    """Put oldest groups into the extractive summary until the target is reached."""
    summarise_extractively_to_target(
        plan,
        groups,
        target_tokens,
        reason,
        max_names=tuning.count_summary_names(target_tokens),
        max_tokens=tuning.config.summary.max_tokens,
        list_tokens=tuning.list_tokens(target_tokens),
    )


def list_summarisable_groups(plan: Plan) -> list[Group]:
    """List the oldest groups that a summary may replace, in the order in which they are hidden."""
    return plan.order_for_hiding(iterate_summarisable_groups(plan))


def iterate_summarisable_groups(plan: Plan) -> Iterator[Group]:
    """Yield the oldest groups that a summary may replace.

    Stop before the first group that holds a newest result, and skip groups with a result that the
    user wants hidden last.
    """
    newest_results = islice(reversed(plan.window.results.values()), KEPT_NEWEST_RESULTS)
    end = min((result.entry.round.group.index for result in newest_results), default=None)
    for group in iterate_older_groups(plan, KEPT_NEWEST_MESSAGES):
        if end is not None and group.index >= end:
            return
        if not plan.holds_keep_last_result(group):
            yield group


def mask_result_with_names(
    plan: Plan, result: ToolResultView, reason: str, max_names: int = MAX_PLACEHOLDER_NAMES
) -> None:
    """Mask a result with a placeholder that lists names from it."""
    tokens = plan.part_size(result.entry, result.part).tokens
    text = extract_editable_text(result.entry.message.parts[result.part])
    identifiers = get_result_identifiers(plan.window, result.entry, result.part, text)
    names = ", ".join(identifiers.list_top(min(max_names, tokens // RESULT_TOKENS_PER_NAME)))
    plan.mask(
        result.entry,
        result.part,
        reason,
        add_quoted_identifiers(format_mask_placeholder(tokens), names),
    )


def list_mask_candidates(
    plan: Plan, config: PolicyConfig, keep_newest: int
) -> list[ToolResultView]:
    """List the results that may be masked, oldest first. The newest stay, and the first ones if so
    configured."""
    if config.tool_result_keep_first == config.tool_result_keep_last == 0:
        return []  # two zeros turn masking off
    results = list(plan.window.results.values())
    oldest = results[: config.tool_result_keep_first or 0]
    newest = results[max(0, len(results) - keep_newest) :]
    exempt_keys = {result.key for result in (*oldest, *newest)}
    return [
        result for result in list_maskable_results(plan, config) if result.key not in exempt_keys
    ]
