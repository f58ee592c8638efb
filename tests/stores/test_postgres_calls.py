"""The table of calls: a row for each, and how the context grew."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg import AsyncConnection

from tests.agents import Clock
from tests.conversations import prose, user
from tests.session.summarised_chats import GOOD, rolling, writer
from tests.stores.events import call, forked, outcome, said, settings
from trimtab.engine.log.event import CallOutcome, Event, ModelCall, SummaryAttempt, Usage
from trimtab.session.turn import run_turn
from trimtab.stores.postgres import PostgresStore
from trimtab.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


@pytest.fixture
async def store(migrated):
    made = await PostgresStore.connect(migrated)
    yield made
    await made.close()


async def rows(database, query):
    async with await AsyncConnection.connect(database) as connection:
        return await (await connection.execute(query)).fetchall()


async def test_the_growth_of_the_context_is_one_query(store, migrated):
    """The one that the page on the database has."""
    [query] = re.findall(r"^SELECT .* FROM trimtab\.llm_calls .*;$", PAGE.read_text(), re.MULTILINE)
    await store.append("s", [said(1), *(call(seq, 100 * seq) for seq in range(2, 27))])
    found = await rows(migrated, query)
    assert [(size, at.timestamp()) for _, size, at in found] == [
        (100 * seq, seq) for seq in range(26, 6, -1)
    ]
    assert [number for number, _, _ in found] == sorted({row[0] for row in found}, reverse=True)


async def test_an_imported_call_has_no_row(store, migrated):
    imported = ModelCall(position=1, max_output=1, imported=True)
    await store.append("s", [said(1), Event(seq=2, at=2.0, body=imported), call(3, 100)])
    assert await rows(migrated, "SELECT seq FROM trimtab.llm_calls") == [(3,)]


async def test_a_call_has_a_row_with_what_the_provider_counted(store, migrated):
    await store.append("s", [said(1), call(2, 100)])
    await store.append("s", [outcome(3, 2, Usage(input=30, output=4, cache_read=5, cache_write=6))])
    await store.append("s", [said(4), call(5, 250), outcome(6, 5, status="error"), call(7, 300)])
    found = await rows(
        migrated,
        """SELECT seq, bytes, prompt_tokens, completion_tokens, cache_read_tokens,
            cache_write_tokens, status, extract(epoch FROM created_at)::int
        FROM trimtab.llm_calls ORDER BY created_at DESC LIMIT 20""",
    )
    assert found == [
        (7, 300, None, None, None, None, "sent", 7),
        (5, 250, None, None, None, None, "error", 5),
        (2, 100, 30, 4, 5, 6, "ok", 2),
    ]


async def test_a_summary_that_a_model_wrote_has_a_row_with_its_model_and_tokens(store, migrated):
    session = await rolling(store, "s", clock=Clock())
    model = ScriptedProvider("anthropic", [f"answer {n} in src/part_{n}.py" for n in range(9)])
    for number in range(9):
        words = prose(300, f"question {number} of item_{number}")
        await run_turn(session, model, message=user(words), summariser=writer(GOOD))
        await session.wait_for_background()
    [attempt] = [e.body async for e in store.events("s") if isinstance(e.body, SummaryAttempt)]
    assert attempt.usage is not None
    found = await rows(
        migrated,
        """SELECT purpose, model, status, count(*), sum(prompt_tokens), sum(completion_tokens),
            min(bytes) > 0
        FROM trimtab.llm_calls GROUP BY 1, 2, 3 ORDER BY 1""",
    )
    spent = session.window.accounting.total_usage
    assert found == [
        ("reply", session.window.settings.model, "ok", 9, spent.input, spent.output, True),
        ("summary", attempt.model, "ok", 1, attempt.usage.input, attempt.usage.output, True),
    ]


async def test_a_call_names_the_model_that_the_session_had_then(store, migrated):
    await store.append("s", [settings(1, "one"), said(2), call(3, 10)])
    await store.append("s", [outcome(4, 3), call(5, 10)])
    await store.append("s", [settings(6, "two"), call(7, 10)])
    await store.append("s", [call(8, 10), settings(9, "three"), call(10, 10)])
    found = await rows(migrated, "SELECT seq, model FROM trimtab.llm_calls ORDER BY seq")
    assert found == [(3, "one"), (5, "one"), (7, "two"), (8, "two"), (10, "three")]


async def test_calls_that_a_fork_inherits_stay_the_parents(store, migrated):
    await store.append("child", [said(1), call(2, 100), outcome(3, 2)])
    await store.append("child", [call(4, 150), forked(5, "parent"), call(6, 200)])
    assert await rows(migrated, "SELECT seq FROM trimtab.llm_calls") == [(6,)]


async def test_a_change_of_calls_changes_their_rows(store, migrated):
    await store.append("s", [said(1), call(2, 100), outcome(3, 2, Usage(input=1)), call(4, 200)])

    def change(event):
        match event.body:
            case ModelCall(bytes=100) as body:
                return replace(event, body=replace(body, bytes=101))
            case CallOutcome() as body:
                return replace(event, body=replace(body, usage=Usage(input=2)))
            case ModelCall():
                return said(event.seq)
            case _:
                return event

    await store.rewrite("s", [], change)
    found = await rows(migrated, "SELECT seq, bytes, prompt_tokens FROM trimtab.llm_calls")
    assert found == [(2, 101, 2)]
