"""Read a YAML text safely, with the position of each value.

Errors say what to change in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from trimtab_serve.agent.config.problems import ConfigProblem, TextPosition


def parse_yaml_nodes(text: str) -> Node | ConfigProblem | None:
    """Return the nodes of the text, or the problem that stops YAML. None for an empty text."""
    try:
        compose = cast("Callable[..., Node | None]", vars(yaml)["compose"])
        return compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line = before.count("\n") + 1
        column = len(before) - before.rfind("\n")
        number = error.character if isinstance(error.character, int) else ord(error.character)
        return ConfigProblem(
            text=f"the character U+{number:04X} is not allowed in YAML; delete it",
            position=TextPosition(line=line, column=column),
        )
    except yaml.MarkedYAMLError as error:
        return _explain_yaml_error(error, text)
    except RecursionError:
        return ConfigProblem(text="is nested too deeply to be read")
    except (ValueError, OverflowError):
        return ConfigProblem(
            text="has an escape in double quotes, such as `\\U…`, that is not a character"
        )


def _explain_yaml_error(error: yaml.MarkedYAMLError, text: str) -> ConfigProblem:
    mark: Any = cast("Any", error.problem_mark or error.context_mark)
    lines = text.splitlines() or [""]
    at = min(mark.line, len(lines) - 1) if mark is not None else 0
    line = lines[at]
    place = TextPosition(
        line=at + 1, column=mark.column + 1 if mark is not None and at == mark.line else 1
    )
    explanation = _explain_in_words(error.problem or "", error.context or "", line)
    bracket: Any = cast("Any", error.context_mark)
    if "not closed" in explanation and bracket is not None and bracket.line < len(lines) - 1:
        explanation += f"; it was opened on line {bracket.line + 1}"
    return ConfigProblem(text=explanation, position=place)


def _explain_in_words(problem: str, context: str, line: str) -> str:
    if re.match(r" *\t", line):
        problem = "'\\t'"
    elif "flow" in context and "${" in line:
        return 'inside [ ] and { } a reference must be in quotes: ["${NAME}"]'
    whole_problem = f"{context} | {problem}"
    for pattern, text in _YAML_EXPLANATIONS:
        if match := re.search(pattern, whole_problem):
            return text.format(*match.groups())
    return "YAML cannot read this line; put texts with special characters in quotes"


_YAML_EXPLANATIONS = (
    (r"'\\t'", "there is a tab, but YAML needs spaces; indent with two spaces for each level"),
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
        "a `:` is not allowed here; put the text in quotes, or indent it like the lines around it",
    ),
    (
        r"could not find expected ':'",
        "a `:` is missing after a name on this line or the one before; write `name: value`",
    ),
    (r"<block end>, but found '([]}])'", "a `{}` has no opening bracket"),
    (
        r"<document start>",
        "this line does not fit the lines before it; write `name: value` on each line",
    ),
    (
        r"expected a comment or a line break",
        "after `>` or `|`, begin the text on the next line, or put the text in quotes",
    ),
    (
        r"block.*expected <block end>",
        "this line is not indented like the lines around it; align all names of a block",
    ),
)
"""For each message of PyYAML, the text to show instead."""


ConfigPath = tuple[str | int, ...]
"""Names and indexes that lead to a value."""

MAX_DOCUMENT_VALUES = 20_000
"""Maximum number of values in a document, because references (`*name`) can multiply them."""
MAX_DOCUMENT_DEPTH = 50
"""Maximum nesting depth of a document."""

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
# Without YAML 1.1's octal 010 and base-60 12:30: users mean the digits.
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:(?:0|[1-9][0-9_]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
MAX_NUMBER_CHARS = 30
"""Maximum number of characters in a number. A longer one is a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMark:
    """The position and spelling of one value."""

    key_position: TextPosition
    """The position of its name, or of the value itself if it has no name."""
    value_position: TextPosition
    """The position at which the value begins."""
    written: str | None
    """A scalar as written, without quotes. None for lists and blocks."""
    quoted: bool = False
    """Whether the value is in quotes or a block of text."""


@dataclass(slots=True, kw_only=True)
class YamlDocument:
    """A YAML text that was read."""

    data: Any = None
    """The values: None, bool, int, float, str, list and dict. Names are as written."""
    marks: dict[ConfigPath, SourceMark] = field(default_factory=dict[ConfigPath, SourceMark])
    """The position of each value."""
    problems: list[ConfigProblem] = field(default_factory=list[ConfigProblem])
    """The problems that prevent reading."""


def parse_yaml_collecting_problems(text: str) -> YamlDocument:
    """Return the values of the text and their positions. `problems` lists what is wrong."""
    node = parse_yaml_nodes(text)
    if isinstance(node, ConfigProblem):
        return YamlDocument(problems=[node])
    document = YamlDocument()
    if node is not None:
        document.data = _NodeReader(document).value(node, (), _node_position(node))
    return document


def parse_yaml_scalar(text: str) -> bool | int | float | str | None:
    """Return the value of an unquoted text."""
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
        source_text = node.value if isinstance(node, ScalarNode) else None
        style = getattr(node, "style", None)
        has_quotes = source_text is not None and style is not None
        self._found.marks[path] = SourceMark(
            key_position=key, value_position=place, written=source_text, quoted=has_quotes
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
            return node.value if has_quotes else parse_yaml_scalar(node.value)
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
        """Return names and values. Merged ones (`<<: *name`) come first, so that explicit ones
        win."""
        own_pairs: dict[str, tuple[TextPosition, Node]] = {}
        merge_pairs: dict[str, tuple[TextPosition, Node]] = {}
        pairs = cast("list[tuple[Node, Node]]", node.value)
        for key, value in pairs:
            place = _node_position(key)
            if not isinstance(key, ScalarNode):
                self._refuse(path, place, "has a list or a block instead of a name")
            elif key.tag == f"{_YAML_TAG_PREFIX}merge":
                merge_pairs = self._merged(value, path, place)
            elif key.value in own_pairs:
                first = own_pairs[key.value][0]
                self._refuse(
                    (*path, key.value),
                    place,
                    f"is set twice, first on line {first.line}; keep one",
                )
            else:
                own_pairs[key.value] = (place, value)
        return {**merge_pairs, **own_pairs}

    def _merged(
        self, value: Node, path: ConfigPath, place: TextPosition
    ) -> dict[str, tuple[TextPosition, Node]]:
        """Return what `<<` takes from other blocks. The first of them wins."""
        values = cast("list[Node]", value.value) if isinstance(value, SequenceNode) else [value]
        pairs: dict[str, tuple[TextPosition, Node]] = {}
        for one in values:
            self._merges += 1
            if not isinstance(one, MappingNode):
                self._refuse(path, place, "has a `<<` without a block; write `<<: *name`")
            elif id(one) in self._merging or self._merges > MAX_DOCUMENT_VALUES:
                self._endless(path, place)
            else:
                self._merging.add(id(one))
                pairs = {**self._pairs(one, path), **pairs}
                self._merging.discard(id(one))
        return pairs

    def _refuse(self, path: ConfigPath, place: TextPosition, why: str) -> None:
        text = f"{format_config_path(path)} {why}"
        self._found.problems.append(ConfigProblem(text=text, position=place, path=path))

    def _endless(self, path: ConfigPath, place: TextPosition) -> None:
        # Once is enough: whatever refers to it fails the same way.
        if not any("refers to itself" in problem.text for problem in self._found.problems):
            why = (
                "is too large, is nested too deeply or refers to itself; use fewer references "
                "(`*name`)"
            )
            self._refuse(path, place, why)


def format_config_path(path: ConfigPath) -> str:
    """Format a path: `session.context.tools`, `tools.a.allow[1]`, or the file itself."""
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
