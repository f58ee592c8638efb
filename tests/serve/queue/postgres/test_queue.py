"""What every queue promises, of the one in PostgreSQL."""

import asyncio

import pytest
from psycopg.types.numeric import Int8

from tests.serve.queue.postgres.workers import until
from tests.serve.queue.queues import S, claimed, inbound, reply
from tests.serve.queue.test_queue import *  # noqa: F403 - the whole suite
from trimtab.errors import StoreError
from trimtab_serve.queue.postgres import queue as queues
from trimtab_serve.queue.postgres.procrastinate_jobs import JobPayload
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


FILL_INBOX = (
    "INSERT INTO trimtab.inbox (session, key, body) "
    "SELECT 'default/helper/s' || n, 'k', repeat('x', 200) FROM generate_series(1, 5000) AS n"
)


async def test_the_oldest_of_many_waiting_messages_is_found_without_reading_them_all(queue):
    async with queue.borrow_connection() as connection:
        await connection.execute(FILL_INBOX)
        await connection.execute("ANALYZE trimtab.inbox")
        plan = await explain(connection, "oldest_waiting", [])
    assert count_rows(plan) < 10


async def test_a_job_is_fetched_without_reading_the_turns_that_are_put_off(queue):
    fill = """
        INSERT INTO procrastinate_jobs (
            queue_name, task_name, lock, queueing_lock, args, scheduled_at)
        SELECT 'turns', 'trimtab:turn', name, name,
            jsonb_build_object('session', name, 'failing_since', 1), now() + interval '4 minutes'
        FROM (SELECT 'acme/helper/s' || n AS name FROM generate_series(1, 5000) AS n) AS sessions
        """
    async with queue.borrow_connection() as connection:
        await connection.execute(fill)
        await connection.execute("ANALYZE procrastinate_jobs")
        await queue.defer_job(JobPayload(session="acme/other/new"))
        worker = "INSERT INTO procrastinate_workers DEFAULT VALUES RETURNING id"
        ((worker_id,),) = await (await connection.execute(worker)).fetchall()
        values = ["turns", Int8(worker_id), [], [], False]
        async with connection.transaction(force_rollback=True):
            plan = await explain(connection, "fetch_job", values)
        assert count_rows(plan) < 30
        assert count_removed_rows(plan) == 0
        retries = await explain(connection, "waiting_retries", [Int8(10)])
        assert count_rows(retries) < 50
    job = await queue.fetch_job("turns", worker_id)
    assert job is not None
    assert job.lock == "acme/other/new"
    assert await queue.fetch_job("turns", worker_id) is None
    assert await queue.count_waiting_retries() == 5_000


async def test_jobs_begin_in_the_order_in_which_they_were_queued_also_if_some_were_put_off(queue):
    async with queue.borrow_connection() as connection:
        worker = "INSERT INTO procrastinate_workers DEFAULT VALUES RETURNING id"
        ((worker_id,),) = await (await connection.execute(worker)).fetchall()
        for name, delay_s in (("first", 0.0), ("second", 600.0), ("third", 0.0), ("later", 600.0)):
            await queue.defer_job(JobPayload(session=f"acme/helper/{name}"), delay_s=delay_s)
        due = "UPDATE procrastinate_jobs SET scheduled_at = now() WHERE lock LIKE '%second'"
        await connection.execute(due)
    jobs = [await queue.fetch_job("turns", worker_id) for _ in range(4)]
    names = [job and job.lock.removeprefix("acme/helper/") for job in jobs]
    assert names == ["first", "second", "third", None]


async def test_waiting_messages_are_counted_up_to_a_limit_however_many_dead_letters_there_are(
    queue,
):
    async with queue.borrow_connection() as connection:
        await connection.execute(FILL_INBOX)
        dead = """
            INSERT INTO trimtab.dead (session, why, at, messages)
            SELECT 'default/helper/s' || n, 'why', 1, 1 FROM generate_series(1, 1000) AS n
            """
        await connection.execute(dead)
        await connection.execute("ANALYZE trimtab.inbox")
        plan = await explain(connection, "depth", ["default/", "default0", Int8(100)])
    assert await queue.depth("default/") == 4_000
    assert await queue.depth("default/", limit=100) == 100
    assert count_rows(plan) < 5_000


async def test_messages_without_a_job_get_one_page_by_page(queue, monkeypatch):
    monkeypatch.setattr(queues, "STRANDED_PAGE_MESSAGES", 2)
    sessions = [f"default/helper/s{number}" for number in range(7)]
    for session in sessions:
        await queue.post(inbound("a", session=session))
    assert await queue.queue_stranded_sessions() == 0  # the first page
    async with queue.borrow_connection() as connection:
        await connection.execute("DELETE FROM procrastinate_jobs")
    # It goes on while it finds some, to the end, and begins anew.
    assert [await queue.queue_stranded_sessions() for _ in range(3)] == [5, 2, 0]


async def test_a_database_whose_disk_is_full_is_not_writable(queue):
    await queue.check_writable()
    async with queue.borrow_connection() as connection:
        # What a full disk does to a statement that writes a file.
        await connection.execute("SET temp_file_limit = 0")
    try:
        with pytest.raises(StoreError, match="temporary file size"):
            await queue.check_writable()
    finally:
        async with queue.borrow_connection() as connection:
            await connection.execute("RESET temp_file_limit")


async def explain(connection, query_name, values):
    statement = b"EXPLAIN (ANALYZE, FORMAT JSON) " + SERVER_QUERIES[query_name]
    ((plans,),) = await (await connection.execute(statement, values)).fetchall()
    return plans[0]["Plan"]


def count_rows(plan):
    return plan["Actual Rows"] + sum(map(count_rows, plan.get("Plans", [])))


def count_removed_rows(plan):
    removed = plan.get("Rows Removed by Filter", 0)
    return removed + sum(map(count_removed_rows, plan.get("Plans", [])))
