"""A lock whose waiters are in several event loops, each in a thread of its own."""

import asyncio
import threading

import pytest

from trimtab.stores import shared_lock
from trimtab.stores.shared_lock import SharedByName, SharedLock
from trimtab.stores.turn_queue import TurnQueue

WAIT_S = 20


def run_in_thread(coroutine_function):
    """Run a coroutine in an event loop of a new thread."""
    errors = []

    def run():
        try:
            asyncio.run(coroutine_function())
        except BaseException as error:  # noqa: BLE001 - the test raises it
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def join():
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the thread hangs"
        if errors:
            raise errors[0]

    return join


async def until_waiting(lock, count):
    async with asyncio.timeout(WAIT_S):
        while lock.waiters < count:  # noqa: ASYNC110 - other threads wait
            await asyncio.sleep(0.001)


@pytest.mark.anyio
async def test_coroutines_of_several_event_loops_take_turns_in_the_order_they_came():
    lock, order, joins = SharedLock(), [], []
    await lock.acquire()

    for number in range(4):

        async def wait(number=number):
            async with lock:
                order.append(number)

        joins.append(run_in_thread(wait))
        await until_waiting(lock, number + 1)
    lock.release()
    for join in joins:
        await asyncio.to_thread(join)
    assert order == [0, 1, 2, 3]
    assert not lock.locked()


@pytest.mark.anyio
async def test_a_coroutine_that_is_cancelled_while_the_lock_comes_passes_it_on():
    lock = SharedLock()
    await lock.acquire()
    first, second = asyncio.create_task(lock.acquire()), asyncio.create_task(lock.acquire())
    await until_waiting(lock, 2)
    lock.release()
    first.cancel()
    async with asyncio.timeout(WAIT_S):
        await second
    assert first.cancelled()
    assert lock.locked()


@pytest.mark.anyio
async def test_a_coroutine_that_gives_up_does_not_get_the_lock():
    lock = SharedLock()
    await lock.acquire()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await lock.acquire()
    lock.release()
    assert lock.try_acquire()


@pytest.mark.anyio
async def test_a_coroutine_whose_event_loop_was_closed_is_passed_over():
    lock = SharedLock()
    await lock.acquire()
    loop = asyncio.new_event_loop()

    def begin_to_wait_and_close():
        task = loop.create_task(lock.acquire())
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        return task

    abandoned = await asyncio.to_thread(begin_to_wait_and_close)
    waiting = asyncio.create_task(lock.acquire())
    await until_waiting(lock, 2)
    lock.release()
    async with asyncio.timeout(WAIT_S):
        await waiting
    assert not abandoned.done()
    abandoned._log_destroy_pending = False


def run_until_it_holds(lock):
    """Return an event loop that stands still, and the task in it that holds the lock."""
    loop = asyncio.new_event_loop()

    async def hold():
        async with lock:
            loop.stop()
            await loop.create_future()

    task = loop.create_task(hold())
    loop.run_forever()
    return loop, task


@pytest.mark.anyio
@pytest.mark.parametrize("is_closed", [True, False])
async def test_a_lock_is_taken_back_from_an_event_loop_that_ended(is_closed, monkeypatch):
    monkeypatch.setattr(shared_lock, "CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr(shared_lock, "STANDSTILL_S", 0.02)
    lock = SharedLock()
    loop, task = await asyncio.to_thread(run_until_it_holds, lock)
    if is_closed:
        loop.close()
    async with asyncio.timeout(WAIT_S):
        await lock.acquire()
    if not is_closed:  # the loop goes on, and what it releases is not its lock any more
        task.cancel()
        await asyncio.to_thread(run_to_end, loop, task)
    assert lock.locked()
    lock.release()
    assert not lock.locked()
    task._log_destroy_pending = False
    loop.close()


def run_to_end(loop, task):
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)


@pytest.mark.anyio
async def test_a_coroutine_whose_event_loop_stands_still_gets_the_lock_when_its_loop_goes_on(
    monkeypatch,
):
    monkeypatch.setattr(shared_lock, "CHECK_INTERVAL_S", 0.01)
    lock = SharedLock()
    await lock.acquire()
    loop = asyncio.new_event_loop()
    still = loop.create_task(lock.acquire())

    def begin_to_wait():
        loop.call_later(0.02, loop.stop)
        loop.run_forever()

    await asyncio.to_thread(begin_to_wait)
    waiting = asyncio.create_task(lock.acquire())
    await until_waiting(lock, 2)
    lock.release()
    async with asyncio.timeout(WAIT_S):
        await waiting
    assert not still.done()
    lock.release()
    await asyncio.to_thread(loop.run_until_complete, still)
    assert lock.locked()
    loop.close()


@pytest.mark.anyio
async def test_as_many_hold_it_as_may():
    lock = SharedLock(2)
    assert lock.try_acquire()
    assert not lock.locked()
    assert lock.try_acquire()
    assert lock.locked()
    assert not lock.try_acquire()
    lock.release()
    assert lock.try_acquire()


def test_threads_that_ask_for_one_name_at_once_get_one_lock():
    values = SharedByName(SharedLock)
    gate = threading.Barrier(8)
    found = []

    def ask():
        gate.wait()
        found.append(values.get_or_create("s"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(lock) for lock in found}) == 1
    found.clear()
    assert values.get("s") is None


@pytest.mark.anyio
async def test_a_turn_that_another_event_loop_holds_is_waited_for_as_long_as_asked():
    from trimtab.errors import SessionBusy

    turns, is_held, may_end = TurnQueue(), threading.Event(), threading.Event()

    async def hold():
        async with turns.hold("s", wait=0):
            is_held.set()
            await asyncio.to_thread(may_end.wait, WAIT_S)

    join = run_in_thread(hold)
    await asyncio.to_thread(is_held.wait, WAIT_S)
    with pytest.raises(SessionBusy):
        async with turns.hold("s", wait=0.01):
            pass
    may_end.set()
    async with turns.hold("s", wait=WAIT_S):
        pass
    await asyncio.to_thread(join)
