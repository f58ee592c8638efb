"""The picture of a Telegram conversation in the documents: `python -m benchmarks.telegram_picture`.

A bot runs against the local Bot API with a scripted model; what stands in its chat in the end, the
picture that `/context` sent included, is laid out as a chat program does and drawn by Chromium.
`CHROMIUM` names the program where it is not on the path.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from tests.serve.queue.memory_queue import MemoryQueue
from tests.simulators.telegram import TelegramSimulator, serve_simulated_telegram
from trimtab.session.tools import Tool, ToolInvocation
from trimtab.testing import MemoryStore, ScriptedCall, ScriptedProvider
from trimtab_serve.agent.agent import Agent
from trimtab_serve.agent.config.spec import AgentSpec, TelegramSpec
from trimtab_serve.channels.telegram import TelegramChannel
from trimtab_serve.channels.utf16 import max_prefix_length
from trimtab_serve.process.local_turns import LocalTurnRunner
from trimtab_serve.service.delivery import ReplyDelivery
from trimtab_serve.service.events.bus import LocalEventBus
from trimtab_serve.service.service import AgentService

ROOT = Path(__file__).parents[1]
ADA = 7
WIDE = 470
"""Pixels, of which a fine screen has two each."""
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
EARLIER = 26
"""Messages before those that are shown."""
FIRST = "The key of the crane is with Marta."
SAID = "Which boats come in tomorrow?"
REPLY = """Three of them, says `harbour tides`:

| boat | berth | time |
|---|---|---|
| Anna | 4 | 07:40 |
| Brise | 2 | 09:15 |
| Cormoran | 7 | 16:05 |

**Brise** needs the crane; I have *not* booked it yet."""
THEN = ("Book it.", "Done: crane 1, **09:30 to 10:15**. Anna's berth stays free until noon.")
COLOURS = {"bold": "b", "italic": "i", "strikethrough": "s", "code": "code", "pre": "pre"}


async def talked(api: TelegramSimulator, url: str) -> None:
    """Lead the conversation, until all of it stands in the chat."""
    tide = ScriptedCall(name="harbour", arguments={"command": "tides"})
    earlier = [f"Noted. {'The harbour master has it in the book now. ' * 12}"] * EARLIER
    provider = ScriptedProvider("anthropic", [*earlier, tide, REPLY, THEN[1]])
    store = MemoryStore()
    queue = MemoryQueue(store)
    model = {"name": "claude-sonnet-4-5", "context_window": 32_000, "max_output_tokens": 4_000}
    spec = AgentSpec.model_validate({"name": "harbour", "model": model})
    agent = Agent(
        spec=spec,
        system="You look after a harbour: berths, boats and cranes. " * 20,
        store=store,
        provider=provider,
        tools=[_tool()],
        environ={},
    )
    service = AgentService(
        agents={"harbour": agent}, store=store, queue=queue, event_bus=LocalEventBus()
    )
    turns = LocalTurnRunner(service)
    told = {"token": api.token, "allow": [ADA], "api": url}
    channel = TelegramChannel(
        service, "harbour", TelegramSpec.model_validate(told), min_interval_s=0.0
    )
    delivery = ReplyDelivery(queue, {channel.name: channel.deliver})
    queue.on_posted, queue.on_replies = turns.request_turn, delivery.wake
    work = [asyncio.create_task(channel.run()), asyncio.create_task(delivery.run())]
    for number in range(EARLIER):
        entry = f"Log {number}: " + "a boat came in and another one left the harbour. " * 24
        await _say(api, entry if number else FIRST)
    for text in (SAID, THEN[0], "/context", "/compact", "/why m2"):
        await _say(api, text)
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    await turns.drain(5)
    await channel.close()
    await service.close()


def _tool() -> Tool:
    async def run(asked: ToolInvocation) -> str:
        del asked
        return "\n".join(f"{hour:02}:00  {hour * 37 % 61 / 10:.1f} m" for hour in range(24)) * 12

    definition = {"name": "harbour", "description": "Asks.", "input_schema": {"type": "object"}}
    return Tool(definition=definition, run=run)


async def _say(api: TelegramSimulator, text: str) -> None:
    """One message, and its answer."""
    before, ends = len(api.list_bot_texts(ADA)), time.monotonic() + 60
    api.post_user_message(ADA, text)
    while len(api.list_bot_texts(ADA)) == before:
        if time.monotonic() > ends:
            raise TimeoutError(f"nothing was answered to {text[:40]!r}")
        await asyncio.sleep(0.01)


def page(api: TelegramSimulator) -> str:
    """The end of the chat as a web page."""
    found = api.get_or_add_chat(ADA).messages
    last = [found[number] for number in sorted(found)][2 * EARLIER :]
    bubbles = "\n".join(_bubble(api, message) for message in last)
    style = (Path(__file__).parent / "telegram_picture.css").read_text(encoding="utf-8")
    head = "<div class=face>H</div><div><b>Harbour</b><span>bot</span></div>"
    return (
        f"<!doctype html><meta charset=utf-8><style>{style}</style>"
        f"<body><header>{head}</header><main>{bubbles}</main>"
        "<script>document.title = document.body.scrollHeight</script>"
    )


def _bubble(api: TelegramSimulator, message: Mapping[str, Any]) -> str:
    mine = message["from"]["id"] != api.id
    inner = ""
    if photo := message.get("photo"):
        data = base64.b64encode(api.files[photo[-1]["file_id"]]).decode()
        inner += f'<img src="data:image/png;base64,{data}">'
    text, marks = message.get("text"), message.get("entities")
    if text is None:
        text, marks = message.get("caption", ""), message.get("caption_entities")
    inner += f"<p>{_styled(text, marks or [])}</p><time>{_clock(message)}</time>"
    return f"<div class='{'mine' if mine else 'theirs'}{' photo' if photo else ''}'>{inner}</div>"


def _clock(message: Mapping[str, Any]) -> str:
    """A minute later each, for the picture is made in seconds."""
    return f"09:{message['message_id'] - 2 * EARLIER:02}"


def _styled(text: str, marks: list[dict[str, Any]]) -> str:
    """A text with its entities as HTML."""
    edges: dict[int, list[str]] = {}
    for mark in marks:
        tag = COLOURS.get(mark["type"], "span")
        start = max_prefix_length(text, mark["offset"])
        end = max_prefix_length(text, mark["offset"] + mark["length"])
        edges.setdefault(start, []).append(f"<{tag}>")
        edges.setdefault(end, []).insert(0, f"</{tag}>")
    pieces = [
        "".join(edges.get(at, ())) + (html.escape(text[at]) if at < len(text) else "")
        for at in range(len(text) + 1)
    ]
    return "".join(pieces)


def drawn(source: str, program: str, to: Path) -> None:
    """Let Chromium draw a page as high as it is."""
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
        file = Path(folder) / "chat.html"
        file.write_text(source, encoding="utf-8")
        common = [program, "--headless", "--disable-gpu", "--hide-scrollbars", file.as_uri()]
        told = _run([*common, f"--window-size={WIDE},600", "--dump-dom"])
        high = re.search(r"<title>(\d+)</title>", told)
        if high is None:
            raise RuntimeError("Chromium did not say how high the page is")
        size = f"--window-size={WIDE},{high[1]}"
        _run([*common, size, "--force-device-scale-factor=2", f"--screenshot={to.resolve()}"])
    # A third of the bytes, and to the eye the same.
    Image.open(to).convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE).save(
        to, optimize=True
    )


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, check=True, timeout=120)  # noqa: S603 - ours
    return done.stdout.decode()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("to", nargs="?", type=Path, default=ROOT / "docs/img/telegram.png")
    asked = parser.parse_args()
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        print("no Chromium on the path; install it, or name it: CHROMIUM=/usr/bin/chromium")
        return 1
    api = TelegramSimulator()
    api.get_or_add_chat(ADA, "Ada")
    with serve_simulated_telegram(api) as served:
        asyncio.run(talked(api, served.url))
    drawn(page(api), program, asked.to)
    print(asked.to)
    return 0


if __name__ == "__main__":
    sys.exit(main())
