"""From `agent.yaml` to answers over HTTP, and to an orderly end, whatever the store is."""

from __future__ import annotations

import signal
from contextlib import ExitStack

import pytest

from tests.serve.process.processes import free_port, serving, write_agent
from trimtab_serve.client import Client

pytestmark = [pytest.mark.anyio, pytest.mark.process]

SLOW = 'simulate: {"text": 60, "pace": 0.02}'
"""A reply that takes a moment."""
ENDLESS = 'simulate: [{"text": 400, "pace": 0.2}, {"text": "Here it is."}]'
"""One that takes longer than anybody waits for it; asked for again it comes at once."""


async def said(client: Client, name: str = "one") -> list[tuple[str, str]]:
    session = client.session("helper", name)
    return [(message.role, message.text) async for message in session.history()]


@pytest.mark.parametrize(
    ("store", "number"),
    [("files", signal.SIGTERM), ("postgres", signal.SIGINT)],
    indirect=["store"],
    ids=["files", "postgres"],
)
async def test_a_graceful_shutdown_waits_for_the_turns(tmp_path, simulator, store, number):
    write_agent(tmp_path, simulator.url, session={"store": store})
    simulator.set_replies(["Good morning."])
    with serving(tmp_path) as server:
        async with server.client() as client:
            assert await client.ready() == "ok"
            session = await client.create_session("helper", "one")
            assert await session.ask("Hello!") == "Good morning."
            pieces, kinds = "", list[str]()
            async for event in session.stream(SLOW):
                if event.kind == "message.delta":
                    if not pieces:
                        server.process.send_signal(number)
                    pieces += event.data["text"]
                else:
                    kinds.append(event.kind)
        assert kinds == [
            "message",
            "turn.started",
            "model_call.finished",
            "message",
            "turn.finished",
        ]
        assert len(pieces.split()) == 60
        assert server.process.wait(60) == 0
        assert server.until("stopped")["handed_over"] == 0


async def test_a_turn_longer_than_the_shutdown_timeout_goes_on_with_the_next_process(
    tmp_path, simulator
):
    """The reader sees one answer without a gap, over two processes on the same port."""
    write_agent(tmp_path, simulator.url, serve={"port": free_port(), "shutdown_timeout": 0.2})
    with ExitStack() as held:
        server, second = held.enter_context(serving(tmp_path)), None
        async with server.client() as client:
            text, ends = "", list[str]()
            async for event in client.session("helper", "one").stream(ENDLESS):
                if event.kind == "turn.started":
                    text = ""  # what came of a reply that was cut off is void
                elif event.kind == "message.delta":
                    text += event.data["text"]
                elif event.kind == "turn.finished":
                    ends.append(event.data["reason"])
                if event.kind == "message.delta" and second is None:
                    assert server.end() == 0
                    assert server.until("stopped")["handed_over"] == 1
                    second = held.enter_context(serving(tmp_path))
                    assert second.heard[-1]["resumed_sessions"] == 1
            assert ends == ["done"]
            told = await said(client)
            assert told == [("user", ENDLESS), ("assistant", "Here it is.")]
            assert text == "Here it is."


async def test_what_was_accepted_survives_a_kill(tmp_path, simulator):
    write_agent(tmp_path, simulator.url, session={"on_message": "queue"})
    with serving(tmp_path) as server:
        async with server.client() as client:
            session = client.session("helper", "one")
            async for event in session.stream(ENDLESS, key="k1"):
                if event.kind == "message.delta":
                    await session.send("And what else?", key="k2")
                    break
        assert server.end(signal.SIGKILL) == -signal.SIGKILL
    with serving(tmp_path) as server:
        async with server.client() as client:
            session = client.session("helper", "one")
            assert (await session.send(ENDLESS, key="k1")).duplicate
            assert await session.ask("And what else?", key="k2") == "Here it is."
            # What waited is answered together.
            users = [("user", ENDLESS), ("user", "And what else?")]
            assert await said(client) == [*users, ("assistant", "Here it is.")]


async def test_a_second_signal_ends_it_at_once(tmp_path, simulator):
    write_agent(tmp_path, simulator.url)
    with serving(tmp_path) as server:
        async with server.client() as client:
            async for event in client.session("helper", "one").stream(ENDLESS):
                if event.kind == "message.delta":
                    server.process.send_signal(signal.SIGINT)
                    server.until("draining")
                    assert server.end(signal.SIGINT) == 1
                    break
