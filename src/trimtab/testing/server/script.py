"""What the simulated model does next: a script of steps, by key, by header or by the user's word.

A step is JSON: a text, or an object with any of
`text` (a text, or how many words), `calls` (how many parallel calls, or a list of
`{"name": …, "arguments": …}`), `tool` (the one to call), `thinking` (a text, or false for none),
`redacted`, `stop`, `fault` with `limit`, `input` and `requested`, `retry_after`, `in_stream` (so
many events before the fault), `cut` (so many events, or bytes of an unstreamed body, before the
connection breaks), `delay` and `pace` (seconds before the reply and before each event), `truncate`
(tokens of input that are reported at most). A plan, `{"tool_calls": 5, "parallel": 2, "then": …}`,
stands for so many steps with calls and those that follow; `repeat` puts one there several times.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, cast

from trimtab.testing.answer import Call
from trimtab.testing.counting import listed
from trimtab.testing.server.faults import FAULTS

WORD = "simulate:"
"""Begins a user's message that says what its turn is to be, JSON behind it on the same line."""
_PLANS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One reply, or one failure."""

    text: str | int | None = None
    """What is said, or how many words; None for a few words where there are no calls."""
    calls: int | tuple[Call, ...] = 0
    """How many of the caller's tools are called in parallel, or just these."""
    tool: str | None = None
    """The one to call; None for each in turn."""
    thinking: str | bool | None = None
    """The thought; None for one where thinking is asked for."""
    redacted: bool = False
    """Whether the thought is hidden."""
    stop: str | None = None
    """The reason to stop that is told."""
    fault: str | None = None
    """The error's name in `FAULTS`."""
    limit: int | None = None
    """The window that the error tells; None for the true one."""
    input: int | None = None
    """The input that the error tells; None for the true one."""
    requested: int | None = None
    """The output asked for that the error tells; None for the true one."""
    retry_after: float | None = None
    """Seconds, in a header."""
    in_stream: int | None = None
    """Events that a stream gets to before the error, which it then carries itself."""
    cut: int | None = None
    """Events, or bytes where there is no stream, before the connection breaks."""
    delay: float = 0.0
    """Seconds before anything is sent."""
    pace: float = 0.0
    """Seconds before each event."""
    truncate: int | None = None
    """Tokens of input that are reported at most, the rest having been cut off in silence."""


_KEYS = frozenset(field.name for field in fields(Step))
_PLAN = frozenset({"tool_calls", "parallel", "then"})


def steps_of(given: Any) -> list[Step]:
    """The steps that JSON stands for."""
    if isinstance(given, str | int):
        return [Step(text=given)]
    if isinstance(given, list):
        return [step for each in cast("list[Any]", given) for step in steps_of(each)]
    if not isinstance(given, Mapping):
        raise ValueError(f"a step is a text, an object or a list of them, not {given!r}")  # noqa: TRY004 - the caller's JSON
    told = dict(cast("Mapping[str, Any]", given))
    times = int(told.pop("repeat", 1))
    if "then" in told or "tool_calls" in told:
        return _plan(told) * times
    if unknown := sorted(set(told) - _KEYS):
        raise ValueError(f"a step has no {', '.join(unknown)}; it has {', '.join(sorted(_KEYS))}")
    if "fault" in told and told["fault"] not in FAULTS:
        raise ValueError(f"no fault is called {told['fault']!r}; there are {', '.join(FAULTS)}")
    told["calls"] = _calls(told.get("calls", 0))
    if told.get("tool") and not told["calls"]:
        raise ValueError(f'a step with the tool {told["tool"]!r} calls nothing; add "calls": 1')
    return [Step(**told)] * times


def _calls(given: Any) -> int | tuple[Call, ...]:
    """How many, or which."""
    if isinstance(given, int):
        return given
    try:
        return tuple(Call(**call) for call in given)
    except TypeError:
        why = 'a number, or a list of {"name": …, "arguments": {…}}'
        raise ValueError(f"a step's calls are {why}, not {given!r}") from None


def _replies(given: Any) -> list[Any]:
    """A list of steps: a text or an object would be taken apart into letters or names."""
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise ValueError(f"a script is a list of steps, not {given!r}; write [ … ] around it")  # noqa: TRY004 - the caller's JSON
    return list(cast("Sequence[Any]", given))


def _plan(told: dict[str, Any]) -> list[Step]:
    rounds, parallel = int(told.pop("tool_calls", 0)), int(told.pop("parallel", 1))
    then = told.pop("then", None)
    if unknown := sorted(set(told) - _KEYS):
        raise ValueError(f"a plan has no {', '.join(unknown)}; it has {', '.join(sorted(_PLAN))}")
    return [Step(**told, calls=parallel)] * rounds + ([] if then is None else steps_of(then))


@dataclass(slots=True, kw_only=True)
class _Queue:
    steps: deque[Step] = field(default_factory=deque[Step])
    """What is still to come."""
    repeats: bool = False
    """Whether a step goes to the end once it was taken."""
    otherwise: Step = field(default_factory=Step)
    """What is done when nothing is left."""

    def take(self) -> Step:
        if not self.steps:
            return self.otherwise
        step = self.steps.popleft()
        if self.repeats:
            self.steps.append(step)
        return step


class Script:
    """All that is to come, for each key and for all."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {"": _Queue()}
        self._turns: dict[tuple[str, str], deque[Step]] = {}

    def set(
        self,
        replies: Sequence[Any] = (),
        *,
        key: str = "",
        repeat: bool = False,
        otherwise: Any = None,
    ) -> None:
        """Replace what is to come, for one API key or for all that have nothing of their own."""
        queue = _Queue(steps=deque(steps_of(_replies(replies))), repeats=repeat)
        if otherwise is not None:
            queue.otherwise = steps_of(otherwise)[0]
        self._queues[key] = queue

    def add(self, replies: Sequence[Any], *, key: str = "") -> None:
        """Append to what is to come."""
        self._queues.setdefault(key, _Queue()).steps.extend(steps_of(_replies(replies)))

    def left(self, key: str = "") -> int:
        """How many steps are to come."""
        queue = self._queues.get(key)
        return 0 if queue is None else len(queue.steps)

    def take(self, key: str, header: str | None, said: str) -> Step:
        """The next step: of the request's header, its newest user message, or a queue."""
        if header:
            return steps_of(json.loads(header))[0]
        if said.startswith(WORD):
            return self._of_turn(key, said)
        return self._queues.get(key, self._queues[""]).take()

    def _of_turn(self, key: str, said: str) -> Step:
        """A turn's steps are taken one by one for as long as its message is the newest."""
        line = said.split("\n", 1)[0]
        turn = (key, line)
        if not self._turns.get(turn):
            if len(self._turns) > _PLANS:
                self._turns.clear()
            made, _ = json.JSONDecoder().raw_decode(line.removeprefix(WORD).strip())
            self._turns[turn] = deque(steps_of(made))
        return self._turns[turn].popleft() if self._turns[turn] else Step()


def newest_word(request: Mapping[str, Any]) -> str:
    """What the user said last, in any dialect; empty where nobody did."""
    given = request.get("messages", request.get("input"))
    if isinstance(given, str):
        return given
    for message in reversed(listed(given)):
        if message.get("role") != "user":
            continue
        content = message.get("content")
        if isinstance(content, str):
            return content
        # Behind it there may be what the caller put into the same message.
        for part in listed(content):
            text = part.get("text")
            if isinstance(text, str) and text.startswith(WORD):
                return text
        if any("text" in part for part in listed(content)):
            return next(str(part["text"]) for part in listed(content) if "text" in part)
    return ""
