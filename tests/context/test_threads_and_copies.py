"""Threads that use one context wait for each other, and a context can be copied."""

import copy
import json
import sys
import threading

import pytest

from tests.conversations import user
from trimtab import Context
from trimtab.policies import Decision

FILLER = "lorem ipsum dolor sit amet "


def grown(rounds=20, **options):
    context = Context("claude-sonnet-4-5", context_window=8_000, clock=lambda: 1.0, **options)
    for number in range(rounds):
        context.add(user(f"{number}: {FILLER * 60}"))
        context.request()
        context.add({"role": "assistant", "content": f"Noted {number}."})
    return context


def test_a_second_thread_waits_for_the_first():
    entered, leave = threading.Event(), threading.Event()

    def slow_policy(window, budget):
        entered.set()
        leave.wait(10)
        return Decision()

    context = Context("gpt-4o", policy=slow_policy)
    context.add(user("hi"))
    asking = threading.Thread(target=context.request)
    asking.start()
    assert entered.wait(10)
    before, done = context.window.seq, threading.Event()
    verbs = {
        "add": lambda: context.add(user("me too")),
        "sync": lambda: context.sync([user("hi")]),
        "configure": lambda: context.configure(model="gpt-4o-mini"),
        "view": context.view,
        "dump": context.dump,
        "report": context.report,
        "recall": lambda: context.recall("m2"),
        "search": lambda: context.search("hi"),
        "why": lambda: context.why("m2"),
    }
    ended = []

    def call(name):
        verbs[name]()
        ended.append(name)
        if len(ended) == len(verbs):
            done.set()

    threads = [threading.Thread(target=call, args=(name,)) for name in verbs]
    for thread in threads:
        thread.start()
    try:
        assert not done.wait(0.05)
        assert ended == []
        assert context.window.seq == before
    finally:
        leave.set()
        for thread in (asking, *threads):
            thread.join(10)
    assert sorted(ended) == sorted(verbs)


def test_threads_at_once_lose_nothing_and_never_damage_the_log():
    context, errors = grown(3), []
    switch = sys.getswitchinterval()

    def keep_going(number):
        try:
            for turn in range(30):
                context.add(user(f"thread {number}, turn {turn}"))
                context.request()
                context.report()
                context.search("turn")
        except Exception as error:  # noqa: BLE001 - there must be none
            errors.append(error)

    threads = [threading.Thread(target=keep_going, args=(number,)) for number in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert errors == []
    log = "\n".join(context.dump())
    assert all(f'thread {n}, turn {t}"' in log for n in range(4) for t in range(30))
    loaded = Context.load(context.dump(), clock=lambda: 1.0)
    assert loaded.request() == context.request()


def test_a_hook_may_wait_for_a_thread_that_uses_the_context():
    reports = []

    def look(notice):
        thread = threading.Thread(target=lambda: reports.append(context.report()), daemon=True)
        thread.start()
        thread.join(10)

    context = Context("gpt-4o", policy="full", on_edit=look)
    for number in range(20):
        context.add(user(f"{number}: {FILLER * 60}"))
        context.add({"role": "assistant", "content": f"Noted {number}."})
    assert context.compact().edits
    assert reports


def test_one_thread_after_another_is_no_misuse():
    context = grown(1)
    for number in range(5):
        thread = threading.Thread(target=context.add, args=(user(f"thread {number}"),))
        thread.start()
        thread.join()
    assert "thread 4" in json.dumps(context.request())


def test_a_request_is_asked_for_again_after_a_call_that_failed():
    context = Context("gpt-4o")
    context.add(user("hi"))
    first = context.request()
    assert context.request() == first
    context.add(user("are you there?"))
    context.request()
    context.fail("timeout")
    assert context.request()["messages"][-1]["role"] == "user"


@pytest.mark.parametrize("policy", ["auto", "compact", "rolling", "layered"])
def test_a_copy_is_equal_and_goes_its_own_way(policy):
    context = grown(policy=policy)
    context.add(user("And now?"))
    twin = copy.deepcopy(context)
    assert twin.dump() == context.dump()
    assert twin.report() == context.report()
    assert twin.request() == context.request()
    assert twin.dump() == context.dump()
    before, asked = context.dump(), context.request()
    twin.add({"role": "assistant", "content": "Only here."})
    twin.add(user(FILLER * 200))
    twin.configure(system="Other.")
    twin.request()
    twin.erase("m2")
    assert context.dump() == before
    assert context.request() == asked
    context.add({"role": "assistant", "content": "Only there."})
    assert "Only there." not in "".join(twin.dump())


def test_a_copy_of_a_synced_list_takes_the_list_on():
    messages = [user("hi"), {"role": "assistant", "content": "Hello."}, user("more")]
    context = Context("gpt-4o")
    context.sync(messages)
    context.request()
    twin = copy.deepcopy(context)
    messages += [{"role": "assistant", "content": "Yes."}, user("and more")]
    twin.sync(messages)
    context.sync(messages)
    assert twin.request() == context.request()


def test_a_context_with_functions_of_its_own_is_copied_with_them():
    def quiet(window, budget):
        return Decision()

    heard = []
    context = Context("gpt-4o", policy=quiet, tokenizer=len, redact=str.upper, on_edit=heard.append)
    context.add(user("hi"))
    context.request()
    twin = copy.deepcopy(context)
    twin.add(user("again"))
    assert "AGAIN" in json.dumps(twin.request())
    assert twin.options.policy is quiet
