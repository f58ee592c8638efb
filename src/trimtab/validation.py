"""What a caller gives, looked at before it is used: a refusal names it and says what is right."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from reprlib import repr as short
from typing import Any, cast

from trimtab.catalog import CACHE_MARKS_CHOICES, find_model_info, resolve_model_info
from trimtab.dialects import detect_dialect, get_dialect, parse_any_history, to_plain_dict
from trimtab.dialects.media_validation import (
    find_accepted_media,
    normalize_media_where_possible,
    normalize_message_media,
)
from trimtab.dialects.sdk_objects import is_mapping_or_sdk_object
from trimtab.log.event import (
    Event,
    MessageAdded,
    Settings,
    Size,
    ToolResultRepair,
    event_from_json,
    upgrade_event_json,
)
from trimtab.log.message import Message, OpaqueBlock, message_from_json, message_to_json
from trimtab.policy.budget import read_thinking_budget
from trimtab.policy.config import GOALS, SUMMARY_MODES, parse_policy_config
from trimtab.policy.plan import Decision
from trimtab.policy.presets import POLICY_NAMES
from trimtab.text.utf8 import replace_lone_surrogates

FAILURE_KINDS = (
    *("overflow", "malformed", "rate_limit", "overloaded", "server"),
    *("network", "timeout", "auth", "rejected", "refused"),
)
"""Kinds of errors that a call may end in; a provider's are the same."""

RESERVED_PARAMS = {
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
_SERVER_SIDE_HISTORY = (
    "the provider would put a history of its own before ours, which is sent whole"
)
FORBIDDEN_PARAMS = {
    "previous_response_id": _SERVER_SIDE_HISTORY,
    "conversation": _SERVER_SIDE_HISTORY,
}
"""Parameters that no request can have, and why."""


def validate_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they were given, each looked at; a mapping that is None is an empty one.

    What is nested is a copy: what the caller goes on to change is not what was set.
    """
    empty: dict[str, Any] = {}
    out = {
        name: empty if value is None and name in _MAPPING_OPTIONS else value
        for name, value in options.items()
    }
    for name, value in out.items():
        if (check := _OPTION_CHECKS.get(name)) is not None:
            check(name, value)
    return {
        name: _copy_nested_option(name, value) if name in _NESTED_OPTIONS else value
        for name, value in out.items()
    }


def reject_unknown_options(changes: Mapping[str, Any], known_names: Sequence[str]) -> None:
    """Refuse a change of an option that there is not."""
    for name in changes:
        if name in known_names:
            continue
        from difflib import get_close_matches  # slow to import, and seldom needed

        close = get_close_matches(name, known_names, n=1)
        told = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known_names)}"
        raise TypeError(f"configure has no option {name!r}; {told}")


def validate_output_limit(
    model: str,
    max_output_tokens: int | None,
    params: Mapping[str, Any],
    model_info: Mapping[str, Any],
) -> None:
    """Refuse an output that the model cannot write, or that leaves nothing for the reply when it
    has thought."""
    _check_model_output_limit(model, max_output_tokens, model_info)
    budget = read_thinking_budget(params)
    if max_output_tokens is not None and max_output_tokens <= budget:
        raise ValueError(
            f"max_output_tokens is {max_output_tokens:,}, and thinking.budget_tokens may take "
            f"{budget:,} of "
            "it: give more than that, or leave it out"
        )
    if (
        max_output_tokens is None
        and budget
        and budget >= (most := resolve_model_info(model, model_info).max_output)
    ):
        raise ValueError(
            f"thinking.budget_tokens is {budget:,}, and {model} writes {most:,} at most, its "
            "thoughts included: give less, or model_info={'max_output': …} if it writes more"
        )


def resolve_fork_position(at: int | None, checkpoint_seq: int, last_seq: int) -> int:
    """The position of a fork, the last one for None; refused where its past was let go of."""
    if at is not None and (isinstance(at, bool) or not isinstance(at, int)):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's
        raise TypeError(_describe_wrong_value("at", at, "a position in the log, or None"))
    at, first = last_seq if at is None else at, max(1, checkpoint_seq)
    if not first <= at <= last_seq:
        past = "; what was before is no longer in memory: fork the session in its store"
        told = past if 0 < at < checkpoint_seq else ""
        raise ValueError(f"cannot fork at {at}; positions go from {first} to {last_seq}{told}")
    return at


def _check_model_output_limit(
    model: str, max_output_tokens: int | None, model_info: Mapping[str, Any]
) -> None:
    """Of the models of Anthropic and OpenAI alone, who turn such a request away: what others take
    is each host's own, and the catalog's figure for them a cautious guess."""
    if max_output_tokens is None or (known := find_model_info(model)) is None:
        return
    strict = known.dialect == "anthropic" or known.output_param == "max_completion_tokens"
    most = resolve_model_info(model, model_info).max_output
    if strict and max_output_tokens > most:
        raise ValueError(
            f"max_output_tokens is {max_output_tokens:,}; {model} writes {most:,} at most: "
            "give "
            "that or less"
        )


def require_single_message(item: Any) -> Any:
    """What may be one message, and is neither a bare text nor a list."""
    if isinstance(item, str):
        raise TypeError('a text has no role; add {"role": "user", "content": …}')
    if isinstance(item, list):
        raise TypeError("add takes one message; sync(messages) takes a whole history")
    return item


def reject_bare_reasoning(message: Message) -> Message:
    """What was said, unless it is a thought alone: without what it led to it cannot be sent."""
    thoughts = [isinstance(part, OpaqueBlock) and part.thinking for part in message.parts]
    if message.origin == "openai_responses" and thoughts and all(thoughts):
        raise ValueError(
            "a reasoning item alone is sent to no model; add the whole response, add(response), "
            "or take over all items by sync(items)"
        )
    return message


def copy_message_as_json(message: Message) -> Message:
    """A message made by hand, as a copy that is nobody else's; refused where JSON cannot say it."""
    return message_from_json(to_plain_dict(message_to_json(message)))


def fit_media_to_model(message: Message, settings: Settings) -> Message:
    """A message whose pictures and files the model's provider takes; `UnsupportedMedia` says why
    not."""
    takes = find_accepted_media(settings.dialect, settings.model)
    return normalize_message_media(message, takes, request_dialect=settings.dialect)


def validate_failure_report(kind: Any, message: Any, **token_counts: Any) -> None:
    """Refuse an error that nothing could be learnt from."""
    if kind not in FAILURE_KINDS:
        raise ValueError(
            f"unknown kind {kind!r} of error; choose one of {', '.join(FAILURE_KINDS)}"
        )
    if not isinstance(message, str):
        raise TypeError(_describe_wrong_value("message", message, "a text: what the provider said"))
    for name, value in token_counts.items():
        _check_token_count(name, value, minimum=1 if name == "limit" else None)


def validate_clock(clock: Any) -> Callable[[], float]:
    """A clock, if it can be asked."""
    if not callable(clock):
        raise TypeError(
            _describe_wrong_value("clock", clock, "a function that returns seconds, as time.time")
        )
    return cast("Callable[[], float]", clock)


def validate_choice(name: str, value: Any, *, allowed: Sequence[str | None]) -> None:
    """Refuse what is none of the words to choose from."""
    if value not in allowed:
        known = ", ".join(each for each in allowed if each is not None)
        raise ValueError(f"unknown {name} {value!r}; choose one of {known}")


def validate_volatile(volatile: Any) -> str | None:
    """What rides behind a call, as it can be sent."""
    if volatile is None:
        return None
    if not isinstance(volatile, str):
        raise TypeError(_describe_wrong_value("volatile", volatile, "a text, or None"))
    return replace_lone_surrogates(volatile)


def validate_handle(handle: Any) -> str:
    """A handle, if it is a text at all."""
    if not isinstance(handle, str):
        raise TypeError(f"{short(handle)} is not a handle; handles look like m12.0, m12 or m3-m50")
    return handle


def parse_event_log(log: Any) -> list[Event]:
    """The events of a log that may be given as lines."""
    if isinstance(log, str | bytes) or not isinstance(log, Iterable):
        how = "; of one text, text.splitlines()" if isinstance(log, str | bytes) else ""
        raise TypeError(f"the log is {short(log)}; it must be the lines that dump() wrote{how}")
    lines = cast("Iterable[Any]", log)
    return [_parse_event_line(number, line) for number, line in enumerate(lines, 1)]


def parse_message_list(
    messages: Any, settings: Settings
) -> tuple[tuple[Message, ...], list[Message]]:
    """A list of messages, read; of one that cannot be, the index is told. Their media have the
    types that their bytes have; whether they can be sent `sendable` says."""
    _check_list("messages", messages, "messages")
    own, takes = settings.dialect, find_accepted_media(settings.dialect, settings.model)
    try:
        system, said = parse_any_history(messages, own)
        return system, [
            normalize_media_where_possible(each, takes, request_dialect=own) for each in said
        ]
    except (TypeError, ValueError) as error:
        index, wrong = _find_unreadable_message(messages, own) or (None, error)
        place = "messages" if index is None else f"messages[{index}]"
        raise _prefix_error(place, wrong) from error


def validate_policy_result(result: Any, policy_name: str) -> Decision:
    """What a policy returned, if it is a decision."""
    if not isinstance(result, Decision):
        raise TypeError(
            f"policy {policy_name!r} returned {short(result)}; it must return a Decision, and "
            "Decision() "
            "is to change nothing"
        )
    return result


def _parse_event_line(number: int, line: Any) -> Event:
    if isinstance(line, Event):
        return line
    data: Any = None
    # What a damaged line does to its readers, no list of errors would have whole.
    with suppress(Exception):
        data = json.loads(line)
    if isinstance(data, dict) and "v" in data:
        upgrade_event_json(cast("dict[str, Any]", data))  # of a later version it says so
        with suppress(Exception):
            event = event_from_json(cast("dict[str, Any]", data))
            if _has_expected_field_types(event):
                return event
    several = isinstance(line, str) and '}{"v":' in line
    raise ValueError(
        f"line {number} of the log is {short(line)}, which is no event; it must be a line that "
        f"dump() wrote{', and each stand on a line of its own' if several else ''}"
    )


def _has_expected_field_types(event: Any) -> bool:
    """Whether what was read can be folded, as far as that shows from outside."""
    body = event.body
    kinds: dict[Any, Sequence[object]] = {
        int: [event.seq],
        float | int: [event.at],
        Message: [body.message] if type(body) in (MessageAdded, ToolResultRepair) else (),
    }
    if type(body) is Settings:
        kinds |= {
            str: (body.model, body.dialect, body.policy, body.counter),
            tuple: (body.system, body.tools),
            dict: (body.params, body.policy_params, body.limits, body.entry),
            Size: [body.head],
        }
    return all(isinstance(value, kind) for kind, values in kinds.items() for value in values)


def _find_unreadable_message(
    messages: Sequence[Any], default_dialect: str
) -> tuple[int, Exception] | None:
    """The first message that cannot be read, and why; all are read as what the list is."""
    own = get_dialect(default_dialect)
    wires: list[dict[str, Any]] = []
    try:
        for message in messages:
            wires.append(to_plain_dict(message))  # noqa: PERF401 - how many there were is asked below
    except (TypeError, ValueError) as error:
        return len(wires), error
    own = next((found for wire in wires if (found := detect_dialect(wire, own)) is not own), own)
    for index, wire in enumerate(wires):
        try:
            own.parse_history([wire])
        except (TypeError, ValueError) as error:
            return index, error
    return None


def _copy_nested_option(name: str, value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _copy_as_json(name, value)
    listed = enumerate(cast("Sequence[Any]", value))
    return tuple(_copy_as_json(f"{name}[{index}]", each) for index, each in listed)


def _copy_as_json(name: str, value: Any) -> Any:
    """As JSON has it; what is no object at all is refused by whoever reads it."""
    try:
        if isinstance(value, Message):
            return copy_message_as_json(value)
        return to_plain_dict(value) if is_mapping_or_sdk_object(value) else value
    except (TypeError, ValueError) as error:
        raise _prefix_error(name, error) from None


def _prefix_error(location: str, error: Exception) -> Exception:
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"{location}: {error}")


def _describe_wrong_value(name: str, value: Any, expected: str) -> str:
    return f"{name} is {short(value)}; it must be {expected}"


def _check_token_count(name: str, value: Any, *, minimum: int | None = 1) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            _describe_wrong_value(name, value, "a whole number of tokens, such as 32_000")
        )
    if minimum is not None and value < minimum:
        right = (
            "0 (not set) or more" if minimum == 0 else "more than 0, or None where it is not set"
        )
        raise ValueError(_describe_wrong_value(name, value, right))


def _check_list(name: str, value: Any, item_noun: str) -> Sequence[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise TypeError(_describe_wrong_value(name, value, f"a list of {item_noun}"))
    return cast("Sequence[Any]", value)


def _check_model(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise TypeError(_describe_wrong_value(name, value, "the model's name, such as 'gpt-4o'"))


def _check_system(name: str, value: Any) -> None:
    if value is None or isinstance(value, str):
        return
    right = "a text, or a list of the dialect's blocks or messages"
    if not isinstance(value, Sequence):
        raise TypeError(_describe_wrong_value(name, value, right))
    for index, block in enumerate(cast("Sequence[Any]", value)):
        if not isinstance(block, Mapping | Message):
            raise TypeError(
                _describe_wrong_value(f"{name}[{index}]", block, "a block or a message, as a dict")
            )


def _check_policy(name: str, value: Any) -> None:
    if not isinstance(value, str) and not callable(value):
        right = f"one of {', '.join(POLICY_NAMES)}, or a function of a window and a budget"
        raise TypeError(_describe_wrong_value(name, value, right))


def _check_tokenizer(name: str, value: Any) -> None:
    right = "a function from a text to the number of its tokens"
    _check_function(name, value, expected=right)
    if value is None:
        return
    count = value(_TOKENIZER_SAMPLE)
    if isinstance(count, bool) or not isinstance(count, int):
        such = "lambda text: len(encoding.encode(text))"
        raise TypeError(
            f"{name} returned {short(count)} for {_TOKENIZER_SAMPLE!r}; it must be {right}, "
            f"such as {such}"
        )


def _check_function(name: str, value: Any, *, expected: str) -> None:
    if value is not None and not callable(value):
        raise TypeError(_describe_wrong_value(name, value, expected))


def _check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(_describe_wrong_value(name, value, "True or False"))


def _check_mapping(name: str, value: Any, *, example: str) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(_describe_wrong_value(name, value, f"a mapping, such as {example}"))


def _check_policy_limits(name: str, value: Any) -> None:
    _check_mapping(name, value, example="{'max_tool_result_tokens': 4_000}")
    parse_policy_config(value)


def _check_request_params(name: str, value: Any) -> None:
    _check_mapping(name, value, example="{'temperature': 0}")
    for key in value:
        if key in RESERVED_PARAMS:
            raise ValueError(
                f"params holds {key!r}, which Trimtab writes itself; use "
                f"{RESERVED_PARAMS[key]} "
                "instead"
            )
        if key in FORBIDDEN_PARAMS and value[key] is not None:
            raise ValueError(f"params holds {key!r}: {FORBIDDEN_PARAMS[key]}; leave it out")
    if value.get("n") not in (None, 1):
        raise ValueError(
            f"params holds 'n': {short(value['n'])}; a conversation goes on from one reply: leave "
            "it out, or ask for others beside the context"
        )


_TOKENIZER_SAMPLE = "Hello."
_MAPPING_OPTIONS = ("limits", "params", "model_info")
_NESTED_OPTIONS = (*_MAPPING_OPTIONS, "system", "tools", "turn_tools")
_OPTION_CHECKS: Mapping[str, Callable[[str, Any], object]] = {
    "model": _check_model,
    "system": _check_system,
    "tools": partial(_check_list, item_noun="tool definitions"),
    "turn_tools": partial(_check_list, item_noun="tool definitions"),
    "policy": _check_policy,
    "goal": partial(validate_choice, allowed=GOALS),
    "limits": _check_policy_limits,
    "summaries": partial(validate_choice, allowed=SUMMARY_MODES),
    "context_window": partial(_check_token_count, minimum=0),
    "max_input_tokens": _check_token_count,
    "max_output_tokens": _check_token_count,
    "params": _check_request_params,
    "recall": _check_bool,
    "model_info": partial(_check_mapping, example="{'context_window': 32_000}"),
    "cache": partial(validate_choice, allowed=(None, *CACHE_MARKS_CHOICES)),
    "tokenizer": _check_tokenizer,
    "redact": partial(_check_function, expected="a function from a text to a text"),
}
"""By an option's name; those that are missing are looked at where they are used."""
