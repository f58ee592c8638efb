"""A conversation to look into: every kind of change that a long session sees."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

from typer.testing import CliRunner

from tests.conversations import calls, prose, result, said, ticking, user
from trimtab.cli.app import app
from trimtab.engine.log.event import dump_canonical_json
from trimtab.session import Session

TURNS = 40
HIDDEN = "the-vault-code-is-4711"
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}


@dataclass(kw_only=True)
class Kept:
    root: str = ""
    requests: dict[int, str] = field(default_factory=dict[int, str])
    """Canonical requests by the positions of their calls."""
    events: int = 0


async def converse(store, name) -> Kept:
    """Turns with a tool each: results are masked, groups dropped and summarised, tools change."""
    record = Kept()
    talk = await Session.create(
        store,
        name,
        model="gpt-4o",
        dialect="openai_chat",
        policy="auto",
        system="Be careful.",
        context_window=5_000,
        recall=True,
        clock=ticking(time.time() - 7_200),
    )

    async def request(**options):
        request_json = dump_canonical_json(await talk.request(**options))
        assert talk.window.last_call is not None
        record.requests[talk.window.last_call.seq] = request_json

    for turn in range(TURNS):
        await talk.add(user(f"Question {turn}: where is symbol_{turn}?"))
        await request(stream=turn % 3 == 0)
        await talk.add(calls(f"c{turn}", arguments=json.dumps({"path": f"src/file_{turn}.py"})))
        await talk.add(
            result(f"c{turn}", prose(1_500, f"symbol_{turn} {HIDDEN if turn == 2 else ''}"))
        )
        await request(volatile=f"It is {turn} o'clock." if turn % 5 == 0 else None)
        await talk.add(said(f"symbol_{turn} is in src/file_{turn}.py."))
        if turn == 20:
            await talk.configure(model="gpt-4.1", dialect="openai_chat", tools=[TOOL])
        if turn == 30:
            await talk.configure(policy="layered", limits={"max_history_tokens": 600})
        if turn == 25:
            await talk.add(user("Never mind."))
            await talk.rewind(talk.window.seq - 1)
    record.events = talk.window.seq
    await talk.close()
    return record


def session(*arguments, store="", stdin=None):
    # What a developer has typed into chats is none of a test's business.
    env = {"TRIMTAB_STORE": str(store), "COLUMNS": "120", "XDG_STATE_HOME": f"{store}-state"}
    return CliRunner().invoke(app, ["session", *map(str, arguments)], env=env, input=stdin)


def answer(*arguments, **options):
    run = session(*arguments, **options)
    assert run.exit_code == 0, run.output
    return run.stdout
