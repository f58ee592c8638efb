"""Conversations to which a framework gives no id."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from trimtab.integrations.unnamed_conversations import UnnamedConversations


def test_a_list_continues_the_conversation_with_whose_history_it_begins():
    known = UnnamedConversations()
    known.put("ann", ["hi", "hello, ann"])
    known.put("bob", ["hi", "hello, bob"])
    assert known.take(["hi", "hello, bob", "more"]) == "bob"
    assert known.take(["hi", "hello, ann"]) == "ann"
    assert known.take(["hi"]) is None
    assert known.take([]) is None


def test_a_list_with_another_beginning_does_not_continue_a_conversation():
    known = UnnamedConversations()
    known.put("ann", ["a secret", "fine"])
    assert known.take(["hi", "fine", "more"]) is None


def test_the_longest_history_counts():
    known = UnnamedConversations()
    known.put("short", ["hi", "hello"])
    known.put("long", ["hi", "hello", "more", "fine"])
    known.put("shorter", ["hi"])
    assert known.find(["hi", "hello", "more", "fine", "and?"]) == "long"


def test_only_one_call_continues_a_conversation():
    known = UnnamedConversations()
    for turn in range(20):
        history = [*range(turn + 1)]
        known.put("ann", history)
        with ThreadPoolExecutor(8) as threads:
            found = [*threads.map(known.take, [history] * 8)]
        assert found.count("ann") == 1
        assert found.count(None) == 7


def test_a_call_that_fails_gives_the_conversation_back():
    known = UnnamedConversations()
    known.put("ann", ["hi", "hello"])
    assert known.take(["hi", "hello", "more"]) == "ann"
    assert known.find(["hi", "hello", "again"]) is None
    known.give_back("ann")
    assert known.find(["hi", "hello", "again"]) == "ann"


def test_a_history_stays_as_it_was_if_the_callers_list_grows():
    known, items = UnnamedConversations(), ["hi", "hello"]
    known.put("ann", items)
    items.append("more")
    assert known.find(["hi", "hello", "something else"]) == "ann"


def test_the_oldest_conversations_are_forgotten():
    known = UnnamedConversations(max_conversations=2)
    for name in ("ann", "bob", "ann", "carl"):
        known.put(name, [f"I am {name}", "hello"])
    found = [known.take([f"I am {name}", "hello"]) for name in ("ann", "bob", "carl")]
    assert found == ["ann", None, "carl"]
