"""What a provider bills is in the report and the store, however requests for one session meet."""

import asyncio
from contextlib import suppress

import pytest
from anthropic import AsyncAnthropic
from psycopg import AsyncConnection

from tests.conversations import user
from tests.session.session_user import bodies, reply, text
from trimtab.engine.log.event import CallOutcome, ModelCall, SummaryAttempt, Usage
from trimtab.errors import StaleOwner
from trimtab.session import Session
from trimtab.testing import serve_simulated_provider

pytestmark = pytest.mark.anyio

MODEL = "claude-sonnet-5-5"
REQUESTS = 5


@pytest.fixture(scope="module")
def address():
    with serve_simulated_provider() as served:
        yield served.url


class Clicks:
    """Five requests of a web application for one session, which take each step at the same time."""

    def __init__(self, place, address: str) -> None:
        self.place = place
        self.client = AsyncAnthropic(base_url=address, api_key="x", max_retries=0)
        self.billed: list[tuple[int, int]] = []
        self.together = asyncio.Barrier(REQUESTS)

    async def open(self, count: int) -> list[Session]:
        """The session, opened so often. On files one store of a process writes."""
        store = await self.place.open()
        await Session.create(store, "s", model=MODEL)
        stores = [
            store if self.place.name == "files" else await self.place.open() for _ in range(count)
        ]
        return [await Session.open(each, "s") for each in stores]

    async def answer(self, session: Session, number: int) -> None:
        await session.add(user(f"question {number} " + "word " * 20 * number))
        await self.together.wait()
        request = await session.request()
        await self.together.wait()
        reply = await self.client.messages.create(**request)
        self.billed.append((reply.usage.input_tokens, reply.usage.output_tokens))
        await self.together.wait()
        await session.add(reply)

    async def check(self, sessions: list[Session]) -> None:
        """The bill is the sum, in the report of every object, in the log and in the table."""
        billed = tuple(map(sum, zip(*self.billed, strict=True)))
        for session in sessions:
            await session.refresh()
            report = session.report()
            assert report.calls == len(self.billed)
            assert (report.total_usage.input, report.total_usage.output) == billed
        reopened = (await Session.open(sessions[0].store, "s")).report()
        assert (reopened.total_usage, reopened.cost) == (report.total_usage, report.cost)
        assert reopened.cost
        log = await bodies(sessions[0].store, "s")
        assert len([body for body in log if isinstance(body, ModelCall)]) == len(self.billed)
        usages = [body.usage for body in log if isinstance(body, CallOutcome)]
        assert sorted((one.input, one.output) for one in usages) == sorted(self.billed)
        if self.place.name == "postgres":
            async with await AsyncConnection.connect(self.place.conninfo) as connection:
                rows = await connection.execute(
                    "SELECT prompt_tokens, completion_tokens FROM trimtab.llm_calls"
                )
                assert sorted(await rows.fetchall()) == sorted(self.billed)
        await self.client.close()
        for session in sessions:
            await session.store.close()


async def test_five_requests_without_a_claim_are_all_counted(place, address):
    clicks = Clicks(place, address)
    sessions = await clicks.open(REQUESTS)
    await asyncio.gather(*(clicks.answer(*each) for each in zip(sessions, range(5), strict=True)))
    assert len(clicks.billed) == REQUESTS
    await clicks.check(sessions)


async def test_five_tasks_with_one_session_object_are_all_counted(place, address):
    clicks = Clicks(place, address)
    [session] = await clicks.open(1)
    await asyncio.gather(*(clicks.answer(session, number) for number in range(REQUESTS)))
    assert len(clicks.billed) == REQUESTS
    await clicks.check([session])


async def test_five_requests_that_claim_the_turn_are_all_answered_in_turn(place, address):
    clicks = Clicks(place, address)
    clicks.together = asyncio.Barrier(1)
    sessions = await clicks.open(REQUESTS)

    async def click(session: Session, number: int) -> None:
        async with session.claim_turn(wait=60):
            await clicks.answer(session, number)

    await asyncio.gather(*(click(*each) for each in zip(sessions, range(5), strict=True)))
    assert len(clicks.billed) == REQUESTS
    await clicks.check(sessions)
    said = [entry.message.role for entry in sessions[0].window.entries.values()]
    assert said == ["user", "assistant"] * REQUESTS


async def test_a_reply_whose_turn_was_taken_over_is_counted_and_not_added(place, address):
    clicks = Clicks(place, address)
    clicks.together = asyncio.Barrier(1)
    stale, owner = await clicks.open(2)
    await stale.recorder.claim()
    await stale.add(user("Hello."))
    reply = await clicks.client.messages.create(**await stale.request())
    clicks.billed.append((reply.usage.input_tokens, reply.usage.output_tokens))
    await owner.recorder.claim()
    await clicks.answer(owner, 1)
    with pytest.raises(StaleOwner):
        await stale.add(reply)
    with suppress(StaleOwner):  # once more changes nothing
        await stale.add(reply)
    stale.recorder.disown()
    await clicks.check([stale, owner])
    said = [entry.message.role for entry in owner.window.entries.values()]
    assert said == ["user", "user", "assistant"]


async def test_a_request_that_is_sent_again_is_one_call_and_its_reply_one_message(store):
    session = await Session.create(store, "s", model=MODEL)
    await session.add(user("Hello."))
    await session.request()  # its stream breaks
    await session.add(user("Hello?"))
    await session.request()
    await session.request()  # after an error of the network
    answer = reply(1, text("Hi."))
    assert await session.add(answer) == await session.add(answer)
    report = session.report()
    assert (report.calls, report.total_usage.output) == (2, 7)
    roles = [entry.message.role for entry in session.window.entries.values()]
    assert roles == ["user", "user", "assistant"]


async def test_a_summary_whose_turn_was_taken_over_is_counted_and_not_used(store):
    stale = await Session.create(store, "s", model=MODEL)
    await stale.add(user("Hello."))
    await stale.recorder.claim()
    owner = await Session.open(store, "s")
    await owner.recorder.claim()
    usage = Usage(input=900, output=90)
    attempt = SummaryAttempt(first=2, last=2, outcome="made", calls=1, usage=usage)
    with pytest.raises(StaleOwner):
        await stale.recorder.record_summary_attempt(attempt)
    await owner.refresh()
    [recorded] = [b for b in await bodies(store, "s") if isinstance(b, SummaryAttempt)]
    assert (recorded.outcome, recorded.usage) == ("rejected", usage)
    assert owner.window.accounting.summary_stats.made == 0
