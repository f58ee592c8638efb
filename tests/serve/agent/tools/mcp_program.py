"""An MCP server to be started as a program: over stdio, or over HTTP on a socket it is handed.

python mcp_program.py              stdio
python mcp_program.py http FD      HTTP, on the listening socket of that number
"""

import os
import socket
import sys

import anyio
import uvicorn
from mcp import MCPError
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

server = MCPServer("workshop", log_level="CRITICAL")
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c626001000000ffff03000006000557bfabd40000000049454e44ae426082"
)


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def say(text: str) -> str:
    """Say it."""
    return text


@server.tool()
def fail() -> str:
    raise RuntimeError("the drawer is stuck")


@server.tool()
def picture() -> Image:
    return Image(data=PIXEL, format="png")


@server.tool()
def mixed() -> CallToolResult:
    return CallToolResult(
        content=[
            TextContent(text="three things"),
            EmbeddedResource(resource=TextResourceContents(uri="shop://a.txt", text="inside")),
            EmbeddedResource(
                resource=BlobResourceContents(uri="shop://b.bin", blob="AAAA", mime_type="x/y")
            ),
            ResourceLink(name="plan", uri="shop://plan.md", description="the plan"),
            AudioContent(data="AAAA", mime_type="audio/wav"),
        ]
    )


@server.tool(structured_output=False)
def structured() -> CallToolResult:
    return CallToolResult(content=[], structured_content={"depth": 3})


@server.tool(name="odd name/with:signs and a length that no provider would take, ever, at all")
def odd() -> str:
    return "odd"


@server.tool()
def environment() -> list[str]:
    return sorted(os.environ)


@server.tool()
def process() -> int:
    return os.getpid()


@server.tool()
def die() -> str:
    """End in the middle of the call."""
    sys.stderr.write("the floor gave way\n")
    sys.stderr.flush()
    os._exit(3)


@server.tool()
async def hang(context: Context) -> str:
    await anyio.sleep_forever()
    return "never"


@server.tool()
def refuse(code: int, message: str) -> str:
    """Refuse with an error of the protocol."""
    raise MCPError(code=code, message=message)


@server.tool()
def flood(megabytes: int) -> str:
    return "x" * (megabytes * 1_000_000)


def main() -> None:
    sys.stderr.write("workshop is open\n")
    sys.stderr.flush()
    if sys.argv[1:2] != ["http"]:
        server.run()
        return
    app = server.streamable_http_app()
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(
        [socket.socket(fileno=int(sys.argv[2]))]
    )


if __name__ == "__main__":
    main()
