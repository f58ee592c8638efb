"""The steps of which presets consist. Each reads a plan and adds to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from trimtab.engine.log.deferred_tools import loads_tools
from trimtab.engine.log.edits import format_first_line_placeholder, format_mask_placeholder
from trimtab.engine.log.text_cuts import TextCap, TruncateStrategy
from trimtab.engine.policy.budget import bytes_to_tokens
from trimtab.engine.policy.config import PerToolResultConfig, PolicyConfig, ResultTruncation
from trimtab.engine.policy.planning.plan import Plan
from trimtab.engine.window.structure import Group, ToolResultView

_DEFAULT_TOOL_CONFIG = PerToolResultConfig()
EXACT_COUNT_MARGIN_TOKENS = 100
"""Number of tokens above a cap from which the list of the user's words is counted, not
estimated."""


PresetCap = TextCap | Callable[[ToolResultView], TextCap] | None
"""A preset's own cap for a result, or a function that returns it."""


def truncate_unsent_results(plan: Plan, config: PolicyConfig, preset_cap: PresetCap) -> None:
    """Cut unsent results to their cap. This is the only edit that never costs a cache write."""
    for result in reversed([*plan.window.unsent_results()]):
        preset = preset_cap(result) if callable(preset_cap) else preset_cap
        if result.edit is not None or result.entry.revealed:
            continue
        tool = config.tools.get(result.tool, _DEFAULT_TOOL_CONFIG)
        truncation = config.truncation_for_tool(result.tool)
        cap = _cap_for_result(tool, config, preset, truncation)
        if cap is not None and not tool.exempt and _may_exceed(result, cap):
            # A result that was summarised is already edited.
            note = "; no summary was made" if truncation == "summary" else ""
            why = f"{result.tool}: over {cap.amount} {cap.unit}{note}"
            plan.truncate(result.entry, result.part, cap, why)


def _cap_for_result(
    tool_config: PerToolResultConfig,
    config: PolicyConfig,
    preset_cap: TextCap | None,
    truncation: ResultTruncation,
) -> TextCap | None:
    tokens = tool_config.max_tool_result_tokens or config.max_tool_result_tokens
    chars = None if tool_config.max_tool_result_tokens else config.max_tool_result_chars
    cap = preset_cap
    if tokens is not None or chars is not None:
        # The user's own cap replaces the preset's amount and words. A preset that counts in bytes
        # also counts the user's tokens in bytes, four for each.
        in_bytes = preset_cap is not None and preset_cap.unit in ("bytes", "bytes/4")
        unit = "chars" if chars is not None else "bytes/4" if in_bytes else "tokens"
        cap = TextCap(
            amount=chars or tokens or 0,
            unit=unit,
            strategy=preset_cap.strategy if preset_cap is not None else "head",
        )
    setting = tool_config.tool_result_truncation or config.tool_result_truncation
    if cap is None or (setting is None and cap.strategy == "lines"):
        return cap
    strategy: TruncateStrategy = "head" if truncation == "summary" else truncation
    return replace(cap, strategy=strategy)


def _may_exceed(result: ToolResultView, cap: TextCap) -> bool:
    size = result.size
    match cap.unit:
        case "tokens":
            return size.tokens > cap.amount
        case "bytes/4":
            return size.bytes > cap.amount * 4
        case "bytes" | "chars":
            return size.bytes > cap.amount


def drop_history_over_cap(plan: Plan, max_tokens: int) -> None:
    """Drop oldest groups until the history before the newest user message is within the cap."""
    limit = min(max_tokens, plan.budget.available) if max_tokens else plan.budget.available
    window = plan.window
    start = plan.window.turn_start_group
    unread_bytes = 0
    if window.conversation.last_reveal_seq > window.read_through_seq:
        # What was revealed comes on top until it was read: nothing else goes for it, nor when the
        # guard lets it go again and a notice stands there.
        unread = [g for g in plan.visible_groups() if g.index < start and plan.is_unread(g)]
        unread_bytes = sum(map(plan.group_bytes, unread))

    def over() -> int:
        notice = plan.notice_growth_bytes() if unread_bytes else 0
        return bytes_to_tokens(plan.bytes - plan.turn_bytes - unread_bytes + notice) - limit

    def enough() -> bool:
        # By an estimate of what is listed more would go than has to: it is counted at the end.
        if 0 < over() <= limit // 8 + EXACT_COUNT_MARGIN_TOKENS:
            plan.settle_user_words()
        return over() <= 0

    plan.drop_oldest(enough, f"history over {limit} tokens", before_group=start)


def drop_messages_over_limit(plan: Plan, max_messages: int) -> None:
    """Drop oldest groups until no more messages are visible than a live session keeps in memory."""
    plan.drop_oldest(lambda: plan.visible_messages <= max_messages, f"over {max_messages} messages")


def mask_middle_results(plan: Plan, config: PolicyConfig, keep_first: int, keep_last: int) -> None:
    """Mask results of the active turn except the first and last ones. If both numbers are 0, mask
    nothing."""
    keep_first = (
        keep_first if config.tool_result_keep_first is None else config.tool_result_keep_first
    )
    keep_last = keep_last if config.tool_result_keep_last is None else config.tool_result_keep_last
    results = plan.window.turn_results
    if (keep_first == 0 and keep_last == 0) or results.count <= keep_first + keep_last:
        return
    exempt = results.keys_at_ends(keep_first, keep_last)
    why = f"middle of {results.count} results"
    exempt |= plan.keep_last_results
    for result in list_maskable_results(plan, config):
        if (
            result.key not in exempt
            and result.entry.round.group.index >= plan.window.turn_start_group
        ):
            size = plan.part_size(result.entry, result.part).bytes
            content = size - len(result.call.id.encode("utf-8", "surrogatepass"))
            plan.mask(
                result.entry, result.part, why, format_mask_placeholder(bytes_to_tokens(content))
            )


def shrink_older_results_to_first_lines(
    plan: Plan,
    config: PolicyConfig,
    keep_last: int,
    reason: str,
    is_enough_before_kept_files: Callable[[], bool],
) -> None:
    """Turn all results except the newest into their first lines. If both numbers are 0, mask
    nothing.

    Results that the user wants hidden last follow only until `is_enough_before_kept_files()` is
    true.
    """
    last = keep_last if config.tool_result_keep_last is None else config.tool_result_keep_last
    first = config.tool_result_keep_first or 0
    if first == 0 and last == 0:
        return
    results = [r for r in plan.window.results.values() if not plan.hides(r.entry.round.group)]
    exempt = {result.key for result in (*results[:first], *results[max(0, len(results) - last) :])}
    for result in order_kept_file_results_last(plan, list_maskable_results(plan, config)):
        if result.key in plan.keep_last_results and is_enough_before_kept_files():
            return
        if result.key not in exempt:
            text = format_first_line_placeholder(get_result_text(result))
            plan.mask(result.entry, result.part, reason, text)


def list_maskable_results(plan: Plan, config: PolicyConfig) -> list[ToolResultView]:
    """Return visible results that a policy may mask, oldest first: read by the model and not
    exempt."""
    read_through = plan.window.read_through_seq
    return [
        result
        for result in plan.window.results.values()
        if max(result.seq, result.entry.revealed) <= read_through
        and not result.entry.pinned
        and not plan.keeps_part(result.entry, result.part)
        and not plan.hides(result.entry.round.group)
        and not config.tools.get(result.tool, _DEFAULT_TOOL_CONFIG).exempt
        and not loads_tools(result.entry.message.parts[result.part])
    ]


def order_kept_file_results_last(plan: Plan, results: list[ToolResultView]) -> list[ToolResultView]:
    """Move results that the user wants hidden last to the end."""
    return (
        sorted(results, key=lambda result: result.key in plan.keep_last_results)
        if plan.keep_last_results
        else results
    )


def get_result_text(result: ToolResultView) -> str:
    part = result.entry.message.results
    return next((p.text for p in part if p is result.entry.message.parts[result.part]), "")


def list_older_groups(plan: Plan, keep_messages: int) -> list[Group]:
    """Return the groups that a summary may replace, in hiding order: all except those with the
    newest messages."""
    return plan.order_for_hiding(iterate_older_groups(plan, keep_messages))


def iterate_older_groups(plan: Plan, keep_messages: int) -> Iterator[Group]:
    """Yield the same groups, oldest first, without reading more groups than needed."""
    newer_messages = 0
    visible = plan.window.visible_groups
    newest_older = None
    for group in reversed(visible.values()):
        if plan.hides(group):
            continue
        if newer_messages >= keep_messages:
            newest_older = group.index
            break
        newer_messages += group.message_count
    for group in visible.values():
        if newest_older is None or group.index > newest_older:
            return
        if not plan.may_hide(group) or plan.is_unread(group):
            continue
        if not plan.is_needed(group, range(newest_older + 1)):
            yield group


def apply_history_cap(plan: Plan, config: PolicyConfig) -> None:
    """Apply the user's history cap in a preset that has none of its own."""
    if config.max_history_tokens:
        drop_history_over_cap(plan, config.max_history_tokens)


def mask_middle_results_if_configured(plan: Plan, config: PolicyConfig) -> None:
    """Apply the user's first and last results in a preset that masks nothing by itself."""
    if config.tool_result_keep_first is not None or config.tool_result_keep_last is not None:
        mask_middle_results(plan, config, 0, 0)


def apply_user_config(plan: Plan, config: PolicyConfig) -> None:
    """Apply everything that the user set in a preset that has no rules of its own."""
    truncate_unsent_results(plan, config, None)
    apply_history_cap(plan, config)
    mask_middle_results_if_configured(plan, config)
