"""Why a text is no YAML, in words that say what to change.

A YAML text as values, with the place of each: read safely, and without YAML's surprises.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from trimtab.agent.config.agent_file_reading_and_errors import ConfigProblem, TextPosition


def parse_yaml_nodes(text: str) -> Node | ConfigProblem | None:
    """The text's nodes, or what stops YAML from reading it; None for a text without any."""
    try:
        compose = cast("Callable[..., Node | None]", vars(yaml)["compose"])
        return compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line = before.count("\n") + 1
        column = len(before) - before.rfind("\n")
        number = error.character if isinstance(error.character, int) else ord(error.character)
        return ConfigProblem(
            text=f"the character U+{number:04X} cannot stand in YAML; delete it",
            position=TextPosition(line=line, column=column),
        )
    except yaml.MarkedYAMLError as error:
        return _explain_yaml_error(error, text)
    except RecursionError:
        return ConfigProblem(text="is nested too deeply to be read")
    except (ValueError, OverflowError):
        return ConfigProblem(
            text="has an escape in double quotes, such as `\\U…`, that is no character"
        )


def _explain_yaml_error(error: yaml.MarkedYAMLError, text: str) -> ConfigProblem:
    mark: Any = cast("Any", error.problem_mark or error.context_mark)
    lines = text.splitlines() or [""]
    at = min(mark.line, len(lines) - 1) if mark is not None else 0
    line = lines[at]
    place = TextPosition(
        line=at + 1, column=mark.column + 1 if mark is not None and at == mark.line else 1
    )
    told = _explain_in_words(error.problem or "", error.context or "", line)
    opened: Any = cast("Any", error.context_mark)
    if "not closed" in told and opened is not None and opened.line < len(lines) - 1:
        told += f"; it was opened in line {opened.line + 1}"
    return ConfigProblem(text=told, position=place)


def _explain_in_words(problem: str, context: str, line: str) -> str:
    if re.match(r" *\t", line):
        problem = "'\\t'"
    elif "flow" in context and "${" in line:
        return 'inside [ ] and { } a reference must stand in quotes: ["${NAME}"]'
    said = f"{context} | {problem}"
    for pattern, text in _YAML_EXPLANATIONS:
        if found := re.search(pattern, said):
            return text.format(*found.groups())
    return "YAML cannot read this line; put texts with special characters in quotes"


_YAML_EXPLANATIONS = (
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


ConfigPath = tuple[str | int, ...]
"""Names and numbers that lead to a value."""

MAX_DOCUMENT_VALUES = 20_000
"""Values of one document; references (`*name`) can make a short text explode."""
MAX_DOCUMENT_DEPTH = 50
"""Levels of one document."""

_YAML_TAG_PREFIX = "tag:yaml.org,2002:"
_KNOWN_TAG_NAMES = (
    "bool",
    "float",
    "int",
    "map",
    "merge",
    "null",
    "seq",
    "str",
    "timestamp",
    "value",
)
_KNOWN_TAGS = frozenset(_YAML_TAG_PREFIX + kind for kind in _KNOWN_TAG_NAMES)
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
# Without YAML 1.1's octal 010 and base-60 12:30, which nobody means.
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:(?:0|[1-9][0-9_]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
MAX_NUMBER_CHARS = 30
"""Characters of a number; a longer one is a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMark:
    """One value of a document."""

    key_position: TextPosition
    """Where its name stands, or the value itself where it has none."""
    value_position: TextPosition
    """Where it begins."""
    written: str | None
    """A scalar as it is written, without quotes; None for lists and blocks."""
    quoted: bool = False
    """Whether it stands in quotes, or as a block of text."""


@dataclass(slots=True, kw_only=True)
class YamlDocument:
    """A text, read."""

    data: Any = None
    """Its values: None, bool, int, float, str, list and dict, where names are as written."""
    marks: dict[ConfigPath, SourceMark] = field(default_factory=dict[ConfigPath, SourceMark])
    """Each value's place."""
    problems: list[ConfigProblem] = field(default_factory=list[ConfigProblem])
    """What stands in the way of reading it."""


def parse_yaml_collecting_problems(text: str) -> YamlDocument:
    """The text's values and their places; or what is wrong with it, in `problems`."""
    node = parse_yaml_nodes(text)
    if isinstance(node, ConfigProblem):
        return YamlDocument(problems=[node])
    found = YamlDocument()
    if node is not None:
        found.data = _NodeReader(found).value(node, (), _node_position(node))
    return found


def parse_yaml_scalar(text: str) -> bool | int | float | str | None:
    """What an unquoted text stands for."""
    if text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    if text.lower() in ("", "~", "null"):
        return None
    if len(text) <= MAX_NUMBER_CHARS:
        if _INT.fullmatch(text):
            return int(text.replace("_", ""), 16 if "x" in text else 10)
        if _FLOAT.fullmatch(text):
            return float(text.replace("_", ""))
    return text


class _NodeReader:
    def __init__(self, found: YamlDocument) -> None:
        self._found = found
        self._open: set[int] = set()
        self._merging: set[int] = set()
        self._merges = 0

    def value(self, node: Node, path: ConfigPath, key: TextPosition) -> Any:
        place = _node_position(node)
        written = node.value if isinstance(node, ScalarNode) else None
        style = getattr(node, "style", None)
        quoted = written is not None and style is not None
        self._found.marks[path] = SourceMark(
            key_position=key, value_position=place, written=written, quoted=quoted
        )
        if (
            len(self._found.marks) > MAX_DOCUMENT_VALUES
            or id(node) in self._open
            or len(path) > MAX_DOCUMENT_DEPTH
        ):
            return self._endless(path, place)
        if node.tag not in _KNOWN_TAGS:
            return self._refuse(
                path,
                place,
                f"begins with `{node.tag}`, which YAML reads as a type; put the text in quotes",
            )
        if isinstance(node, ScalarNode):
            return node.value if quoted else parse_yaml_scalar(node.value)
        self._open.add(id(node))
        try:
            if isinstance(node, SequenceNode):
                return [
                    self.value(item, (*path, at), _node_position(item))
                    for at, item in enumerate(node.value)
                ]
            return {
                name: self.value(value, (*path, name), at)
                for name, (at, value) in self._pairs(cast("MappingNode", node), path).items()
            }
        finally:
            self._open.discard(id(node))

    def _pairs(self, node: MappingNode, path: ConfigPath) -> dict[str, tuple[TextPosition, Node]]:
        """Names and values; merged ones (`<<: *name`) first, so that what is written wins."""
        own: dict[str, tuple[TextPosition, Node]] = {}
        merged: dict[str, tuple[TextPosition, Node]] = {}
        pairs = cast("list[tuple[Node, Node]]", node.value)
        for key, value in pairs:
            place = _node_position(key)
            if not isinstance(key, ScalarNode):
                self._refuse(path, place, "has a list or a block where a name must stand")
            elif key.tag == f"{_YAML_TAG_PREFIX}merge":
                merged = self._merged(value, path, place)
            elif key.value in own:
                first = own[key.value][0]
                self._refuse(
                    (*path, key.value),
                    place,
                    f"stands here for the second time, first in line {first.line}; keep one",
                )
            else:
                own[key.value] = (place, value)
        return {**merged, **own}

    def _merged(
        self, value: Node, path: ConfigPath, place: TextPosition
    ) -> dict[str, tuple[TextPosition, Node]]:
        """What `<<` takes from other blocks, the first of them before the others."""
        values = cast("list[Node]", value.value) if isinstance(value, SequenceNode) else [value]
        merged: dict[str, tuple[TextPosition, Node]] = {}
        for one in values:
            self._merges += 1
            if not isinstance(one, MappingNode):
                self._refuse(path, place, "has a `<<` without a block; write `<<: *name`")
            elif id(one) in self._merging or self._merges > MAX_DOCUMENT_VALUES:
                self._endless(path, place)
            else:
                self._merging.add(id(one))
                merged = {**self._pairs(one, path), **merged}
                self._merging.discard(id(one))
        return merged

    def _refuse(self, path: ConfigPath, place: TextPosition, why: str) -> None:
        text = f"{format_config_path(path)} {why}"
        self._found.problems.append(ConfigProblem(text=text, position=place, path=path))

    def _endless(self, path: ConfigPath, place: TextPosition) -> None:
        # Once is enough: whatever refers to it fails the same way.
        if not any("without end" in problem.text for problem in self._found.problems):
            why = "goes on without end; references (`*name`) must not make it so large or so deep"
            self._refuse(path, place, why)


def format_config_path(path: ConfigPath) -> str:
    """`session.context.tools`, `tools.a.allow[1]`, or the file itself."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step + 1}]"
        else:
            name = step if re.fullmatch(r"[\w<-]+", step) else f'"{step}"'
            text += f".{name}" if text else name
    return text or "the file"


def _node_position(node: Node) -> TextPosition:
    mark = node.start_mark
    return TextPosition(line=mark.line + 1, column=mark.column + 1)
