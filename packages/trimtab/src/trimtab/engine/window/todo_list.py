"""Find the agent's todo list (its plan) in the calls of a conversation.

Agents write a list with a tool (`TodoWrite`, `write_todos`, `update_plan`) or into a file, and work
from it for hours. A list is known by its shape: items with a text and a status, or a checklist. A
checklist and what a tool returns also need a name that says what they are, because a pull request
has checklists and an issue tracker returns items with a status.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from trimtab.engine.log.message import ToolCall, ToolResult
from trimtab.engine.text.identifiers import list_string_values
from trimtab.engine.window.structure import CallResultPair, Round

_TEXT_KEYS = frozenset(("content", "description", "step", "subject", "task", "text", "title"))
_STATUS_KEYS = frozenset(("checked", "completed", "done", "state", "status"))
_PARTIAL_KEYS = re.compile(r'"(?:old_\w+|merge"\s*:\s*true\b)')
"""What an argument has that changes a part of a list: the old text of an edit, or a merge."""
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME = re.compile(r"todo|checklist|(?<![a-z])(?:plan|task_?list)s?(?![a-z])")
_FILE_NAME = re.compile(r"[\w-]+\.\w{1,8}\b|\b[A-Z]{4,}\b")
"""A file name with an ending, or in capitals, such as `TODO`."""
_BOX = re.compile(r"\[[ xX~/-]\]")
_CHECKLIST_LINE = re.compile(
    r"^[ \t]*(?:(?:[-*+]|\d+[.)])[ \t]+)?\[[ xX~/-]\][ \t]+\S", re.MULTILINE
)
_MAX_DEPTH = 3
"""Levels of an argument or a result to search for a list."""
MAX_SEARCHED_CHARS = 40_000
"""Maximum characters of arguments or of a result to search. A list for people is shorter."""
MAX_CHANGES = 50
"""Maximum number of changes to follow after a whole list."""
_MAX_NAME_CHARS = 300
"""Maximum characters of an argument that may name a file."""

PartKey = tuple[int, int]
"""The position of a message and the index of one of its parts."""


class TodoCall(NamedTuple):
    """A call that wrote, changed or read the todo list."""

    tool: str
    """Name of the tool."""
    file_name: str
    """Name of the file that holds the list; empty if the tool itself keeps it."""
    parts: tuple[PartKey, ...]
    """The call, and its result if the list is there."""


def find_todo_calls(todo_calls: tuple[TodoCall, ...], round: Round) -> tuple[TodoCall, ...]:
    """Return the calls that say what the todo list is after an answered round: the newest whole
    list, and the changes since then. `todo_calls` are those before the round."""
    for key, call, pairing in _answered_calls(round):
        result = pairing.result
        content = None if result is None else result.entry.message.parts[result.part]
        if result is None or not isinstance(content, ToolResult) or content.is_error:
            continue
        file_name = "" if _says_todo(call.name) else _find_file_name(call)
        is_named = bool(file_name) or _says_todo(call.name)
        is_partial = _PARTIAL_KEYS.search(call.arguments) is not None
        if is_named and _holds_list(content.text, is_named=True):
            todo_calls = (TodoCall(call.name, file_name, (key, result.key)),)
        elif not is_partial and _holds_list(call.arguments, is_named=is_named):
            todo_calls = (TodoCall(call.name, file_name, (key,)),)
        elif todo_calls and _changes_list(todo_calls[0], call, file_name):
            changes = (*todo_calls[1:], TodoCall(call.name, file_name, (key,)))
            todo_calls = (todo_calls[0], *changes[-MAX_CHANGES:])
    return todo_calls


def _answered_calls(round: Round) -> Iterator[tuple[PartKey, ToolCall, CallResultPair]]:
    """Yield the calls of a round in their order, each with its place and its pair."""
    parts = (
        ((entry.seq, index), part)
        for entry in round.entries
        if entry.message.role == "assistant"
        for index, part in enumerate(entry.message.parts)
        if isinstance(part, ToolCall)
    )
    for (key, part), pairing in zip(parts, round.calls, strict=True):
        yield key, part, pairing


def _changes_list(list_call: TodoCall, call: ToolCall, file_name: str) -> bool:
    if list_call.file_name:
        return file_name == list_call.file_name and _BOX.search(call.arguments) is not None
    return call.name == list_call.tool


def _says_todo(name: str) -> bool:
    return _NAME.search(_WORD_START.sub("_", name).lower()) is not None


def _find_file_name(call: ToolCall) -> str:
    """Return the name of the todo file that a call names, such as `TODO.md`; empty if it names
    none."""
    if len(call.arguments) > MAX_SEARCHED_CHARS:
        return ""
    for text in list_string_values(call.arguments):
        if len(text) > _MAX_NAME_CHARS or "\n" in text:
            continue
        for name in _FILE_NAME.findall(text):
            if _says_todo(name):
                return name
    return ""


def _holds_list(text: str, *, is_named: bool) -> bool:
    """Whether a JSON text or a plain text holds a list. A checklist counts only with a name."""
    if len(text) > MAX_SEARCHED_CHARS:
        return False
    if not (is_named or any(key in text for key in _STATUS_KEYS)):
        return False
    value: Any = text
    if text.lstrip()[:1] in ("{", "["):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
    return _is_list(value, is_named=is_named, depth=_MAX_DEPTH)


def _is_list(value: Any, *, is_named: bool, depth: int) -> bool:
    match value:
        case str():
            return _is_text_list(value, is_named=is_named, depth=depth)
        case list():
            items = cast("list[Any]", value)
            return bool(items) and all(map(_is_item, items))
        case dict() if depth:
            values = cast("Mapping[str, Any]", value).values()
            return any(_is_list(inner, is_named=is_named, depth=depth - 1) for inner in values)
        case _:
            return False


def _is_text_list(text: str, *, is_named: bool, depth: int) -> bool:
    """Whether a text is a checklist, or a list that the model wrote as JSON inside a string."""
    if is_named and _CHECKLIST_LINE.search(text):
        return True
    if not depth or not text.startswith("["):
        return False
    try:
        return _is_list(json.loads(text), is_named=is_named, depth=0)
    except (ValueError, RecursionError):
        return False


def _is_item(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    keys = cast("Mapping[str, Any]", item).keys()
    return not _TEXT_KEYS.isdisjoint(keys) and not _STATUS_KEYS.isdisjoint(keys)
