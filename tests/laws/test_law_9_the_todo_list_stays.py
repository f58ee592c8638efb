"""The newest todo list of the agent is in every request, whole, under every policy, until a newer
one replaces it. It is hidden only if it is large, or if nothing is left to hide but what users
said."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from tests.laws.lives import law
from tests.laws.oracle import Told, tell, tokens_of_parts
from tests.strategies.life import Hooks, Life
from tests.strategies.logs import Story, stories
from trimtab.engine.log.message import OpaqueBlock, ToolCall
from trimtab.engine.policy import guard, overflow
from trimtab.engine.policy.auto import NO_ROOM_REASON

REASONS_TO_GIVE_UP = (guard.OVER_LIMIT_REASON, overflow.OVERFLOW_REASON, NO_ROOM_REASON)
SHARE = 8
"""A list may take the room divided by this, with what is hidden together with it."""
STUB_TOKENS = 60
"""Tokens that stay of anything else beside it."""

Place = tuple[int, int]


def newest_list(told: Told) -> tuple[Place, ToolCall] | None:
    """Where the newest answered call that writes a list stands, and the call."""
    newest = None
    for round in told.rounds:
        if None in round.answers:
            continue
        for seq, part in round.calls:
            call = told.messages[seq].parts[part]
            if isinstance(call, ToolCall) and '{"todos":' in call.arguments:  # not erased
                newest = ((seq, part), call)
    return newest


def tokens_beside(told: Told, place: Place, life: Life) -> int:
    """Tokens that stay visible with a list, if all that may be cut beside it is."""
    counter = life.context.window.counter
    total = 0
    for seq in told.groups[told.group_of(place[0])]:
        for part, tokens in enumerate(tokens_of_parts(told, seq, counter)):
            is_fixed = isinstance(told.messages[seq].parts[part], OpaqueBlock)
            total += tokens if (seq, part) == place or is_fixed else min(tokens, STUB_TOKENS)
    return total


@dataclass
class Watch:
    room: int = sys.maxsize
    """The smallest room that a request had so far."""

    def asking(self, life: Life, stream: bool, volatile: str | None) -> None:
        self.room = min(self.room, life.context.budget(volatile).room)

    def asked(self, life: Life, request: dict[str, Any]) -> None:
        told = tell(life.events)
        if (newest := newest_list(told)) is None:
            return
        place, call = newest
        contents = [todo["content"] for todo in json.loads(call.arguments)["todos"]]
        text = json.dumps(request)
        if all(content in text for content in contents):
            return
        edit = told.hidden.get(told.group_of(place[0])) or told.edits.get(place)
        assert edit is not None, f"the todo list of m{place[0]} is not in the request"
        is_large = tokens_beside(told, place, life) * SHARE > self.room
        assert is_large or edit.why.startswith(REASONS_TO_GIVE_UP), (
            f"the todo list of m{place[0]} is hidden: {edit.why}"
        )


@law(stories)
def test_the_newest_todo_list_is_in_every_request(story: Story) -> Hooks:
    watch = Watch()
    return Hooks(asking=watch.asking, asked=watch.asked)
