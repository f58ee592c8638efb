"""The options of `Context`, looked at before they are used: a refusal names the option and says
what is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from reprlib import repr as short
from typing import Any, cast

from trimtab.catalog import (
    CACHE_MARKS_CHOICES,
    find_model_info,
    parse_model_info,
    resolve_model_info,
)
from trimtab.dialects.caller_message_reading import (
    copy_message,
    is_mapping_or_sdk_object,
    to_plain_dict,
)
from trimtab.log.message import Message
from trimtab.policy.budget import read_thinking_budget
from trimtab.policy.config import GOALS, SUMMARY_MODES, parse_policy_config
from trimtab.policy.presets import POLICY_NAMES
from trimtab.text.arguments import check_token_count, describe_wrong_value

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
    """Options as they were given, each looked at; a mapping that is None is an empty one, and a
    model's name for `model_info` is a mapping with `base_model`.

    What is nested is a copy: what the caller goes on to change is not what was set.
    """
    empty: dict[str, Any] = {}
    out: dict[str, Any] = {
        name: empty if value is None and name in _MAPPING_OPTIONS else value
        for name, value in options.items()
    }
    for name, value in out.items():
        if (check := _OPTION_CHECKS.get(name)) is not None:
            check(name, value)
    if "model_info" in out:
        out["model_info"] = parse_model_info(out["model_info"])
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


def validate_output_and_thinking_limits(
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


def _check_model_output_limit(
    model: str, max_output_tokens: int | None, model_info: Mapping[str, Any]
) -> None:
    """Of the models of Anthropic and OpenAI alone, who turn such a request away: what others take
    is each host's own, and the catalog's figure for them a cautious guess."""
    named = str(model_info.get("base_model") or model)
    if max_output_tokens is None or (known := find_model_info(named)) is None:
        return
    strict = known.dialect == "anthropic" or known.output_param == "max_completion_tokens"
    most = resolve_model_info(model, model_info).max_output
    if strict and max_output_tokens > most:
        raise ValueError(
            f"max_output_tokens is {max_output_tokens:,}; {model} writes {most:,} at most: "
            "give "
            "that or less"
        )


def validate_choice(name: str, value: Any, *, allowed: Sequence[str | None]) -> None:
    """Refuse what is none of the words to choose from."""
    if value not in allowed:
        known = ", ".join(each for each in allowed if each is not None)
        raise ValueError(f"unknown {name} {value!r}; choose one of {known}")


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
            return copy_message(value)
        return to_plain_dict(value) if is_mapping_or_sdk_object(value) else value
    except (TypeError, ValueError) as error:
        raise _prefix_error(name, error) from None


def _prefix_error(location: str, error: Exception) -> Exception:
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"{location}: {error}")


def _check_list(name: str, value: Any, item_noun: str) -> Sequence[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise TypeError(describe_wrong_value(name, value, f"a list of {item_noun}"))
    return cast("Sequence[Any]", value)


def _check_model(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise TypeError(describe_wrong_value(name, value, "the model's name, such as 'gpt-4o'"))


def _check_system(name: str, value: Any) -> None:
    if value is None or isinstance(value, str):
        return
    right = "a text, or a list of the dialect's blocks or messages"
    if not isinstance(value, Sequence):
        raise TypeError(describe_wrong_value(name, value, right))
    for index, block in enumerate(cast("Sequence[Any]", value)):
        if not isinstance(block, Mapping | Message):
            raise TypeError(
                describe_wrong_value(f"{name}[{index}]", block, "a block or a message, as a dict")
            )


def _check_policy(name: str, value: Any) -> None:
    if not isinstance(value, str) and not callable(value):
        right = f"one of {', '.join(POLICY_NAMES)}, or a function of a window and a budget"
        raise TypeError(describe_wrong_value(name, value, right))


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
        raise TypeError(describe_wrong_value(name, value, expected))


def _check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(describe_wrong_value(name, value, "True or False"))


def _check_mapping(name: str, value: Any, *, example: str) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(describe_wrong_value(name, value, f"a mapping, such as {example}"))


def _check_model_info(name: str, value: Any) -> None:
    if not isinstance(value, str):
        example = "{'context_window': 32_000}, or the name of a model in the catalog"
        _check_mapping(name, value, example=example)


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
    "context_window": partial(check_token_count, minimum=0),
    "max_input_tokens": check_token_count,
    "max_output_tokens": check_token_count,
    "params": _check_request_params,
    "recall": _check_bool,
    "model_info": _check_model_info,
    "cache": partial(validate_choice, allowed=(None, *CACHE_MARKS_CHOICES)),
    "tokenizer": _check_tokenizer,
    "redact": partial(_check_function, expected="a function from a text to a text"),
}
"""By an option's name; those that are missing are looked at where they are used."""
