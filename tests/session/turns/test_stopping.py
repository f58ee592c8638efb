"""A turn that is stopped ends at once, keeps what was said, and leaves nothing to run later."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.serve.cli.chat.scripted_chat import talking
from trimtab import check
from trimtab.engine.log.event import CallOutcome, TurnProgressRecord
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.session.events import TextDelta
from trimtab.session.interruption import NOT_RUN_TEXT, STOPPED_TEXT
from trimtab.session.tools import Tool
from trimtab.testing.replies import ScriptedCall
from trimtab_serve.agent.tools import process

pytestmark = pytest.mark.anyio
GO = {"role": "user", "content": "Go."}


async def stopped_in_a_tool(calls, permit=None):
    """A session whose turn was stopped while its first tool ran, or was asked about."""
    talk = await talking([calls, "Never mind."])
    began, stop = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    async def run(asked):
        ran.append(asked.name)
        began.set()
        await asyncio.Event().wait()
        return ""

    definition = talk.agent.tools[0].definition
    talk.agent.tools = [
        Tool(definition=definition, run=run, check_permission=permit and permit(began))
    ]
    turn = asyncio.create_task(talk.agent.run_turn(talk.session, GO, stop=stop))
    await began.wait()
    stop.set()
    async with asyncio.timeout(30):
        return talk, ran, await turn


def results(talk):
    return [
        result.text
        for entry in talk.session.window.entries.values()
        for result in entry.message.results
    ]


async def records(talk):
    return [event.body async for event in talk.session.store.events(talk.session.id)]


async def test_a_tool_that_ran_is_told_from_one_that_did_not():
    talk, ran, ended = await stopped_in_a_tool([ScriptedCall(name="read", arguments={"path": "a"})])
    assert (ended.reason, ended.cut_off_tools) == ("stopped", 1)
    assert results(talk) == [STOPPED_TEXT]
    told = await records(talk)
    assert isinstance(told[-1], TurnProgressRecord)
    assert told[-1].state == "ended"
    await talk.agent.run_turn(talk.session, {"role": "user", "content": "And now?"})
    assert ran == ["read"]


async def test_a_call_that_was_still_asked_about_counts_as_not_run():
    def permit(began):
        async def ask(_):
            began.set()
            await asyncio.Event().wait()

        return ask

    calls = [ScriptedCall(name="read", arguments={"path": name}) for name in "ab"]
    talk, ran, ended = await stopped_in_a_tool(calls, permit)
    assert (ended.reason, ended.cut_off_tools) == ("stopped", 2)
    assert results(talk) == [NOT_RUN_TEXT, NOT_RUN_TEXT]
    await talk.agent.run_turn(talk.session, {"role": "user", "content": "And now?"})
    assert ran == []


class Endless:
    """A provider that says a few words and then no more, for ever."""

    def __init__(self, inner, words, tool_call=False):
        self.inner, self.words, self.dialect = inner, words, inner.dialect
        self.waits = self.closed = False
        self._tool_call = tool_call

    async def send(self, request):
        message = {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {}}
        try:
            yield {"type": "message_start", "message": message}
            block = {"type": "text", "text": ""}
            yield {"type": "content_block_start", "index": 0, "content_block": block}
            for word in self.words:
                delta = {"type": "text_delta", "text": word}
                yield {"type": "content_block_delta", "index": 0, "delta": delta}
            if self._tool_call:
                call = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
                yield {"type": "content_block_start", "index": 1, "content_block": call}
            self.waits = True
            await asyncio.Event().wait()
        finally:
            self.closed = True

    async def close(self):
        pass


@pytest.mark.parametrize("tool_call", [False, True], ids=["text", "text and half a tool call"])
@pytest.mark.parametrize("words", [["Once ", "upon a time "], []], ids=["said", "silent"])
async def test_a_reply_is_cut_off_and_what_was_said_is_kept(words, tool_call):
    talk = await talking(["Go on then."])
    scripted = talk.agent.provider
    talk.agent.provider = endless = Endless(scripted, words, tool_call)
    stop, heard = asyncio.Event(), []

    def listen(event):
        if isinstance(event, TextDelta):
            heard.append(event.text)

    turn = asyncio.create_task(talk.agent.run_turn(talk.session, GO, stop=stop, on_event=listen))
    async with asyncio.timeout(30):
        while heard != words or not endless.waits:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    stop.set()
    async with asyncio.timeout(30):
        ended = await turn
    assert ended.reason == "stopped"
    assert endless.closed, "the connection is given back"
    said = [e.message for e in talk.session.window.entries.values() if e.message.role != "user"]
    assert [m.text for m in said] == (["Once upon a time"] if words else [])
    (outcome,) = [body for body in await records(talk) if isinstance(body, CallOutcome)]
    assert (outcome.status, (outcome.error or {}).get("kind")) == ("error", "stopped")
    talk.agent.provider = scripted
    after = await talk.agent.run_turn(talk.session, {"role": "user", "content": "And now?"})
    assert after.reason == "done"
    assert check(scripted.requests[-1]) == []  # pyright: ignore[reportAttributeAccessIssue] - scripted


async def test_a_wait_for_another_attempt_is_cut_off():
    talk = await talking([])
    stop, asked = asyncio.Event(), asyncio.Event()

    class Slow(Endless):
        async def send(self, request):
            asked.set()
            await asyncio.sleep(60)
            raise ProviderError(ProviderFailureDetails(kind="server", message="down"))
            yield

    talk.agent.provider = Slow(talk.agent.provider, [])
    turn = asyncio.create_task(talk.agent.run_turn(talk.session, GO, stop=stop))
    await asked.wait()
    stop.set()
    async with asyncio.timeout(30):
        assert (await turn).reason == "stopped"


@pytest.mark.process
async def test_a_program_that_does_not_want_to_end_is_killed_with_its_children_within_a_second(
    tmp_path, monkeypatch
):
    """Real processes: a shell that ignores SIGTERM, and a child of it that does as well."""
    # The time that a program usually has; a stop gives it less.
    monkeypatch.setattr(process.terminate_process_group, "__defaults__", (60.0,))
    assert process.STOP_GRACE_S < 1
    talk = await talking([[ScriptedCall(name="read", arguments={"path": "a"})], "Never mind."])
    script = (
        "trap '' TERM; (trap '' TERM; echo $BASHPID > child; sleep 60) & echo $$ > parent; wait"
    )

    async def run(_):
        argv = ["bash", "-c", script]
        found = await process.run_process(
            argv, cwd=tmp_path, env=dict(os.environ), timeout=60, max_output_bytes=1_000
        )
        return found.describe()

    talk.agent.tools = [Tool(definition=talk.agent.tools[0].definition, run=run)]
    files = [tmp_path / name for name in ("child", "parent")]
    stop = asyncio.Event()
    turn = asyncio.create_task(talk.agent.run_turn(talk.session, GO, stop=stop))
    async with asyncio.timeout(30):
        while not all(map(Path.exists, files)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
    pids = [int(file.read_text()) for file in files]
    assert all(map(lives, pids))
    since = time.monotonic()
    stop.set()
    ended = await turn
    assert time.monotonic() - since < 20  # less than a second, if nothing else runs
    assert ended.reason == "stopped"
    assert not any(map(lives, pids))
    assert results(talk) == [STOPPED_TEXT]


def lives(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not fetched does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
