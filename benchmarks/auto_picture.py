"""Draws docs/img/auto.svg: the context of one long made-up session under three policies."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from trimtab.engine.log.message import Message, Text, ToolCall, ToolResult, make_text_message
from trimtab.models.catalog import resolve_model_info
from trimtab.replay.billing import build_cache_rules
from trimtab.replay.runner import ConversationRun, ReplaySetup, replay_conversation
from trimtab.replay.selection import RecordedConversation
from trimtab.replay.setup_costs import compute_call_cost_in_input_tokens

MODEL = "claude-sonnet-4-5"
CALLS = 160
WIDTH, HEIGHT, LEFT, TOP = 760, 300, 60, 46
COLOURS = {"full": "#8a8f98", "layered": "#d9822b", "auto": "#2f6fde"}
OUT = Path(__file__).parents[1] / "docs" / "img" / "auto.svg"


def session() -> RecordedConversation:
    """A coding session: a request every 20 calls, a tool call in each, results of all sizes."""
    pick = random.Random(11)  # noqa: S311  not for secrets
    messages: list[Message] = []
    for call in range(CALLS):
        if call % 20 == 0:
            messages.append(make_text_message("user", f"Please look after part {call // 20}. " * 8))
        asked = ToolCall(id=f"c{call}", name="read", arguments=f'{{"path": "src/part_{call}.py"}}')
        messages.append(Message(role="assistant", parts=(Text(text="Let me see. " * 12), asked)))
        words = " ".join(f"value_{pick.randrange(9_999)}" for _ in range(pick.randrange(40, 420)))
        result = ToolResult(call_id=asked.id, content=(Text(text=words),))
        messages.append(Message(role="tool", parts=(result,)))
    return RecordedConversation(id="session", source="made up", messages=tuple(messages))


def line(run: ConversationRun, top: int) -> str:
    """Tokens over calls, as the points of a polyline."""
    wide, high = WIDTH - LEFT - 20, HEIGHT - TOP - 40
    return " ".join(
        f"{LEFT + wide * i / CALLS:.1f},{TOP + high - high * call.tokens / top:.1f}"
        for i, call in enumerate(run.calls)
    )


def draw(runs: dict[str, ConversationRun]) -> str:
    rules = build_cache_rules(resolve_model_info(MODEL))
    top = max(call.tokens for run in runs.values() for call in run.calls)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
        '<g font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="20" font-size="14" fill="#222">Input tokens, call by call</text>',
    ]
    high = HEIGHT - TOP - 40
    for share in (0.0, 0.5, 1.0):
        y = TOP + high - high * share
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y}" y2="{y}" stroke="#e4e6ea"/>')
        label = f"{top * share / 1_000:.0f}k"
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end" fill="#666">{label}</text>'
        )
    for index, (name, run) in enumerate(runs.items()):
        colour = COLOURS[name]
        parts.append(
            f'<polyline points="{line(run, top)}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        paid = sum(
            compute_call_cost_in_input_tokens(call, "anthropic", rules) for call in run.calls
        ) / len(run.calls)
        breaks = sum(call.broke for call in run.calls)
        text = f"{name}: {paid:,.0f} a call, {breaks} cache breaks"
        x = LEFT + index * 240
        parts.append(f'<rect x="{x}" y="{HEIGHT - 21}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 15}" y="{HEIGHT - 12}" fill="#222">{text}</text>')
    return "\n".join([*parts, "</g></svg>", ""])


def main() -> int:
    conversation = session()
    rules = {"anthropic": build_cache_rules(resolve_model_info(MODEL))}
    runs: dict[str, ConversationRun] = {}
    for name in COLOURS:
        options = {"policy": name, "context_window": 200_000, "goal": "cost"}
        setup = ReplaySetup(name=name, model=MODEL, options=options)
        runs[name] = replay_conversation(conversation, setup, rules, {})
    OUT.write_text(draw(runs), encoding="utf-8")
    print(OUT.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
