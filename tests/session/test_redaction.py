"""What must not be kept is taken out before it is an event: the model does not see it either."""

import json
import re
from typing import Any

import pytest

from tests.conversations import user
from tests.replies import DIALECTS, MODELS, REPLY, stream
from tests.session.find_text_in_store import places_of
from tests.session.session_user import Worker, bodies, options, reply, text, tool_result, tool_use
from trimtab import Context, run_turn
from trimtab.engine.log.event import MessageAdded, Rewind, dump_canonical_json
from trimtab.engine.log.redaction import redactor
from trimtab.session import Session
from trimtab.session.events import TextDelta
from trimtab.session.interruption import record_partial_reply
from trimtab.session.session import open_session_to_erase
from trimtab.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

EMAIL = "jane.q@example.org"
ACCOUNT = "ACC-778899"
REDACT = redactor("email", re.compile(r"ACC-\d+"))


async def test_what_is_redacted_is_in_no_store_and_the_model_does_not_see_it(place):
    store = await place.open()
    worker = Worker(await Session.create(store, "s", **options(redact=REDACT)))
    session = worker.session
    await worker.say(f"Write to {EMAIL} about {ACCOUNT}.")
    first = await worker.ask()
    await session.add(reply(1, text(f"To {EMAIL}:"), tool_use("c1", to=EMAIL, about=[ACCOUNT, 5])))
    await session.add(tool_result("c1", f"sent to {EMAIL}"))
    second = await worker.ask()
    for request in (first, second):
        assert EMAIL not in dump_canonical_json(request)
        assert ACCOUNT not in dump_canonical_json(request)
    assert "Write to [redacted: email] about [redacted]." in dump_canonical_json(first)
    blocks = second["messages"][1]["content"]
    assert blocks[0]["text"] == "To [redacted: email]:"
    assert blocks[1]["input"] == {"to": "[redacted: email]", "about": ["[redacted]", 5]}
    await session.recorder.checkpoint()
    for raw in (EMAIL, ACCOUNT):
        assert await places_of(raw, place, store) == []
    assert await places_of("[redacted: email]", place, store) != []
    assert await session.search(EMAIL.split("@", maxsplit=1)[0]) == "(nothing found)"
    await store.close()


async def test_a_redaction_is_given_again_when_a_session_is_opened(place):
    store = await place.open()
    session = await Session.create(store, "s", **options(redact=REDACT))
    await session.add(user(EMAIL))
    with_it = await Session.open(store, "s", redact=REDACT)
    await with_it.add(user(EMAIL))
    assert await places_of(EMAIL, place, store) == []
    twin = await with_it.fork("t")
    await twin.add(user(EMAIL))
    await with_it.rewind(1)
    await with_it.add(user(EMAIL))
    assert await places_of(EMAIL, place, store) == []
    await store.close()


@pytest.mark.parametrize(
    ("name", "function"), [("redact", REDACT), ("tokenizer", len)], ids=["redact", "tokenizer"]
)
async def test_a_session_does_not_open_without_the_function_that_it_was_made_with(
    store, name, function
):
    given: dict[str, Any] = {name: function}
    session = await Session.create(store, "s", **options(**given))
    await session.add(user(EMAIL))
    with pytest.raises(ValueError, match=f"again, as {name}=f"):
        await Session.open(store, "s")
    with pytest.raises(ValueError, match=f"again, as {name}=f"):
        await Session.open_or_create(store, "s", **options())
    assert await store.position("s") == 2
    opened = await Session.open(store, "s", **given)
    await opened.add(user("It is kept."))
    # To stop on purpose is said once, and is in the log.
    none: dict[str, Any] = {name: None}
    await opened.configure(**none)
    await Session.open(store, "s")


async def test_who_creates_or_opens_may_name_none_to_stop(store):
    await Session.create(store, "s", **options(redact=REDACT))
    session = await Session.open_or_create(store, "s", **options(redact=None))
    await session.add(user(EMAIL))
    assert (await Session.open(store, "s")).options.redact is None


async def test_a_redaction_that_begins_later_is_in_the_log_as_soon_as_it_is_used(store):
    await Session.create(store, "s", **options())
    session = await Session.open(store, "s", redact=REDACT)
    assert await session.add(user(EMAIL)) == "m3"
    assert await session.add(user(EMAIL)) == "m4"
    with pytest.raises(ValueError, match="again, as redact=f"):
        await Session.open(store, "s")
    # What is undone does not end it.
    await session.rewind(1)
    await session.add(user(EMAIL))
    with pytest.raises(ValueError, match="again, as redact=f"):
        await Session.open(store, "s")


async def test_a_session_says_so_if_somebody_else_begins_to_redact(store):
    session = await Session.create(store, "s", **options())
    await (await Session.open(store, "s")).configure(redact=REDACT)
    with pytest.raises(ValueError, match="load the log again with redact="):
        await session.add(user(EMAIL))
    assert EMAIL not in str(await bodies(store, "s"))


@pytest.mark.parametrize(
    ("name", "function"), [("redact", REDACT), ("tokenizer", len)], ids=["redact", "tokenizer"]
)
def test_a_context_does_not_load_without_the_function_that_it_was_made_with(name, function):
    given: dict[str, Any] = {name: function}
    lines = Context("gpt-4o", **given).dump()
    with pytest.raises(ValueError, match=f"again, as {name}=f"):
        Context.load(lines)
    assert Context.load(lines, **given).dump() == lines


async def test_what_is_opened_to_erase_takes_no_new_text(store):
    session = await Session.create(store, "s", **options(redact=REDACT, tokenizer=len))
    await session.add(user("Forget me."))
    opened = await open_session_to_erase(store, "s")
    with pytest.raises(RuntimeError, match="takes no new text"):
        await opened.add(user(EMAIL))
    await opened.erase("m2")
    assert "Forget me." not in str(await bodies(store, "s"))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_streamed_reply_is_redacted_though_it_came_in_pieces(store, dialect):
    async def sent():
        for event in stream(dialect, f"Ask {EMAIL} now."):
            yield event

    given: dict[str, Any] = {"model": MODELS[dialect], "dialect": dialect, "redact": REDACT}
    session = await Session.create(store, "s", **given)
    await session.add(user("Whom?"))
    await session.request(stream=True)
    async for _ in session.watch(sent()):
        pass
    said = [body for body in await bodies(store, "s") if isinstance(body, MessageAdded)]
    assert said[-1].message.text == "Ask [redacted: email] now."
    assert EMAIL not in str(said)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_volatile_text_is_redacted_before_it_is_stored_and_sent(store, dialect):
    given: dict[str, Any] = {"model": MODELS[dialect], "dialect": dialect, "redact": REDACT}
    session = await Session.create(store, "s", **given)
    await session.add(user("Whom?"))
    request = await session.request(volatile=f"Signed in: {EMAIL}")
    assert "Signed in: [redacted: email]" in dump_canonical_json(request)
    assert EMAIL not in dump_canonical_json(request) + str(await bodies(store, "s"))
    # Asked again, it is the same call.
    count = await store.position("s")
    assert await session.request(volatile=f"Signed in: {EMAIL}") == request
    assert await store.position("s") == count


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_reply_of_an_sdk_is_redacted_in_every_dialect(store, dialect):
    given: dict[str, Any] = {"model": MODELS[dialect], "dialect": dialect, "redact": REDACT}
    session = await Session.create(store, "s", **given)
    await session.add(user("Whom?"))
    await session.request()
    await session.add(REPLY[dialect](f"Ask {EMAIL}.", calls=("c1",)))
    assert EMAIL not in str(await bodies(store, "s"))
    assert EMAIL not in dump_canonical_json(await session.request())


def test_a_history_that_comes_again_is_matched_though_it_was_redacted():
    context = Context("gpt-4o", redact=REDACT)
    history = [
        {"role": "user", "content": f"I am {EMAIL}."},
        {"role": "assistant", "content": "Hello."},
    ]
    context.sync(history)
    context.sync([*history, {"role": "user", "content": "Who am I?"}])
    bodies = [event.body for event in context.events]
    assert not [body for body in bodies if isinstance(body, Rewind)]
    assert [body.message.text for body in bodies if isinstance(body, MessageAdded)] == [
        *("I am [redacted: email].", "Hello.", "Who am I?")
    ]


def test_a_hook_is_asked_last_and_once_for_each_text():
    asked: list[str] = []

    def hook(text: str) -> str:
        asked.append(text)
        return text.replace("Rosebud", "[name]")

    context = Context("gpt-4o", redact=redactor("email", hook=hook))
    history = [{"role": "user", "content": f"Rosebud is {EMAIL}."}]
    context.add(history[0])
    assert asked == ["Rosebud is [redacted: email]."]
    assert json.loads(context.dump()[-1])["message"]["parts"][0]["text"] == (
        "[name] is [redacted: email]."
    )
    context.sync(history)
    assert [type(event.body) for event in context.events].count(MessageAdded) == 1


def test_what_a_history_adds_is_redacted_once():
    context = Context("gpt-4o", redact=lambda text: f"<{text}>")
    for _ in range(2):
        context.sync([{"role": "user", "content": "Hello."}])
    bodies = [event.body for event in context.events]
    assert [body.message.text for body in bodies if isinstance(body, MessageAdded)] == ["<Hello.>"]
    assert not [body for body in bodies if isinstance(body, Rewind)]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_pieces_of_a_reply_are_redacted_before_anybody_hears_them(memory, dialect):
    told: list[Any] = []
    whole = f"{'and so on ' * 100}Ask {EMAIL} now. {'and so on ' * 100}"
    given: dict[str, Any] = {"model": MODELS[dialect], "dialect": dialect, "redact": REDACT}
    session = await Session.create(memory, "s", **given)
    provider = ScriptedProvider(dialect, [whole])
    await run_turn(session, provider, message=user("Whom?"), on_event=told.append)
    pieces = [event.text for event in told if isinstance(event, TextDelta)]
    assert "".join(pieces) == REDACT(whole)
    assert EMAIL not in str(told)


async def test_a_reply_that_is_stopped_is_redacted_when_it_is_told(memory):
    told: list[Any] = []
    session = await Session.create(memory, "s", **options(redact=REDACT))
    await session.add(user("Whom?"))
    await session.request()
    await record_partial_reply(session, f"Ask {EMAIL} ", told.append)
    assert [event.message.text for event in told] == ["Ask [redacted: email]"]
