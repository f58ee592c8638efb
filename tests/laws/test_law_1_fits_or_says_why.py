"""By the declared upper bound, input and requested output are within the limit; or a typed error
names the parts that cannot shrink and their sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.laws.lives import law
from tests.laws.oracle import (
    Told,
    anchor_of,
    bound_of,
    pictures_of,
    settings_at,
    tell,
    tokens_of_parts,
    under,
    was_refused,
)
from tests.laws.wires import said
from tests.strategies.life import Hooks, Life, live
from tests.strategies.logs import Configure, Results, Setup, Story, Touch, Turn, Words, stories
from trimtab.engine.log.event import CallOutcome, Edit, Event, ModelCall, Settings
from trimtab.engine.log.message import Message, OpaqueBlock, Text, ToolCall, ToolResult
from trimtab.engine.policy.budget import PRESETS_HIDING_ON_REFUSAL
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.engine.tokens.counter import (
    TokenCounter,
    measure_message_parts,
    measure_part,
    measure_request_head,
)
from trimtab.errors import CannotFit


def limit_of(events: Sequence[Event]) -> int:
    """The user's own limit, or a lower one that the provider taught of this model and window."""
    now = settings_at(events)
    own = now.limits.get("max_input_tokens") or now.limits["context_window"]
    taught = own
    before = now
    for event in events:
        match event.body:
            case Settings() as body:
                taught = taught if same_window(before, body) else own
                before = body
            case CallOutcome(error=dict() as error):
                taught = error.get("limit", taught)
            case _:
                pass
    return min(own, taught)


def refused_above(events: Sequence[Event], limit: int) -> bool:
    """Whether a refusal that named no figure taught a limit: no more than what was refused may be,
    and no less than any window is."""
    calls = {event.seq: event.body for event in events if isinstance(event.body, ModelCall)}
    ends = [event.body for event in events if isinstance(event.body, CallOutcome)]
    refused = [
        calls[end.call].bound + calls[end.call].max_output
        for end in ends
        if (end.error or {}).get("kind") == "overflow" and "limit" not in (end.error or {})
    ]
    return 1_000 <= limit <= min(limit_of(events), max(refused, default=0))


def same_window(one: Settings, other: Settings) -> bool:
    windows = [each.limits["context_window"] for each in (one, other)]
    return (one.model, one.dialect) == (other.model, other.dialect) and windows[0] == windows[1]


def output_of(request: dict[str, Any]) -> int:
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    return next(request[name] for name in names if name in request)


def outputs(life: Life) -> tuple[int, int]:
    """The least and the most output that may be asked for: the user's word, or a share."""
    now = settings_at(life.events)
    own = now.limits.get("max_output_tokens")
    thinks = now.params.get("thinking", {}).get("budget_tokens", 0)
    reply = min(8_192, max(1, (limit_of(life.events) - thinks) // 4))
    most = min(reply + thinks, now.entry["max_output"])
    if refused := was_refused(life.events):
        least = min(own or most, 256 + thinks)
        # The documents' presets hide at once, and ask for less where that changed nothing. So does
        # any other if the window is not half of what was believed.
        believed = now.limits.get("max_input_tokens") or now.limits["context_window"]
        learned = life.context.window.accounting.learned_limit or believed
        hides = now.policy in PRESETS_HIDING_ON_REFUSAL or learned < believed // 2
        return least, least if refused == "unsaid" and not hides else own or most
    return (own, own) if own else (min(most, 256 + thinks), most)


def it_fits(life: Life, request: dict[str, Any]) -> None:
    call = life.last_call
    assert call.bound == bound_of(life.events, call, life.context.window.counter)
    told = tell(life.events[: call.position])
    assert call.media == pictures_of(told, life.context.window.counter)
    least, most = outputs(life)
    assert least <= output_of(request) == call.max_output <= most
    assert call.bound + call.max_output <= limit_of(life.events)
    assert on_the_wire(life, request) <= call.bound, "something is sent that is not counted"


def on_the_wire(life: Life, request: dict[str, Any]) -> int:
    """The estimate of all texts in the request, with nothing for what surrounds them."""
    window = life.context.window
    count = window.counter.count
    call = life.last_call
    now = window.settings
    total = measure_request_head(now.system, now.tools, window.counter, now.params).tokens
    total += count(call.volatile) if call.volatile else 0
    # A wire may say the summary and a user's words in one text: they are counted one by one.
    front = tell(life.events[: call.position]).front(now.recall)
    for piece in said(request, window.settings, call.volatile, front):
        # Of an odd text the estimate may be lower with the id of its call before it.
        total += min(count(piece.text), count(f"{piece.id}\n{piece.text}"))
    return total


def is_last(told: Told, seq: int) -> bool:
    """Whether it was said in the active round, or is the newest user message."""
    return seq in told.rounds[-1].seqs or seq == told.newest_user


def may_be_cut(told: Told, seq: int, part: int) -> bool:
    """Results, pictures, older calls; what users said last, older replies and instructions."""
    message = told.messages[seq]
    said = message.parts[part]
    if seq in told.pinned or isinstance(said, OpaqueBlock):
        return False
    match message.role:
        case "assistant":
            return not is_last(told, seq) and not (isinstance(said, ToolCall) and seq in told.open)
        case "user" | "tool":
            return is_last(told, seq) or not isinstance(said, Text)
        case "system":
            return True


def uncuttable(told: Told, seq: int, counter: TokenCounter) -> int:
    now = tokens_of_parts(told, seq, counter)
    parts = range(len(told.messages[seq].parts))
    return sum(now[part] for part in parts if not may_be_cut(told, seq, part))


def smallest(told: Told, seq: int, counter: TokenCounter) -> int:
    """Tokens of a message that must stay, with all cut from it that may be cut; what users said
    last stays as it is here."""
    now = tokens_of_parts(told, seq, counter)
    message = told.messages[seq]
    return uncuttable(told, seq, counter) + sum(
        min(now[part], placeholder(message, part, counter))
        for part in range(len(message.parts))
        if may_be_cut(told, seq, part) and not is_question(told, seq, part)
    )


def is_question(told: Told, seq: int, part: int) -> bool:
    """Whether it is a text that a user said last."""
    message = told.messages[seq]
    asks = message.role in ("user", "tool") and seq not in told.pinned and is_last(told, seq)
    return asks and isinstance(message.parts[part], Text)


def questions(told: Told, room: int, counter: TokenCounter) -> int:
    """Tokens of what users said last that stay, with the sign of what was cut: all of them, or a
    quarter of the room together."""
    sizes = [
        tokens_of_parts(told, seq, counter)[part]
        for seq, message in told.messages.items()
        for part in range(len(message.parts))
        if is_question(told, seq, part)
    ]
    return min(sum(sizes), room // 4 + 40 * len(sizes) + 32)


REPLY = 200
"""Tokens of an older reply that stay."""
SIGN = "[truncated: kept first+last ~0 of ~100000 tokens (both) · recall m100.10]"
SHORTENED = (
    "[shortened: ~100 of ~100000 tokens are shown: 1,000 of 100,000 lines, 100 of them in between "
    "look like errors, 10,000 repeated lines left out · recall m100.10]"
)


def placeholder(message: Message, part: int, counter: TokenCounter) -> int:
    """Tokens of the part with nothing in it but the words that say so, at their longest."""
    said = message.parts[part]
    if isinstance(said, ToolCall):
        words = "[~100000 tokens of this call are not shown; this line was never sent to the tool"
        edit = Edit(op="truncate", first=0, last=0, head=200, text=f"{words} · recall m100.10]")
        return measure_part(under(said, edit), counter).tokens
    if isinstance(said, ToolResult):
        words = Text(text=SHORTENED)
        said = ToolResult(call_id=said.call_id, content=(words,), extra=said.extra)
        return measure_part(said, counter).tokens
    size = measure_message_parts(Message(role="user", parts=(Text(text=SIGN),)), counter)[0].tokens
    kept = {"assistant": REPLY, "system": 40}.get(message.role, 0)
    return size + kept


def nothing_is_left_to_hide(life: Life, error: CannotFit, volatile: str | None) -> None:
    events, counter = life.events, life.context.window.counter
    now, told = settings_at(events), tell(events)
    budget = life.context.budget(volatile)
    assert error.limit == limit_of(events) or refused_above(events, error.limit)
    kept = [seq for g, seqs in enumerate(told.groups) if told.fixed(g) for seq in seqs]
    head = measure_request_head(now.system, now.tools, counter, now.params).tokens
    least = sum(smallest(told, seq, counter) for seq in kept) + head + budget.volatile
    least += questions(told, replace(budget, max_output=budget.least_output).room, counter)
    ratio = min(max(anchor_of(events)[1], 1.0), 4.0)
    needed = math.ceil(least * ratio * (1 + counter.unanchored_margin)) + outputs(life)[0]
    # The notice and the summary stay, too: they are what tells the model that something is hidden.
    # A provider that refused what fits by all that we know has a limit that nobody named.
    if error.refusal is None:
        assert error.needed > error.limit
        assert ODD * needed + FRONT > error.limit, (needed, error)
    named_sizes_are_real(told, error, counter, cuts_anything=now.policy not in POLICY_NAMES)
    assert error.parts["system prompt and tools"] == head
    # After a refusal without a figure it tells of what was refused.
    told_of = outputs(life)[0] if error.refusal is None else life.last_call.max_output
    assert error.parts["requested output"] == told_of


ODD = 2
"""How many times the estimate of an odd text may be what it is behind other words."""
FRONT = 1_000
"""Tokens, at most, of a notice and of an extractive summary, with the margin."""


def named_sizes_are_real(
    told: Told, error: CannotFit, counter: TokenCounter, *, cuts_anything: bool
) -> None:
    """A policy of one's own may have cut on paper what the presets and the guard never cut."""
    for name, size in error.parts.items():
        if " message m" not in name:
            continue
        seq = int(name.rpartition(" m")[2])
        group = told.group_of(seq)
        # A short instruction stays where the notice of its drop would be longer.
        instructs = any(told.messages[s].role == "system" for s in told.groups[group])
        # What loaded a tool stays with a call of it.
        loads = any(loader == group and told.fixed(caller) for loader, caller in told.loaded)
        assert told.fixed(group) or instructs or loads, f"{name} could have been dropped"
        least = 0 if cuts_anything else uncuttable(told, seq, counter)
        assert least <= size <= sum(tokens_of_parts(told, seq, counter))
        assert told.messages[seq].role in name


FOUND = {
    "a long reply beside a pinned result, and a model that counts it higher": Story(
        setup=Setup(policy="layered", window=5_000),
        steps=(
            Turn(calls=("a", "b"), words=Words(unit="0123456789 ", size=6_000), opaque=True),
            Results(),
            Configure(changes={"model": "somebody/unknown", "dialect": "openai_chat"}),
            Touch(what="pin", which=2),
        ),
    ),
}
"""Lives in which a request once did not fit though something could have been hidden."""


@pytest.mark.parametrize("name", FOUND)
def test_what_once_did_not_fit_does(name: str):
    live(FOUND[name], Hooks(asked=it_fits, refused=nothing_is_left_to_hide))


@law(stories)
def test_a_request_fits_by_its_bound_or_an_error_names_what_cannot_shrink(story: Story) -> Hooks:
    return Hooks(asked=it_fits, refused=nothing_is_left_to_hide)
