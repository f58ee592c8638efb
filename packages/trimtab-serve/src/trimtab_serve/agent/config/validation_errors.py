"""Explain validation errors to the person who wrote the file."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, cast

from pydantic_core import ErrorDetails

from trimtab_serve.agent.config.checks import PROBLEM_TYPE, WRITTEN
from trimtab_serve.agent.config.env_refs import TextFromEnvironment
from trimtab_serve.agent.config.problems import ConfigProblem, TextPosition
from trimtab_serve.agent.config.schema import (
    SchemaNode,
    describe_expected_value,
    find_schema_at,
    find_value_at,
    is_settings_block,
    map_tool_kinds_to_refs,
)
from trimtab_serve.agent.config.suggestions import (
    suggest_choice,
    suggest_number_spelling,
    suggest_setting,
)
from trimtab_serve.agent.config.yaml_document import ConfigPath, YamlDocument, format_config_path

_FIRST_POSITION = TextPosition(line=1, column=1)
_SETTING_WITHOUT_SPACE = re.compile(r"([a-z_]+):([^\s:/]\S*)")
"""A setting without a space between its name and its value. YAML reads it as one text."""
_MAX_QUOTED_CHARS = 60
"""Maximum number of characters of a value to quote."""
SECRET_SETTINGS = ("api_key", "env", "headers", "store")
"""Settings whose values are never quoted, even if they are in the file itself."""


def explain_validation_errors(
    errors: list[ErrorDetails], data: Any, document: YamlDocument
) -> list[ConfigProblem]:
    """Return one problem for each position. A value that is wrong in two ways is reported once."""
    problem_paths = {problem.path for problem in document.problems}
    paths = [_document_path(error, data) for error in errors]
    fresh: list[ConfigProblem] = []
    for error, path in zip(errors, paths, strict=True):
        # Of two alternatives, the one that the value was meant for says more, deeper inside.
        deeper = any(
            len(other) > len(path) == _shared_prefix_length(path, other) for other in paths
        )
        if path not in problem_paths and not (deeper and error["type"].endswith("_type")):
            problem_paths.add(path)
            fresh.append(_explain_error(error, path, data, document))
    return fresh


def _shared_prefix_length(one: ConfigPath, other: ConfigPath) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


def _document_path(error: ErrorDetails, data: Any) -> ConfigPath:
    """Return the path in the document. Pydantic's path also contains the names of alternatives."""
    path: list[str | int] = []
    for at, step in enumerate(error["loc"]):
        if at == 2 and path[0] == "tools":
            # The tool's kind, which may also be the name of a setting.
            continue
        if isinstance(data, dict) and step in data:
            data = cast("dict[Any, Any]", data)[step]
        elif isinstance(data, list) and isinstance(step, int):
            data = cast("list[Any]", data)[step]
        elif error["type"] != "missing" or at != len(error["loc"]) - 1:
            continue
        path.append(step)
    if error["type"] in ("union_tag_not_found", "union_tag_invalid"):
        path.append("kind")
    elif error["type"] == PROBLEM_TYPE:
        path += error.get("ctx", {})["path"]
    return tuple(path)


def _explain_error(
    error: ErrorDetails, path: ConfigPath, data: Any, document: YamlDocument
) -> ConfigProblem:
    mark = document.marks.get(path)
    value = find_value_at(data, path)
    shape = find_schema_at(path[:-1], data) or {}
    if error["type"] == PROBLEM_TYPE:
        quoted = f"`{mark.written}`" if mark and mark.written else "something else"
        text = error["msg"].replace(WRITTEN, quoted)
        place = mark and mark.key_position
    elif error["type"] == "extra_forbidden":
        text = f"is not a known setting here; {suggest_setting(path, shape)}"
        place = mark and mark.key_position
    elif error["loc"][-1] == "[key]":
        text = (
            "is not a valid name for a tool; begin with a letter, and use letters, digits, _ and "
            "-, at most 48 characters"
        )
        place = mark and mark.key_position
    elif error["type"] == "missing":
        text = _explain_missing_setting(path, shape, document)
        place = None
    elif error["type"] == "union_tag_not_found":
        text = _explain_missing_kind(path, data)
        place = None
    elif error["type"] == "union_tag_invalid":
        text = _explain_wrong_value(
            path, value, {"enum": list(map_tool_kinds_to_refs(shape))}, document
        )
        place = mark and mark.value_position
    else:
        text = _explain_wrong_value(path, value, find_schema_at(path, data) or {}, document)
        place = mark and mark.value_position
    if place is None:
        around = next(m for at in range(len(path), -1, -1) if (m := document.marks.get(path[:at])))
        place = around.key_position if path[:-1] else _FIRST_POSITION
    space = "" if text.startswith(":") else " "
    return ConfigProblem(text=f"{format_config_path(path)}{space}{text}", position=place, path=path)


def _explain_missing_setting(path: ConfigPath, block: SchemaNode, document: YamlDocument) -> str:
    empty = "is empty" if path in document.marks else "is missing"
    if path == ("model",):
        return f"{empty}; write `model: ` with the model's name"
    shape = block.get("properties", {}).get(path[-1], {})
    about = " ".join(str(shape.get("description", "")).split())
    return (
        f"{empty}; write {describe_expected_value(shape)}: {about[:1].lower()}{about[1:]}"
    ).removesuffix(".")


def _explain_missing_kind(path: ConfigPath, data: Any) -> str:
    shape = find_schema_at(path[:-1], data) or {}
    tool_block: dict[str, Any] = find_value_at(data, path[:-1])
    if "type" in tool_block:
        return "is missing; the setting for the type of a tool is called `kind`, not `type`"
    looks = {"function": "python", "url": "mcp", "only": "mcp", "parameters": "command"}
    guess = next((kind for name, kind in looks.items() if name in tool_block), None)
    if guess is None and path[-2] in map_tool_kinds_to_refs(shape):
        guess = str(path[-2])
    fix = f"; it looks like `kind: {guess}`" if guess else ""
    return f"is missing; write `kind:` with one of {', '.join(map_tool_kinds_to_refs(shape))}{fix}"


def _explain_wrong_value(
    path: ConfigPath, value: Any, shape: SchemaNode, document: YamlDocument
) -> str:
    """Say what was found, what it must be, and how to write it."""
    text = f"is {_describe_found_value(path, value, document)}; "
    choices = [str(choice) for choice in shape.get("enum", ())]
    if choices:
        suggestion = suggest_choice(path, str(value), choices) if isinstance(value, str) else None
        guess = f"did you mean {suggestion}? Choose " if suggestion else "choose "
        pattern_hint = "; your own patterns belong into redact_patterns" if "redact" in path else ""
        return f"{text}{guess}{describe_expected_value(shape)}{pattern_hint}"
    fix = _suggest_fix(path, value, shape, document)
    return f"{text}it must be {describe_expected_value(shape)}{f'; {fix}' if fix else ''}"


def _describe_found_value(path: ConfigPath, value: Any, document: YamlDocument) -> str:
    mark = document.marks.get(path)
    if value is None:
        return "empty"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, dict):
        return "a block"
    source_text = mark.written if mark and mark.written is not None else str(value)
    if isinstance(value, TextFromEnvironment):
        return f"{source_text}, and its value in the environment is not valid here"
    if any(step in SECRET_SETTINGS for step in path):
        if isinstance(value, str):
            return "a text"
        return "a value that YAML reads as a number, or as true or false"
    excerpt = (
        source_text
        if len(source_text) <= _MAX_QUOTED_CHARS
        else f"{source_text[:_MAX_QUOTED_CHARS]}…"
    )
    if isinstance(value, bool) and source_text.lower() not in ("true", "false"):
        return f"{excerpt}, which YAML reads as {str(value).lower()}"
    return f'"{excerpt}"' if isinstance(value, str) else excerpt


def _suggest_fix(
    path: ConfigPath, value: Any, shape: SchemaNode, document: YamlDocument
) -> str | None:
    mark = document.marks.get(path)
    source_text = mark.written if mark and mark.written is not None else ""
    kind = shape.get("type")
    if isinstance(value, TextFromEnvironment):
        return None
    if kind == "string" and isinstance(value, bool | int | float):
        return "put it in quotes" + ("" if path[-1] in SECRET_SETTINGS else f': "{source_text}"')
    if kind in ("integer", "number") and isinstance(value, int | float | str):
        number = suggest_number_spelling(value, shape)
        return f"write {number}" if number and number != repr(value) else None
    if kind == "boolean" and isinstance(value, str) and value.lower() in ("true", "false"):
        return "write it without quotes"
    if (
        kind == "array"
        and isinstance(value, str)
        and not any(step in SECRET_SETTINGS for step in path)
    ):
        parts = _split_command(source_text) if path[-1] == "command" else [source_text]
        return (
            f"write {json.dumps(parts, ensure_ascii=False)}"
            if len(source_text) <= _MAX_QUOTED_CHARS
            else None
        )
    if (
        any(is_settings_block(choice) for choice in shape.get("anyOf", (shape,)))
        and isinstance(value, str)
        and (match := _SETTING_WITHOUT_SPACE.fullmatch(source_text))
    ):
        return f"write `{match[1]}: {match[2]}`, with a space after the `:`"
    if (
        path[0] == "tools"
        and len(path) == 2
        and isinstance(value, str)
        and value in map_tool_kinds_to_refs(shape)
    ):
        return f"write `kind: {value}` on a separate line, indented below `{path[1]}:`"
    if "parameters" in path and isinstance(value, str):
        return f"write {{type: {source_text}}}" if source_text.isalpha() else None
    if path == ("tools",) and isinstance(value, list):
        return "write each tool's name with a `:` and its settings indented below, without dashes"
    return None


def _split_command(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()
