"""Every call that is sent has all its results, and every result its call."""

from __future__ import annotations

from typing import Any

from tests.laws.lives import law
from tests.laws.oracle import Told, said_as, tell
from tests.laws.wires import paired, pieces
from tests.strategies.life import Hooks, Life
from tests.strategies.logs import Story, stories
from trimtab.dialects import get_dialect
from trimtab.engine.log.edits import ERASED_PLACEHOLDER
from trimtab.engine.log.message import Message, Text, ToolCall

MIN_OUTPUT = 16
"""The least output that OpenAI's Responses API takes."""


def the_provider_takes_it(life: Life, told: Told, request: dict[str, Any]) -> None:
    problems = get_dialect(life.dialect).find_request_errors(request)
    if any(erased(message) for message in told.messages.values()):
        # What a model thought in a loop that is still open is gone by the user's own wish, and
        # Anthropic wants it back: nothing that could be sent would do.
        problems = [problem for problem in problems if "thinking" not in problem]
    if told.messages[max(told.messages)].role == "assistant":
        # Whoever asks behind a reply wants it continued, which newer models refuse.
        problems = [problem for problem in problems if "prefill" not in problem]
    if len(life.context.window.settings.tools) < life.setup.tools:
        # Whoever takes back a tool that was loaded gets the provider's refusal.
        problems = [problem for problem in problems if "Tool reference" not in problem]
    if (life.context.options.max_output_tokens or MIN_OUTPUT) < MIN_OUTPUT:
        # Whoever asks for less output than the API allows gets its refusal.
        problems = [problem for problem in problems if "below minimum value" not in problem]
    assert problems == []


def erased(message: Message) -> bool:
    return message.role == "assistant" and Text(text=ERASED_PLACEHOLDER) in message.parts


def expected_pairs(told: Told) -> list[tuple[str, str]]:
    """What each call asks and what answers it, in the order that they are to be sent."""
    pairs: list[tuple[str, str]] = []
    for round in told.visible():
        for (seq, part), answer in zip(round.calls, round.answers, strict=True):
            assert answer is not None, "a call is sent without its result"
            asked, got = told.shown(seq, part), told.shown(*answer)
            assert isinstance(asked, ToolCall)
            pairs.append((asked.arguments, said_as(got, note=False) or ""))
    return pairs


def number_of(arguments: str) -> str:
    """The one thing that every dialect writes alike: the number that the model gave a call."""
    return arguments[arguments.index("<") : arguments.index(">") + 1] if "<" in arguments else ""


def pairs_are_whole(life: Life, request: dict[str, Any]) -> None:
    told = tell(life.events)
    the_provider_takes_it(life, told, request)
    found = paired(pieces(request, life.context.window.settings, life.last_call.volatile))
    expected = expected_pairs(told)
    assert [number_of(call.text) for call, _ in found] == [number_of(args) for args, _ in expected]
    assert [result.text.strip() for _, result in found] == [text.strip() for _, text in expected]


def tools_are_there(life: Life, request: dict[str, Any]) -> None:
    told = tell(life.events)
    missing = [
        pair for pair in told.loaded if pair[0] in told.hidden and pair[1] not in told.hidden
    ]
    assert missing == [], "a call is sent without what loaded its tool"


@law(stories)
def test_calls_are_followed_by_their_own_results_in_call_order(story: Story) -> Hooks:
    return Hooks(asked=pairs_are_whole)


@law(stories)
def test_what_loaded_a_tool_is_sent_with_each_call_of_it(story: Story) -> Hooks:
    return Hooks(asked=tools_are_there)
