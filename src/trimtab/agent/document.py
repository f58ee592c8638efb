"""A YAML text as values, with the place of each: read safely, and without YAML's surprises."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, cast

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from trimtab.agent.problems import Place, Problem
from trimtab.agent.syntax import composed

Path = tuple[str | int, ...]
"""Names and numbers that lead to a value."""

MOST = 20_000
"""Values of one document; references (`*name`) can make a short text explode."""
DEEPEST = 50
"""Levels of one document."""

_CORE = "tag:yaml.org,2002:"
_KINDS = ("bool", "float", "int", "map", "merge", "null", "seq", "str", "timestamp", "value")
_TAGS = frozenset(_CORE + kind for kind in _KINDS)
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
# Without YAML 1.1's octal 010 and base-60 12:30, which nobody means.
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:(?:0|[1-9][0-9_]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
LONGEST_NUMBER = 30
"""Characters of a number; a longer one is a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One value of a document."""

    key: Place
    """Where its name stands, or the value itself where it has none."""
    value: Place
    """Where it begins."""
    written: str | None
    """A scalar as it is written, without quotes; None for lists and blocks."""
    quoted: bool = False
    """Whether it stands in quotes, or as a block of text."""


@dataclass(slots=True, kw_only=True)
class Document:
    """A text, read."""

    data: Any = None
    """Its values: None, bool, int, float, str, list and dict, where names are as written."""
    marks: dict[Path, Mark] = field(default_factory=dict[Path, Mark])
    """Each value's place."""
    problems: list[Problem] = field(default_factory=list[Problem])
    """What stands in the way of reading it."""


def document(text: str) -> Document:
    """The text's values and their places; or what is wrong with it, in `problems`."""
    node = composed(text)
    if isinstance(node, Problem):
        return Document(problems=[node])
    found = Document()
    if node is not None:
        found.data = _Reader(found).value(node, (), _place(node))
    return found


def scalar(written: str) -> bool | int | float | str | None:
    """What an unquoted text stands for."""
    if written.lower() in _BOOLEANS:
        return _BOOLEANS[written.lower()]
    if written.lower() in ("", "~", "null"):
        return None
    if len(written) <= LONGEST_NUMBER:
        if _INT.fullmatch(written):
            return int(written.replace("_", ""), 16 if "x" in written else 10)
        if _FLOAT.fullmatch(written):
            return float(written.replace("_", ""))
    return written


class _Reader:
    def __init__(self, found: Document) -> None:
        self._found = found
        self._open: set[int] = set()
        self._merging: set[int] = set()
        self._merges = 0

    def value(self, node: Node, path: Path, key: Place) -> Any:
        place = _place(node)
        written = node.value if isinstance(node, ScalarNode) else None
        style = getattr(node, "style", None)
        quoted = written is not None and style is not None
        self._found.marks[path] = Mark(key=key, value=place, written=written, quoted=quoted)
        if len(self._found.marks) > MOST or id(node) in self._open or len(path) > DEEPEST:
            return self._endless(path, place)
        if node.tag not in _TAGS:
            return self._refuse(
                path,
                place,
                f"begins with `{node.tag}`, which YAML reads as a type; put the text in quotes",
            )
        if isinstance(node, ScalarNode):
            return node.value if quoted else scalar(node.value)
        self._open.add(id(node))
        try:
            if isinstance(node, SequenceNode):
                return [
                    self.value(item, (*path, at), _place(item))
                    for at, item in enumerate(node.value)
                ]
            return {
                name: self.value(value, (*path, name), at)
                for name, (at, value) in self._pairs(cast("MappingNode", node), path).items()
            }
        finally:
            self._open.discard(id(node))

    def _pairs(self, node: MappingNode, path: Path) -> dict[str, tuple[Place, Node]]:
        """Names and values; merged ones (`<<: *name`) first, so that what is written wins."""
        own: dict[str, tuple[Place, Node]] = {}
        merged: dict[str, tuple[Place, Node]] = {}
        pairs = cast("list[tuple[Node, Node]]", node.value)
        for key, value in pairs:
            place = _place(key)
            if not isinstance(key, ScalarNode):
                self._refuse(path, place, "has a list or a block where a name must stand")
            elif key.tag == f"{_CORE}merge":
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

    def _merged(self, value: Node, path: Path, place: Place) -> dict[str, tuple[Place, Node]]:
        """What `<<` takes from other blocks, the first of them before the others."""
        values = cast("list[Node]", value.value) if isinstance(value, SequenceNode) else [value]
        merged: dict[str, tuple[Place, Node]] = {}
        for one in values:
            self._merges += 1
            if not isinstance(one, MappingNode):
                self._refuse(path, place, "has a `<<` without a block; write `<<: *name`")
            elif id(one) in self._merging or self._merges > MOST:
                self._endless(path, place)
            else:
                self._merging.add(id(one))
                merged = {**self._pairs(one, path), **merged}
                self._merging.discard(id(one))
        return merged

    def _refuse(self, path: Path, place: Place, why: str) -> None:
        text = f"{named(path)} {why}"
        self._found.problems.append(Problem(text=text, place=place, path=path))

    def _endless(self, path: Path, place: Place) -> None:
        # Once is enough: whatever refers to it fails the same way.
        if not any("without end" in problem.text for problem in self._found.problems):
            why = "goes on without end; references (`*name`) must not make it so large or so deep"
            self._refuse(path, place, why)


def named(path: Path) -> str:
    """`session.context.tools`, `tools.a.allow[1]`, or the file itself."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step + 1}]"
        else:
            name = step if re.fullmatch(r"[\w<-]+", step) else f'"{step}"'
            text += f".{name}" if text else name
    return text or "the file"


def _place(node: Node) -> Place:
    mark = node.start_mark
    return Place(line=mark.line + 1, column=mark.column + 1)
