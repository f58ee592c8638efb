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

from trimtab.testing.replies import ScriptedCall
from trimtab.testing.request_counter import list_array_objects
from trimtab.testing.server.provider_error_catalog import PROVIDER_FAULTS

SCRIPT_PREFIX = "simulate:"
"""Begins a user's message that says what its turn is to be, JSON behind it on the same line."""
_MAX_TURN_SCRIPTS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStep:
    """One reply, or one failure."""

    text: str | int | None = None
    """What is said, or how many words; None for a few words where there are no calls."""
    calls: int | tuple[ScriptedCall, ...] = 0
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
    """The error's name in `PROVIDER_FAULTS`."""
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


_STEP_KEYS = frozenset(field.name for field in fields(ScriptStep))
_PLAN_KEYS = frozenset({"tool_calls", "parallel", "then"})


def parse_script_steps(value: Any) -> list[ScriptStep]:
    """The steps that JSON stands for."""
    if isinstance(value, str | int):
        return [ScriptStep(text=value)]
    if isinstance(value, list):
        return [step for each in cast("list[Any]", value) for step in parse_script_steps(each)]
    if not isinstance(value, Mapping):
        raise ValueError(f"a step is a text, an object or a list of them, not {value!r}")  # noqa: TRY004 - the caller's JSON
    told = dict(cast("Mapping[str, Any]", value))
    times = int(told.pop("repeat", 1))
    if "then" in told or "tool_calls" in told:
        return _parse_plan(told) * times
    if unknown := sorted(set(told) - _STEP_KEYS):
        raise ValueError(
            f"a step has no {', '.join(unknown)}; it has {', '.join(sorted(_STEP_KEYS))}"
        )
    if "fault" in told and told["fault"] not in PROVIDER_FAULTS:
        raise ValueError(
            f"no fault is called {told['fault']!r}; there are {', '.join(PROVIDER_FAULTS)}"
        )
    told["calls"] = _parse_calls(told.get("calls", 0))
    if told.get("tool") and not told["calls"]:
        raise ValueError(f'a step with the tool {told["tool"]!r} calls nothing; add "calls": 1')
    return [ScriptStep(**told)] * times


def _parse_calls(value: Any) -> int | tuple[ScriptedCall, ...]:
    """How many, or which."""
    if isinstance(value, int):
        return value
    try:
        return tuple(ScriptedCall(**call) for call in value)
    except TypeError:
        why = 'a number, or a list of {"name": …, "arguments": {…}}'
        raise ValueError(f"a step's calls are {why}, not {value!r}") from None


def _require_list(value: Any) -> list[Any]:
    """A list of steps: a text or an object would be taken apart into letters or names."""
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        raise ValueError(f"a script is a list of steps, not {value!r}; write [ … ] around it")  # noqa: TRY004 - the caller's JSON
    return list(cast("Sequence[Any]", value))


def _parse_plan(plan: dict[str, Any]) -> list[ScriptStep]:
    rounds, parallel = int(plan.pop("tool_calls", 0)), int(plan.pop("parallel", 1))
    then = plan.pop("then", None)
    if unknown := sorted(set(plan) - _STEP_KEYS):
        raise ValueError(
            f"a plan has no {', '.join(unknown)}; it has {', '.join(sorted(_PLAN_KEYS))}"
        )
    return [ScriptStep(**plan, calls=parallel)] * rounds + (
        [] if then is None else parse_script_steps(then)
    )


@dataclass(slots=True, kw_only=True)
class _StepQueue:
    steps: deque[ScriptStep] = field(default_factory=deque[ScriptStep])
    """What is still to come."""
    repeats: bool = False
    """Whether a step goes to the end once it was taken."""
    otherwise: ScriptStep = field(default_factory=ScriptStep)
    """What is done when nothing is left."""

    def take(self) -> ScriptStep:
        if not self.steps:
            return self.otherwise
        step = self.steps.popleft()
        if self.repeats:
            self.steps.append(step)
        return step


class SimulatorScript:
    """All that is to come, for each key and for all."""

    def __init__(self) -> None:
        self._queues: dict[str, _StepQueue] = {"": _StepQueue()}
        self._turns: dict[tuple[str, str], deque[ScriptStep]] = {}

    def set_replies(
        self,
        replies: Sequence[Any] = (),
        *,
        key: str = "",
        repeat: bool = False,
        otherwise: Any = None,
    ) -> None:
        """Replace what is to come, for one API key or for all that have nothing of their own."""
        queue = _StepQueue(steps=deque(parse_script_steps(_require_list(replies))), repeats=repeat)
        if otherwise is not None:
            queue.otherwise = parse_script_steps(otherwise)[0]
        self._queues[key] = queue

    def add_replies(self, replies: Sequence[Any], *, key: str = "") -> None:
        """Append to what is to come."""
        self._queues.setdefault(key, _StepQueue()).steps.extend(
            parse_script_steps(_require_list(replies))
        )

    def steps_left(self, key: str = "") -> int:
        """How many steps are to come."""
        queue = self._queues.get(key)
        return 0 if queue is None else len(queue.steps)

    def take_step(self, key: str, header: str | None, user_text: str) -> ScriptStep:
        """The next step: of the request's header, its newest user message, or a queue."""
        if header:
            return parse_script_steps(json.loads(header))[0]
        if user_text.startswith(SCRIPT_PREFIX):
            return self._take_turn_step(key, user_text)
        return self._queues.get(key, self._queues[""]).take()

    def _take_turn_step(self, key: str, user_text: str) -> ScriptStep:
        """A turn's steps are taken one by one for as long as its message is the newest."""
        line = user_text.split("\n", 1)[0]
        turn = (key, line)
        if not self._turns.get(turn):
            if len(self._turns) > _MAX_TURN_SCRIPTS:
                self._turns.clear()
            made, _ = json.JSONDecoder().raw_decode(line.removeprefix(SCRIPT_PREFIX).strip())
            self._turns[turn] = deque(parse_script_steps(made))
        return self._turns[turn].popleft() if self._turns[turn] else ScriptStep()


def find_newest_user_text(request: Mapping[str, Any]) -> str:
    """What the user said last, in any dialect; empty where nobody did."""
    given = request.get("messages", request.get("input"))
    if isinstance(given, str):
        return given
    for message in reversed(list_array_objects(given)):
        if message.get("role") != "user":
            continue
        content = message.get("content")
        if isinstance(content, str):
            return content
        # Behind it there may be what the caller put into the same message.
        for part in list_array_objects(content):
            text = part.get("text")
            if isinstance(text, str) and text.startswith(SCRIPT_PREFIX):
                return text
        if any("text" in part for part in list_array_objects(content)):
            return next(str(part["text"]) for part in list_array_objects(content) if "text" in part)
    return ""
