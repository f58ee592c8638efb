"""Why a text is no YAML, in words that say what to change."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import yaml
from yaml.nodes import Node

from trimtab.agent.problems import Place, Problem


def composed(text: str) -> Node | Problem | None:
    """The text's nodes, or what stops YAML from reading it; None for a text without any."""
    try:
        compose = cast("Callable[..., Node | None]", vars(yaml)["compose"])
        return compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line = before.count("\n") + 1
        column = len(before) - before.rfind("\n")
        number = error.character if isinstance(error.character, int) else ord(error.character)
        return Problem(
            text=f"the character U+{number:04X} cannot stand in YAML; delete it",
            place=Place(line=line, column=column),
        )
    except yaml.MarkedYAMLError as error:
        return _explained(error, text)
    except RecursionError:
        return Problem(text="is nested too deeply to be read")
    except (ValueError, OverflowError):
        return Problem(text="has an escape in double quotes, such as `\\U…`, that is no character")


def _explained(error: yaml.MarkedYAMLError, text: str) -> Problem:
    mark: Any = cast("Any", error.problem_mark or error.context_mark)
    lines = text.splitlines() or [""]
    at = min(mark.line, len(lines) - 1) if mark is not None else 0
    line = lines[at]
    place = Place(
        line=at + 1, column=mark.column + 1 if mark is not None and at == mark.line else 1
    )
    told = _told(error.problem or "", error.context or "", line)
    opened: Any = cast("Any", error.context_mark)
    if "not closed" in told and opened is not None and opened.line < len(lines) - 1:
        told += f"; it was opened in line {opened.line + 1}"
    return Problem(text=told, place=place)


def _told(problem: str, context: str, line: str) -> str:
    if re.match(r" *\t", line):
        problem = "'\\t'"
    elif "flow" in context and "${" in line:
        return 'inside [ ] and { } a reference must stand in quotes: ["${NAME}"]'
    said = f"{context} | {problem}"
    for pattern, text in _EXPLAINED:
        if found := re.search(pattern, said):
            return text.format(*found.groups())
    return "YAML cannot read this line; put texts with special characters in quotes"


_EXPLAINED = (
    (r"'\\t'", "a tab stands where YAML wants spaces; indent with two spaces for each level"),
    (
        r"single document",
        "a second document begins here, after `---`; keep one agent in one file",
    ),
    (
        r"undefined alias",
        "a text cannot begin with `*`, which YAML reads as a reference; put it in quotes",
    ),
    (
        r"alias|anchor",
        "a text cannot begin with `&` or `*`, which YAML reads as references; put it in quotes",
    ),
    (r"flow node", "a `[` or `{{` is not closed"),
    (r"flow sequence", "a `[` is not closed, or a comma is missing"),
    (r"flow mapping", "a `{{` is not closed, or a comma is missing"),
    (
        r"quoted scalar.*(?:escape|hexdecimal)",
        "a `\\` in double quotes begins an escape; use single quotes, or write `\\\\`",
    ),
    (r"quoted scalar", "a quotation mark is not closed"),
    (
        r"character '(.+)' that cannot start",
        "a text cannot begin with {} in YAML; put it in quotes",
    ),
    (
        r"mapping values are not allowed",
        "a `:` cannot stand here; put a text with one in quotes, or indent like the lines around",
    ),
    (
        r"could not find expected ':'",
        "a `:` is missing after a name in this line or the one before; write `name: value`",
    ),
    (r"<block end>, but found '([]}])'", "a `{}` closes what was never opened"),
    (
        r"<document start>",
        "this line does not go with what is before it; write `name: value` in each line",
    ),
    (
        r"expected a comment or a line break",
        "after `>` or `|` the text begins in the next line; or put the text in quotes",
    ),
    (
        r"block.*expected <block end>",
        "this line is not indented like those around; names of one block stand in one column",
    ),
)
"""By what PyYAML says: what to tell instead."""
