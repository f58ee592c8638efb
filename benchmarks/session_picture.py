"""One recorded session under three ways to fit the window: writes docs/img/session.svg.

    python -m benchmarks.session_picture            # measures, stores the figures, and draws
    python -m benchmarks.session_picture --draw     # draws from the stored figures

The session: of the held-out Claude Code sessions of 100 calls or more whose whole conversation is
larger than the window, the median by number of calls (the lower one of two). Its parts are joined
where its client compacted, without the client's own summaries. System prompt, tools and the size of
a token are learned from the usage of its first part, pauses from the usage of each part.

`everything` sends the whole conversation until it exceeds 200,000 tokens. `provider` is Anthropic's
compaction by its documented rule, at its default of 150,000 tokens. `trimtab` is the default
policy.
Costs are those of `trimtab replay`, at the list prices of claude-sonnet-4-5. For the arrow a
`Context` runs the session again, and recalls each result that is hidden or cut when a later
call names something from it: it must be the recorded text, byte for byte. The longest way back is
drawn. No text of the session is stored or drawn.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from benchmarks import corpus
from benchmarks.halves import take_half
from benchmarks.harness import no_corpus, parser, skip
from benchmarks.peers.adapters.provider_compaction import Server
from benchmarks.peers.measure import Material, build_run
from benchmarks.peers.stand_in import StandIn
from benchmarks.peers.worker import run as run_peer
from benchmarks.recorded import compute_cost, learn_scale, make_baseline, make_setup
from benchmarks.samples import CLAUDE_MODEL, WINDOW
from trimtab import Context
from trimtab.dialects.openai_chat.codec import serialize_history
from trimtab.replay.billing import get_provider_pricing
from trimtab.replay.calls import EVERYTHING, ConversationRun
from trimtab.replay.needs import NO_NEEDS, CallNeeds, EarlierReference, find_needs, sum_need_counts
from trimtab.replay.prompt_scale import add_head_stand_in, make_counter, measure_messages
from trimtab.replay.runner import replay_conversation
from trimtab.replay.selection import RecordedConversation
from trimtab.replay.times import estimate_believed_times

MIN_CALLS = 100
TRIGGER = 150_000
RESULTS = Path(__file__).parent / "results" / "session.json"
PICTURE = Path(__file__).parents[1] / "docs" / "img" / "session.svg"
OWN = get_provider_pricing(CLAUDE_MODEL)
RULES = {OWN.name: OWN.rules}
COUNTER = make_counter(CLAUDE_MODEL)
TRIMTAB = make_setup("trimtab", policy="auto")


def choose_session() -> RecordedConversation:
    """Return the session that the rule above names, in one piece."""
    sessions: dict[str, list[RecordedConversation]] = {}
    for one in take_half(corpus.read_recorded("entire_claude_code*.jsonl.gz"), "odd"):
        sessions.setdefault(one.session, []).append(one)
    joined = [_join(parts) for parts in sessions.values() if _count_calls(parts) >= MIN_CALLS]
    long = [one for one in joined if _count_tokens(one) > WINDOW]
    median = statistics.median_low(one.calls for one in long)
    return min((one for one in long if one.calls == median), key=lambda one: one.id)


def _count_calls(parts: Sequence[RecordedConversation]) -> int:
    return sum(part.calls for part in parts)


def _count_tokens(session: RecordedConversation) -> int:
    scale = learn_scale(_first_part(session))
    return round(scale.ratio * (scale.head + sum(measure_messages(session.messages, COUNTER))))


def _join(parts: Sequence[RecordedConversation]) -> RecordedConversation:
    """Join the parts. The times say when the cache was lost; only the first part has its usage."""
    messages = list(parts[0].messages)
    times = estimate_believed_times(parts[0], OWN.rules.ttl)
    for part in parts[1:]:
        # The first message is the client's summary of what came before.
        start = times[-1] + 5.0
        own = estimate_believed_times(part, OWN.rules.ttl)
        times += [start + time - own[0] for time in own[1:]]
        messages += part.messages[1:]
    return replace(parts[0], messages=tuple(messages), times=tuple(times))


def _first_part(session: RecordedConversation) -> RecordedConversation:
    """Return the part of a session to which its recorded usage belongs."""
    last = max(session.recorded, default=-1)
    return replace(session, messages=session.messages[: last + 1], times=None)


def measure() -> dict[str, Any]:
    """Return the figures of the three lanes, call by call and added up."""
    session = choose_session()
    scale = learn_scale(_first_part(session))
    needs = find_needs(session.messages)
    bare = replace(session, recorded={})
    everything = replay_conversation(bare, make_baseline(), RULES, needs, scale=scale)
    wide = make_setup(EVERYTHING, policy=EVERYTHING, context_window=100 * WINDOW)
    whole = replay_conversation(bare, wide, RULES, needs, scale=scale)
    provider = _replay_provider(bare, needs, scale)
    trimtab = replay_conversation(bare, TRIMTAB, RULES, needs, scale=scale)
    sent = len(everything.calls)
    return {
        "calls": len(whole.calls),
        "whole": [call.tokens for call in whole.calls],
        "head": round(scale.head * scale.ratio),
        "refused_at": sent + 1,
        "lanes": {
            "everything": _describe_lane(everything, sent),
            "provider": _describe_lane(provider, sent),
            "trimtab": _describe_lane(trimtab, sent),
        },
        **_recall_one(bare, needs, add_head_stand_in(bare, scale, COUNTER), scale.ratio),
    }


def _replay_provider(
    session: RecordedConversation, needs: dict[int, CallNeeds], scale: Any
) -> ConversationRun:
    material = Material(session, needs, scale)
    stand_in = StandIn()
    head = round(material.head.tokens * scale.ratio)
    server = Server(stand_in, rule="anthropic", trigger=TRIGGER, head=head)
    answers = run_peer(server, material.build_job({}), stand_in)
    return build_run(material, "provider", answers, RULES, in_provider=True)


def _describe_lane(run: ConversationRun, shared: int) -> dict[str, Any]:
    price = (OWN.price or 0.0) / 1_000_000
    costs = [price * compute_cost(call, OWN) for call in run.calls]
    needs = sum_need_counts(call.needs for call in run.calls)
    return {
        "tokens": [call.tokens for call in run.calls],
        "dollars_until_refused": round(sum(costs[:shared]), 2),
        "dollars": round(sum(costs), 2),
        "recall": round(needs.seen / max(1, needs.references), 4),
        "far": round(needs.far_seen / max(1, needs.far), 4),
        "breaks": [number for number, call in enumerate(run.calls, 1) if call.broke],
        "summaries": [number for number, call in enumerate(run.calls, 1) if call.summarised],
    }


def _recall_one(
    session: RecordedConversation,
    needs: dict[int, CallNeeds],
    with_head: RecordedConversation,
    ratio: float,
) -> dict[str, Any]:
    """Run the session through a `Context`, and recall hidden results that later calls name."""
    context = Context(
        CLAUDE_MODEL,
        system=with_head.system[-1].text,
        context_window=int(WINDOW / ratio),
        policy="auto",
        clock=lambda: 0.0,
    )
    positions: list[int] = []
    numbers: dict[int, int] = {}
    recall: dict[str, int] = {}
    distance = 0
    words = next(one.text for one in session.messages if one.role == "user" and one.text)
    rule_calls = 0
    for index, wire in enumerate(serialize_history(session.messages)):
        if wire["role"] == "assistant":
            numbers[index] = len(numbers) + 1
            request = context.request()
            rule_calls += json.dumps(words)[1:-1] in json.dumps(request)
            for need in needs.get(index, NO_NEEDS).references:
                reply = _recall_source(context, session, positions, need)
                if reply is not None and numbers[index] - numbers[reply] > distance:
                    distance = numbers[index] - numbers[reply]
                    recall = {"recalled_at": numbers[index], "returned_at": numbers[reply]}
        context.add(wire)
        positions.append(context.window.seq)
    return {**recall, "calls_with_the_users_first_message": rule_calls}


def _recall_source(
    context: Context,
    session: RecordedConversation,
    positions: Sequence[int],
    need: EarlierReference,
) -> int | None:
    """Recall the newest result that contains what a call names, if it is hidden or cut.

    Return the index of the reply that asked for it. None if there is no such result.
    """
    source = need.sources[-1]
    entry = context.window.entries[positions[source]]
    results = session.messages[source].results
    edited = [part for part, edit in entry.edits.items() if edit.op in ("mask", "truncate")]
    if not results or not edited:
        return None
    part = edited[0]
    text = context.recall(f"m{positions[source]}.{part}")
    assert text == results[part].text, "what is recalled is not what was recorded"
    calls = [i for i in range(source) if session.messages[i].role == "assistant"]
    return calls[-1]


WIDTH, PLOT, LEFT, SIDE = 640, 372, 10, 402
LANE, GAP, TOP = 104, 74, 62
STYLE = """
text { font-family: -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }
text { font-size: 14px; fill: #1f2328 }
.paper { fill: #ffffff }
.title { font-size: 16px; font-weight: 600 }
.soft { fill: #59636e }
.bad { fill: #b3261e }
.good { fill: #1a7f37 }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.limit { stroke: #59636e; stroke-width: 1; stroke-dasharray: 4 4 }
.sent { fill: #4a7fd6 }
.gone { fill: #d0d7de }
.hatch { stroke: #4a7fd6; stroke-width: 1.6 }
.rule { fill: #1a7f37 }
.cross { stroke: #b3261e; stroke-width: 3 }
.halo { stroke: #ffffff; stroke-width: 6; fill: none }
.arrow { stroke: #1a7f37; stroke-width: 2.5; fill: none }
.tip { fill: #1a7f37; stroke: #ffffff; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
 text { fill: #f0f6fc }
 .paper { fill: #0d1117 }
 .soft { fill: #9198a1 }
 .bad { fill: #ff7b72 }
 .good { fill: #3fb950 }
 .grid { stroke: #3d444d }
 .limit { stroke: #9198a1 }
 .gone { fill: #3d444d }
 .rule { fill: #3fb950 }
 .cross { stroke: #ff7b72 }
 .halo { stroke: #0d1117 }
 .arrow { stroke: #3fb950 }
 .tip { fill: #3fb950; stroke: #0d1117 }
}
"""


def draw(figures: dict[str, Any]) -> str:
    """Draw three lanes above one another, call number across, and what they come to beside them."""
    lanes = figures["lanes"]
    refused = figures["refused_at"]
    calls = figures["calls"]
    height = TOP + 3 * (LANE + GAP) + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(_describe(figures))}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
        (
            '<defs><pattern id="hidden" width="7" height="7" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><path class="hatch" d="M0 0V7"/></pattern></defs>'
        ),
        _text(LEFT, 20, f"One recorded session, {calls} calls, window of 200,000 tokens", "title"),
        *_legend(),
    ]
    everything, provider, trimtab = (TOP + number * (LANE + GAP) + 26 for number in range(3))
    parts += [
        *_frame(figures, everything, "Everything"),
        _area(figures, everything, lanes["everything"]["tokens"], "sent"),
        *_cross(figures, everything),
        *_side(
            everything,
            [
                (
                    f"${lanes['everything']['dollars_until_refused']:.2f} for {refused - 1} calls",
                    "",
                ),
                ("all names sent, until then", ""),
                ("then nothing is answered", "bad"),
            ],
        ),
        *_frame(figures, provider, "The provider's compaction, by its documented rule"),
        _area(figures, provider, figures["whole"], "gone"),
        _area(figures, provider, lanes["provider"]["tokens"], "sent"),
        *_side(provider, [*_list_costs(figures, "provider"), ("cannot be read back", "bad")]),
        *_marks(figures, provider),
        *_frame(figures, trimtab, "Trimtab, default policy"),
        _area(figures, trimtab, figures["whole"], "hidden"),
        _area(figures, trimtab, lanes["trimtab"]["tokens"], "sent"),
        *_rule(figures, trimtab),
        *_arrow(figures, trimtab),
        *_side(trimtab, [*_list_costs(figures, "trimtab"), ("read back byte for byte", "good")]),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _describe(figures: dict[str, Any]) -> str:
    return (
        f"One recorded session of {figures['calls']} calls in three "
        f"lanes. Everything is refused at "
        f"call {figures['refused_at']}. The provider's compaction drops text that cannot be read "
        "back. Trimtab hides results, keeps the user's words, and recalls byte for byte."
    )


def _list_costs(figures: dict[str, Any], name: str) -> list[tuple[str, str]]:
    lane = figures["lanes"][name]
    return [
        (f"${lane['dollars_until_refused']:.2f} for {figures['refused_at'] - 1} calls", ""),
        (f"${lane['dollars']:.2f} for all {figures['calls']}", ""),
        (f"{lane['recall']:.1%} of later names sent".replace("%", " %"), ""),
    ]


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(text)}</text>'


def _across(figures: dict[str, Any], number: float) -> float:
    return LEFT + PLOT * number / figures["calls"]


def _up(figures: dict[str, Any], top: float, tokens: float) -> float:
    return top + LANE - LANE * tokens / max(*figures["whole"], WINDOW)


def _frame(figures: dict[str, Any], top: float, title: str) -> list[str]:
    limit = _up(figures, top, WINDOW)
    bottom = top + LANE
    return [
        _text(LEFT, top - 12, title, "title"),
        f'<path class="grid" d="M{LEFT} {bottom:.1f}H{LEFT + PLOT}"/>',
        f'<path class="limit" d="M{LEFT} {limit:.1f}H{LEFT + PLOT}"/>',
        _text(LEFT, limit - 4, "200k", "soft"),
        _text(LEFT, bottom + 16, "call 1", "soft"),
        _text(LEFT + PLOT, bottom + 16, str(figures["calls"]), "soft", "end"),
    ]


def _area(figures: dict[str, Any], top: float, tokens: Sequence[int], kind: str) -> str:
    bottom = top + LANE
    steps = "".join(
        f"V{_up(figures, top, size):.1f}H{_across(figures, number):.1f}"
        for number, size in enumerate(tokens, 1)
    )
    style = 'fill="url(#hidden)"' if kind == "hidden" else f'class="{kind}"'
    return f'<path {style} d="M{LEFT} {bottom:.1f}{steps}V{bottom:.1f}Z"/>'


def _legend() -> list[str]:
    """Name the colours. A picture has no other explanation of them."""
    parts: list[str] = []
    x = LEFT
    for style, name in (
        ('class="sent"', "tokens sent"),
        ('class="gone"', "dropped"),
        ('fill="url(#hidden)"', "hidden, can be recalled"),
    ):
        parts += [
            f'<rect {style} x="{x}" y="31" width="14" height="14"/>',
            _text(x + 20, 43, name, "soft"),
        ]
        x += 36 + 8 * len(name)
    return parts


def _marks(figures: dict[str, Any], top: float) -> list[str]:
    return [
        _text(_across(figures, number), top + LANE + 16, f"call {number}: summarised", "", "middle")
        for number in figures["lanes"]["provider"]["summaries"][:1]
    ]


def _cross(figures: dict[str, Any], top: float) -> list[str]:
    x = _across(figures, figures["refused_at"])
    y = _up(figures, top, WINDOW)
    return [
        f'<path class="cross" d="M{x - 6:.1f} {y - 6:.1f}l12 12m0 -12l-12 12"/>',
        _text(x, top + LANE + 16, f"call {figures['refused_at']}: refused", "bad", "middle"),
    ]


def _rule(figures: dict[str, Any], top: float) -> list[str]:
    if figures["calls_with_the_users_first_message"] != figures["calls"]:
        return []
    return [
        f'<rect class="rule" x="{LEFT}" y="{top + LANE - 4:.1f}" width="{PLOT}" height="4"/>',
        _text(LEFT + PLOT / 2, top + LANE + 16, "the user's first words stay", "good", "middle"),
    ]


def _arrow(figures: dict[str, Any], top: float) -> list[str]:
    if "recalled_at" not in figures:
        return []
    start = _across(figures, figures["recalled_at"])
    end = _across(figures, figures["returned_at"])
    y = top + LANE - 14
    bow = f"M{start:.1f} {y:.1f}C{start:.1f} {y - 40:.1f} {end:.1f} {y - 40:.1f} {end:.1f} {y:.1f}"
    return [
        f'<path class="halo" d="{bow}"/>',
        f'<path class="arrow" d="{bow}"/>',
        f'<path class="tip" d="M{end - 6:.1f} {y - 7:.1f}h12l-6 10z"/>',
    ]


def _side(top: float, lines: Sequence[tuple[str, str]]) -> list[str]:
    return [
        _text(SIDE, top + 16 + 24 * number, text, kind) for number, (text, kind) in enumerate(lines)
    ]


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--draw", action="store_true", help="draw the stored figures again")
    asked = arguments.parse_args()
    if not asked.draw and not asked.quick:
        missing = no_corpus()
        if missing is not None:
            return skip(missing, as_json=asked.json)
        RESULTS.write_text(json.dumps(measure()) + "\n", encoding="utf-8")
    figures = json.loads(RESULTS.read_text(encoding="utf-8"))
    PICTURE.write_text(draw(figures), encoding="utf-8")
    print(json.dumps(figures) if asked.json else PICTURE.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
