"""Whether what is always sent leaves room for a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab.cli.doctor.finding import Finding, bad, ok, warn
from trimtab.cli.words import listed
from trimtab.context import Context
from trimtab.core.ledger import Ledger
from trimtab.session.tools import Tool

MOST = 0.5
"""Share of the window that system prompt, tools and the reply may take before it is said."""


def window(options: dict[str, Any], tools: Sequence[Tool]) -> Finding:
    """System prompt, tool definitions and the reply against the window."""
    given: dict[str, Any] = {**options, "tools": [tool.definition for tool in tools]}
    report = Context(**given).report()
    taken, reply = report.bound, report.output_reserve
    told = (
        f"{report.limit:,} tokens: {taken:,} sent with every call ({_sent(report, tools)}), "
        f"{reply:,} for the reply, {max(0, report.free):,} for the conversation"
    )
    to_do = "shorten the system prompt, leave out tools, or set a larger model.context_window"
    if report.free <= 0:
        short = f"{taken + reply:,} tokens are needed before a word is said, and the window has "
        return bad("window", f"{short}{report.limit:,}", f"{to_do}; or a model with a larger one")
    if (taken + reply) / report.limit > MOST:
        return warn("window", told, f"{to_do}; or lower model.max_output_tokens")
    return ok("window", told)


def _sent(report: Ledger, tools: Sequence[Tool]) -> str:
    """What is sent with every call, term by term; the terms add up to its upper bound."""
    own = {f"tool definition: {tool.name}" for tool in tools}
    sizes = {"system prompt": 0, "tools": 0, "recall tools": 0, "the provider's for tools": 0}
    for section in report.sections:
        if section.name == "system prompt":
            sizes["system prompt"] += section.tokens
        elif section.name in own:
            sizes["tools"] += section.tokens
        elif section.name.startswith("tool definition: "):
            sizes["recall tools"] += section.tokens
        elif section.name == "tool use":
            sizes["the provider's for tools"] += section.tokens
    sizes["margin"] = report.bound - sum(sizes.values())
    return listed([f"{size:,} {name}" for name, size in sizes.items() if size])
