"""A context belongs to one thread at a time, and can be copied."""

import copy
import json
import sys
import threading

import pytest

from tests.conversations import user
from trimtab import Context, ContextInUse, Decision, TrimtabError

FILLER = "lorem ipsum dolor sit amet "


def grown(rounds=20, **options):
    context = Context("claude-sonnet-4-5", context_window=8_000, clock=lambda: 1.0, **options)
    for number in range(rounds):
        context.add(user(f"{number}: {FILLER * 60}"))
        context.request()
        context.add({"role": "assistant", "content": f"Noted {number}."})
    return context


def test_a_second_thread_is_refused_in_words_and_changes_nothing():
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
    before = context.dump()
    try:
        verbs = {
            "add": lambda: context.add(user("me too")),
            "request": context.request,
            "compact": context.compact,
            "configure": lambda: context.configure(model="gpt-4o-mini"),
            "sync": lambda: context.sync([user("other")]),
            "fail": lambda: context.fail("timeout"),
            "pin": lambda: context.pin("m2"),
            "undo": context.undo,
            "view": context.view,
            "pending_summary": context.pending_summary,
        }
        for name, verb in verbs.items():
            with pytest.raises(ContextInUse, match=rf"^{name}\(\) was called while another thread"):
                verb()
        assert context.dump() == before
    finally:
        leave.set()
        asking.join()
    assert issubclass(ContextInUse, TrimtabError)
    context.add(user("now"))  # the first thread is done
    assert context.request()["messages"][-1]["content"] == "now"


def test_threads_that_do_not_wait_for_each_other_never_damage_the_log():
    context, refused, other = grown(3), [], []
    switch = sys.getswitchinterval()

    def keep_going(number):
        for turn in range(60):
            try:
                context.add(user(f"thread {number}, turn {turn}"))
                context.request()
            except ContextInUse:
                refused.append(number)
            except Exception as error:  # noqa: BLE001 - there must be none of another kind
                other.append(error)

    threads = [threading.Thread(target=keep_going, args=(number,)) for number in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert other == []
    assert refused, "the threads were never at it at the same time"
    loaded = Context.load(context.dump(), clock=lambda: 1.0)
    assert loaded.request() == context.request()


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
