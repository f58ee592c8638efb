"""Where schedules are kept, with a queue that counts, so that both can be opened again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from sqlite3 import Connection
from typing import Any
from zoneinfo import ZoneInfo

from trimtab.stores.files import FileStore
from trimtab_serve.queue.messages import InboundMessage, ReplyRoute
from trimtab_serve.queue.postgres.queue import PostgresMessageQueue
from trimtab_serve.queue.postgres.transactions import PostgresTransactions
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.schedules.schedule import Schedule
from trimtab_serve.schedules.store import ScheduleStore
from trimtab_serve.schedules.triggers import find_next_due_time, parse_cron_trigger, parse_trigger

ZURICH = "Europe/Zurich"
CHAT = ReplyRoute(channel="telegram", address={"chat": 123456})
AGENTS = ("helper",)


class Refuses(Exception):
    """What a queue says that does not take a message."""


class Place:
    """Schedules with the queue that their messages go to, as long as they are open."""

    def __init__(self) -> None:
        self.queue: Any = None
        """The `MessageQueue`."""
        self.refused: set[str] = set()
        """Sessions whose messages are not taken."""

    async def messages(self) -> list[InboundMessage]:
        """What was posted, in order."""
        assert self.queue is not None
        messages_by_session = [
            await self.queue.pending(one, limit=9999)
            for one in await self.queue.list_waiting_sessions()
        ]
        return sorted(
            (one for messages in messages_by_session for one in messages),
            key=lambda one: one.number,
        )

    async def keys(self) -> list[str]:
        return [inbound.key for inbound in await self.messages()]

    async def unknown(self, _session: str, _key: str) -> None:
        """No log has any key."""

    def check(self, inbound: InboundMessage) -> None:
        if inbound.session in self.refused:
            raise Refuses(inbound.session)


class Files(Place):
    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[ScheduleStore]:
        store = FileStore(self.root, fsync=False)
        queue = self.queue = await SqliteMessageQueue.open(store, fsync=False)
        post = queue.post_in_transaction

        def checked(connection: Connection, inbound: InboundMessage) -> bool:
            self.check(inbound)
            return post(connection, inbound)

        queue.post_in_transaction = checked
        try:
            yield ScheduleStore(queue.transactions)
        finally:
            await queue.close()
            await store.close()


class Postgres(Place):
    def __init__(self, conninfo: str) -> None:
        super().__init__()
        self.conninfo = conninfo

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[ScheduleStore]:
        queue = self.queue = await PostgresMessageQueue.connect(self.conninfo)

        async def post(inbound: InboundMessage, connection: Any) -> bool:
            self.check(inbound)
            return await queue.post_in_transaction(inbound, connection)

        try:
            yield ScheduleStore(PostgresTransactions(queue.borrow_connection, post))
        finally:
            await queue.close()


def at(text: str, zone: str = ZURICH, *, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def schedule(
    name: str = "morning", when: str = "0 8 * * *", *, now: float, **given: Any
) -> Schedule:
    zone = given.pop("zone", ZURICH)
    trigger = (
        parse_trigger(when, now, zone)
        if "-" in when.split(maxsplit=1)[0]
        else parse_cron_trigger(when, zone)
    )
    usual: dict[str, Any] = {
        "id": f"default/helper/{name}",
        "session": "default/helper/telegram:123456",
        "message": "What is new?",
        "trigger": trigger,
        "origin": "file",
        "created_at": now,
        "next_run_at": trigger.at or find_next_due_time(trigger, now),
        "route": CHAT,
    }
    return Schedule(**usual | given)


async def run(schedules: ScheduleStore, now: float) -> int:
    """Run all that is due; returns how many schedules were."""
    count = 0
    while await schedules.run_next_due(now, AGENTS) is not None:
        count += 1
    return count


def times(keys: list[str], zone: str = ZURICH) -> list[str]:
    """The runs among keys, as the clock on the wall shows them."""
    moments = (datetime.fromtimestamp(int(key.rpartition("/")[2]), ZoneInfo(zone)) for key in keys)
    return [f"{one:%m-%d %H:%M%z}" for one in moments]
