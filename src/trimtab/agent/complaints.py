"""What a check of the values has found, said to the person who wrote them."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, cast

from pydantic_core import ErrorDetails

from trimtab.agent.document import Document, Path, named
from trimtab.agent.meant import choice_meant, meant_by, number_meant
from trimtab.agent.problems import Place, Problem
from trimtab.agent.references import Resolved
from trimtab.agent.shape import Shape, kinds, names, shape_at, value_at, words

_TOP = Place(line=1, column=1)
_GLUED = re.compile(r"([a-z_]+):([^\s:/]\S*)")
"""A setting without a space between its name and its value, which YAML takes for one text."""
_LONGEST = 60
"""Characters of a value that are repeated."""
SECRET = ("api_key", "env", "headers", "store")
"""Names whose values are not repeated, even where they stand in the file itself."""


def complaints(errors: list[ErrorDetails], data: Any, found: Document) -> list[Problem]:
    """One problem for each place; what is wrong in two ways is told once."""
    told = {problem.path for problem in found.problems}
    paths = [_path(error, data) for error in errors]
    fresh: list[Problem] = []
    for error, path in zip(errors, paths, strict=True):
        # Of two alternatives, the one that the value was meant for says more, deeper inside.
        deeper = any(len(other) > len(path) == _shared(path, other) for other in paths)
        if path not in told and not (deeper and error["type"].endswith("_type")):
            told.add(path)
            fresh.append(_problem(error, path, data, found))
    return fresh


def _shared(one: Path, other: Path) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))


def _path(error: ErrorDetails, data: Any) -> Path:
    """The path in the document: pydantic's has the names of alternatives in it."""
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
    return tuple(path)


def _problem(error: ErrorDetails, path: Path, data: Any, found: Document) -> Problem:
    mark = found.marks.get(path)
    value = value_at(data, path)
    shape = shape_at(path[:-1], data) or {}
    if error["type"] == "extra_forbidden":
        text, place = f"is not known here; {meant_by(path, shape)}", mark and mark.key
    elif error["loc"][-1] == "[key]":
        text = (
            "is no name for a tool; take letters, digits, _ and -, with a letter first, 48 at most"
        )
        place = mark and mark.key
    elif error["type"] == "missing":
        text, place = _missing(path, shape, found), None
    elif error["type"] == "union_tag_not_found":
        text, place = _no_kind(path, data), None
    elif error["type"] == "union_tag_invalid":
        text = _wrong(path, value, {"enum": list(kinds(shape))}, found)
        place = mark and mark.value
    else:
        text = _wrong(path, value, shape_at(path, data) or {}, found)
        place = mark and mark.value
    if place is None:
        around = next(m for at in range(len(path), -1, -1) if (m := found.marks.get(path[:at])))
        place = around.key if path[:-1] else _TOP
    return Problem(text=f"{named(path)} {text}", place=place, path=path)


def _missing(path: Path, block: Shape, found: Document) -> str:
    empty = "is empty" if path in found.marks else "is missing"
    if path == ("model",):
        return f"{empty}; write `model:` and indented below it `name: `, with the model's name"
    shape = block.get("properties", {}).get(path[-1], {})
    about = " ".join(str(shape.get("description", "")).split())
    return f"{empty}; write {words(shape)}: {about[:1].lower()}{about[1:]}".removesuffix(".")


def _no_kind(path: Path, data: Any) -> str:
    shape = shape_at(path[:-1], data) or {}
    given: dict[str, Any] = value_at(data, path[:-1])
    if "type" in given:
        return "is missing; what a tool is, is called `kind` and not `type`"
    looks = {"function": "python", "url": "mcp", "only": "mcp", "parameters": "command"}
    guess = next((kind for name, kind in looks.items() if name in given), None)
    if guess is None and path[-2] in kinds(shape):
        guess = str(path[-2])
    fix = f"; it looks like `kind: {guess}`" if guess else ""
    return f"is missing; write `kind:` with one of {', '.join(kinds(shape))}{fix}"


def _wrong(path: Path, value: Any, shape: Shape, found: Document) -> str:
    """What was found, what it must be, and how to write it."""
    text = f"is {_found(path, value, found)}; "
    choices = [str(choice) for choice in shape.get("enum", ())]
    if choices:
        meant = choice_meant(path, str(value), choices) if isinstance(value, str) else None
        guess = f"did you mean {meant}? Choose " if meant else "choose "
        return f"{text}{guess}{words(shape)}"
    fix = _fix(path, value, shape, found)
    return f"{text}it must be {words(shape)}{f'; {fix}' if fix else ''}"


def _found(path: Path, value: Any, found: Document) -> str:
    mark = found.marks.get(path)
    if value is None:
        return "empty"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, dict):
        return "a block"
    written = mark.written if mark and mark.written is not None else str(value)
    if isinstance(value, Resolved):
        return f"{written}, and what the environment holds for it does not fit"
    if any(step in SECRET for step in path):
        return "a text" if isinstance(value, str) else "read as a number, or as true or false"
    shown = written if len(written) <= _LONGEST else f"{written[:_LONGEST]}…"
    if isinstance(value, bool) and written.lower() not in ("true", "false"):
        return f"{shown}, which YAML reads as {str(value).lower()}"
    return f'"{shown}"' if isinstance(value, str) else shown


def _fix(path: Path, value: Any, shape: Shape, found: Document) -> str | None:
    mark = found.marks.get(path)
    written = mark.written if mark and mark.written is not None else ""
    kind = shape.get("type")
    if isinstance(value, Resolved):
        return None
    if kind == "string" and isinstance(value, bool | int | float):
        return "put it in quotes" + ("" if path[-1] in SECRET else f': "{written}"')
    if kind in ("integer", "number") and isinstance(value, int | float | str):
        meant = number_meant(value, shape)
        return f"write {meant}" if meant and meant != repr(value) else None
    if kind == "boolean" and isinstance(value, str) and value.lower() in ("true", "false"):
        return "write it without quotes"
    if kind == "array" and isinstance(value, str) and not any(step in SECRET for step in path):
        parts = _parts(written) if path[-1] == "command" else [written]
        return (
            f"write {json.dumps(parts, ensure_ascii=False)}" if len(written) <= _LONGEST else None
        )
    if names(shape) and isinstance(value, str) and (glued := _GLUED.fullmatch(written)):
        return f"write `{glued[1]}: {glued[2]}`, with a space after the `:`"
    if names(shape) and isinstance(value, str) and path == ("model",):
        return f"write `name: {written}` in a line of its own, indented below `model:`"
    if path[0] == "tools" and len(path) == 2 and isinstance(value, str) and value in kinds(shape):
        return f"write `kind: {value}` in a line of its own, indented below `{path[1]}:`"
    if "parameters" in path and isinstance(value, str):
        return f"write {{type: {written}}}" if written.isalpha() else None
    if path == ("tools",) and isinstance(value, list):
        return "write each tool's name with a `:` and its settings indented below, without dashes"
    return None


def _parts(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()
