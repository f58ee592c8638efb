"""`docs/agent.schema.json`, and the reference in `docs/agent.md`: `make agent-docs` writes both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from trimtab_serve.agent.config.schema import (
    ANY_NAME,
    SchemaNode,
    build_spec_schema,
    describe_expected_value,
    find_schema_at,
    format_editor_schema,
    map_tool_kinds_to_refs,
    resolve_schema,
)
from trimtab_serve.agent.config.spec import CommonToolSpec

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "agent.md"
SCHEMA = DOCS / "agent.schema.json"
BEGIN = (
    "<!-- Made from the settings' descriptions by `make agent-docs`; "
    "changes made here are lost. -->\n"
)
END = "<!-- End of the generated part. -->\n"
TOOLS = f"tools.{ANY_NAME}"
BLOCKS = (
    "model",
    "session",
    "session.context",
    f"session.context.tools.{ANY_NAME}",
    "session.summary",
    "session.thresholds",
    "cost",
)
CHANNELS = ("serve", "serve.tenant_limits", "telegram", "discord", f"schedules.{ANY_NAME}")
"""How it is reached."""


def reference() -> str:
    """Every block and every setting."""
    common = set(CommonToolSpec.model_fields)
    parts: list[str] = [_section("At the top", build_spec_schema(), set())]
    parts += [_section(f"`{path}`", _at(path), set()) for path in BLOCKS]
    tool = _at(TOOLS)
    some = resolve_schema({"$ref": map_tool_kinds_to_refs(tool)["shell"]}, None)
    shell_names = set(some["properties"]) - common
    some = {**some, "description": CommonToolSpec.__doc__ or ""}
    parts.append(_section(f"`{TOOLS}` of any kind", some, shell_names))
    shell = some["properties"]
    for kind in ("shell", "command", "python", "mcp", "schedule"):
        shape = resolve_schema({"$ref": map_tool_kinds_to_refs(tool)[kind]}, None)
        same = [
            name
            for name, setting in shape["properties"].items()
            if kind != "shell" and name not in common and setting == shell.get(name)
        ]
        parts.append(_section(f"`{TOOLS}` with `kind: {kind}`", shape, {*common, "kind", *same}))
        if same:
            parts.append(f"As for a shell: {', '.join(f'`{name}`' for name in same)}.\n")
    parts += [_section(f"`{path}`", _at(path), set()) for path in CHANNELS]
    rule = resolve_schema(_at("telegram")["properties"]["rules"]["items"], None)
    parts.insert(-2, _section("`telegram.rules`, each", rule, set()))
    return "\n".join(parts)


def page() -> str:
    """The page with its reference as it is now."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:before]}\n{reference()}\n{text[after:]}"


def _at(path: str) -> SchemaNode:
    schema = find_schema_at(tuple(path.split(".")), None)
    assert schema is not None, path
    return resolve_schema(schema, {})


def _section(title: str, shape: SchemaNode, without: set[str]) -> str:
    about = f"{_line(shape['description'])}\n\n" if "description" in shape else ""
    return f"### {title}\n\n{about}{''.join(_rows(shape, without))}"


def _rows(shape: SchemaNode, without: set[str]) -> Iterator[str]:
    required_names = shape.get("required", ())
    for name, setting in shape["properties"].items():
        if name in without:
            continue
        inner = resolve_schema(setting, None)
        expected = describe_expected_value(inner)
        if "block of settings" in expected:  # it has a section of its own
            continue
        default = "required" if name in required_names else _default(setting)
        value = ", ".join(f"`{one}`" for one in inner.get("enum", ()))
        if not value and not default and expected.startswith(("a list", "names")):
            value = expected.removeprefix("a ")
        kind = "; ".join(part for part in (value, default) if part)
        yield f"- `{name}`{f' ({kind})' if kind else ''}: {_line(setting['description'])}\n"


def _default(shape: SchemaNode) -> str:
    value = shape.get("default")
    if value is None or value == [] or isinstance(value, dict):
        return ""
    if isinstance(value, float):
        return f"default `{value:g}`"
    return f"default `{value if isinstance(value, str) else json.dumps(value)}`"


def _line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    SCHEMA.write_text(format_editor_schema(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
