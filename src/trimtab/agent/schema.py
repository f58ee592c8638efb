"""The JSON Schema of an agent's file, for editors: `python -m trimtab.agent.schema` prints it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, cast

from trimtab.agent.shape import whole

DRAFT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE: Mapping[str, Any] = {
    "type": "string",
    "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}",
}
"""A text that refers to the environment; it may stand for a number, a choice, or true or false."""

_ONE_WAY = [
    {"required": ["command"], "properties": {"command": {"type": "array"}}},
    {"required": ["url"], "properties": {"url": {"type": "string"}}},
]
"""An MCP server is started or reached."""


def agent_schema() -> dict[str, Any]:
    """What a file may hold that `read_agent` takes.

    It cannot tell everything that reading does: whether a variable is set, whether a prompt's file
    is there, and whether two numbers go together.
    """
    made = _block(whole())
    made["$defs"] = {name: _block(shape) for name, shape in whole()["$defs"].items()}
    made["$defs"]["McpTool"]["oneOf"] = _ONE_WAY
    head = {"$schema": DRAFT, "$id": "urn:trimtab:agent", "title": "An agent of Trimtab"}
    return {**head, **made}


def schema_text() -> str:
    """The schema as it is published."""
    return json.dumps(agent_schema(), indent=2, ensure_ascii=False) + "\n"


def _block(shape: Mapping[str, Any]) -> dict[str, Any]:
    required: list[str] = shape.get("required", [])
    properties = {
        name: _setting(inner, required=name in required)
        for name, inner in shape.get("properties", {}).items()
    }
    kept = {name: value for name, value in shape.items() if name not in ("title", "$defs")}
    if "description" in kept:
        kept["description"] = _line(kept["description"])
    return {**kept, "properties": properties}


def _setting(shape: Mapping[str, Any], *, required: bool) -> dict[str, Any]:
    """One setting: what has no value in the file is not set."""
    told = {"description": _line(shape["description"])} if "description" in shape else {}
    if shape.get("default") is not None and "$ref" not in shape:
        told["default"] = shape["default"]
    bare = {
        name: value
        for name, value in shape.items()
        if name not in ("default", "description", "discriminator", "title")
    }
    if "patternProperties" in bare:
        bare["additionalProperties"] = False
    more: Any = bare.get("additionalProperties")
    if isinstance(more, dict) and "$ref" in more:
        bare["additionalProperties"] = {"anyOf": [more, {"type": "null"}]}
    choices = cast("list[dict[str, Any]]", bare.pop("anyOf", None) or [bare])
    if any(_refers(choice) for choice in choices):
        choices = [*choices, dict(REFERENCE)]
    if not required and {"type": "null"} not in choices:
        choices = [*choices, {"type": "null"}]
    return {**told, **(choices[0] if len(choices) == 1 else {"anyOf": choices})}


def _refers(shape: Mapping[str, Any]) -> bool:
    return shape.get("type") in ("integer", "number", "boolean") or "enum" in shape


def _line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.stdout.write(schema_text())
