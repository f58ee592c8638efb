"""The tools of an MCP server, as tools of the agent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from mcp_types import Tool as Offered

from trimtab.agent.permissions import Gate, rendered, rules_of
from trimtab.agent.spec import McpTool
from trimtab.agent.tools.mcp_server import Server
from trimtab.agent.tools.output import cut
from trimtab.agent.tools.unusable import ToolUnusable
from trimtab.core.message import Media, Text
from trimtab.session.tools import Content, Failed, Invocation, Tool

LONGEST_NAME = 64
"""Characters that every provider allows in the name of a tool."""

LARGEST_PICTURE = 8_000_000
"""Characters of base64 that a picture may have whatever the tool's cap is."""


def mcp_tools(server: Server, spec: McpTool, offered: Sequence[Offered], gate: Gate) -> list[Tool]:
    """Those of the server's tools that the model gets."""
    there = {each.name: each for each in offered}
    wanted = list(there) if spec.only is None else list(spec.only)
    if missing := [name for name in wanted if name not in there]:
        raise ToolUnusable(
            server.name,
            f"only names {missing[0]!r}, and the server has {', '.join(there) or 'no tools'}",
        )
    names = names_of(server.name, wanted)
    return [_tool(names[each], there[each], server, spec, gate) for each in wanted]


def names_of(server: str, tools: Iterable[str]) -> dict[str, str]:
    """By a tool's own name, the one that the model uses: allowed by all providers, and unique."""
    out: dict[str, str] = {}
    for tool in tools:
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", f"{server}__{tool}")
        if len(name) > LONGEST_NAME or name in out.values():
            mark = sha256(tool.encode()).hexdigest()[:8]
            name = f"{name[: LONGEST_NAME - 9]}_{mark}"
        out[tool] = name
    return out


def _tool(name: str, offered: Offered, server: Server, spec: McpTool, gate: Gate) -> Tool:
    async def run(asked: Invocation) -> list[Content]:
        result = await server.call(offered.name, asked.arguments)
        content = content_of(result, spec.max_output_bytes)
        if result.is_error:
            raise Failed(content)
        return content

    return Tool(
        definition={
            "name": name,
            "description": offered.description or offered.title or offered.name,
            "input_schema": offered.input_schema,
        },
        run=run,
        on_interrupt=spec.on_interrupt,
        # A server that was lost may have to start first, and the client has the time limit itself.
        timeout=spec.timeout + 60,
        permit=gate.permit(
            rules_of(spec), lambda asked: f"{name} {rendered(asked.arguments)}".rstrip()
        ),
    )


def content_of(result: CallToolResult, limit: int) -> list[Content]:
    """A result in our parts: texts and pictures as they are, the rest in words."""
    out: list[Content] = [_part(block, limit) for block in result.content]
    if not out and result.structured_content is not None:
        out = [Text(text=cut(_json(result.structured_content), limit))]
    return out or [Text(text="[no output]")]


def _part(block: ContentBlock, limit: int) -> Content:
    match block:
        case TextContent():
            return Text(text=cut(block.text, limit) or "[an empty text]")
        case ImageContent():
            return _media("image", block.mime_type, block.data, limit)
        case AudioContent():
            return _media("audio", block.mime_type, block.data, limit)
        case ResourceLink():
            about = ", ".join(filter(None, (block.title, block.description, block.mime_type)))
            return Text(text=f"[link to {block.name}: {block.uri}{about and f' ({about})'}]")
        case EmbeddedResource():
            return _resource(block, limit)


def _resource(block: EmbeddedResource, limit: int) -> Content:
    held = block.resource
    if isinstance(held, BlobResourceContents):
        if (held.mime_type or "").startswith("image/"):
            return _media("image", held.mime_type, held.blob, limit)
        size = f"{len(held.blob) * 3 // 4:,} bytes"
        return Text(text=f"[{held.uri}: {held.mime_type or 'binary data'}, {size}, not shown]")
    return Text(text=f"[{held.uri}]\n{cut(held.text, limit)}")


def _media(kind: Any, mime: str | None, data: str, limit: int) -> Content:
    # A picture is not read by its bytes; only what no provider would take is left out.
    most = max(limit, LARGEST_PICTURE)
    if kind != "image" or len(data) > most:
        return Text(text=f"[{kind}, {mime}, {len(data) * 3 // 4:,} bytes, not shown]")
    return Media(kind=kind, mime=mime, data=data)


def _json(value: Mapping[str, Any] | Any) -> str:
    return json.dumps(value, ensure_ascii=False)
