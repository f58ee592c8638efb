"""Documents 0 and 3 where agents are met: HTTP, chat platforms and schedules of `trimtab serve`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.documents.channels import Server, say_before, served, until
from tests.documents.product import METRICS
from tests.documents.reading import dumped, texts
from tests.documents.words import prose, quarter

pytestmark = pytest.mark.process

SAID = [prose(1_500, f"said{number}").strip() for number in range(4)]
"""What is said through every channel; two of these exceed the history that the file allows."""
HISTORY = 600
REPLY = "As you wish."


@dataclass
class Seen:
    """What came of one server with one agent behind four channels."""

    requests: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, Any])
    """What the model was asked, by the channel through which it was said."""
    replies: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    refused: int = 0
    metrics: str = ""
    history: list[str] = field(default_factory=list[str])
    display: str = ""
    picture: bytes = b""
    before_resuming: int = 0
    """Calls of a turn whose reader left while its first tool was at work."""
    after_resuming: int = 0


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return asyncio.run(scene(tmp_path_factory.mktemp("served")))


async def scene(folder: Path) -> Seen:
    made = Seen()
    context = {"max_history_tokens": HISTORY}
    await say_before(folder, [(text, REPLY) for text in SAID[:3]])
    async with served(folder, SAID[3], on_disconnect="pause", context=context) as server:
        model = server.model
        model.script(otherwise=REPLY)
        await until(model.requests, "a scheduled turn")
        made.requests["schedule"] = model.requests()
        await server.idle("ticks")
        channels = {"http": server.say, "telegram": server.write, "discord": server.post}
        for channel, say in channels.items():
            count = len(model.requests())
            for text in SAID:
                await say(text)
            made.requests[channel] = model.requests()[count:]
        made.replies = await server.replies()
        made.refused = model.counts().get("overflow", 0)
        made.metrics = await server.metrics()
        made.history = [said["text"] for said in await server.history("web")]
        made.display = await server.display("web")
        made.picture = await server.picture()
        await left_and_resumed(server, made)
    return made


async def left_and_resumed(server: Server, made: Seen) -> None:
    model = server.model
    count = len(model.requests())
    model.script({"calls": [{"name": "wait", "arguments": {}}]}, otherwise="Done at last.")
    await server.leave_early()
    await server.let_the_tool_end()
    await server.idle("gone")
    made.before_resuming = len(model.requests()) - count
    await server.resume()
    await until(lambda: len(model.requests()) > count + 1, "the turn that was resumed")
    await server.idle("gone")
    made.after_resuming = len(model.requests()) - count


def test_the_same_words_make_the_same_requests_through_every_channel(seen):
    by_http = seen.requests["http"]
    assert len(by_http) == len(SAID)
    assert seen.requests["telegram"] == by_http
    assert seen.requests["discord"] == by_http
    (ticked,) = seen.requests["schedule"]
    # What it replied before was not a provider's reply, so that it lacks fields of one.
    assert texts(ticked) == texts(by_http[-1])
    rest = [{k: v for k, v in sent.items() if k != "messages"} for sent in (ticked, by_http[-1])]
    assert rest[0] == rest[1]


@pytest.mark.parametrize("channel", ["http", "schedule", "telegram", "discord"])
def test_the_budget_of_the_file_holds_at_every_channel(seen, channel):
    assert seen.refused == 0
    *_, request = seen.requests[channel]
    notice, *history, newest = texts(request)
    assert notice == "[conversation truncated — 3 older messages omitted]"
    assert history == [REPLY, SAID[2], REPLY]
    assert newest == SAID[3]
    assert quarter(notice + "".join(history)) <= HISTORY


def test_a_turn_whose_reader_has_gone_is_paused_and_goes_on_when_it_is_resumed(seen):
    assert (seen.before_resuming, seen.after_resuming) == (1, 2)


def test_by_http_the_history_is_whole_though_the_model_does_not_see_it(seen):
    assert seen.history == [x for text in SAID for x in (text, REPLY)]
    assert SAID[0] not in dumped(seen.requests["http"][-1])
    assert "Context Usage" in seen.display
    assert "Free space:" in seen.display


def test_telegram_gets_a_reply_to_each_message_and_the_display_as_a_picture(seen):
    assert seen.replies["telegram"][: len(SAID)] == [REPLY] * len(SAID)
    assert seen.picture.startswith(b"\x89PNG\r\n")


def test_discord_gets_a_reply_to_each_message(seen):
    assert seen.replies["discord"] == [REPLY] * len(SAID)
    assert seen.replies["schedule"] == seen.replies["http"] == [REPLY] * len(SAID)


@pytest.mark.parametrize("what", METRICS)
def test_a_server_shows_its_metrics(seen, what):
    assert f"# TYPE {METRICS[what]}" in seen.metrics
