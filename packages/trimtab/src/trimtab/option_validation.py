"""Validation of the options of `Context`. An error names the option and says what is valid."""

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
"""Parameters that Trimtab writes itself, and the option that sets each."""
_SERVER_SIDE_HISTORY = (
    "the provider would add its own history, but Trimtab always sends the whole history"
)
FORBIDDEN_PARAMS = {
    "previous_response_id": _SERVER_SIDE_HISTORY,
    "conversation": _SERVER_SIDE_HISTORY,
}
"""Parameters that no request may have, and why."""


def validate_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check each option. None becomes an empty mapping, a model name for `model_info` becomes
    `base_model`.

    Nested values are copied, so later changes by the caller have no effect.
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
    """Raise `TypeError` if a change names an unknown option."""
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
    """Reject an output limit above the model's, or one that thinking alone would use up."""
    _check_model_output_limit(model, max_output_tokens, model_info)
    budget = read_thinking_budget(params)
    if max_output_tokens is not None and max_output_tokens <= budget:
        raise ValueError(
            f"max_output_tokens is {max_output_tokens:,}, and thinking.budget_tokens may take "
            f"{budget:,} of it; set a larger max_output_tokens, or leave it out"
        )
    if (
        max_output_tokens is None
        and budget
        and budget >= (most := resolve_model_info(model, model_info).max_output)
    ):
        raise ValueError(
            f"thinking.budget_tokens is {budget:,}, and {model} writes {most:,} at most, including "
            "thinking; set a smaller budget, or model_info={'max_output': …} if it writes more"
        )


def _check_model_output_limit(
    model: str, max_output_tokens: int | None, model_info: Mapping[str, Any]
) -> None:
    """Check the limit only for models of Anthropic and OpenAI, which reject such a request.

    For others the limit depends on the host, and the catalog's value is a cautious guess.
    """
    named = str(model_info.get("base_model") or model)
    if max_output_tokens is None or (known := find_model_info(named)) is None:
        return
    strict = known.dialect == "anthropic" or known.output_param == "max_completion_tokens"
    most = resolve_model_info(model, model_info).max_output
    if strict and max_output_tokens > most:
        raise ValueError(
            f"max_output_tokens is {max_output_tokens:,}; {model} writes {most:,} at most: "
            "use that or less"
        )


def validate_choice(name: str, value: Any, *, allowed: Sequence[str | None]) -> None:
    """Raise `ValueError` if the value is not one of those allowed."""
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
    """Copy a value as JSON. The reader of the copy rejects a value that is not an object."""
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
        right = f"one of {', '.join(POLICY_NAMES)}, or a function that takes a window and a budget"
        raise TypeError(describe_wrong_value(name, value, right))


def _check_tokenizer(name: str, value: Any) -> None:
    right = "a function that takes a text and returns its number of tokens"
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
                f"params contains {key!r}, which Trimtab sets itself; use "
                f"{RESERVED_PARAMS[key]} "
                "instead"
            )
        if key in FORBIDDEN_PARAMS and value[key] is not None:
            raise ValueError(f"params contains {key!r}: {FORBIDDEN_PARAMS[key]}; remove it")
    if value.get("n") not in (None, 1):
        raise ValueError(
            f"params contains 'n': {short(value['n'])}; a conversation continues from "
            "one reply: remove it, or request the other replies outside the context"
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
    "redact": partial(_check_function, expected="a function that takes a text and returns a text"),
}
"""By an option's name. The other options are checked when they are used."""
