"""What a caller gives, looked at before it is used: a refusal names it and says what is right."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from reprlib import repr as short
from typing import Any, cast

from trimtab.catalog import CACHES, lookup, resolve
from trimtab.core.budget import thinking_of
from trimtab.core.event import Event, Repair, Said, Settings, Size, event_from_json, upgrade
from trimtab.core.message import Message, Opaque, message_from_json, message_to_json
from trimtab.core.plan import Decision
from trimtab.core.policies import POLICIES
from trimtab.core.policies.knobs import GOALS, SUMMARIES, knobs_from
from trimtab.core.utf8 import whole_pairs
from trimtab.dialects import detect, dialect, read_history, to_wire
from trimtab.dialects.media import corrected_message, fitted_message, takes_of
from trimtab.dialects.plain import is_object

FAILURES = (
    *("overflow", "malformed", "rate_limit", "overloaded", "server"),
    *("network", "timeout", "auth", "rejected", "refused"),
)
"""Kinds of errors that a call may end in; a provider's are the same."""

WRITTEN = {
    "model": "model=",
    "messages": "add(message)",
    "input": "add(message)",
    "system": "system=",
    "instructions": "system=",
    "tools": "tools=",
    "max_tokens": "max_output_tokens=",
    "max_completion_tokens": "max_output_tokens=",
    "max_output_tokens": "max_output_tokens=",
    "stream": "request(stream=True)",
}
"""Parameters that a request is written with, and by what they are set."""
_ELSEWHERE = "the provider would put a history of its own before ours, which is sent whole"
REFUSED = {"previous_response_id": _ELSEWHERE, "conversation": _ELSEWHERE}
"""Parameters that no request can have, and why."""


def options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they were given, each looked at; a mapping that is None is an empty one.

    What is nested is a copy: what the caller goes on to change is not what was set.
    """
    empty: dict[str, Any] = {}
    out = {
        name: empty if value is None and name in _MAPPINGS else value
        for name, value in given.items()
    }
    for name, value in out.items():
        if (check := _CHECKS.get(name)) is not None:
            check(name, value)
    return {name: _own(name, value) if name in _NESTED else value for name, value in out.items()}


def refuse_unknown(given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse a change of an option that there is not."""
    for name in given:
        if name in known:
            continue
        from difflib import get_close_matches  # slow to import, and seldom needed

        close = get_close_matches(name, known, n=1)
        told = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
        raise TypeError(f"configure has no option {name!r}; {told}")


def refuse_limits(
    model: str, asked: int | None, params: Mapping[str, Any], entry: Mapping[str, Any]
) -> None:
    """Refuse an output that the model cannot write, or that leaves nothing for the reply when it
    has thought."""
    _refuse_output(model, asked, entry)
    budget = thinking_of(params)
    if asked is not None and asked <= budget:
        raise ValueError(
            f"max_output_tokens is {asked:,}, and thinking.budget_tokens may take {budget:,} of "
            "it: give more than that, or leave it out"
        )
    if asked is None and budget and budget >= (most := resolve(model, entry).max_output):
        raise ValueError(
            f"thinking.budget_tokens is {budget:,}, and {model} writes {most:,} at most, its "
            "thoughts included: give less, or entry={'max_output': …} if it writes more"
        )


def fork(at: int | None, base: int, last: int) -> int:
    """The position of a fork, the last one for None; refused where its past was let go of."""
    if at is not None and (isinstance(at, bool) or not isinstance(at, int)):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's
        raise TypeError(_wrong("at", at, "a position in the log, or None"))
    at, first = last if at is None else at, max(1, base)
    if not first <= at <= last:
        past = "; what was before is no longer in memory: fork the session in its store"
        told = past if 0 < at < base else ""
        raise ValueError(f"cannot fork at {at}; positions go from {first} to {last}{told}")
    return at


def _refuse_output(model: str, asked: int | None, entry: Mapping[str, Any]) -> None:
    """Of the models of Anthropic and OpenAI alone, who turn such a request away: what others take
    is each host's own, and the catalog's figure for them a cautious guess."""
    if asked is None or (known := lookup(model)) is None:
        return
    strict = known.dialect == "anthropic" or known.output_param == "max_completion_tokens"
    most = resolve(model, entry).max_output
    if strict and asked > most:
        raise ValueError(
            f"max_output_tokens is {asked:,}; {model} writes {most:,} at most: give that or less"
        )


def one(item: Any) -> Any:
    """What may be one message, and is neither a bare text nor a list."""
    if isinstance(item, str):
        raise TypeError('a text has no role; add {"role": "user", "content": …}')
    if isinstance(item, list):
        raise TypeError("add takes one message; sync(messages) takes a whole history")
    return item


def whole(message: Message) -> Message:
    """What was said, unless it is a thought alone: without what it led to it cannot be sent."""
    thoughts = [isinstance(part, Opaque) and part.thinking for part in message.parts]
    if message.origin == "openai_responses" and thoughts and all(thoughts):
        raise ValueError(
            "a reasoning item alone is sent to no model; add the whole response, add(response), "
            "or take over all items by sync(items)"
        )
    return message


def message(value: Message) -> Message:
    """A message made by hand, as a copy that is nobody else's; refused where JSON cannot say it."""
    return message_from_json(to_wire(message_to_json(value)))


def sendable(value: Message, settings: Settings) -> Message:
    """A message whose pictures and files the model's provider takes; `UnfitMedia` says why not."""
    takes = takes_of(settings.dialect, settings.model)
    return fitted_message(value, takes, own=settings.dialect)


def refuse_failure(kind: Any, message: Any, **told: Any) -> None:
    """Refuse an error that nothing could be learnt from."""
    if kind not in FAILURES:
        raise ValueError(f"unknown kind {kind!r} of error; choose one of {', '.join(FAILURES)}")
    if not isinstance(message, str):
        raise TypeError(_wrong("message", message, "a text: what the provider said"))
    for name, value in told.items():
        _count(name, value, least=1 if name == "limit" else None)


def clock(value: Any) -> Callable[[], float]:
    """A clock, if it can be asked."""
    if not callable(value):
        raise TypeError(_wrong("clock", value, "a function that returns seconds, as time.time"))
    return cast("Callable[[], float]", value)


def choice(name: str, value: Any, *, among: Sequence[str | None]) -> None:
    """Refuse what is none of the words to choose from."""
    if value not in among:
        known = ", ".join(each for each in among if each is not None)
        raise ValueError(f"unknown {name} {value!r}; choose one of {known}")


def tail(volatile: Any) -> str | None:
    """What rides behind a call, as it can be sent."""
    if volatile is None:
        return None
    if not isinstance(volatile, str):
        raise TypeError(_wrong("volatile", volatile, "a text, or None"))
    return whole_pairs(volatile)


def handle(value: Any) -> str:
    """A handle, if it is a text at all."""
    if not isinstance(value, str):
        raise TypeError(f"{short(value)} is not a handle; handles look like m12.0, m12 or m3-m50")
    return value


def events(log: Any) -> list[Event]:
    """The events of a log that may be given as lines."""
    if isinstance(log, str | bytes) or not isinstance(log, Iterable):
        how = "; of one text, text.splitlines()" if isinstance(log, str | bytes) else ""
        raise TypeError(f"the log is {short(log)}; it must be the lines that dump() wrote{how}")
    lines = cast("Iterable[Any]", log)
    return [_event(number, line) for number, line in enumerate(lines, 1)]


def history(messages: Any, settings: Settings) -> tuple[tuple[Message, ...], list[Message]]:
    """A list of messages, read; of one that cannot be, the index is told. Their media have the
    types that their bytes have; whether they can be sent `sendable` says."""
    _list("messages", messages, "messages")
    own, takes = settings.dialect, takes_of(settings.dialect, settings.model)
    try:
        system, said = read_history(messages, own)
        return system, [corrected_message(each, takes, own=own) for each in said]
    except (TypeError, ValueError) as error:
        index, wrong = _unreadable(messages, own) or (None, error)
        place = "messages" if index is None else f"messages[{index}]"
        raise _placed(place, wrong) from error


def decision(value: Any, policy: str) -> Decision:
    """What a policy returned, if it is a decision."""
    if not isinstance(value, Decision):
        raise TypeError(
            f"policy {policy!r} returned {short(value)}; it must return a Decision, and Decision() "
            "is to change nothing"
        )
    return value


def _event(number: int, line: Any) -> Event:
    if isinstance(line, Event):
        return line
    data: Any = None
    # What a damaged line does to its readers, no list of errors would have whole.
    with suppress(Exception):
        data = json.loads(line)
    if isinstance(data, dict) and "v" in data:
        upgrade(cast("dict[str, Any]", data))  # of a later version it says so
        with suppress(Exception):
            event = event_from_json(cast("dict[str, Any]", data))
            if _is_whole(event):
                return event
    several = isinstance(line, str) and '}{"v":' in line
    raise ValueError(
        f"line {number} of the log is {short(line)}, which is no event; it must be a line that "
        f"dump() wrote{', and each stand on a line of its own' if several else ''}"
    )


def _is_whole(event: Any) -> bool:
    """Whether what was read can be folded, as far as that shows from outside."""
    body = event.body
    kinds: dict[Any, Sequence[object]] = {
        int: [event.seq],
        float | int: [event.at],
        Message: [body.message] if type(body) in (Said, Repair) else (),
    }
    if type(body) is Settings:
        kinds |= {
            str: (body.model, body.dialect, body.policy, body.counter),
            tuple: (body.system, body.tools),
            dict: (body.params, body.policy_params, body.limits, body.entry),
            Size: [body.head],
        }
    return all(isinstance(value, kind) for kind, values in kinds.items() for value in values)


def _unreadable(messages: Sequence[Any], default: str) -> tuple[int, Exception] | None:
    """The first message that cannot be read, and why; all are read as what the list is."""
    own = dialect(default)
    wires: list[dict[str, Any]] = []
    try:
        for message in messages:
            wires.append(to_wire(message))  # noqa: PERF401 - how many there were is asked below
    except (TypeError, ValueError) as error:
        return len(wires), error
    own = next((found for wire in wires if (found := detect(wire, own)) is not own), own)
    for index, wire in enumerate(wires):
        try:
            own.read_history([wire])
        except (TypeError, ValueError) as error:
            return index, error
    return None


def _own(name: str, value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _copied(name, value)
    listed = enumerate(cast("Sequence[Any]", value))
    return tuple(_copied(f"{name}[{index}]", each) for index, each in listed)


def _copied(name: str, value: Any) -> Any:
    """As JSON has it; what is no object at all is refused by whoever reads it."""
    try:
        if isinstance(value, Message):
            return message(value)
        return to_wire(value) if is_object(value) else value
    except (TypeError, ValueError) as error:
        raise _placed(name, error) from None


def _placed(place: str, error: Exception) -> Exception:
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"{place}: {error}")


def _wrong(name: str, value: Any, right: str) -> str:
    return f"{name} is {short(value)}; it must be {right}"


def _count(name: str, value: Any, *, least: int | None = 1) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(_wrong(name, value, "a whole number of tokens, such as 32_000"))
    if least is not None and value < least:
        right = "0 (not set) or more" if least == 0 else "more than 0, or None where it is not set"
        raise ValueError(_wrong(name, value, right))


def _list(name: str, value: Any, of: str) -> Sequence[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise TypeError(_wrong(name, value, f"a list of {of}"))
    return cast("Sequence[Any]", value)


def _model(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise TypeError(_wrong(name, value, "the model's name, such as 'gpt-4o'"))


def _system(name: str, value: Any) -> None:
    if value is None or isinstance(value, str):
        return
    right = "a text, or a list of the dialect's blocks or messages"
    if not isinstance(value, Sequence):
        raise TypeError(_wrong(name, value, right))
    for index, block in enumerate(cast("Sequence[Any]", value)):
        if not isinstance(block, Mapping | Message):
            raise TypeError(_wrong(f"{name}[{index}]", block, "a block or a message, as a dict"))


def _policy(name: str, value: Any) -> None:
    if not isinstance(value, str) and not callable(value):
        right = f"one of {', '.join(POLICIES)}, or a function of a window and a budget"
        raise TypeError(_wrong(name, value, right))


def _tokenizer(name: str, value: Any) -> None:
    right = "a function from a text to the number of its tokens"
    _function(name, value, right=right)
    if value is None:
        return
    count = value(_TRIED)
    if isinstance(count, bool) or not isinstance(count, int):
        such = "lambda text: len(encoding.encode(text))"
        raise TypeError(
            f"{name} returned {short(count)} for {_TRIED!r}; it must be {right}, such as {such}"
        )


def _function(name: str, value: Any, *, right: str) -> None:
    if value is not None and not callable(value):
        raise TypeError(_wrong(name, value, right))


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(_wrong(name, value, "True or False"))


def _mapping(name: str, value: Any, *, such: str) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(_wrong(name, value, f"a mapping, such as {such}"))


def _context(name: str, value: Any) -> None:
    _mapping(name, value, such="{'max_tool_result_tokens': 4_000}")
    knobs_from(value)


def _params(name: str, value: Any) -> None:
    _mapping(name, value, such="{'temperature': 0}")
    for key in value:
        if key in WRITTEN:
            raise ValueError(
                f"params holds {key!r}, which Trimtab writes itself; use {WRITTEN[key]} instead"
            )
        if key in REFUSED and value[key] is not None:
            raise ValueError(f"params holds {key!r}: {REFUSED[key]}; leave it out")
    if value.get("n") not in (None, 1):
        raise ValueError(
            f"params holds 'n': {short(value['n'])}; a conversation goes on from one reply: leave "
            "it out, or ask for others beside the context"
        )


_TRIED = "Hello."
_MAPPINGS = ("context", "params", "entry")
_NESTED = (*_MAPPINGS, "system", "tools", "selected")
_CHECKS: Mapping[str, Callable[[str, Any], object]] = {
    "model": _model,
    "system": _system,
    "tools": partial(_list, of="tool definitions"),
    "selected": partial(_list, of="tool definitions"),
    "policy": _policy,
    "goal": partial(choice, among=GOALS),
    "context": _context,
    "summaries": partial(choice, among=SUMMARIES),
    "context_window": partial(_count, least=0),
    "max_input_tokens": _count,
    "max_output_tokens": _count,
    "params": _params,
    "recall": _flag,
    "entry": partial(_mapping, such="{'context_window': 32_000}"),
    "cache": partial(choice, among=(None, *CACHES)),
    "tokenizer": _tokenizer,
    "redact": partial(_function, right="a function from a text to a text"),
}
"""By an option's name; those that are missing are looked at where they are used."""
