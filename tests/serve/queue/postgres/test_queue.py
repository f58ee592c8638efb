"""What every queue promises, of the one in PostgreSQL."""

import asyncio

from tests.serve.queue.postgres.workers import until
from tests.serve.queue.queues import S, claimed, inbound, reply
from tests.serve.queue.test_queue import *  # noqa: F403 - the whole suite
from trimtab_serve.queue.postgres import queue as queues
from trimtab_serve.queue.postgres.queries import SERVER_QUERIES


async def test_giving_up_waits_for_whoever_removes_the_message(queue):
    await queue.post(inbound("a"))
    (found,) = await queue.pending(S)
    async with queue.borrow_connection() as connection:
        async with connection.transaction():
            await connection.execute("DELETE FROM trimtab.inbox")
            giving = asyncio.create_task(
                queue.dead_letter_session(found, None, "broken", [reply("sorry")])
            )
            await until(lambda: waits(connection))
        assert not await giving
    assert (
        await queue.list_dead_letters(),
        await queue.lease_replies(["phone"], limit=1, lease_s=1),
    ) == ([], [])


async def waits(connection):
    query = "SELECT FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
    return await (await connection.execute(query)).fetchall()


async def test_all_that_has_left_long_ago_is_cleared_away_however_much_it_is(
    queue, store, monkeypatch
):
    monkeypatch.setattr(queues, "CLEANUP_BATCH_ROWS", 2)
    monkeypatch.setattr(queues, "REPLY_RETENTION_S", {"sent": 0.0})
    epoch = await claimed(store)
    await queue.finish_turn(S, epoch, [], [reply(f"r{n}") for n in range(5)])
    for _ in range(5):
        (found,) = await queue.lease_replies(["phone"], limit=1, lease_s=60)
        await queue.mark_delivered(found.number)
    await queue.delete_expired_replies()
    async with queue.borrow_connection() as connection:
        rows = await (await connection.execute("SELECT FROM trimtab.outbox")).fetchall()
    assert rows == []


async def test_the_oldest_of_many_waiting_messages_is_found_without_reading_them_all(queue):
    fill = (
        "INSERT INTO trimtab.inbox (session, key, body) "
        "SELECT 'default/helper/s' || n, 'k', repeat('x', 200) FROM generate_series(1, 5000) AS n"
    )
    explain = b"EXPLAIN (ANALYZE, FORMAT JSON) " + SERVER_QUERIES["oldest_waiting"]
    async with queue.borrow_connection() as connection:
        await connection.execute(fill)
        await connection.execute("ANALYZE trimtab.inbox")
        ((plans,),) = await (await connection.execute(explain)).fetchall()

    def count_rows(plan):
        return plan["Actual Rows"] + sum(map(count_rows, plan.get("Plans", [])))

    assert count_rows(plans[0]["Plan"]) < 10
