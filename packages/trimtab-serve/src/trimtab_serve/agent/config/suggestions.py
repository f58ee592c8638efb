"""Suggest what an unknown name or value was meant to be."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

from trimtab.providers.factory import suggest_provider_name
from trimtab_serve.agent.config.schema import (
    ANY_NAME,
    SchemaNode,
    find_tool_kinds_with,
    index_blocks_by_setting,
    list_settings_of_block,
)
from trimtab_serve.agent.config.yaml_document import ConfigPath, format_config_path

FOREIGN_SETTING_HINTS = {
    "args": "put the program and its arguments into one list, `command`",
    "aws_region": "it is called `region`, under model",
    "cmd": "it is called `command`",
    "deployment": "it is called `name`, under model",
    "endpoint": "it is called `base_url`, under model",
    "frequency_penalty": "it belongs under model.params",
    "instructions": "it is called `system`, at the top",
    "max_iterations": "it is called `max_tool_iterations`, under session",
    "max_steps": "it is called `max_tool_iterations`, under session",
    "max_turns": "it is called `max_tool_iterations`, under session",
    "mcp": "a server is a tool: it belongs under tools, with `kind: mcp`",
    "mcp_servers": "a server is a tool: it belongs under tools, with `kind: mcp`",
    "num_ctx": "it is called `context_window`, under model",
    "project_id": "it is called `project`, under model",
    "prompt": "it is called `system`, at the top",
    "reasoning_effort": "it belongs under model.params",
    "system_prompt": "it is called `system`, at the top",
    "temperature": "it belongs under model.params",
    "thinking": "it belongs under model.params",
    "top_k": "it belongs under model.params",
    "top_p": "it belongs under model.params",
    "type": "the setting for the type of a tool is called `kind`",
}
"""Names that other systems use, and the equivalent here."""

TOOL_KIND_SYNONYMS = {
    "bash": "shell",
    "sh": "shell",
    "function": "python",
    "cli": "command",
} | dict.fromkeys(("stdio", "http", "sse", "mcp_server", "server"), "mcp")
"""Other names for the kinds of tools."""
_NUMBER_SUFFIXES = {"k": 1_000, "m": 1_000_000}


def suggest_setting(path: ConfigPath, block_schema: SchemaNode) -> str:
    """Return what to do with a name that the block does not know."""
    names = list_settings_of_block(block_schema)
    name = str(path[-1])
    same = _normalise_setting_name(name)
    if same in names:
        return f"did you mean {same}?"
    if name == "max_tokens" and "max_output_tokens" in names:
        return "did you mean max_output_tokens?"
    if same in FOREIGN_SETTING_HINTS:
        return FOREIGN_SETTING_HINTS[same]
    if close := get_close_matches(same, names, n=1, cutoff=0.85):
        return f"did you mean {close[0]}?"
    if len(path) == 3 and path[0] == "tools" and (kinds := find_tool_kinds_with(same)):
        return f"use it in a tool with {' or '.join(f'`kind: {kind}`' for kind in kinds)}"
    if same in index_blocks_by_setting():
        return f"it belongs {_describe_where_setting_belongs(same)}"
    if close := get_close_matches(same, names, n=1):
        return f"did you mean {close[0]}?"
    if close := get_close_matches(same, index_blocks_by_setting(), n=1, cutoff=0.75):
        return (
            f"did you mean {close[0]}, which belongs {_describe_where_setting_belongs(close[0])}?"
        )
    where = format_config_path(path[:-1]) if path[:-1] else "the top"
    return f"{where} accepts {', '.join(names)}"


def suggest_choice(path: ConfigPath, written: str, choices: list[str]) -> str | None:
    """Return the choice that a value was probably meant to be."""
    if path == ("model", "provider"):
        return suggest_provider_name(written)
    same = _normalise_setting_name(written)
    if path[-1] == "kind" and same in TOOL_KIND_SYNONYMS:
        return TOOL_KIND_SYNONYMS[same]
    close = get_close_matches(same, choices, n=1) or [
        one for one in choices if one.startswith(same[:4]) or same.startswith(one)
    ]
    return close[0] if close else None


def suggest_number_spelling(written: Any, schema: SchemaNode) -> str | None:
    """Return the valid form of a number, such as 8000 for `8k`."""
    text = str(written).strip()
    if schema.get("maximum") == 1:
        match = re.fullmatch(r"([0-9.]+) ?%?", text)
        share = float(match[1]) / 100 if match and match[1].count(".") < 2 else 0
        return f"{share:g}" if 0 < share <= 1 else None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([kKmM])", text)
    if match:
        number = float(match[1]) * _NUMBER_SUFFIXES[match[2].lower()]
        return f"{number:.0f}" if number.is_integer() else None
    if re.fullmatch(r"0*[0-9]{1,3}(?:[,_ ' .]?[0-9]{3})*", text):
        return str(int(re.sub(r"[^0-9]", "", text)))
    whole = re.fullmatch(r"([0-9]+)\.0+", text)
    return whole[1] if whole else None


def _normalise_setting_name(name: str) -> str:
    """Convert `maxInputTokens`, `Max-Input-Tokens` and `max input tokens` to the same name."""
    snake_name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[-\s]+", "_", snake_name).lower()


def _describe_where_setting_belongs(name: str) -> str:
    where = [
        "at the top, with no indentation"
        if not home
        else f"under {home.replace(f'.{ANY_NAME}', '')}, in the block of a tool"
        if home.endswith(ANY_NAME)
        else f"under {home}"
        for home in index_blocks_by_setting()[name]
    ]
    return " or ".join(where)
