"""A session that was closed goes on as if it had not been."""

from typing import Any

import pytest

from tests.agents import Clock
from tests.combinations import in_pairs
from tests.conversations import prose, user
from tests.laws.picture import outlook
from tests.replies import DIALECTS, MODELS, REPLY, result, stream
from tests.session.failing_stores import Wrapped
from tests.session.session_user import Worker, bodies, edits, options, text
from trimtab.engine.log.event import CallOutcome, MessageAdded, Usage, dump_canonical_json
from trimtab.engine.policy.config import parse_policy_config
from trimtab.engine.policy.presets import POLICY_NAMES, build_policy
from trimtab.errors import CannotFit, PositionTaken, SessionNotFound
from trimtab.session import Session, loading

pytestmark = pytest.mark.anyio


async def reopened(place, session: Session, clock: Clock) -> Session:
    await session.close()
    await session.store.close()
    return await Session.open(await place.open(), session.id, clock=clock)


@pytest.mark.slow
@pytest.mark.usefixtures("often")
# Presets and stores do not know each other.
@pytest.mark.parametrize(
    ("place", "policy"),
    in_pairs(["memory", "files", "postgres"], POLICY_NAMES, together=1),
    indirect=["place"],
)
async def test_reopening_changes_nothing_under_any_preset(place, policy):
    clock = Clock()
    given = options(policy=policy, clock=clock)
    steady = Worker(await Session.create(await place.open(), "a", **given), clock)
    broken = Worker(await Session.create(await place.open(), "b", **given), clock)
    for number in range(18):
        for worker in (steady, broken):
            clock.now = 1_000.0 + number * 100
            await worker.turn(rounds=2, size=1_200)
        assert broken.sent == steady.sent
        if number % 3 == 2:
            broken.session = await reopened(place, broken.session, clock)
            assert outlook(broken.session.recorder.state) == outlook(steady.session.recorder.state)
    assert len(steady.sent) == 18 * 3
    assert policy == "full" or await edits(steady.session.store, "a")
    assert await edits(broken.session.store, "b") == await edits(steady.session.store, "a")
    assert steady.session.window.base.snapshot.seq > 0
    await steady.session.store.close()
    await broken.session.store.close()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_replies_of_the_sdks_are_stored_with_their_usage(place, dialect):
    store = await place.open()
    given: dict[str, Any] = {"dialect": dialect, "clock": Clock()}
    session = await Session.create(store, "s", model=MODELS[dialect], policy="layered", **given)
    await session.add(user("What is in a.py?"))
    await session.request()
    handle = await session.add(REPLY[dialect](calls=("c1",)))
    assert await session.add(REPLY[dialect](calls=("c1",))) == handle
    await session.add(result(dialect, "c1", "nothing"))
    request = await session.request()
    found = await bodies(store, "s")
    assert [body.usage for body in found if isinstance(body, CallOutcome)] == [
        session.window.accounting.last_usage
    ]
    assert session.window.accounting.last_usage is not None
    assert session.window.accounting.last_usage.input == 100
    assert session.window.accounting.last_usage.output == 7
    again = await reopened(place, session, Clock())
    assert dump_canonical_json(await again.request()) == dump_canonical_json(request)
    assert (
        again.window.accounting.total_usage
        == session.window.accounting.total_usage
        != Usage(input=0)
    )
    await again.store.close()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_watched_stream_is_passed_on_and_stored_with_its_usage(store, dialect):
    async def sent():
        for event in stream(dialect, "Hello there."):
            yield event

    session = await Session.create(store, "s", model=MODELS[dialect], dialect=dialect)
    await session.add(user("Hi."))
    await session.request(stream=True)
    seen = [event async for event in session.watch(sent())]
    assert seen == list(stream(dialect, "Hello there."))
    said = [body for body in await bodies(store, "s") if isinstance(body, MessageAdded)]
    assert said[-1].message.role == "assistant"
    assert said[-1].message.text == "Hello there."
    ended = [body for body in await bodies(store, "s") if isinstance(body, CallOutcome)]
    assert [body.usage for body in ended] == [Usage(input=100, output=7, **caches(dialect))]


def caches(dialect: str) -> dict[str, int]:
    return {"cache_read": 50, **({"cache_write": 30} if dialect == "anthropic" else {})}


async def test_a_stream_that_breaks_off_leaves_nothing_behind(store):
    async def torn():
        yield next(stream("anthropic"))
        raise ConnectionError

    session = await Session.create(store, "s", **options())
    await session.add(user("Hi."))
    await session.request(stream=True)
    before = await store.position("s")
    with pytest.raises(ConnectionError):
        [event async for event in session.watch(torn())]
    assert await store.position("s") == before


@pytest.mark.usefixtures("often")
async def test_a_key_is_known_after_checkpoints_and_a_restart(place):
    store = await place.open()
    worker = Worker(await Session.create(store, "s", **options(policy="layered")))
    first = await worker.session.add(user("Pay the bill."), key="order-1")
    assert await worker.session.add(user("Pay the bill."), key="order-1") == first
    for _ in range(8):
        await worker.turn(rounds=2)
    assert worker.session.window.base.snapshot.seq > int(first[1:])
    before = await store.position("s")
    assert await worker.session.add(user("Pay the bill."), key="order-1") == first
    again = await reopened(place, worker.session, Clock())
    assert await again.add(user("Pay the bill."), key="order-1") == first
    assert await again.store.position("s") == before
    assert await again.add(user("Pay it again."), key="order-2") == f"m{before + 1}"
    await again.store.close()


async def test_a_session_is_created_once_and_opened_only_where_it_is(store):
    await Session.create(store, "s", **options())
    with pytest.raises(
        PositionTaken, match=r"'s' already exists, at position 1; open it with `Session\.open`"
    ):
        await Session.create(store, "s", **options())
    with pytest.raises(SessionNotFound):
        await Session.open(store, "t")


def lately(window, budget):
    return build_policy(
        "full", parse_policy_config({}), goal="balanced", summary_mode="extractive"
    )(window, budget)


async def test_a_policy_that_is_given_holds_however_the_log_is_read(store, monkeypatch):
    """A change of settings that is folded behind it must not bring back its own."""
    begun = await Session.open_or_create(store, "s", **options(policy="auto"))
    for number in range(6):
        await begun.add(user(f"message {number}"))
    await begun.configure(system="Be brief.")
    await begun.close()
    monkeypatch.setattr(loading, "MAX_FOLD_CHUNK_EVENTS", 3)
    again = await Session.open_or_create(store, "s", **options(policy="layered"))
    assert (again.options.policy, again.window.settings.policy) == ("layered", "layered")


async def test_a_session_is_gone_on_with_or_begun_under_the_options_that_are_given(store):
    begun = await Session.open_or_create(store, "s", **options())
    await begun.add(user("Hello."))
    await begun.close()
    again = await Session.open_or_create(store, "s", **options(clock=Clock()))
    assert (again.window.seq, again.window.conversation.total_messages) == (2, 1), (
        "the same options are not written again"
    )
    await again.close()
    other = await Session.open_or_create(store, "s", model=MODELS["openai_chat"], policy=lately)
    assert other.window.conversation.total_messages == 1
    assert other.window.settings.model == MODELS["openai_chat"]
    assert other.options.policy is lately


async def test_a_session_that_somebody_else_creates_meanwhile_is_gone_on_with(store):
    class Late(Wrapped):
        async def position(self, session):
            found = await self.inner.position(session)
            if not found:
                await Session.create(self.inner, session, **options())
            return found

    session = await Session.open_or_create(Late(store), "s", **options())
    assert session.window.seq == 1


async def test_an_error_of_the_provider_is_kept_and_teaches_its_limit(place):
    session = await Session.create(await place.open(), "s", **options(context_window=None))
    await session.add(user("Hi."))
    await session.request()
    await session.recorder.record_failure("overflow", limit=5_000, input=6_000)
    again = await reopened(place, session, Clock())
    assert again.budget().limit == 5_000
    with pytest.raises(ValueError, match="no call is open"):
        await again.fail("overflow")
    await again.store.close()


async def test_after_an_overflow_the_next_request_is_smaller(place):
    session = await Session.create(await place.open(), "s", **options(context_window=200_000))
    for number in range(20):
        await session.add(user(prose(2_000, f"question {number}")))
        await session.add({"role": "assistant", "content": f"answer {number}"})
    await session.add(user("now"))
    first = await session.request()
    await session.fail("overflow")
    second = await session.request()
    assert second["max_tokens"] < first["max_tokens"]
    assert second["messages"] == first["messages"]
    await session.fail("overflow")
    third = await session.request()
    assert third["max_tokens"] == first["max_tokens"]
    assert len(str(third["messages"])) < len(str(first["messages"]))
    with pytest.raises(TypeError, match="max_limit"):
        await session.fail("overflow", max_limit=5_000)  # pyright: ignore[reportCallIssue] - told
    await session.store.close()


async def test_another_model_other_tools_and_another_prompt_hold_after_a_restart(place):
    session = await Session.create(await place.open(), "s", **options())
    await session.add(user("Hi."))
    await session.request()
    await session.configure(model="gpt-4o", tools=[], system="Be brief.", recall=False)
    request = await session.request()
    assert request["model"] == "gpt-4o"
    assert "tools" not in request
    assert "Be brief." in dump_canonical_json(request)
    again = await reopened(place, session, Clock())
    assert dump_canonical_json(await again.request()) == dump_canonical_json(request)
    await again.store.close()


async def test_a_policy_of_ones_own_is_given_again_and_the_audit_needs_none(place):
    mine = build_policy(
        "layered", parse_policy_config({}), goal="balanced", summary_mode="extractive"
    )
    session = await Session.create(await place.open(), "s", **options(policy=mine))
    handle = await session.add(user("Hi."))
    sent = dump_canonical_json(await session.request())
    call = session.window.seq
    await session.close()
    await session.store.close()
    store = await place.open()
    with pytest.raises(ValueError, match="unknown policy"):
        await Session.open(store, "s")
    again = await Session.open(store, "s", policy=mine)
    assert dump_canonical_json(await again.request()) == sent
    assert dump_canonical_json(await again.rebuild_request(call)) == sent
    assert (await again.why(handle)).state == "shown"
    await store.close()


async def test_what_cannot_fit_is_said_and_what_was_said_stays(store):
    session = await Session.create(
        store, "s", **options(context_window=1_500, system="word " * 9_000)
    )
    await session.add(user("Hi."))
    with pytest.raises(CannotFit):
        await session.request()
    assert [body for body in await bodies(store, "s") if isinstance(body, MessageAdded)]


async def test_a_preview_is_what_the_next_request_is_and_writes_nothing(store):
    worker = Worker(await Session.create(store, "s", **options(policy="layered")))
    for _ in range(6):
        await worker.turn(rounds=2)
    await worker.session.recorder.checkpoint()
    await worker.say("And now?")
    before = await store.position("s")
    shown = await worker.session.preview()
    assert await store.position("s") == before
    assert dump_canonical_json(await worker.ask()) == dump_canonical_json(shown.request)


async def test_a_request_asked_for_twice_is_recorded_once(store):
    worker = Worker(await Session.create(store, "s", **options()))
    await worker.say("Hi.")
    once = await worker.ask()
    position = await store.position("s")
    assert await worker.ask() == once
    assert await store.position("s") == position
    await worker.answer(text("Hello."))
    assert await store.position("s") == position + 2
