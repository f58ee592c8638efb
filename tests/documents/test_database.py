"""Documents 1 and 3 in PostgreSQL: the calls, the conversation's context, the migration."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest

from tests.documents.product import (
    CALLS_QUERY,
    COMPACT,
    CONTEXT_QUERY,
    CONTEXTS_TABLE,
    GROWTH_QUERY,
    ROLLING,
    SUMMARY,
    TOLD,
    Life,
    asks,
    cheap,
    database_store,
    migrate,
    script,
    tool,
)
from tests.documents.words import viewed
from tests.stores.places import SERVER, database

pytestmark = pytest.mark.postgres

VIEWED = 3
"""Files that the first session looks at, a call each."""
TURNS = 10
"""Of the second session."""


@dataclass
class Kept:
    """Two sessions in a database, and what was sent and found."""

    migrated: list[list[str]] = field(default_factory=list[list[str]])
    """What was applied at first, what when it was run again, and what is missing then."""
    sent: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    rebuilt: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    usage: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Tokens in and out, as the provider reported them for each call."""
    conversation: str = field(default_factory=lambda: str(uuid4()))
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    growth: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    context: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    columns: dict[str, str] = field(default_factory=dict[str, str])
    summaries: int = 0
    """Calls that wrote one."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Generator[Kept]:
    psycopg = pytest.importorskip("psycopg")
    try:
        psycopg.connect(SERVER, connect_timeout=3).close()
    except psycopg.OperationalError as error:
        pytest.skip(f"no PostgreSQL at {SERVER!r}: {error}")
    made, folder = Kept(), tmp_path_factory.mktemp("database")
    with database("") as address:
        made.migrated.append(migrate(address, folder))
        asyncio.run(said(made, address))
        made.migrated.append(migrate(address, folder))
        made.migrated.append(migrate(address, folder, plan=True))
        looked_up(made, address)
        yield made


async def said(made: Kept, address: str) -> None:
    store = await database_store(address)
    try:
        life, model = await Life.begin(COMPACT, store=store), script(*asks(VIEWED), "Done.")
        numbers = iter(range(VIEWED))

        def view(_: object) -> str:
            made.usage.append((life.usage["input"], life.usage["output"]))
            return viewed(next(numbers))

        await life.turn(model, tools=[tool(view)])
        made.usage.append((life.usage["input"], life.usage["output"]))
        made.sent = model.requests
        made.rebuilt = [await life.rebuild(call) for call in await life.call_positions()]
        await life.close()
        life = await Life.begin(ROLLING, store=store, name=made.conversation)
        small = script(*[SUMMARY] * 9)
        for number in range(TURNS):
            model = script(f"Answer {number}, at some length. " * 12)
            question = f"Question {number}: what of offer {number}? " * 12
            await life.turn(model, question, summariser=cheap(small))
            await life.settle()
        made.summaries = len(small.requests)
        await life.close()
    finally:
        await store.close()


def looked_up(made: Kept, address: str) -> None:
    import psycopg
    from psycopg.rows import dict_row

    schema, table = CONTEXTS_TABLE.split(".")
    with psycopg.connect(address) as connected:
        connection = connected.cursor(row_factory=dict_row)
        made.calls = connection.execute(CALLS_QUERY, ["one"]).fetchall()
        made.growth = connection.execute(GROWTH_QUERY).fetchall()
        made.context = connection.execute(CONTEXT_QUERY, [made.conversation]).fetchall()
        found = connection.execute(
            "SELECT column_name, data_type FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = %s",
            [schema, table],
        )
        made.columns = {row["column_name"]: row["data_type"] for row in found}


def test_each_call_has_a_row_with_the_tokens_of_its_streamed_reply_and_its_time(kept):
    assert all(request["stream"] for request in kept.sent)
    rows = [(row["prompt_tokens"], row["completion_tokens"]) for row in kept.calls]
    assert rows == kept.usage
    assert all(tokens > 0 for row in rows for tokens in row)
    times = [row["created_at"] for row in kept.calls]
    assert times == sorted(times)
    assert None not in times


def test_the_growth_of_the_context_over_the_last_20_calls_is_one_query(kept):
    assert len(kept.growth) == VIEWED + 1 + TURNS + kept.summaries
    assert all(row["bytes"] > 0 for row in kept.growth)
    assert all(set(row) == {"id", "bytes", "created_at"} for row in kept.growth)
    times = [row["created_at"] for row in kept.growth]
    assert times == sorted(times, reverse=True)
    first = [row["bytes"] for row in kept.growth][-VIEWED - 1 :][::-1]
    steps = [later - earlier for earlier, later in pairwise(first)]
    assert all(len(viewed(0)) <= step <= len(viewed(0)) + 200 for step in steps)


def test_the_messages_of_every_call_can_be_seen_in_full_afterwards(kept):
    assert len(kept.rebuilt) == VIEWED + 1
    assert kept.rebuilt == kept.sent


def test_the_context_of_a_conversation_has_the_documents_columns(kept):
    assert kept.columns == {
        "conversation_id": "uuid",
        "summary": "text",
        "message_count": "integer",
        "last_summarised_at": "timestamp with time zone",
        "updated_at": "timestamp with time zone",
    }


def test_its_row_has_the_conversations_id_its_summary_all_its_messages_and_when(kept):
    (row,) = kept.context
    assert str(row["conversation_id"]) == kept.conversation
    assert TOLD in row["summary"]
    assert row["message_count"] == 2 * TURNS
    assert row["last_summarised_at"] <= row["updated_at"]


def test_the_migration_may_be_run_again_and_changes_nothing(kept):
    first, second, missing = kept.migrated
    assert first != []
    assert second == []
    assert missing == []
    assert kept.calls, "what was there before is there"
