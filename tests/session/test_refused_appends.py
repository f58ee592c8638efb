"""Concurrency and crashes at each append of each verb: nothing is lost, and nothing comes twice.

Each append of a verb is refused once, because another writer was faster (compare-and-swap, retry),
or cut off by a store that is gone (timeout, crash). The verb then ends as if it had come second.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any, Literal

import pytest

from tests import pictures
from tests.agents import Clock
from tests.conversations import prose, user
from tests.session.failing_stores import Wrapped
from tests.session.session_user import Worker, options, reply, text, tool_use
from trimtab.engine.log.event import (
    Edit,
    Event,
    EventBody,
    SummaryAttempt,
    TurnProgressRecord,
    dump_canonical_json,
)
from trimtab.errors import NoReplyDue, StoreUnavailable
from trimtab.policies import Budget, Decision, WindowView
from trimtab.session import Session
from trimtab.stores.base import Store
from trimtab.testing import MemoryStore

pytestmark = pytest.mark.anyio

FOREIGN = TurnProgressRecord(state="tool_started", epoch=0, key="of another writer")
Happening = Literal["refused", "before", "after"]
"""What happens to an append: another writer is faster, or the store is gone before or after it has
stored the events."""
Verb = Callable[[Session], Awaitable[Any]]


class Disturbing(Wrapped):
    """A store that disturbs one append, and counts all of them."""

    def __init__(self, store: Store, disturbed: int = 0, happening: Happening = "refused") -> None:
        super().__init__(store)
        self.disturbed = disturbed
        self.happening = happening
        self.appends = 0

    async def append(
        self, session: str, events: Sequence[Event], *, epoch: int | None = None
    ) -> None:
        self.appends += 1
        is_disturbed = self.appends == self.disturbed
        if is_disturbed and self.happening == "refused":
            await add_foreign_event(self.inner, session)
        if is_disturbed and self.happening == "before":
            raise StoreUnavailable("gone before it has stored")
        await super().append(session, events, epoch=epoch)
        if is_disturbed and self.happening == "after":
            raise StoreUnavailable("gone after it has stored")


async def add_foreign_event(store: Store, session: str) -> None:
    seq = await store.position(session) + 1
    await store.append(session, [Event(seq=seq, at=2_000.0, body=FOREIGN)])


LISTED = [user("a list"), {"role": "assistant", "content": "Yes."}, user("and its end")]
REPLY = reply(99, text("The answer."))
EDIT = Edit(op="drop", first=2, last=2, why="not needed")


async def summarise(session: Session) -> None:
    attempt = SummaryAttempt(first=2, last=4, outcome="failed")
    await session.recorder.record_summary_attempt(attempt)


async def recall_picture(session: Session) -> str:
    """Add a result that cannot carry what was asked for, so that it is revealed."""
    return await session.answer(tool_use("r1", "recall", handle="m2"))


VERBS: dict[str, tuple[str, Verb]] = {
    "add a message": ("idle", lambda s: s.add(user("And now?"))),
    "add with an idempotency key": ("idle", lambda s: s.add(user("And now?"), key="k")),
    "add a reply": ("asked", lambda s: s.add(REPLY)),
    "add a reply that ends the turn": (
        "asked",
        lambda s: s.recorder.add_reply(REPLY, ends_turn=lambda _: True),
    ),
    "add a redacted message": ("redacting", lambda s: s.add(user("And now?"))),
    "request": ("open call", lambda s: s.request()),
    "fail with a rejected picture": ("asked", lambda s: s.fail("rejected", message="picture")),
    "record a failure": ("asked", lambda s: s.recorder.record_failure("timeout")),
    "sync a list": ("idle", lambda s: s.sync(LISTED)),
    "configure": ("idle", lambda s: s.configure(system="Be brief.")),
    "compact": ("long", lambda s: s.compact()),
    "undo": ("idle", lambda s: s.undo()),
    "rewind": ("idle", lambda s: s.rewind("m2")),
    "pin": ("idle", lambda s: s.pin("m2")),
    "reveal": ("idle", lambda s: s.reveal("m2")),
    "answer a recall call": ("recalling", recall_picture),
    "claim a turn with a message": (
        "idle",
        lambda s: s.recorder.claim_for(user("And now?"), "k"),
    ),
    "end a turn": ("idle", lambda s: s.recorder.end_turn()),
    "apply a policy": (
        "idle",
        lambda s: s.recorder.apply_policy(lambda *_: Decision(edits=(EDIT,))),
    ),
    "record a summary attempt": ("idle", summarise),
}
"""By name: the situation in which a verb is called, and the call."""
APPENDS = {"request": 3, "fail with a rejected picture": 2}
"""How many appends a verb makes, if they are more than one."""
REPEATABLE = {"add with an idempotency key", "add a reply", "sync a list", "configure"}
"""Verbs that may be called again after a crash, whether it came before or after the append."""


@cache
def _logs() -> dict[str, list[Event]]:
    return {}


async def log_of(situation: str) -> list[Event]:
    """The log of a conversation up to a situation."""
    if situation not in _logs():
        store = MemoryStore()
        clock = Clock()
        own: dict[str, Any] = {"policy": "layered", "limits": {"max_history_tokens": 300}}
        if situation in ("long", "asked"):
            own = {"policy": "full", "context_window": 100_000}
        if situation == "recalling":
            own = {"policy": "full", "model": "gpt-4o", "dialect": "openai_chat"}
        session = await Session.create(store, "s", **options(clock=clock) | own)
        worker = Worker(session, clock)
        data = pictures.text(pictures.png())
        source = {"type": "base64", "media_type": "image/png", "data": data}
        image = {"type": "image", "source": source}
        await session.add({"role": "user", "content": [image, text("Look.")]})
        await worker.ask()
        await worker.answer(text("I see."))
        for _ in range(8 if situation == "long" else 2):
            await worker.turn(size=8_000 if situation == "long" else 600)
        if situation in ("asked", "open call", "recalling"):
            await worker.say(prose(1_600, "Once more."))
            await worker.ask()
        if situation == "open call":
            await worker.answer(text(prose(6_000)), tool_use("c99"))
            await worker.say("Never mind.")
        if situation == "recalling":
            await worker.answer(tool_use("r1", "recall", handle="m2"))
        _logs()[situation] = [event async for event in store.events("s")]
    return _logs()[situation]


async def opened(store: Store, name: str, situation: str, *, is_second: bool = False) -> Session:
    await store.append(name, await log_of(situation))
    if is_second:
        await add_foreign_event(store, name)
    redact = (lambda said: said.replace("now", "[...]")) if situation == "redacting" else None
    return await Session.open(store, name, clock=Clock(), redact=redact)


async def look(session: Session) -> tuple[list[str], str, str]:
    """What was recorded, without the foreign event; what the model sees; what a new process
    sees."""
    events = [event async for event in session.store.events(session.id)]
    kinds = [_name(event.body) for event in events if event.body != FOREIGN]
    other = await Session.open(
        session.store, session.id, clock=Clock(), redact=session.options.redact
    )
    return kinds, await show(session), await show(other)


def _name(body: EventBody) -> str:
    kind = type(body).__name__
    return f"{kind} {body.op} {body.why}" if isinstance(body, Edit) else kind


async def show(session: Session) -> str:
    try:
        preview = await session.preview()
    except NoReplyDue:
        return "nothing"
    said = [logged.message.text async for logged in session.messages()]
    return dump_canonical_json([preview.request, said])


def without_positions(value: Any) -> str:
    """A verb's result; positions and handles differ by the foreign event."""
    return "".join(char for char in json.dumps(value, default=repr) if not char.isdigit())


async def run_undisturbed(store: Store, name: str, verb: str, *, is_second: bool) -> Any:
    situation, call = VERBS[verb]
    counting = Disturbing(store)
    session = await opened(counting, name, situation, is_second=is_second)
    counting.appends = 0
    result = await call(session)
    return counting.appends, without_positions(result), await look(session)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.soak_on("postgres", "files")
async def test_a_verb_whose_append_is_refused_ends_as_if_it_had_come_second(place, verb):
    store = await place.open()
    situation, call = VERBS[verb]
    appends, result, seen = await run_undisturbed(store, "second", verb, is_second=True)
    assert appends == APPENDS.get(verb, 1)
    for disturbed in range(1, appends + 1):
        disturbing = Disturbing(store)
        session = await opened(disturbing, f"s{disturbed}", situation)
        disturbing.appends = 0
        disturbing.disturbed = disturbed
        assert without_positions(await call(session)) == result
        assert disturbing.appends == appends + 1
        assert await look(session) == seen
    await store.close()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("happening", ["before", "after"])
@pytest.mark.soak_on("postgres", "files")
async def test_a_verb_whose_append_is_cut_off_is_there_whole_or_not_at_all(place, verb, happening):
    store = await place.open()
    situation, call = VERBS[verb]
    appends, _, seen = await run_undisturbed(store, "whole", verb, is_second=False)
    for disturbed in range(1, appends + 1):
        disturbing = Disturbing(store)
        session = await opened(disturbing, f"s{disturbed}", situation)
        disturbing.appends = 0
        disturbing.disturbed = disturbed
        disturbing.happening = happening
        with pytest.raises(StoreUnavailable):
            await call(session)
        has_stored_all = happening == "after" and disturbed == appends
        is_repeated = (
            verb in REPEATABLE
            or (happening == "before" and disturbed == 1)
            or (verb == "request" and not has_stored_all)
        )
        await session.refresh()
        if is_repeated:
            await call(session)
        if is_repeated or has_stored_all:
            assert await look(session) == seen
        else:
            kinds, shown, shown_elsewhere = await look(session)
            assert kinds == seen[0][: len(kinds)]
            assert shown == shown_elsewhere
    await store.close()


async def test_a_function_that_was_configured_is_known_after_a_timeout_of_the_store():
    """A policy function is not in the log, so only the process that has configured it knows it."""
    disturbing = Disturbing(MemoryStore())
    session = await opened(disturbing, "s", "idle")
    disturbing.appends = 0
    disturbing.disturbed = 1
    disturbing.happening = "after"

    def hide_nothing(window: WindowView, budget: Budget) -> Decision:
        return Decision()

    with pytest.raises(StoreUnavailable):
        await session.configure(policy=hide_nothing)
    await session.add(user("And now?"))
    assert session.options.policy is hide_nothing
    assert await session.request()
