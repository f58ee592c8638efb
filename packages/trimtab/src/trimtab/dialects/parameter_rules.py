"""Request parameters in the form of each API: tool choice, format of the reply, stop sequences.

A caller sets them once and then changes models. One API may reject what another accepts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from trimtab.dialects.json_values import dict_or_none, dicts_in_list, list_or_none

_VALID_NAME = re.compile(r"[a-zA-Z0-9_-]+")


def find_name_errors(name: Any, max_chars: int, location: str) -> list[str]:
    if isinstance(name, str) and _VALID_NAME.fullmatch(name):
        return find_max_length_errors(name, max_chars, location)
    return [
        (
            f"Invalid '{location}': string does not match pattern. Expected a string that matches "
            "the pattern '^[a-zA-Z0-9_-]+$'."
        )
    ]


def find_max_length_errors(text: Any, max_chars: int, location: str) -> list[str]:
    if not isinstance(text, str) or len(text) <= max_chars:
        return []
    return [
        (
            f"Invalid '{location}': string too long. Expected a string with maximum length "
            f"{max_chars}, "
            f"but got a string with length {len(text)} instead."
        )
    ]


_OPENAI_CHOICES = ("none", "auto", "required")
_OPENAI_FORMATS = ("text", "json_object", "json_schema")
_CHAT_CHOICE_TYPES = ("function", "custom", "allowed_tools")
_ANTHROPIC_CHOICE_TYPES = ("auto", "any", "tool", "none")
_MAX_OPENAI_STOPS = 4
_Wire = Mapping[str, Any]


def find_openai_output_errors(request: _Wire, name: str, *, minimum: int = 1) -> list[str]:
    """List what both of OpenAI's APIs reject in the parameter that limits the output."""
    limit = request.get(name)
    if limit is None or (isinstance(limit, int) and limit >= minimum):
        return []
    return [
        (
            f"Invalid '{name}': integer below minimum value. Expected a value >= {minimum}, but "
            f"got {limit} instead."
        )
    ]


def find_openai_schema_errors(name: Any, schema: Any) -> list[str]:
    """List what both of OpenAI's APIs reject in the parameters of a function."""
    kind = (dict_or_none(schema) or {}).get("type", "object")
    if kind == "object":
        return []
    right = "schema must be a JSON Schema of 'type: \"object\"'"
    return [f"Invalid schema for function {name!r}: {right}, got 'type: \"{kind}\"'."]


def find_chat_parameter_errors(request: _Wire) -> list[str]:
    """List what Chat Completions rejects in its parameters."""
    errors: list[str] = []
    choice = request.get("tool_choice")
    if choice is not None and not request.get("tools"):
        errors.append(
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are "
            "specified."
        )
    elif choice is not None:
        errors += _check_chat_choice(choice, _tool_names(request))
    shape = request.get("response_format")
    if shape is not None:
        errors += _check_openai_format(shape, "response_format", nested_key="json_schema")
    if request.get("stream_options") is not None and not request.get("stream"):
        errors.append("The 'stream_options' parameter is only allowed when 'stream' is enabled.")
    stops = list_or_none(request.get("stop")) or []
    if len(stops) > _MAX_OPENAI_STOPS:
        errors.append(
            f"Invalid 'stop': array too long. Expected an array with maximum length "
            f"{_MAX_OPENAI_STOPS}, but got an array with length {len(stops)} instead."
        )
    return errors


def _check_chat_choice(choice: Any, names: Collection[str]) -> list[str]:
    wrong = _check_openai_choice_word(choice)
    if wrong is not None:
        return wrong
    choice_object = dict_or_none(choice) or {}
    kind = choice_object.get("type")
    if kind not in _CHAT_CHOICE_TYPES:
        return [_unsupported("tool_choice.type", kind, _CHAT_CHOICE_TYPES)]
    if kind == "allowed_tools":
        return []
    body = dict_or_none(choice_object.get(kind)) or {}
    if not body.get("name"):
        return [f"Missing required parameter: 'tool_choice.{kind}.name'."]
    return _check_is_tool(body["name"], names)


def find_responses_parameter_errors(request: _Wire) -> list[str]:
    """List what the Responses API rejects in its parameters."""
    errors = find_openai_output_errors(request, "max_output_tokens", minimum=16)
    choice = request.get("tool_choice")
    if choice is not None:
        errors += _check_responses_choice(choice, _tool_names(request))
    text = request.get("text")
    if text is not None and dict_or_none(text) is None:
        errors.append("Invalid type for 'text': expected an object.")
    elif (shape := (dict_or_none(text) or {}).get("format")) is not None:
        errors += _check_openai_format(shape, "text.format", nested_key=None)
    return errors


def _check_responses_choice(choice: Any, names: Collection[str]) -> list[str]:
    wrong = _check_openai_choice_word(choice)
    if wrong is not None:
        return wrong
    choice_object = dict_or_none(choice) or {}
    if not isinstance(choice_object.get("type"), str):
        return ["Missing required parameter: 'tool_choice.type'."]
    if choice_object["type"] not in ("function", "custom"):
        return []  # the provider's own tools, of which new ones come
    if choice_object["type"] in choice_object:
        return [f"Unknown parameter: 'tool_choice.{choice_object['type']}'."]
    if not choice_object.get("name"):
        return ["Missing required parameter: 'tool_choice.name'."]
    return _check_is_tool(choice_object["name"], names)


def _check_openai_choice_word(choice: Any) -> list[str] | None:
    """Check a choice that is a word, or neither a word nor an object."""
    if isinstance(choice, str):
        valid = choice in _OPENAI_CHOICES
        return [] if valid else [_unsupported("tool_choice", choice, _OPENAI_CHOICES)]
    if dict_or_none(choice) is None:
        return ["Invalid type for 'tool_choice': expected a string or an object."]
    return None


def _check_is_tool(name: Any, names: Collection[str]) -> list[str]:
    if name in names:
        return []
    return [f"Tool choice {name!r} not found in 'tools' parameter."]


def _check_openai_format(shape: Any, location: str, *, nested_key: str | None) -> list[str]:
    """Check the format.

    `nested_key` holds the schema in Chat Completions; in Responses it is next to the type.
    """
    format_object = dict_or_none(shape)
    if format_object is None:
        return [f"Invalid type for '{location}': expected an object."]
    kind = format_object.get("type")
    if kind not in _OPENAI_FORMATS:
        return [_unsupported(f"{location}.type", kind, _OPENAI_FORMATS)]
    if kind != "json_schema":
        return []
    where = location if nested_key is None else f"{location}.{nested_key}"
    schema = format_object if nested_key is None else dict_or_none(format_object.get(nested_key))
    if schema is None:
        return [f"Missing required parameter: '{where}'."]
    keys = ("name", "schema") if nested_key is None else ("name",)
    return [f"Missing required parameter: '{where}.{key}'." for key in keys if not schema.get(key)]


def _unsupported(location: str, value: Any, choices: Collection[str]) -> str:
    supported_values = ", ".join(map(repr, choices))
    return f"Invalid value for '{location}': {value!r}. Supported values are: {supported_values}."


def find_anthropic_parameter_errors(request: _Wire) -> list[str]:
    """List what the Messages API rejects in `tool_choice`, `output_config`, `metadata` and
    stops."""
    errors: list[str] = []
    choice = request.get("tool_choice")
    if choice is not None:
        errors += _check_anthropic_choice(choice, request)
    for name in ("metadata", "output_config", "thinking"):
        if request.get(name) is not None and dict_or_none(request[name]) is None:
            errors.append(f"{name}: Input should be a valid dictionary")
    shape = (dict_or_none(request.get("output_config")) or {}).get("format")
    if shape is not None:
        format_object = dict_or_none(shape) or {}
        if format_object.get("type") != "json_schema":
            errors.append("output_config.format.type: Input should be 'json_schema'")
        elif dict_or_none(format_object.get("schema")) is None:
            errors.append("output_config.format.schema: Field required")
    stops = request.get("stop_sequences")
    if stops is not None and list_or_none(stops) is None:
        errors.append("stop_sequences: Input should be a valid list")
    return errors


def _check_anthropic_choice(choice: Any, request: _Wire) -> list[str]:
    choice_object = dict_or_none(choice)
    if choice_object is None:
        return ["tool_choice: Input should be a valid dictionary, such as {'type': 'auto'}"]
    kind = choice_object.get("type")
    if kind not in _ANTHROPIC_CHOICE_TYPES:
        types = ", ".join(map(repr, _ANTHROPIC_CHOICE_TYPES))
        tag = f"tool_choice: Input tag {kind!r} found using 'type' does not match any of the "
        return [f"{tag}expected tags: {types}"]
    if not request.get("tools"):
        return ["tool_choice may only be specified while providing tools"]
    if kind != "tool":
        return []
    if not choice_object.get("name"):
        return ["tool_choice.tool.name: Field required"]
    if choice_object["name"] in _tool_names(request):
        return []
    return [f"Tool {choice_object['name']!r} not found in provided tools"]


def _tool_names(request: _Wire) -> set[str]:
    names: set[str] = set()
    for tool in dicts_in_list(request.get("tools")):
        body = dict_or_none(tool.get("function")) or dict_or_none(tool.get("custom")) or tool
        names.add(str(body.get("name")))
    return names
