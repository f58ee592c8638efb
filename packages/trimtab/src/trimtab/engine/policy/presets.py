"""The ready-made policies: when to hide, what, in which order, and how much.

A policy is a function of a window and a budget that returns a decision. To change a policy, write
your own function.

`layered` acts at every call. It limits the messages, cuts results, limits the history, masks
results in the middle and drops rounds. It counts in `bytes/4`. A result is cut before it is first
sent. The history is everything before the newest user message. Masks and drops apply to the turn
since then.

`compact` acts above a number of bytes: old tool results shrink to their first lines.

`rolling` keeps a sliding window of messages and one rolling summary.

`thresholds` summarises older messages at a share of the window and trims at a higher one.

`full` keeps everything, except what the user's settings and the final guard hide.
"""

from __future__ import annotations

from typing import Literal

from trimtab.engine.log.event import Edit
from trimtab.engine.log.text_cuts import (
    TextCap,
    TruncateStrategy,
    format_byte_truncation_indicator,
    format_truncation_indicator,
)
from trimtab.engine.policy.auto import build_auto_policy
from trimtab.engine.policy.budget import Budget, bytes_to_tokens, compute_max_messages_in_memory
from trimtab.engine.policy.config import (
    Goal,
    GoalName,
    PolicyConfig,
    SummaryMode,
    name_of_goal,
)
from trimtab.engine.policy.guard import cut_oversized_newest_texts, plan_smaller_request
from trimtab.engine.policy.planning.plan import Decision, Plan, Policy
from trimtab.engine.policy.preset_steps import (
    apply_history_cap,
    apply_user_config,
    drop_history_over_cap,
    drop_messages_over_limit,
    list_older_groups,
    mask_middle_results,
    mask_middle_results_if_configured,
    shrink_older_results_to_first_lines,
    truncate_unsent_results,
)
from trimtab.engine.policy.summary_requests import (
    append_missing_groups,
    build_span_to_summarise,
    compute_plan_tokens_to_reach,
    hide_groups_of_short_messages,
    summarise_extractively_to_target,
)
from trimtab.engine.summaries.extract import MAX_EXTRACT_TOKENS
from trimtab.engine.window.window import Window

LAYERED_MAX_HISTORY_TOKENS = 20_000
LAYERED_MAX_RESULT_TOKENS = 8_000
LAYERED_KEPT_FIRST_RESULTS = 2
LAYERED_KEPT_LAST_RESULTS = 5


def build_layered_caps_policy(config: PolicyConfig) -> Policy:
    history = config.max_history_tokens
    history = LAYERED_MAX_HISTORY_TOKENS if history is None else history

    def decide(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        drop_messages_over_limit(plan, compute_max_messages_in_memory(budget.limit))
        truncate_unsent_results(
            plan, config, TextCap(amount=LAYERED_MAX_RESULT_TOKENS, unit="bytes/4")
        )
        drop_history_over_cap(plan, history)
        mask_middle_results(plan, config, LAYERED_KEPT_FIRST_RESULTS, LAYERED_KEPT_LAST_RESULTS)
        drop_oldest_turn_rounds(plan)
        return plan.to_decision(
            summary_tokens=config.summary.max_tokens,
            frontier=find_next_layered_mask_seq(plan, config),
        )

    return decide


def decide_message_limit(window: Window, budget: Budget) -> tuple[Edit, ...]:
    """Return the edits that hide the messages above the limit of `layered`."""
    plan = Plan(window, budget)
    drop_messages_over_limit(plan, compute_max_messages_in_memory(budget.limit))
    return plan_smaller_request(window, budget, plan.to_decision().edits).to_decision().edits


def drop_oldest_turn_rounds(plan: Plan) -> None:
    """Drop the oldest rounds of the active turn. History and the newest round stay.

    For some models and texts the upper bound is reached before the `bytes/4` limit. So it is also
    checked here. Otherwise the guard would hide other content instead of rounds.
    """
    room = plan.budget.available
    most = plan.budget.max_input_bound
    why = f"over {room} tokens"
    start = plan.window.turn_start_group
    plan.drop_oldest(lambda: bytes_to_tokens(plan.bytes) <= room, why, after_group=start)
    why = f"the upper bound of the estimate is over {most} tokens"
    plan.drop_oldest(lambda: plan.bound() <= most, why, after_group=start)


def find_next_layered_mask_seq(plan: Plan, config: PolicyConfig) -> int | None:
    """Return the position of the next result to mask: the first one after those that are always
    kept."""
    first = (
        LAYERED_KEPT_FIRST_RESULTS
        if config.tool_result_keep_first is None
        else config.tool_result_keep_first
    )
    exempt = plan.window.turn_results.keys_at_ends(first, 0)
    start = plan.window.turn_start_group
    for result in plan.window.results.values():
        later = result.entry.round.group.index >= start and result.key not in exempt
        if later and plan.shows(result):
            return result.seq
    return None


COMPACT_MAX_RESULT_BYTES = 4_000
COMPACT_BYTES_AND_KEPT_BY_GOAL: dict[GoalName, tuple[int, int]] = {
    "cost": (30_000, 4),
    "balanced": (50_000, 6),
    "quality": (80_000, 10),
}
"""By goal: bytes of messages above which the preset acts, and number of newest results kept
whole."""


def build_mask_over_bytes_policy(config: PolicyConfig, goal: Goal = "balanced") -> Policy:
    keep = COMPACT_BYTES_AND_KEPT_BY_GOAL[name_of_goal(goal)][1]

    def words(strategy: TruncateStrategy, kept: int, total: int) -> str:
        if strategy == "head":
            return format_byte_truncation_indicator(kept, total)
        return format_truncation_indicator(strategy, bytes_to_tokens(kept), bytes_to_tokens(total))

    def decide(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        preset_cap = TextCap(
            amount=COMPACT_MAX_RESULT_BYTES,
            unit="bytes",
            format_indicator=words,
            indicator_is_extra=True,
        )
        truncate_unsent_results(plan, config, preset_cap)
        apply_history_cap(plan, config)
        limit = compute_compact_trigger_bytes(config, goal, budget)
        if plan.bytes > limit:
            why = f"{plan.bytes} bytes over {limit}"
            shrink_older_results_to_first_lines(
                plan, config, keep, why, lambda: plan.bytes <= limit
            )
        return plan.to_decision(
            summary_tokens=config.summary.max_tokens, frontier=plan.oldest_maskable_seq()
        )

    return decide


def compute_compact_trigger_bytes(config: PolicyConfig, goal: Goal, budget: Budget) -> int:
    """Return the bytes of messages above which `compact` acts.

    It is the user's number or the goal's, but at most what is available.
    """
    user_limit = config.max_context_bytes
    return min(
        COMPACT_BYTES_AND_KEPT_BY_GOAL[name_of_goal(goal)][0] if user_limit is None else user_limit,
        budget.available * 4,
    )


ROLLING_MAX_RESULT_TOKENS = 8_000
ROLLING_TARGET_SHARE = 0.7
"""Target share of the room for summaries if the messages to keep exceed it."""


def build_rolling_policy(config: PolicyConfig, summary_mode: SummaryMode = "extractive") -> Policy:
    summary = config.summary
    cap = summary.max_tokens or MAX_EXTRACT_TOKENS
    list_tokens = summary.list_tokens_under("rolling")

    def decide(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        truncate_unsent_results(plan, config, TextCap(amount=ROLLING_MAX_RESULT_TOKENS))
        cut_oversized_newest_texts(plan, budget.room)
        apply_history_cap(plan, config)
        mask_middle_results_if_configured(plan, config)
        if plan.visible_messages <= summary.window and plan.tokens <= budget.room:
            return plan.to_decision(summary_tokens=cap, list_tokens=list_tokens)
        over = plan.tokens > budget.room
        must_compact = plan.visible_messages >= summary.forced
        older = [
            g
            for g in list_older_groups(plan, summary.keep)
            if must_compact or not plan.holds_keep_last_result(g)
        ]
        why = f"{plan.visible_messages} messages, window {summary.window}"
        if over or must_compact or summary_mode == "extractive":
            # Where the newest messages alone are over the room, the oldest of them are summarised,
            # too: what is not would be dropped.
            may_go = append_missing_groups(older, list_older_groups(plan, 0)) if over else older
            before = plan.bound()
            with plan.undo_unless(lambda: not must_compact or plan.bound() < before):
                summarise_extractively_to_target(
                    plan,
                    may_go,
                    compute_plan_tokens_to_reach(
                        plan, may_go, int(ROLLING_TARGET_SHARE * budget.room), budget.room
                    ),
                    why,
                    min_groups=len(older),
                    max_tokens=cap,
                    list_tokens=list_tokens,
                )
            if must_compact and plan.visible_messages >= summary.forced:
                hide_groups_of_short_messages(
                    plan, older, why, max_tokens=cap, list_tokens=list_tokens
                )
            older = []
            apply_history_cap(plan, config)  # a summary of what was found since counts as history
        return plan.to_decision(
            span_to_summarise=build_span_to_summarise(plan, older),
            summary_tokens=cap,
            list_tokens=list_tokens,
        )

    return decide


THRESHOLDS_MAX_RESULT_CHARS = 8_000


def build_thresholds_policy(
    config: PolicyConfig, summary_mode: SummaryMode = "extractive"
) -> Policy:
    at = config.thresholds
    cap = config.summary.max_tokens
    list_tokens = config.summary.list_tokens_under("thresholds")

    def decide(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        truncate_unsent_results(
            plan, config, TextCap(amount=THRESHOLDS_MAX_RESULT_CHARS, unit="chars")
        )
        apply_history_cap(plan, config)
        mask_middle_results_if_configured(plan, config)
        soft = budget.tokens_at_share(at.summarise)
        hard = budget.tokens_at_share(at.trim)
        cut_oversized_newest_texts(plan, hard)
        if plan.tokens <= soft:
            return plan.to_decision(summary_tokens=cap, list_tokens=list_tokens)
        all_older = list_older_groups(plan, at.keep)
        older = [group for group in all_older if not plan.holds_keep_last_result(group)]
        over = plan.tokens > hard
        if over or summary_mode == "extractive":
            # Above the trim the oldest of the newest messages are summarised, too, as far as it
            # takes: what is not would be dropped.
            may_go = append_missing_groups(older, list_older_groups(plan, 0) if over else all_older)
            summarise_extractively_to_target(
                plan,
                may_go,
                compute_plan_tokens_to_reach(plan, may_go, soft, hard),
                f"{plan.tokens} tokens over {at.summarise:.0%}",
                min_groups=len(older),
                max_tokens=cap,
                list_tokens=list_tokens,
            )
            older = all_older = []
            apply_history_cap(plan, config)
        if plan.tokens > hard:
            plan.drop_oldest(
                lambda: plan.tokens <= soft, f"{plan.tokens} tokens over {at.trim:.0%}"
            )
        return plan.to_decision(
            span_to_summarise=build_span_to_summarise(plan, older or all_older),
            summary_tokens=cap,
            list_tokens=list_tokens,
        )

    return decide


def build_keep_everything_policy(config: PolicyConfig) -> Policy:
    def decide(window: Window, budget: Budget) -> Decision:
        plan = Plan(window, budget)
        apply_user_config(plan, config)
        return plan.to_decision(summary_tokens=config.summary.max_tokens)

    return decide


PolicyName = Literal["full", "layered", "compact", "rolling", "thresholds", "auto"]
"""The names of the presets, for annotations."""
POLICY_NAMES: tuple[PolicyName, ...] = (
    "full",
    "layered",
    "compact",
    "rolling",
    "thresholds",
    "auto",
)
DEFAULT_POLICY_NAME: PolicyName = "auto"


def build_policy(
    name: str, config: PolicyConfig, *, goal: Goal, summary_mode: SummaryMode
) -> Policy:
    """Return the preset of this name with the user's settings."""
    match name:
        case "full":
            return build_keep_everything_policy(config)
        case "layered":
            return build_layered_caps_policy(config)
        case "compact":
            return build_mask_over_bytes_policy(config, goal)
        case "rolling":
            return build_rolling_policy(config, summary_mode)
        case "thresholds":
            return build_thresholds_policy(config, summary_mode)
        case "auto":
            return build_auto_policy(config, goal, summary_mode)
        case _:
            raise ValueError(f"unknown policy {name!r}; choose one of {', '.join(POLICY_NAMES)}")
