"""The newest user message and the active round are there, whole or cut with a sign, never gone.
What was revealed is there until the model has spoken, if it fits."""

from __future__ import annotations

import re
from typing import Any

from tests.laws.lives import law
from tests.laws.oracle import Told, had_recall, said_as, tell
from tests.laws.wires import NOTHING, Piece, pieces
from tests.laws.wires import said as said_in
from tests.strategies.life import Hooks, Life
from tests.strategies.logs import Story, stories
from trimtab.engine.log.edits import ERASED_PLACEHOLDER
from trimtab.engine.log.message import Media, OpaqueBlock, Part, ToolCall, ToolResult
from trimtab.engine.policy import guard, overflow

SIGN = re.compile(
    r"\[(truncated: kept \S+ ~\d+ of ~\d+ tokens \(\w+\)"
    r"|shortened: ~\d+ of ~\d+ tokens are shown: [\d,]+ of [\d,]+ lines.*"
    r"|truncated, showing first \d+ bytes of \d+ total"
    r"|result masked — ~\d+ tokens removed"
    r"|summary of a tool result of ~\d+ tokens, for reference: what it tells is data"
    r"|Previously viewed: .{0,100}"
    r"|\w+ removed"
    r"|(\w+ )?left out: the provider did not take (it|what else was here))( · recall \S+)?\]",
    re.DOTALL,
)

MAY_HIDE = (guard.OVER_LIMIT_REASON, overflow.OVERFLOW_REASON, "wild")
"""What goes before a wish to see something: the limit, and a policy of one's own."""


def kind_of(part: Part, *, note: bool) -> str:
    match part:
        case ToolCall():
            return "call"
        case ToolResult():
            return "text" if note else "result"
        case Media():
            return "media"
        case OpaqueBlock():
            return "opaque"
        case _:
            return "text"


def cuts_have_a_sign(life: Life, told: Told, seq: int) -> None:
    for part, said in enumerate(told.messages[seq].parts):
        edit = told.edits.get((seq, part))
        if edit is None or edit.text == ERASED_PLACEHOLDER:
            continue
        sign = SIGN.search(edit.text)
        assert sign is not None, f"{edit.text!r} does not say that m{seq}.{part} was cut"
        if had_recall(life.events, edit):
            assert f" · recall m{seq}.{part}]" in edit.text
        assert not isinstance(said, ToolCall | OpaqueBlock), f"a {type(said).__name__} was cut"


def is_there(told: Told, seq: int, found: list[Piece]) -> None:
    message = told.messages[seq]
    # Anthropic refuses a reply to be continued that ends in white space, so that is not sent.
    texts = [(piece.kind, piece.text.rstrip()) for piece in found]
    said = False
    for part in range(len(message.parts)):
        shown = told.shown(seq, part)
        note = (seq, part) in told.notes
        text, kind = said_as(shown, note=note), kind_of(shown, note=note)
        if kind in ("call", "media", "opaque"):
            continue  # calls are law 2's; media and opaque parts are for some dialects only
        if text:
            assert (kind, text.rstrip()) in texts, (
                f"m{seq}.{part} is not in the request: {text[:60]!r}"
            )
            said = True
        elif kind == "result":
            said = True
    if not said and not message.calls and message.role == "user":
        # Something stands for a message without any text: a filler, its media, or an empty text.
        assert any(stands_for_nothing(piece) for piece in found)


def stands_for_nothing(piece: Piece) -> bool:
    text = piece.text.strip()
    blank = piece.kind == "media" or text in ("", NOTHING) or "omitted" in text
    return blank and piece.role == "user"


def newest_is_there(life: Life, request: dict[str, Any]) -> None:
    told = tell(life.events)
    now = life.context.window.settings
    found = pieces(request, now, life.last_call.volatile, told.front(now.recall))
    due = list(told.rounds[-1].seqs) if told.rounds else []
    if told.newest_user is not None and told.newest_user not in due:
        due.insert(0, told.newest_user)
    for seq in due:
        assert told.group_of(seq) not in told.hidden, f"m{seq} is hidden"
        cuts_have_a_sign(life, told, seq)
        is_there(told, seq, found)
    what_was_revealed_is_there(told)
    whole = said_in(request, now, life.last_call.volatile, told.front(now.recall))
    the_rest_is_in_order(told, whole, now.recall)


def what_was_revealed_is_there(told: Told) -> None:
    for group, hidden in told.hidden.items():
        if told.unread(group):
            assert hidden.why in MAY_HIDE, f"group {group} was revealed: {hidden}"


def the_rest_is_in_order(told: Told, found: list[Piece], recall: bool | str) -> None:
    """All that is not hidden is said, in the order in which it was said."""
    # Neighbours of one role may share a text: each of them begins behind an empty line.
    tags = [tag for piece in found for tag in re.findall(r"(?:^|\n\n)(<\d+>)", piece.text)]
    expected = told.front(recall)
    front = [piece.text for piece in found[: len(expected)]]
    assert front == expected
    seen = [
        match[0]
        for round in told.visible()
        for seq, part in ordered(told, round.seqs)
        if (match := re.match(r"<\d+>", said_as(told.shown(seq, part), note=False) or ""))
        and (seq, part) not in told.notes
    ]
    assert tags == seen


def ordered(told: Told, seqs: list[int]) -> list[tuple[int, int]]:
    """The parts of a round: what the assistant said, results in call order, then the rest."""
    round = next(round for round in told.rounds if round.seqs == seqs)
    answers = [answer for answer in round.answers if answer is not None]
    places = [(seq, part) for seq in seqs for part in range(len(told.messages[seq].parts))]
    asked = [p for p in places if told.messages[p[0]].role == "assistant" and p not in answers]
    rest = [p for p in places if p not in answers and p not in asked]
    return [*asked, *answers, *rest]


@law(stories)
def test_the_newest_user_message_and_the_active_round_are_in_every_request(story: Story) -> Hooks:
    return Hooks(asked=newest_is_there)
