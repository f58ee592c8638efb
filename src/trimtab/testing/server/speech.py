"""What a step has the model say: words, calls in the caller's tools, thoughts; cut to its room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trimtab.testing.answer import Answer, Call
from trimtab.testing.arguments import as_text, call_of, offered
from trimtab.testing.counting import CALL, RequestCounter, listed
from trimtab.testing.server.script import Step

_SENTENCE = (
    "the report says that most files were read and a few of them need another look before "
    "tomorrow so here is what was found and what should be done about it"
)
_WORDS = _SENTENCE.split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """An answer with its size."""

    answer: Answer
    """What is said."""
    tokens: int
    """Of all of it."""
    thought: int
    """Of the thinking, included in `tokens`."""


def speak(
    step: Step,
    request: Mapping[str, Any],
    *,
    number: int,
    thinks: bool,
    counter: RequestCounter,
    room: int,
    cut_stop: str,
) -> Spoken:
    """The answer that a step stands for, as far as it fits into the room."""
    calls = _calls(step, request, number)
    thinking = _thinking(step, number, thinks=thinks)
    text = _text(step, number, silent=bool(calls))
    answer = Answer(
        text=text, calls=calls, thinking=thinking, redacted=step.redacted, stop=step.stop
    )
    spoken = _sized(answer, counter)
    while spoken.tokens > room and (answer.text or answer.calls):
        # Calls are whole or not there; of a text, what fits is said.
        kept = max(0, len(answer.text) * room // spoken.tokens - 4) if not answer.calls else 0
        answer = replace(answer, text=answer.text[:kept], calls=(), stop=step.stop or cut_stop)
        spoken = _sized(answer, counter)
    return spoken


def _calls(step: Step, request: Mapping[str, Any], number: int) -> tuple[Call, ...]:
    if not isinstance(step.calls, int):
        return step.calls
    tools = offered(listed(request.get("tools")))
    if not tools:
        return ()
    return tuple(call_of(tools, number + index, step.tool) for index in range(step.calls))


def _thinking(step: Step, number: int, *, thinks: bool) -> str | None:
    if step.thinking is False:
        return None
    if isinstance(step.thinking, str):
        return step.thinking
    return words(12, number) if thinks or step.thinking else None


def _text(step: Step, number: int, *, silent: bool) -> str:
    if isinstance(step.text, str):
        return step.text
    if step.text is None and silent:
        return ""
    return words(12 if step.text is None else step.text, number)


def words(count: int, number: int) -> str:
    """So many words, led by the number so that no two replies are the same."""
    said = [_WORDS[(number + index) % len(_WORDS)] for index in range(count - 1)]
    return " ".join([f"#{number}", *said]) if count else ""


def _sized(answer: Answer, counter: RequestCounter) -> Spoken:
    thought = counter.scaled(counter.text(answer.thinking or ""))
    tokens = counter.text(answer.text)
    for call in answer.calls:
        tokens += CALL + counter.text(call.name) + counter.text(as_text(call.arguments))
    return Spoken(answer=answer, tokens=thought + counter.scaled(tokens), thought=thought)
