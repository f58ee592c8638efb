"""The default policy: compact when the prompt cache prices say that it pays.

After an edit, everything that follows it must be written to the provider's cache again. That is the
price of the edit. Without the edit, text that could be hidden is read once more at every call. A
meter adds up that waiting cost. The edit is made when the meter reaches `PAYBACK_FACTOR` times the
price. If the cache is cold, an edit is free. If the window is full, an edit is made in any case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from trimtab.engine.log.text_cuts import TextCap
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.config import (
    Goal,
    GoalName,
    PolicyConfig,
    SummaryMode,
    name_of_goal,
    price_of_goal,
)
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
from trimtab.engine.policy.planning.needs import (
    HEADER_TOKENS,
    LineCut,
    ResultValues,
    value_at_raised_price,
    value_results,
)
from trimtab.engine.policy.planning.plan import Decision, MessageSpan, Plan, Policy
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

TARGET_TOKENS_BY_GOAL: dict[GoalName, int] = {
    "cost": 28_000,
    "balanced": 64_000,
    "quality": 96_000,
}
"""The mark: tokens of texts whose need cannot be measured that remain after a compaction."""
FLOOR_TOKENS = 16_000
"""Tokens of messages below which nothing is hidden."""
SMALL_ROOM_TOKENS = 56_000
"""Below this room the mark counts everything."""
FORCED_TARGET_SHARE = 0.45
"""Share of the room that stays after a forced compaction. It is rare and expensive, so it frees
much."""
GROUPS_SHARE_OF_ROOM = 0.9
"""Share of the room above which a forced compaction also takes messages without results."""
RESULT_CAP_TOKENS_BY_GOAL: dict[GoalName, int] = {
    "cost": 5_000,
    "balanced": 16_000,
    "quality": 16_000,
}
"""Tokens that one tool result may always take. It may take more as long as there is room."""
RESULT_CAP_SHARE_OF_ROOM = 0.25
"""Maximum share of the room for one result, if that is less than the goal's cap."""
MIN_RESULT_CAP_TOKENS = 500
"""Tokens that one result may take even in a small window."""
KEPT_NEWEST_RESULTS = 3
"""Number of newest results that are never masked."""
MAX_SUMMARY_NAMES_BY_GOAL: dict[GoalName, int] = {"cost": 300, "balanced": 960, "quality": 960}
"""Maximum names in an extractive summary."""
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
UNPRICED_CACHE_READ = 0.1
"""Assumed time to use a token again that a server without prices has read, as a share of the time
to read it."""
MIN_GAIN_TOKENS = 1_000
"""Minimum number of tokens that a compaction must free."""
PRICE_REASON = "not worth its tokens"
"""The reason of edits that hide what is below the price."""
NO_ROOM_REASON = "no room left"
"""Prefix of the reason of edits without which too little room would be left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionForecast:
    """The effect of one compaction, computed before any edit is written."""

    cuts: list[LineCut]
    """The results of which lines would be cut."""
    masked_results: list[ToolResultView]
    """The results that would be masked, because lines are not enough."""
    removed_tokens: int
    """Tokens that would be removed, minus the placeholders: *R* in docs/auto.md."""
    rewritten_tokens: int
    """Tokens that stay after the first edit and would otherwise have been read from the cache: *T*
    in docs/auto.md."""
    excess_tokens: int
    """Tokens that have to go whatever they are worth."""
    target_tokens: int
    """Tokens of messages above which groups would go into a summary."""
    group_tokens: int
    """Tokens that groups would have to free, by going into a summary."""
    first_seq: int | None
    """Position of the first message of which something would be hidden."""

    def without_groups(self, plan: Plan) -> CompactionForecast:
        """Return the forecast of the same compaction without groups."""
        removed = self.removed_tokens - self.group_tokens
        edited = [*self.masked_results, *(cut.result for cut in self.cuts)]
        groups = (result.entry.round.group.index for result in edited)
        sent_tokens = count_sent_tokens_from(plan, min(groups, default=0))
        return replace(
            self,
            group_tokens=0,
            removed_tokens=removed,
            rewritten_tokens=max(0, sent_tokens - removed),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoTuning:
    """The configuration of one `auto` policy."""

    config: PolicyConfig
    """The user's configuration."""
    goal: Goal
    """The goal, or the price itself."""
    payback_factor: float
    """An edit is made when the waiting cost is this many times its price."""

    @property
    def price(self) -> int:
        """The price of a million tokens, in needs."""
        return max(1, round(1_000 * price_of_goal(self.goal)))

    @property
    def kept_results(self) -> int:
        """Number of newest results that are never masked."""
        keep_last = self.config.tool_result_keep_last
        return KEPT_NEWEST_RESULTS if keep_last is None else keep_last

    def list_tokens(self, target_tokens: int) -> int:
        """Return the tokens for the list beside a model's summary."""
        if self.config.summary.list_tokens is not None:
            return self.config.summary.list_tokens
        return LIST_TOKENS_PER_NAME * self.count_summary_names(target_tokens)

    def count_summary_names(self, target_tokens: int) -> int:
        """Return how many names a summary may have beside so many tokens of messages."""
        max_names = MAX_SUMMARY_NAMES_BY_GOAL[name_of_goal(self.goal)]
        return min(max_names, target_tokens // TARGET_TOKENS_PER_SUMMARY_NAME)


def build_auto_policy(
    config: PolicyConfig,
    goal: Goal = "balanced",
    summary_mode: SummaryMode = "extractive",
    *,
    payback_factor: float = PAYBACK_FACTOR,
) -> Policy:
    """Build the default policy. `payback_factor` is for benchmarks."""
    tuning = AutoTuning(config=config, goal=goal, payback_factor=payback_factor)
    manual = summary_mode == "manual"

    def decide(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        truncate_unsent_results(plan, config, make_result_cap_function(plan, goal))
        cut_oversized_newest_texts(plan, int(FORCED_SHARE_OF_ROOM * budget.room))
        apply_history_cap(plan, config)
        meter = float((window.policy_note or {}).get("meter", 0.0))
        if manual and was_summarised_since_last_call(window):
            meter = 0.0
        if (
            plan.tokens - plan.user_words_tokens
            <= compute_floor_tokens(tuning, plan) + MIN_GAIN_TOKENS
        ):
            return build_auto_decision(tuning, plan, meter)
        prices = compute_relative_cache_prices(window, budget)
        candidates = list_mask_candidates(plan, config, tuning.kept_results)
        maskable = [result for result in candidates if result.key not in plan.keep_last_results]
        values = value_results(plan, maskable, tuning.price)
        must_compact = plan.tokens > FORCED_SHARE_OF_ROOM * budget.room
        excess = count_excess_tokens(tuning, plan, values)
        forecast = forecast_compaction(tuning, plan, maskable, values, excess)
        if manual and forecast.group_tokens and not must_compact:
            decision = decide_summary_request_or_wait(tuning, plan, forecast, prices, meter)
            if decision is not None:
                return decision
            forecast = forecast.without_groups(plan)
        meter += prices.read_price * forecast.removed_tokens
        edit_price = (prices.write_price - prices.read_price) * forecast.rewritten_tokens
        pays = prices.is_cold or meter >= payback_factor * edit_price
        if not must_compact and (forecast.removed_tokens < MIN_GAIN_TOKENS or not pays):
            return build_auto_decision(tuning, plan, meter, forecast.first_seq)
        cap_instructions_to_room_share(plan, "instructions larger than a quarter of the room")
        apply_forecast(tuning, plan, forecast)
        if must_compact and plan.tokens - plan.user_words_tokens > forecast.target_tokens:
            results = order_kept_file_results_last(plan, list_mask_candidates(plan, config, 1))
            compact_forcibly(tuning, plan, results, forecast.target_tokens)
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
    target = plan.tokens - plan.user_words_tokens - forecast.excess_tokens
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
    mask_forecast = forecast.without_groups(plan)
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


def make_result_cap_function(plan: Plan, goal: Goal) -> Callable[[ToolResultView], TextCap]:
    """Return a function that gives the cap of each new result.

    The cap depends on the room that is free below the target. In a nearly empty window it is half
    of the target, so almost nothing is cut. It falls with the third power of the free share,
    because every call pays for a result that stays. The cap is never below the goal's own cap. In a
    small window it is lower, so that one result leaves room for the rest.
    """
    least_cap = min(
        RESULT_CAP_TOKENS_BY_GOAL[name_of_goal(goal)],
        max(MIN_RESULT_CAP_TOKENS, int(RESULT_CAP_SHARE_OF_ROOM * plan.budget.room)),
    )
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
        return TextCap(amount=cap, strategy="lines")

    return cap_result


def compute_target_tokens(budget: Budget, goal: Goal, user_words_tokens: int = 0) -> int:
    """Return the target of a compaction: the goal's, but at most a share of the room.

    The user's earlier words are counted separately.
    """
    share = 0.7 if budget.limit <= 64_000 else 0.5
    # With the user's words, the target stays below the size at which a compaction is forced.
    max_tokens = int(FORCED_SHARE_OF_ROOM * budget.room) - MIN_GAIN_TOKENS - user_words_tokens
    return max(
        0, min(TARGET_TOKENS_BY_GOAL[name_of_goal(goal)], int(share * budget.room), max_tokens)
    )


def compute_relative_cache_prices(window: Window, budget: Budget) -> RelativeCachePrices:
    """Return the catalog's cache prices, corrected by measured cache misses."""
    entry = resolve_prices_at(window.settings.entry, budget.now)
    write = float(entry.get("cache_write", 1.0))
    read = float(entry.get("cache_read", 1.0))
    ttl = float(entry.get("cache_ttl", 0))
    if entry.get("cache_style", "none") == "none" and entry.get("input_price") is None:
        # Nobody sells this model's tokens. Servers such as Ollama and vLLM keep what they have read
        # and read only what follows it, so a rewrite costs time.
        read = UNPRICED_CACHE_READ
        ttl = math.inf
    miss_rate = window.accounting.cache_misses.miss_rate
    last_call = window.last_call
    is_cold = (
        last_call is None
        or window.accounting.cache_is_cold
        or budget.head.tokens + window.tokens < int(entry.get("cache_minimum", 0))
        or budget.now - last_call.at > ttl
    )
    return RelativeCachePrices(
        read_price=(1 - miss_rate) * read + miss_rate * write,
        write_price=write,
        is_cold=is_cold,
    )


def is_small_room(budget: Budget) -> bool:
    """Whether the room is so small that everything in it counts against the mark."""
    return budget.room < SMALL_ROOM_TOKENS


def compute_floor_tokens(tuning: AutoTuning, plan: Plan) -> int:
    """Return the tokens of messages below which nothing is hidden."""
    mark = compute_target_tokens(plan.budget, tuning.goal, plan.user_words_tokens)
    return mark if is_small_room(plan.budget) else min(mark, FLOOR_TOKENS)


def count_excess_tokens(tuning: AutoTuning, plan: Plan, values: ResultValues) -> int:
    """Return the tokens that have to go whatever they are worth.

    In a small room that is what exceeds the mark. In a larger one only what cannot be measured
    counts against it: results without names, and messages without calls. A forced compaction frees
    more than half of the room.
    """
    budget = plan.budget
    size = plan.tokens - plan.user_words_tokens
    mark = compute_target_tokens(budget, tuning.goal, plan.user_words_tokens)
    if is_small_room(budget):
        return max(0, size - mark)
    excess = 0
    if size > mark:
        front_tokens = size - plan.message_tokens
        groups = plan.visible_groups()
        unmeasured_tokens = sum(count_unmeasured_tokens(plan, group, values) for group in groups)
        excess = front_tokens + unmeasured_tokens - mark
    if plan.tokens > FORCED_SHARE_OF_ROOM * budget.room:
        excess = max(excess, plan.tokens - int(FORCED_TARGET_SHARE * budget.room))
    return min(size, max(0, excess))


def count_unmeasured_tokens(plan: Plan, group: Group, values: ResultValues) -> int:
    """Return the tokens of a group that count against the mark: all of it, unless its results can
    be measured or are hardly larger than a placeholder."""
    tokens = plan.group_tokens(group)
    is_measured = any(group.calls())
    for result in group.results():
        edit = result.edit
        reason = edit.why if edit is not None and edit.op == "mask" else ""
        if result.key in values.unmeasured or reason not in ("", PRICE_REASON):
            is_measured = False
        elif not reason:
            tokens -= result.size.tokens
    return 0 if is_measured else tokens


def forecast_compaction(
    tuning: AutoTuning,
    plan: Plan,
    candidates: list[ToolResultView],
    values: ResultValues,
    excess_tokens: int,
) -> CompactionForecast:
    """Forecast a compaction: lines below the price go, then what is in excess.

    In a small room that is whole results, those of least worth first. In a larger one it is results
    that cannot be measured, and then, if there is no room left, lines at a higher price. If the
    results are not enough, it also takes whole groups.
    """
    is_small = is_small_room(plan.budget)
    is_forced = not is_small and plan.tokens > FORCED_SHARE_OF_ROOM * plan.budget.room
    cuts = values.cuts
    freed_by_cut = {cut.result.key: cut.freed_tokens for cut in cuts}
    removed_tokens = values.freed_tokens
    target = plan.tokens - plan.user_words_tokens - excess_tokens
    need = excess_tokens
    if is_small or is_forced:
        need -= removed_tokens
    else:
        target -= removed_tokens
    masked_results: list[ToolResultView] = []
    choice = [r for r in candidates if is_small or r.key in values.unmeasured]
    for result in sorted(choice, key=lambda result: (values.worth.get(result.key, 0), result.key)):
        if need <= 0:
            break
        freed = result.size.tokens - HEADER_TOKENS - freed_by_cut.get(result.key, 0)
        if freed > 0:
            masked_results.append(result)
            removed_tokens += freed
            need -= freed
    if is_forced and need > 0:
        wanted = values.freed_tokens + need
        values_at_raised_price = value_at_raised_price(plan, candidates, tuning.price, wanted)
        cuts = values_at_raised_price.cuts
        need = wanted - values_at_raised_price.freed_tokens
        removed_tokens += values_at_raised_price.freed_tokens - values.freed_tokens
    group_tokens = 0
    if is_forced:
        slack = int((GROUPS_SHARE_OF_ROOM - FORCED_TARGET_SHARE) * plan.budget.room)
        need -= slack
        target += slack
    if need > 0:
        # Masked results leave their calls behind; whole groups leave nothing.
        wanted = removed_tokens + need
        for group in iterate_summarisable_groups(plan):
            group_tokens += plan.tokens_freed_by(group)
            if group_tokens >= wanted:
                break
        # What groups free contains the results that would be masked.
        group_tokens = max(0, min(wanted, group_tokens) - removed_tokens)
        removed_tokens += group_tokens
    edited = [*masked_results, *(cut.result for cut in cuts)]
    first_result = min(edited, key=lambda result: result.key, default=None)
    first_group = (
        0 if group_tokens or first_result is None else first_result.entry.round.group.index
    )
    sent_tokens = count_sent_tokens_from(plan, first_group)
    return CompactionForecast(
        cuts=cuts,
        masked_results=masked_results,
        removed_tokens=removed_tokens,
        rewritten_tokens=max(0, sent_tokens - removed_tokens),
        excess_tokens=excess_tokens,
        target_tokens=target,
        group_tokens=group_tokens,
        first_seq=first_result.seq if first_result is not None else None,
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


def apply_forecast(tuning: AutoTuning, plan: Plan, forecast: CompactionForecast) -> None:
    """Make the edits of a forecast in one batch: cut lines, mask results, summarise oldest
    groups."""
    masked = {result.key for result in forecast.masked_results}
    for cut in forecast.cuts:
        if cut.result.key in masked:
            continue
        entry, part = cut.result.entry, cut.result.part
        if not (cut.pieces and plan.cut_lines(entry, part, cut.pieces, PRICE_REASON)):
            plan.mask(entry, part, PRICE_REASON)
    target = forecast.target_tokens
    reason = f"to shrink the conversation to {target:,} tokens"
    for result in forecast.masked_results:
        plan.mask(result.entry, result.part, reason)
    if forecast.group_tokens:
        summarise_to_target(tuning, plan, list_summarisable_groups(plan), target, reason)


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
        plan.mask(result.entry, result.part, reason)
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
