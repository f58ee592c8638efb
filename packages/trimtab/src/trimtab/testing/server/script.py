"""The script of a simulated model: its next steps, by API key, by header or by user message.

A step is JSON: a text, or an object with any of these fields:

- `text`: the text, or the number of words. Without it, and without calls, a reply is filler: some
  words, or the call or the JSON that the request demands
- `calls`: the number of parallel calls, or a list of `{"name": …, "arguments": …}`, with a
  `namespace` if the tool is in one
- `tool`: the tool to call
- `thinking`: a text, or false for none
- `redacted`, `stop`: whether the thinking is hidden, and the stop reason
- `fault`: the name of an error, with `limit`, `input` and `requested` for its numbers
- `retry_after`: seconds for the header of an error
- `in_stream`: the number of events before the fault
- `cut`: the number of events, or bytes without a stream, before the connection breaks
- `delay` and `pace`: seconds before the reply and before each event
- `truncate`: the maximum number of input tokens to report

A plan, `{"tool_calls": 5, "parallel": 2, "then": …}`, is that many steps with calls and then the
steps of `then`. `repeat` repeats a step several times.
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
"""Prefix of a user message that contains the script of its turn, as JSON on the same line."""
_MAX_TURN_SCRIPTS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStep:
    """One reply, or one failure."""

    text: str | int | None = None
    """The text, or the number of words. None means filler if there are no calls."""
    calls: int | tuple[ScriptedCall, ...] = 0
    """How many of the caller's tools are called in parallel, or the calls themselves."""
    tool: str | None = None
    """The tool to call. None means each in turn."""
    thinking: str | bool | None = None
    """The thought. None means one if the request asks for thinking."""
    redacted: bool = False
    """Whether the thought is hidden."""
    stop: str | None = None
    """The reported stop reason."""
    fault: str | None = None
    """The error's name in `PROVIDER_FAULTS`."""
    limit: int | None = None
    """The window in the error's message. None for the true one."""
    input: int | None = None
    """The input in the error's message. None for the true one."""
    requested: int | None = None
    """The requested output in the error's message. None for the true one."""
    retry_after: float | None = None
    """Seconds for the `retry-after` header."""
    in_stream: int | None = None
    """Number of events before the error, which is then sent inside of the stream."""
    cut: int | None = None
    """Number of events, or bytes without a stream, before the connection breaks."""
    delay: float = 0.0
    """Seconds before anything is sent."""
    pace: float = 0.0
    """Seconds before each event."""
    truncate: int | None = None
    """Maximum number of input tokens to report, as if the rest had been cut silently."""


_STEP_KEYS = frozenset(field.name for field in fields(ScriptStep))
_PLAN_KEYS = frozenset({"tool_calls", "parallel", "then"})
_ALL_KEYS = ", ".join(sorted(_STEP_KEYS | _PLAN_KEYS | {"repeat"}))


def parse_script_steps(value: Any) -> list[ScriptStep]:
    """Return the steps that the JSON describes."""
    if isinstance(value, str | int):
        return [ScriptStep(text=value)]
    if isinstance(value, list):
        return [step for each in cast("list[Any]", value) for step in parse_script_steps(each)]
    if not isinstance(value, Mapping):
        raise ValueError(f"a step must be a text, an object or a list of them, not {value!r}")  # noqa: TRY004 - the caller's JSON
    step_json = dict(cast("Mapping[str, Any]", value))
    times = int(step_json.pop("repeat", 1))
    if "then" in step_json or "tool_calls" in step_json:
        return _parse_plan(step_json) * times
    if unknown := sorted(set(step_json) - _STEP_KEYS):
        raise ValueError(f"unknown in a step: {', '.join(unknown)}; use {_ALL_KEYS}")
    if "fault" in step_json and step_json["fault"] not in PROVIDER_FAULTS:
        raise ValueError(
            f"unknown fault {step_json['fault']!r}; the faults are {', '.join(PROVIDER_FAULTS)}"
        )
    step_json["calls"] = _parse_calls(step_json.get("calls", 0))
    if step_json.get("tool") and not step_json["calls"]:
        raise ValueError(
            f'a step with the tool {step_json["tool"]!r} calls nothing; add "calls": 1'
        )
    return [ScriptStep(**step_json)] * times


def _parse_calls(value: Any) -> int | tuple[ScriptedCall, ...]:
    """Return the number of calls, or the calls themselves."""
    if isinstance(value, int):
        return value
    try:
        return tuple(ScriptedCall(**call) for call in value)
    except TypeError:
        why = 'a number, or a list of {"name": …, "arguments": {…}}'
        raise ValueError(f"a step's calls must be {why}, not {value!r}") from None


def _require_list(value: Any) -> list[Any]:
    """Return a list of steps. A text or an object would be split into characters or names."""
    if isinstance(value, str | Mapping) or not isinstance(value, Sequence):
        raise ValueError(f"a script must be a list of steps, not {value!r}; write [ … ] around it")  # noqa: TRY004 - the caller's JSON
    return list(cast("Sequence[Any]", value))


def _parse_plan(plan: dict[str, Any]) -> list[ScriptStep]:
    rounds = int(plan.pop("tool_calls", 0))
    parallel = int(plan.pop("parallel", 1))
    then = plan.pop("then", None)
    if unknown := sorted(set(plan) - _STEP_KEYS):
        raise ValueError(f"unknown in a plan: {', '.join(unknown)}; use {_ALL_KEYS}")
    return [ScriptStep(**plan, calls=parallel)] * rounds + (
        [] if then is None else parse_script_steps(then)
    )


@dataclass(slots=True, kw_only=True)
class _StepQueue:
    steps: deque[ScriptStep] = field(default_factory=deque[ScriptStep])
    """The steps that are left."""
    repeats: bool = False
    """Whether a used step goes to the end of the queue."""
    otherwise: ScriptStep = field(default_factory=ScriptStep)
    """The step after the end of the script."""

    def take(self) -> ScriptStep:
        if not self.steps:
            return self.otherwise
        step = self.steps.popleft()
        if self.repeats:
            self.steps.append(step)
        return step


class SimulatorScript:
    """All steps that are left, for each API key and for all."""

    def __init__(self) -> None:
        self.summary: ScriptStep | None = None
        """The reply to each request that asks for a summary of a conversation."""
        self._queues: dict[str, _StepQueue] = {"": _StepQueue()}
        self._turns: dict[tuple[str, str], deque[ScriptStep]] = {}

    def set_replies(
        self,
        replies: Sequence[Any] = (),
        *,
        key: str = "",
        repeat: bool = False,
        otherwise: Any = None,
        summary: Any = None,
    ) -> None:
        """Replace the script of one API key, or of all keys without their own script, and the reply
        to requests for a summary."""
        self.summary = None if summary is None else parse_script_steps([summary])[0]
        queue = _StepQueue(steps=deque(parse_script_steps(_require_list(replies))), repeats=repeat)
        if otherwise is not None:
            queue.otherwise = parse_script_steps(otherwise)[0]
        self._queues[key] = queue

    def add_replies(self, replies: Sequence[Any], *, key: str = "") -> None:
        """Append steps."""
        self._queues.setdefault(key, _StepQueue()).steps.extend(
            parse_script_steps(_require_list(replies))
        )

    def steps_left(self, key: str = "") -> int:
        """Return the number of steps that are left."""
        queue = self._queues.get(key)
        return 0 if queue is None else len(queue.steps)

    def next_step_calls(self, key: str, user_text: str) -> bool:
        """Return whether the next step in a queue calls tools."""
        steps = self._queues.get(key, self._queues[""]).steps
        return bool(not user_text.startswith(SCRIPT_PREFIX) and steps and steps[0].calls)

    def take_step(self, key: str, header: str | None, user_text: str) -> ScriptStep:
        """Return the next step: from the request's header, its newest user message, or a queue."""
        if header:
            return parse_script_steps(json.loads(header))[0]
        if user_text.startswith(SCRIPT_PREFIX):
            return self._take_turn_step(key, user_text)
        return self._queues.get(key, self._queues[""]).take()

    def _take_turn_step(self, key: str, user_text: str) -> ScriptStep:
        """Return a turn's next step. Its steps are used as long as its message is the newest."""
        line = user_text.split("\n", 1)[0]
        turn = (key, line)
        if not self._turns.get(turn):
            if len(self._turns) > _MAX_TURN_SCRIPTS:
                self._turns.clear()
            steps_json, _ = json.JSONDecoder().raw_decode(line.removeprefix(SCRIPT_PREFIX).strip())
            self._turns[turn] = deque(parse_script_steps(steps_json))
        return self._turns[turn].popleft() if self._turns[turn] else ScriptStep()


def find_newest_user_text(request: Mapping[str, Any]) -> str:
    """Return the text of the newest user message, in any dialect. Empty if there is none."""
    messages = request.get("messages", request.get("input"))
    if isinstance(messages, str):
        return messages
    for message in reversed(list_array_objects(messages)):
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
