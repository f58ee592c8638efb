"""What a hostile MCP server sends is bounded before it fills the memory, the log or the loop."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ErrorData,
    ImageContent,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcp_types import Tool as Offered

from tests.serve.agent.tools.toolboxes import Person, block, box
from trimtab.engine.log.message import Media, Text
from trimtab_serve.agent.config.spec import McpToolSpec
from trimtab_serve.agent.tools.mcp import (
    MAX_RESULT_PARTS,
    convert_mcp_result,
    describe_exception,
    make_mcp_tools,
)
from trimtab_serve.agent.tools.mcp_transport import (
    McpServerExitDetails,
    limit_messages,
)
from trimtab_serve.agent.tools.permissions.rules import PermissionGate, decline_unattended
from trimtab_serve.agent.tools.tool_setting import UnusableToolError

LONG = "x" * 900
HUGE: dict[str, Any] = {
    "texts": [TextContent(text=LONG)] * 15,
    "an empty text many times": [TextContent(text="")] * 5_000,
    "the name of a link": [ResourceLink(name=LONG * 15, uri="x://y")],
    "the address of a link": [ResourceLink(name="a", uri=f"x://{LONG * 15}")],
    "the title of a link": [ResourceLink(name="a", uri="x://y", title=LONG * 15)],
    "the address of a resource": [
        EmbeddedResource(resource=TextResourceContents(uri=f"x://{LONG * 15}", text="a"))
    ],
    "the type of a resource": [
        EmbeddedResource(resource=BlobResourceContents(uri="x://y", blob="", mime_type=LONG * 15))
    ],
    "the type of a sound": [AudioContent(data="AAAA", mime_type=LONG * 15)],
    "the type of a picture": [ImageContent(data="AAAA", mime_type=f"image/{LONG * 15}")],
}


@pytest.mark.parametrize("name", HUGE)
def test_the_limit_is_for_all_texts_of_a_result_together(name: str):
    parts = convert_mcp_result(CallToolResult(content=HUGE[name]), 1_000)
    texts = [part.text for part in parts if isinstance(part, Text)]
    assert len(texts) == len(parts) <= MAX_RESULT_PARTS + 1
    assert sum(map(len, texts)) < 1_200
    assert "left out" in "".join(texts)


def test_what_a_result_says_as_json_counts_as_well():
    result = CallToolResult(content=[], structured_content={"a": LONG * 15})
    (part,) = convert_mcp_result(result, 1_000)
    assert isinstance(part, Text)
    assert len(part.text) < 1_200


def test_pictures_share_one_limit_and_those_above_it_are_described():
    picture = ImageContent(data="A" * 3_000_000, mime_type="image/png")
    parts = convert_mcp_result(CallToolResult(content=[picture] * 4), 1_000)
    assert [type(part) for part in parts] == [Media, Media, Text, Text]
    small = ImageContent(data="AAAA", mime_type="image/png")
    parts = convert_mcp_result(CallToolResult(content=[small] * 500), 1_000)
    assert len(parts) == MAX_RESULT_PARTS + 1
    assert parts[-1] == Text(text="[… 400 more parts left out …]")


def test_an_error_of_a_server_is_cut():
    assert len(describe_exception(RuntimeError(LONG * 15))) < 2_100


@pytest.mark.parametrize(
    "offered",
    [
        [Offered(name=f"t{number}", input_schema={}) for number in range(100)],
        [Offered(name="t", input_schema={"description": "x" * 2_000})],
        [Offered(name="t", input_schema={}, description="x" * 2_000)],
    ],
    ids=["many", "schema", "description"],
)
def test_tools_that_would_fill_each_request_are_refused_with_advice(
    monkeypatch, offered: list[Offered]
):
    monkeypatch.setattr("trimtab_serve.agent.tools.mcp.MAX_TOOL_DEFINITIONS_BYTES", 1_000)
    spec = McpToolSpec.model_validate(block("mcp", url="https://mcp.example.com"))
    gate = PermissionGate(approve=decline_unattended)
    server = cast("Any", SimpleNamespace(name="ws"))
    with pytest.raises(UnusableToolError, match="is the most; name the tools you need in `only`"):
        make_mcp_tools(server, spec, offered, gate)


async def pass_messages(*messages: SessionMessage) -> tuple[list[Any], McpServerExitDetails]:
    """Return what comes out of the limit after request 1, and the state of the connection."""
    to_server, sent = anyio.create_memory_object_stream[SessionMessage](1)
    request = SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/list"))

    async def written() -> AsyncIterator[SessionMessage]:
        for message in messages:
            yield message

    @asynccontextmanager
    async def transport():
        yield written(), to_server

    state = McpServerExitDetails()
    with anyio.fail_after(10):
        limited = limit_messages(cast("Any", transport()), state)
        async with limited as (received, requests), sent, requests:
            await requests.send(request)
            assert await sent.receive() is request
            return [each async for each in received], state


@pytest.mark.anyio
async def test_a_server_that_notifies_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr("trimtab_serve.agent.tools.mcp_transport.MAX_UNREQUESTED_MESSAGES", 50)
    note = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="notifications/message"))
    answer = SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=1, result={}))
    most = [note] * 50
    passed, state = await pass_messages(*most, answer, *most, note, answer)
    assert len(passed) == 2 * len(most) + 1
    assert "messages that nobody asked for" in state.describe_exit()


@pytest.mark.anyio
@pytest.mark.parametrize("answer_id", ["nope", "1", 2, None])
async def test_answers_that_nobody_waits_for_do_not_lift_the_limit(
    monkeypatch, answer_id: str | int | None
):
    monkeypatch.setattr("trimtab_serve.agent.tools.mcp_transport.MAX_UNREQUESTED_MESSAGES", 50)
    if answer_id is None:
        problem = ErrorData(code=-1, message="")
        answer = SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=problem))
    else:
        answer = SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=answer_id, result={}))
    passed, state = await pass_messages(*[answer] * 100)
    # One of them answers request 1.
    assert len(passed) == 50 + (answer_id == "1")
    assert "messages that nobody asked for" in state.describe_exit()


@pytest.mark.anyio
async def test_the_client_never_sees_the_schema_of_a_result():
    tool = {"name": "t", "inputSchema": {}, "outputSchema": {"pattern": "(a+)+$"}}
    listed = JSONRPCResponse(jsonrpc="2.0", id=1, result={"tools": [tool, "odd"]})
    (passed,), state = await pass_messages(SessionMessage(listed))
    assert passed.message.result == {"tools": [{"name": "t", "inputSchema": {}}, "odd"]}
    assert state.give_up_reason is None


@asynccontextmanager
async def answering(head: bytes, body: bytes):
    """A server that gives each request the same answer. Yields its address."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n" + head + b"\r\n\r\n" + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_a_compressed_answer_is_refused_before_it_grows(tmp_path, kind: str):
    head = f"Content-Type: {kind}\r\nContent-Encoding: GZIP".encode()
    async with answering(head, gzip.compress(b"data: " + b" " * 1_000_000)) as url:
        with pytest.raises(UnusableToolError, match="an answer with Content-Encoding 'gzip'"):
            async with box(tmp_path, Person(), ws=block("mcp", url=url)):
                pass


@pytest.mark.anyio
@pytest.mark.parametrize("line", [b":\n", b"data: x\n", b"event: x\n\n", b'{"a":\n'])
async def test_an_answer_without_end_is_given_up_whatever_its_type_says(
    tmp_path, monkeypatch, line: bytes
):
    monkeypatch.setattr("trimtab_serve.agent.tools.mcp_transport.MAX_MCP_MESSAGE_BYTES", 100_000)
    kind = b"application/json; text/event-stream" if line[:1] == b"{" else b"text/event-stream"
    async with answering(b"Content-Type: " + kind, (line * 100_000)[:120_000]) as url:
        with pytest.raises(UnusableToolError, match=r"a message of more than 16,000,000 bytes"):
            async with box(tmp_path, Person(), ws=block("mcp", url=url)):
                pass
