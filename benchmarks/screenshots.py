"""A session of screenshots: 500 of 2 MB in a window of 200,000 tokens, with 32 MB a request.

An agent takes ten screenshots a turn. Its session is in files, its requests go through Anthropic's
SDK over a socket to a simulator in a process of its own, which refuses what Anthropic refuses: more
than 32 MB, more than 100 pictures, sides over 8,000 pixels, or over 2,000 among more than 20
pictures. At the end each picture that the model does not see any more is read back, and the model
itself recalls some of them, which must then stand in its next request.

refused              requests that the server refused
recalled_identical   hidden pictures that were read back byte for byte
recalled_by_model    pictures that the model recalled, of which the request then held every byte

`refused` must be 0, and the other two as many as were hidden and as were asked for.
`largest_request_bytes` is the largest body that was sent, `breaks` how many requests hid something
that was sent before, `cached` the share of all input that was read from the server's cache,
`peak_rss_mb` the most memory that the process of the agent took until it had all screenshots.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import resource
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx

from benchmarks.harness import Report, progress, run
from trimtab import Media, Session, Text, Tool, ToolInvocation, ToolResult, run_turn
from trimtab.engine.log.event import Event, MessageAdded
from trimtab.providers import AnthropicProvider
from trimtab.stores import FileStore

MODEL = "claude-sonnet-4-5"
SCREENSHOTS = {"full": 500, "quick": 20}
RECALLS = {"full": 50, "quick": 2}
PER_TURN = 10
WIDTH_PX, HEIGHT_PX = 1_000, 667
"""Of three bytes a pixel: 2 MB, for noise cannot be packed."""
MAX_REQUEST_BYTES = 32_000_000
READ_POSITIONS = 40
"""Events of the log that are read at a time."""


def draw_screenshot(number: int) -> bytes:
    """A PNG of noise, the same for the same number."""
    row = 3 * WIDTH_PX
    noise = random.Random(number).randbytes(row * HEIGHT_PX)  # noqa: S311 - a picture
    pixels = b"".join(b"\0" + noise[at : at + row] for at in range(0, len(noise), row))
    header = struct.pack(">IIBBBBB", WIDTH_PX, HEIGHT_PX, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(pixels, 0)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


class Agent:
    """The agent: its session, its tool, and what it has sent."""

    def __init__(self, session: Session, url: str) -> None:
        self.session = session
        self.taken = 0
        self.requests = 0
        self.largest_request_bytes = 0
        self.last_body = b""
        http = anthropic.DefaultAsyncHttpxClient(event_hooks={"request": [self._measure]})
        self._client = anthropic.AsyncAnthropic(
            api_key="simulated", base_url=url, max_retries=0, http_client=http
        )
        self._provider = AnthropicProvider(self._client)
        self._tool = Tool(
            definition={
                "name": "screenshot",
                "description": "Take a screenshot.",
                "input_schema": {"type": "object", "properties": {}},
            },
            run=self._take_screenshot,
        )

    async def _measure(self, request: Any) -> None:
        self.requests += 1
        self.last_body = request.content
        self.largest_request_bytes = max(self.largest_request_bytes, len(request.content))

    async def _take_screenshot(self, _: ToolInvocation) -> list[Text | Media]:
        data = base64.b64encode(draw_screenshot(self.taken)).decode()
        self.taken += 1
        picture = Media(kind="image", mime="image/png", data=data)
        return [Text(text=f"screenshot {self.taken - 1}"), picture]

    async def say(self, script: Any) -> None:
        """One turn, in which the model does what the script says."""
        message = {"role": "user", "content": f"simulate: {json.dumps(script)}"}
        await run_turn(self.session, self._provider, [self._tool], message=message, stream=False)

    async def close(self) -> None:
        await self._client.close()
        await self.session.close()


async def find_screenshots(session: Session) -> dict[int, str]:
    """The handle of each screenshot, by its number."""
    found: dict[int, str] = {}
    async for event in read_events(session):
        body = event.body
        for index, part in enumerate(body.message.parts if isinstance(body, MessageAdded) else ()):
            if isinstance(part, ToolResult) and part.text.startswith("screenshot "):
                found[int(part.text.split()[1])] = f"m{event.seq}.{index}"
    return found


async def read_events(session: Session) -> AsyncIterator[Event]:
    """The log, a few positions at a time: all of it would not go into memory."""
    for first in range(1, session.window.seq + 1, READ_POSITIONS):
        async for event in session.store.events(session.id, [(first, first + READ_POSITIONS - 1)]):
            yield event


async def lead(url: str, folder: str, screenshots: int, recalls: int) -> Report:
    """The whole life of a session."""
    store = FileStore(folder)
    session = await Session.create(store, "screenshots", model=MODEL, recall=True)
    agent = Agent(session, url)
    while agent.taken < screenshots:
        await agent.say({"tool_calls": PER_TURN, "tool": "screenshot", "then": "Done."})
        progress(f"{agent.taken} of {screenshots} screenshots, {agent.requests} requests")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024
    handles = await find_screenshots(session)
    shown = {f"m{seq}.{part}" for seq, part in session.window.conversation.visible_media}
    hidden = [number for number, handle in handles.items() if handle not in shown]
    identical = 0
    for number in hidden:
        part = await session.recall_part(handles[number])
        data = [inner.data for inner in getattr(part, "content", ()) if isinstance(inner, Media)]
        identical += [base64.b64decode(text or "") for text in data] == [draw_screenshot(number)]
        progress(f"{identical} of {len(hidden)} hidden screenshots read back")
    asked = random.Random(1).sample(hidden, min(recalls, len(hidden)))  # noqa: S311 - a sample
    seen = 0
    for number in asked:
        call = {"name": "recall", "arguments": {"handle": handles[number]}}
        await agent.say([{"calls": [call]}, "Seen."])
        seen += base64.b64encode(draw_screenshot(number)) in agent.last_body
        progress(f"{seen} of {len(asked)} screenshots recalled by the model")
    report = session.report()
    breaks = await count_breaking_requests(session)
    await agent.close()
    await store.close()
    return {
        "screenshots": agent.taken,
        "requests": agent.requests,
        "hidden": len(hidden),
        "recalled_identical": identical,
        "asked_by_model": len(asked),
        "recalled_by_model": seen,
        "largest_request_bytes": agent.largest_request_bytes,
        "breaks": breaks,
        "cached": round(report.cache_hit or 0.0, 3),
        "peak_rss_mb": peak,
    }


async def count_breaking_requests(session: Session) -> int:
    """Requests before which something was hidden."""
    breaks, hides = 0, False
    async for event in read_events(session):
        kind = type(event.body).__name__
        breaks += kind == "ModelCall" and hides
        hides = kind == "Edit" or (hides and kind != "ModelCall")
    return breaks


@contextmanager
def serve() -> Generator[str, None, None]:
    """A simulator in a process of its own; its address."""
    limits = ["--set", f"max_body_bytes={MAX_REQUEST_BYTES}", "--set", "keeps=false"]
    command = [sys.executable, "-m", "trimtab.testing.server", "--tokenizer", "estimate", *limits]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - our own
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def main(quick: bool) -> Report:
    size = "quick" if quick else "full"
    with serve() as url, tempfile.TemporaryDirectory() as folder:
        row = asyncio.run(lead(url, folder, SCREENSHOTS[size], RECALLS[size]))
        stats = httpx.get(f"{url}/_control").json()["stats"]
    row["refused"] = stats["refused"]
    broken = [f"refused is {row['refused']}"] if row["refused"] else []
    for key, wanted in (("recalled_identical", "hidden"), ("recalled_by_model", "asked_by_model")):
        if row[key] != row[wanted] or not row[wanted]:
            broken.append(f"{key} is {row[key]}, {wanted} is {row[wanted]}")
    if row["largest_request_bytes"] > MAX_REQUEST_BYTES:
        broken.append(f"largest_request_bytes is {row['largest_request_bytes']}")
    return {"sample": f"{row['screenshots']} screenshots of 2 MB", **row, "broken": broken}


if __name__ == "__main__":
    sys.exit(run(__doc__, main, ("anthropic",)))
