"""Draws docs/img/auto.svg: the context of one long made-up session under three policies."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from trimtab.engine.log.message import Message, Text, ToolCall, ToolResult, make_text_message
from trimtab.models.catalog import resolve_model_info
from trimtab.replay.billing import build_cache_rules
from trimtab.replay.call_costs import compute_call_cost_in_input_tokens
from trimtab.replay.calls import EVERYTHING, ConversationRun, ReplaySetup
from trimtab.replay.runner import replay_conversation
from trimtab.replay.selection import RecordedConversation

MODEL = "claude-sonnet-4-5"
CALLS = 160
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 370, 60, 46, 20, 110
POLICIES = {"everything": EVERYTHING, "layered": "layered", "auto, goal cost": "auto"}
"""Policies by the names of their lines."""
GRID_TOKENS = 50_000
STYLE = """
text { font-family: -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }
text { font-size: 14px; fill: #1f2328 }
.soft { fill: #59636e }
.paper { fill: #ffffff }
.grid { stroke: #d1d9e0 }
.line { fill: none; stroke-width: 2.5 }
@media (prefers-color-scheme: dark) {
 text { fill: #f0f6fc }
 .soft { fill: #9198a1 }
 .paper { fill: #0d1117 }
 .grid { stroke: #30363d }
}
"""
COLOURS = ("#8a8f98", "#d9822b", "#4a7fd6")
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


def draw_line(run: ConversationRun, top: int) -> str:
    """Tokens over calls, as the points of a polyline."""
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    return " ".join(
        f"{LEFT + width * index / CALLS:.1f},{TOP + height - height * call.tokens / top:.1f}"
        for index, call in enumerate(run.calls)
    )


def draw(runs: dict[str, ConversationRun]) -> str:
    rules = build_cache_rules(resolve_model_info(MODEL))
    top = max(call.tokens for run in runs.values() for call in run.calls)
    height, bottom = HEIGHT - TOP - BOTTOM, HEIGHT - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>Context size over a long session under three policies</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text x="{LEFT}" y="24">Input tokens of each call of a made-up session</text>',
        f'<text class="soft" x="{LEFT}" y="{bottom + 20}">call 1</text>',
        (
            f'<text class="soft" x="{WIDTH - RIGHT}" y="{bottom + 20}" '
            f'text-anchor="end">{CALLS}</text>'
        ),
    ]
    for tokens in range(0, top, GRID_TOKENS):
        y = bottom - height * tokens / top
        parts += [
            f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>',
            (
                f'<text class="soft" x="{LEFT - 8}" y="{y + 5:.1f}" text-anchor="end">'
                f"{tokens // 1_000}k</text>"
            ),
        ]
    for number, ((name, run), colour) in enumerate(zip(runs.items(), COLOURS, strict=True)):
        cost = sum(
            compute_call_cost_in_input_tokens(call, "anthropic", rules) for call in run.calls
        ) / len(run.calls)
        breaks = sum(call.broke for call in run.calls)
        y = bottom + 46 + 22 * number
        parts += [
            f'<polyline class="line" stroke="{colour}" points="{draw_line(run, top)}"/>',
            f'<rect x="{LEFT}" y="{y - 11}" width="12" height="12" fill="{colour}"/>',
            (
                f'<text x="{LEFT + 20}" y="{y}">{name}: {cost:,.0f} fresh input tokens a call, '
                f"{breaks} cache breaks</text>"
            ),
        ]
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    conversation = session()
    rules = {"anthropic": build_cache_rules(resolve_model_info(MODEL))}
    runs: dict[str, ConversationRun] = {}
    for name, policy in POLICIES.items():
        options = {"policy": policy, "context_window": 200_000, "goal": "cost"}
        setup = ReplaySetup(name=name, model=MODEL, options=options)
        runs[name] = replay_conversation(conversation, setup, rules, {})
    OUT.write_text(draw(runs), encoding="utf-8")
    print(OUT.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
