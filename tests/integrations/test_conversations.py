"""The conversations of a framework are sessions, whoever calls and from wherever."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import textwrap
import threading
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import pytest

from tests.integrations.frameworks import MODEL, SMALL, TOOLS, ask, chat, history, reply, shown
from trimtab import Context, EditNotice, Usage
from trimtab.engine.log.event import CallOutcome, MessageAdded, Rewind
from trimtab.errors import CannotFit, SessionLockedByOtherProcess
from trimtab.integrations.conversations import MAX_RETRIES, Conversations, make_session_id
from trimtab.integrations.refusal import find_full_window
from trimtab.stores import open_store
from trimtab.stores.files import FileStore
from trimtab.testing import MemoryStore

TURNS = 10


class TooLong(Exception):
    """A provider's refusal, as an SDK raises it. A limit of 0 is not named."""

    def __init__(self, limit: int) -> None:
        self.status_code = 400
        said = f"This model's maximum context length is {limit} tokens. However, your messages "
        text = f"{said}resulted in {limit + 900} tokens." if limit else "Your input is too long."
        self.body = {"error": {"message": text, "code": "context_length_exceeded"}}


async def log_of(store: Any, conversation_id: str) -> list[Any]:
    return [event.body async for event in store.events(make_session_id(conversation_id))]


def test_the_view_is_that_of_a_context():
    conversations = Conversations(**SMALL)
    context = Context(**MODEL, **SMALL, recall="recall {handle}")
    view = conversations.run(conversations.fit("a", history(TURNS), **MODEL))
    context.sync(history(TURNS))
    context.request()
    assert shown(view) == shown(context.view())
    assert any(each.is_edited for each in view)
    assert view.max_output_tokens == 500


def test_a_list_that_fits_is_the_callers_own():
    conversations = Conversations()
    view = conversations.run(conversations.fit("a", history(2), **MODEL))
    assert view.is_unchanged
    assert [list(each.positions) for each in view] == [[n] for n in range(5)]


def test_threads_and_event_loops_use_one_conversation_in_turn():
    store = MemoryStore()
    conversations = Conversations(store=store, **SMALL)

    def fit(number: int) -> None:
        coroutine = conversations.fit("a", history(TURNS), **MODEL)
        _ = asyncio.run(coroutine) if number % 2 else conversations.run(coroutine)

    with ThreadPoolExecutor(6) as threads:
        assert [*threads.map(fit, range(18))] == [None] * 18
    bodies = asyncio.run(log_of(store, "a"))
    assert sum(isinstance(body, MessageAdded) for body in bodies) == len(history(TURNS))
    assert not any(isinstance(body, Rewind) for body in bodies)


def test_one_conversation_does_not_wait_for_another():
    class Slow(MemoryStore):
        async def append(self, session: str, *args: Any, **given: Any) -> None:
            if session == "slow":
                is_waiting.set()
                await asyncio.wrap_future(released)
            await super().append(session, *args, **given)

    is_waiting, released = threading.Event(), Future[None]()
    conversations = Conversations(store=Slow())
    with ThreadPoolExecutor(1) as thread:
        slow = thread.submit(
            lambda: conversations.run(conversations.fit("slow", history(1), **MODEL))
        )
        assert is_waiting.wait(30)
        conversations.run(conversations.fit("fast", history(1), **MODEL))
        assert not slow.done()
        released.set_result(None)
        assert slow.result().is_unchanged


def test_run_refuses_to_wait_for_its_own_thread():
    refused = list[str]()

    def look_at_the_report(_notice: EditNotice) -> None:
        try:
            conversations.run(conversations.report("a"))
        except RuntimeError as error:
            refused.append(str(error))

    conversations = Conversations(**SMALL, on_edit=look_at_the_report)
    conversations.run(conversations.fit("a", history(TURNS), **MODEL))
    assert "its own thread" in refused[0]


@pytest.mark.process
def test_a_forked_process_goes_on_with_what_it_inherited():
    conversations = Conversations(**SMALL)
    before = conversations.run(conversations.fit("a", history(TURNS), **MODEL))
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = os.fork()
    if not child:
        view = conversations.run(conversations.fit("a", history(TURNS), **MODEL))
        os.write(writing, json.dumps([repr(each) for each in shown(view)]).encode()[:60_000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert json.loads(said) == [repr(each) for each in shown(before)]
    conversations.run(conversations.fit("a", history(TURNS), **MODEL))  # and so does its parent


def test_edits_survive_a_restart_through_a_store(tmp_path):
    conversations = Conversations(store=tmp_path, **SMALL)
    before = conversations.run(chat(conversations, "a", TURNS))
    conversations.run(conversations.close())
    conversations = Conversations(store=str(tmp_path), **SMALL)
    after = conversations.run(conversations.fit("a", history(TURNS - 1), **MODEL))
    conversations.run(conversations.close())
    assert any(each.is_edited for each in before)
    assert shown(after) == shown(before)


def test_what_was_hidden_can_be_asked_for_after_a_restart(tmp_path):
    conversations = Conversations(store=tmp_path, **SMALL)
    conversations.run(chat(conversations, "a", TURNS))
    conversations.run(conversations.close())
    conversations = Conversations(store=tmp_path, **SMALL)
    found = conversations.run(conversations.answer("a", "search_history", {"query": "answer 0"}))
    assert "answer 0" in found
    conversations.run(conversations.close())


@pytest.mark.parametrize("form", [dict, json.dumps])
def test_an_answer_is_the_text_and_adds_nothing(form):
    store = MemoryStore()
    conversations = Conversations(store=store, **SMALL)
    view = conversations.run(chat(conversations, "a", TURNS))
    before = len(asyncio.run(log_of(store, "a")))
    handle = view[-2].handle
    text = conversations.run(conversations.answer("a", "recall", form({"handle": handle})))
    assert textwrap.indent(reply(TURNS - 2)["content"], " ") in text
    missing = conversations.run(conversations.answer("a", "recall", form({"handle": "m9999"})))
    assert "m9999" in missing
    assert len(asyncio.run(log_of(store, "a"))) == before
    with pytest.raises(ValueError, match="shell"):
        conversations.run(conversations.answer("a", "shell", form({})))


def test_an_unknown_conversation_is_said_to_be_unknown():
    conversations = Conversations()
    assert "nothing is known of conversation 'a'" in conversations.run(
        conversations.answer("a", "recall", {"handle": "m1"})
    )
    with pytest.raises(LookupError, match=r"nothing is known of conversation 'a'.*a store"):
        conversations.run(conversations.report("a"))
    conversations.run(conversations.add_reply("a", reply(0)))  # the next list has it
    assert conversations.run(conversations.retry("a", TooLong(2_000))) is False


@pytest.mark.parametrize(
    ("recall", "tools", "offer"),
    [
        (True, TOOLS, "recall m"),
        (True, [], None),  # the model could not follow it
        ("ask for {handle}", [], "ask for m"),
        (False, TOOLS, None),
    ],
)
def test_placeholders_name_the_frameworks_own_tool(recall, tools, offer):
    conversations = Conversations(**SMALL, recall=recall)
    view = conversations.run(
        conversations.fit("a", history(TURNS), **cast("Any", MODEL | {"tools": tools}))
    )
    texts = "".join(each.message.text for each in view)
    assert "older user message" in texts
    assert f" · {offer}" in texts if offer else " · " not in texts


def test_report_and_why_speak_of_the_conversation():
    conversations = Conversations(**SMALL)
    view = conversations.run(chat(conversations, "a", TURNS))
    report = conversations.run(conversations.report("a"))
    assert 0 < report.used <= report.limit == 4_000
    reason = conversations.run(conversations.why("a", view[-1].handle))
    assert reason.state == "shown"


def test_usage_belongs_to_the_call_that_it_answers():
    store = MemoryStore()
    conversations = Conversations(store=store)
    conversations.run(conversations.fit("a", history(0), **MODEL))
    usage = Usage(input=123, output=7)
    conversations.run(conversations.add_reply("a", reply(0), usage=usage))
    outcomes = [b for b in asyncio.run(log_of(store, "a")) if isinstance(b, CallOutcome)]
    assert [outcome.usage for outcome in outcomes] == [usage]


def test_a_refusal_makes_the_next_request_smaller():
    conversations = Conversations(context_window=32_000)
    first = conversations.run(conversations.fit("a", history(TURNS), **MODEL))
    assert first.is_unchanged
    assert conversations.run(conversations.retry("a", TooLong(2_500)))
    second = conversations.run(conversations.fit("a", history(TURNS), **MODEL))
    assert not second.is_unchanged
    report = conversations.run(conversations.report("a"))
    assert report.limit == 2_500
    assert report.used < 2_500


def test_replies_that_a_full_window_cut_are_billed_once():
    conversations, billed = Conversations(context_window=32_000), 0
    usage = Usage(input=3_000, output=400)
    cut = find_full_window("model_context_window_exceeded", usage)
    assert cut is not None
    while True:
        conversations.run(conversations.fit("a", [ask(0)], **MODEL))
        billed += 1
        try:
            if not conversations.run(conversations.retry("a", cut)):
                break
        except CannotFit:
            break
    # The module keeps the part of the reply that came last.
    conversations.run(conversations.add_reply("a", reply(0), usage=usage))
    report = conversations.run(conversations.report("a"))
    assert billed > 1
    assert report.total_usage == Usage(input=billed * 3_000, output=billed * 400)
    assert report.limit == 3_400


def test_two_agents_that_share_an_id_are_told(caplog):
    conversations = Conversations()
    other = [{"role": "user", "content": "I am another agent."}, reply(7), ask(7)]
    for said in (history(1), history(2), other, history(3), other):
        conversations.run(conversations.fit("ann", said, **MODEL))
    [warning] = caplog.records
    assert "conversation 'ann' differs from the list before it" in warning.getMessage()
    assert "give one of them another id" in warning.getMessage()
    assert "pass the whole history" in warning.getMessage()


def test_a_conversation_that_gets_a_new_id_in_each_run_is_told_once(caplog):
    conversations = Conversations()
    shared = history(2)[:2]  # examples that begin every conversation are nobody's history
    for number in range(9):
        conversations.run(conversations.fit(f"user {number}", [*shared, ask(number)], **MODEL))
    for number in range(2, 9):
        conversations.run(conversations.fit(f"run {number}", history(number), **MODEL))
        conversations.run(conversations.add_reply(f"run {number}", reply(number)))
        if number < 5:
            assert not caplog.records
    [warning] = caplog.records
    assert "give it the same id in each run" in warning.getMessage()


def test_the_window_that_is_assumed_of_an_unknown_model_is_told_once(caplog):
    for options in ({"context_window": 9_000}, {"model_info": {"context_window": 9_000}}, {}, {}):
        conversations = Conversations(**options)
        call = conversations.fit("a", history(1), model="house-model", dialect="openai_chat")
        conversations.run(call)
    [warning] = caplog.records
    assert "a window of 128,000 tokens is assumed" in warning.getMessage()
    assert "Set context_window to" in warning.getMessage()


@pytest.mark.parametrize("options", [{}, {"context_window": 9_000}, {"max_input_tokens": 9_000}])
def test_the_first_message_is_m2_whatever_the_framework_asks_for(options):
    conversations = Conversations(**options)
    call = conversations.fit(
        "a", history(1), **MODEL, max_output_tokens=16_000, is_output_default=True
    )
    view = conversations.run(call)
    assert view.max_output_tokens <= conversations.run(conversations.report("a")).limit // 4
    assert conversations.run(conversations.why("a", "m2")).text.endswith(history(1)[0]["content"])


def test_an_id_that_is_no_text_is_refused():
    for wrong, kind in (([], "list"), (None, "NoneType")):
        with pytest.raises(TypeError, match=rf"such as result\.conversation_id .*, not {kind}"):
            Conversations().run(Conversations().report(cast("str", wrong)))


def test_the_report_names_what_is_hidden():
    conversations = Conversations(**SMALL)
    conversations.run(conversations.fit("a", history(TURNS), **MODEL))
    report = conversations.run(conversations.report("a"))
    assert report.hidden_handles.keys() == report.hidden.keys() != set()
    for handles in report.hidden_handles.values():
        for handle in handles:
            reason = conversations.run(conversations.why("a", handle))
            assert reason.state not in ("shown", "undone")


def test_a_message_that_was_edited_by_hand_is_no_new_call():
    conversations = Conversations(**SMALL)
    conversations.run(chat(conversations, "a", 4))
    edited = history(4)
    edited[2] = ask(99)
    conversations.run(conversations.fit("a", edited, **MODEL))
    assert conversations.run(conversations.report("a")).calls == 5
    conversations.run(conversations.fit("a", history(4), **MODEL))
    assert conversations.run(conversations.report("a")).calls == 6


def test_requests_that_hardly_get_smaller_are_sent_a_few_times_only():
    conversations = Conversations(context_window=32_000)
    limits = iter(range(6_000, 4_000, -50))

    def refuse(messages: list[dict[str, Any]]) -> bool:
        conversations.run(conversations.fit("a", messages, **MODEL))
        return conversations.run(conversations.retry("a", TooLong(next(limits))))

    told = [refuse(history(TURNS)) for _ in range(12)]
    assert MAX_RETRIES < told.index(False) < 10
    assert refuse(history(TURNS + 1))  # another list has its own chances


@pytest.mark.parametrize("window", [3_000, 0])
def test_refusals_without_numbers_end_at_what_fits_or_say_that_nothing_does(window):
    conversations, sizes = Conversations(), list[int]()
    question = [{"role": "user", "content": " ".join(f"word{n}" for n in range(20_000))}]

    def send() -> bool:
        view = conversations.run(conversations.fit("a", question, **MODEL))
        sizes.append(sum(len(str(each.message)) for each in view) // 4)
        return sizes[-1] <= window

    while not send():
        try:
            assert conversations.run(conversations.retry("a", TooLong(0)))
        except CannotFit:
            break
    assert len(sizes) < 12
    assert (0 < sizes[-1] <= window) if window else sizes[-1] < sizes[0] // 8


def test_an_error_of_another_kind_is_not_answered():
    conversations = Conversations()
    conversations.run(conversations.fit("a", history(1), **MODEL))
    assert conversations.run(conversations.retry("a", ValueError("no"))) is False
    assert conversations.run(conversations.fit("a", history(1), **MODEL)).is_unchanged


def test_what_can_never_fit_is_said():
    conversations = Conversations(context_window=600, max_output_tokens=100)
    tools = [{"name": f"t{n}", "input_schema": {}, "description": "x" * 999} for n in range(9)]
    with pytest.raises(CannotFit):
        conversations.run(conversations.fit("a", [ask(0)], **cast("Any", MODEL | {"tools": tools})))


def test_conversations_that_were_not_used_for_long_are_forgotten():
    conversations = Conversations(max_conversations=2, **SMALL)
    for name in ("a", "b", "a", "c"):
        conversations.run(conversations.fit(name, history(TURNS), **MODEL))
    for name, is_known in (("a", True), ("b", False), ("c", True)):
        text = conversations.run(conversations.answer(name, "recall", {"handle": "m2"}))
        assert ("nothing is known" not in text) is is_known
    again = conversations.run(conversations.fit("b", history(TURNS), **MODEL))
    assert any(each.is_edited for each in again)  # it is built again from the list


def test_a_store_keeps_what_leaves_the_memory(tmp_path):
    conversations = Conversations(store=tmp_path, max_conversations=1, **SMALL)
    before = conversations.run(chat(conversations, "a", TURNS))
    conversations.run(conversations.fit("b", history(1), **MODEL))
    after = conversations.run(conversations.fit("a", history(TURNS - 1), **MODEL))
    assert shown(after) == shown(before)
    conversations.run(conversations.close())


def test_a_session_that_somebody_deleted_begins_again():
    store = MemoryStore()
    conversations = Conversations(store=store)
    conversations.run(conversations.fit("a", history(1), **MODEL))
    conversations.run(store.delete("a"))
    assert conversations.run(conversations.fit("a", history(1), **MODEL)).is_unchanged


def test_processes_use_a_conversation_of_one_folder_in_turn(tmp_path):
    # To a lock, another store on the folder is another process.
    workers = [Conversations(store=FileStore(tmp_path)) for _ in range(2)]
    for number in range(4):
        worker = workers[number % 2]
        worker.run(worker.fit("a", history(number), **MODEL))
        worker.run(worker.add_reply("a", reply(number)))
    bodies = asyncio.run(log_of(FileStore(tmp_path), "a"))
    assert sum(isinstance(body, MessageAdded) for body in bodies) == 8
    assert not any(isinstance(body, Rewind) for body in bodies)


def test_a_process_that_writes_is_waited_for():
    class Busy(MemoryStore):
        refusals = 2

        async def append(self, *args: Any, **given: Any) -> None:
            if self.refusals:
                self.refusals -= 1
                raise SessionLockedByOtherProcess("by another")
            await super().append(*args, **given)

    conversations = Conversations(store=Busy())
    assert conversations.run(conversations.fit("a", history(1), **MODEL)).is_unchanged


def test_agents_with_one_folder_continue_each_others_conversations(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = Conversations(store="sessions", **SMALL)
    large = Conversations(store=tmp_path / "sessions", context_window=32_000)
    small.run(chat(small, "a", TURNS))
    quick: dict[str, Any] = MODEL | {"system": "You are quick."}
    small.run(large.fit("a", history(TURNS), **quick))
    small.run(large.add_reply("a", reply(TURNS)))
    assert small.run(large.report("a")).limit == 32_000
    small.run(small.fit("a", history(TURNS + 1), **MODEL))
    assert small.run(small.report("a")).limit == 4_000  # each has its own options
    bodies = asyncio.run(log_of(FileStore("sessions"), "a"))
    assert not any(isinstance(body, Rewind) for body in bodies)
    small.run(small.close())
    large.run(large.fit("a", history(TURNS + 1), **MODEL))  # it is still open for the other
    large.run(large.close())


@pytest.mark.parametrize("moment", ["between calls", "in a call"])
def test_a_folder_that_somebody_deleted_begins_again(tmp_path, caplog, moment):
    conversations = Conversations(store=tmp_path / "sessions")
    conversations.run(conversations.fit("a", history(0), **MODEL))
    if moment == "in a call":
        shutil.rmtree(tmp_path / "sessions")
    conversations.run(conversations.add_reply("a", reply(0)))
    if moment == "between calls":
        shutil.rmtree(tmp_path / "sessions")
    with caplog.at_level(logging.WARNING):
        for turns in (1, 2):
            view = conversations.run(conversations.fit("a", history(turns), **MODEL))
            assert len(view) == 2 * turns + 1
    told = [each.getMessage() for each in caplog.records]
    assert [f"conversation {'a'!r} was deleted" in text for text in told] == [True]
    assert len(asyncio.run(log_of(FileStore(tmp_path / "sessions"), "a"))) > 5
    conversations.run(conversations.close())


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"gaol": "cost"}, TypeError, "no option 'gaol'; did you mean 'goal'"),
        ({"colour": 1}, TypeError, "'colour'; it has policy, goal.*the framework's own settings$"),
        ({"params": {"temperature": 0}}, TypeError, "'params'.*set it in the framework"),
        ({"system": "x"}, TypeError, "'system'.*set it in the framework"),
        ({"goal": "cheap"}, ValueError, "goal 'cheap'; choose one of"),
        ({"policy": "agressive"}, ValueError, "policy 'agressive'"),
        ({"summaries": "manual"}, ValueError, "summaries"),
        ({"limits": {"max_result": 1}}, ValueError, "max_result"),
        ({"context_window": "8k"}, TypeError, "context_window is '8k'"),
        ({"context_window": 0}, ValueError, "context_window is 0; it must be more than 0"),
        ({"on_edit": 5}, TypeError, "on_edit is 5"),
        (
            {"store": ""},
            ValueError,
            "the store's location is empty; it must be a folder such as 'sessions'",
        ),
        ({"store": 5}, TypeError, "store is 5; it must be a folder such as 'sessions'"),
        ({"store": "mysql://x/y"}, ValueError, "a store is a folder, or a PostgreSQL"),
    ],
    ids=str,
)
def test_a_wrong_option_is_refused_at_once(options, error, words):
    with pytest.raises(error, match=words):
        Conversations(**options)


def test_every_right_option_is_taken():
    Conversations(
        policy="auto",
        goal="cost",
        limits={"max_tool_result_tokens": 4_000},
        context_window=2_000_000,
        max_input_tokens=1_000_000,
        max_output_tokens=200_000,  # more than some models write
        recall="look up {handle}",
        model_info={"context_window": 2_000_000},
        cache="1h",
        tokenizer=len,
        redact=str.strip,
        on_edit=print,
    )


HOSTILE = [
    "../../x",
    "..",
    ".",
    "/etc/passwd",
    "a/b",
    "A",
    "a\x00b",
    "",
    " ",
    "a" * 10_000,
    "a" * 10_000 + "b",
    "\ud800",
    "é",
    "e\u0301",
    "会話",
    "con",
    "~x",
    make_session_id("A"),
    make_session_id(""),
]


def test_any_text_is_an_id_and_no_two_are_one_session(tmp_path):
    async def keep() -> None:
        store = await open_store(str(tmp_path / "sessions"))
        conversations = Conversations(store=store)
        for number, name in enumerate(HOSTILE):
            await conversations.fit(name, [ask(number)], **MODEL)
        for number, name in enumerate(HOSTILE):
            view = await conversations.fit(name, [ask(number)], **MODEL)
            assert view.is_unchanged, name
            assert not any(isinstance(b, Rewind) for b in await log_of(store, name)), name
        await conversations.close()

    asyncio.run(keep())
    names = [make_session_id(name) for name in HOSTILE]
    assert len({name.lower() for name in names}) == len(HOSTILE)
    assert all(name.isascii() and len(name) < 200 for name in names)
    assert [path.name for path in tmp_path.iterdir()] == ["sessions"]
    with pytest.raises(TypeError, match="must be a text"):
        make_session_id(7)  # pyright: ignore[reportArgumentType] - on purpose


@pytest.mark.postgres
def test_postgresql_is_opened_on_the_loop_of_the_conversations(migrated):
    for turns in (3, 6):
        conversations = Conversations(store=migrated, **SMALL)
        asyncio.run(chat(conversations, "../x", turns))
        conversations.run(conversations.close())


def test_work_on_a_session_waits_for_others_and_an_unknown_one_is_an_error():
    conversations = Conversations(**SMALL)
    conversations.run(conversations.fit("a", history(2), **MODEL))

    async def count(session: Any) -> int:
        return session.window.visible_messages

    assert conversations.run(conversations.use_session("a", count)) > 1
    with pytest.raises(LookupError, match="nothing is known"):
        conversations.run(conversations.use_session("b", count))


def test_a_conversation_without_a_store_is_gone_if_it_is_forgotten():
    conversations = Conversations(**SMALL)
    conversations.run(conversations.fit("a", history(2), **MODEL))
    conversations.run(conversations.forget("a"))
    conversations.run(conversations.forget("b"))
    with pytest.raises(LookupError, match="nothing is known"):
        conversations.run(conversations.report("a"))


def test_options_of_one_conversation_come_before_those_of_all():
    conversations = Conversations(**SMALL)
    conversations.run(
        conversations.fit("a", history(2), **MODEL, options={"context_window": 9_999})
    )
    conversations.run(conversations.fit("b", history(2), **MODEL))
    limits = [conversations.run(conversations.report(name)).limit for name in ("a", "b")]
    assert limits == [9_999, SMALL["context_window"]]
