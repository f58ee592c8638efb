"""`sync` of a long list: what is known is not read again, what was hidden stays hidden."""

import copy
import gc
import json
from types import FunctionType, ModuleType

import pytest

from tests.conversations import calls, prose, result, said, user
from trimtab import Context
from trimtab.dialects import known_history
from trimtab.engine.log.event import Edit, Rewind
from trimtab.engine.tokens.counter import with_recomputed_size
from trimtab.policies import Budget, Decision, WindowView
from trimtab.types import DialectName, PolicyName


def long_list(rounds=60, size=2_000):
    messages = [user("Read all of it.")]
    for number in range(rounds):
        messages += [calls(f"c{number}"), result(f"c{number}", prose(size, f"file {number}"))]
    return messages


def synced(messages, *, policy: PolicyName = "auto", context_window=32_000, recall=False):
    context = Context(
        "gpt-4o",
        policy=policy,
        context_window=context_window,
        max_output_tokens=1_000,
        recall=recall,
    )
    context.sync(messages)
    context.request()
    return context


def count(context, kind):
    return sum(isinstance(event.body, kind) for event in context.events)


def hidden_calls(context, messages):
    """Ids of calls whose results the model no longer sees."""
    shown = {view.call.id for view in context.window.results.values()}
    return {message["tool_call_id"] for message in messages if message["role"] == "tool"} - shown


@pytest.fixture
def read_from(monkeypatch):
    """The first items that lists were read from."""
    firsts = []
    read_history = known_history_reader()

    def read(messages, **options):
        firsts.append(options["first_item"])
        return read_history(messages, **options)

    monkeypatch.setattr("trimtab.verbs.matching.read_history", read)
    return firsts


def known_history_reader():
    from trimtab.verbs.matching import read_history

    return read_history


@pytest.mark.parametrize("fresh", [False, True])
def test_of_a_known_list_only_the_end_is_read(read_from, fresh):
    messages = long_list()
    context = synced(messages)
    more = [*messages, said("Done."), user("And now?")]
    context.sync(copy.deepcopy(more) if fresh else more)
    assert read_from == [0, len(messages) - 1]
    assert count(context, Rewind) == 0
    newest = context.window.newest_user_entry
    assert newest is not None
    assert newest.message.text == "And now?"


def test_the_callers_ids_tell_what_is_known(read_from):
    messages = long_list()
    ids = [f"id{number}" for number in range(len(messages))]
    context = Context("gpt-4o", context_window=200_000)
    context.sync(messages, ids=ids)
    others = copy.deepcopy(messages)
    others[1]["tool_calls"][0]["function"]["arguments"] = '{"changed": true}'
    context.sync([*others, said("Done.")], ids=[*ids, "new"])
    assert read_from == [0, len(messages) - 1]
    assert count(context, Rewind) == 0
    with pytest.raises(ValueError, match="ids\\[2\\] is 'a', the id of an earlier message"):
        context.sync(others[:3], ids=["a", "b", "a"])
    with pytest.raises(TypeError, match=r"ids\[1\] is None; it must be a text"):
        context.sync(others[:3], ids=["a", None, "b"])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="3 ids for 3 messages; pass a list with one id each"):
        context.sync(others[:3], ids="abc")
    with pytest.raises(ValueError, match="check is 'some'"):
        context.sync(others, check="some")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="3 ids for 122 messages"):
        context.sync([*others, said("Done.")], ids=["a", "b", "c"])


def test_ids_of_a_list_that_was_refused_can_be_given_again():
    context = Context("gpt-4o")
    context.sync([user("One.")], ids=["a"])
    with pytest.raises(TypeError):
        context.sync([user("One."), 3], ids=["a", "b"])  # pyright: ignore[reportArgumentType]
    context.sync([user("One."), user("Two.")], ids=["a", "b"])
    assert len(context.request()["messages"]) == 1 + 1


def test_an_object_that_was_changed_in_place_is_noticed_among_the_newest_64():
    messages = long_list()
    context = synced(messages, context_window=200_000)
    messages[-5]["content"] = "something else"
    context.sync(messages)
    assert count(context, Rewind) == 1
    assert "something else" in json.dumps(context.request())


def test_an_older_object_that_was_changed_in_place_is_noticed_where_all_are_checked():
    messages = long_list()
    context = synced(messages, context_window=200_000)
    messages[2]["content"] = "something else"
    context.sync(messages)
    assert count(context, Rewind) == 0
    context.sync(messages, check="all")
    assert count(context, Rewind) == 1
    assert "something else" in json.dumps(context.request())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"role": "user", "content": "hi"}, {"role": "user", "content": "hi", "tool_calls": []}),
        (
            {"role": "user", "content": "hi"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
            },
        ),
        (
            {"role": "assistant", "content": "hi"},
            {"role": "assistant", "content": "hi", "audio": None},
        ),
    ],
)
def test_what_a_provider_reads_alike_is_the_same(one, other):
    assert known_history.is_same_item(one, other)
    assert known_history.is_same_item(other, one)
    assert not known_history.is_same_item(one, {**other, "content": "other"})


def change_in_place(messages):
    messages[40] = {**messages[40], "content": "changed"}


def insert(messages):
    messages.insert(41, said("By the way."))


def delete(messages):
    del messages[39:41]


def reorder(messages):
    messages[39:43] = [*messages[41:43], *messages[39:41]]


@pytest.mark.parametrize("policy", ["auto", "layered", "thresholds"])
@pytest.mark.parametrize("change", [change_in_place, insert, delete, reorder])
def test_a_change_in_the_middle_does_not_bring_back_what_was_hidden(policy, change):
    messages = long_list()
    context = synced(messages, policy=policy, recall=True)
    before = hidden_calls(context, messages)
    assert len(before) > 5
    changed = copy.deepcopy(messages)
    change(changed)
    unchanged = [message for message in changed if message in messages]
    context.sync(changed)
    assert count(context, Rewind) == 1
    # Already before the next decision; what was moved apart from its call may be there again.
    again = before & {m["tool_call_id"] for m in unchanged if m["role"] == "tool"}
    assert len(again - hidden_calls(context, changed)) <= 2
    context.request()
    assert len(again - hidden_calls(context, changed)) <= 2
    edits = [event.body for event in context.events if isinstance(event.body, Edit)]
    for edit in edits:
        if edit.part is not None and "recall m" in edit.text:
            assert f"m{edit.first}." in edit.text
        if edit.part is not None and edit.first in context.window.entries:
            said_then = context.window.entries[edit.first].message.parts[edit.part]
            assert with_recomputed_size(edit, said_then, context.window.counter) == edit


def test_what_is_added_between_two_lists_is_matched_in_the_next():
    messages = long_list(5)
    context = synced(messages)
    context.add(said("Done."))
    context.sync([*messages, said("Done."), user("And now?")])
    assert count(context, Rewind) == 0
    assert context.window.conversation.total_messages == len(messages) + 2


def test_a_rewind_between_two_lists_is_seen():
    messages = long_list(5)
    context = synced(messages)
    context.rewind(f"m{context.window.entries[min(context.window.entries)].seq}")
    context.sync(messages)
    assert context.window.conversation.total_messages == len(messages)


def test_a_list_of_response_items_goes_on_in_the_middle_of_a_reply():
    reply = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    ]
    items = [{"role": "user", "content": "a"}, *reply]
    context = Context("gpt-5.2", dialect="openai_responses")
    context.sync(items[:2] + items[2:])
    more = [*items, {"type": "function_call_output", "call_id": "c1", "output": "r"}]
    context.sync(more)
    assert count(context, Rewind) == 0
    assert context.window.conversation.total_messages == 3


class Peculiar(dict[str, object]):
    """A mapping that refuses to be compared."""

    def __eq__(self, other):
        raise ValueError("the truth value is ambiguous")

    __hash__ = None


def test_a_tuple_and_objects_that_refuse_to_be_compared_are_taken():
    messages = long_list(5)
    context = synced(tuple(messages))
    context.sync((*messages, said("Done.")))
    context.sync([*map(Peculiar, messages), said("Done."), user("And now?")])
    assert count(context, Rewind) == 0
    assert context.window.conversation.total_messages == len(messages) + 2


@pytest.mark.parametrize("wrong", [None, 5, {"role": "user", "content": float("nan")}])
def test_an_item_that_became_unreadable_is_named_by_its_index(wrong):
    messages = long_list(5)
    context = synced(messages)
    changed = [*messages]
    changed[7] = wrong
    with pytest.raises((TypeError, ValueError), match=r"messages\[7\]"):
        context.sync(changed)
    context.sync(messages)
    assert count(context, Rewind) == 0


def test_of_what_was_erased_nothing_is_kept_to_compare_with():
    context = Context("gpt-4o")
    context.sync(json.loads(json.dumps([user("my secret-word"), said("ok"), user("more")])))
    context.request()
    handle = next(
        f"m{seq}" for seq, e in context.window.entries.items() if "secret" in e.message.text
    )
    context.erase(handle)
    reached = gc.get_referents(context.__dict__)
    seen = set()
    while reached:
        thing = reached.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType | FunctionType):
            continue
        seen.add(id(thing))
        assert not (isinstance(thing, str) and "secret-word" in thing)
        reached += gc.get_referents(thing)


@pytest.mark.parametrize(
    ("dialect", "reply", "right"),
    [
        (
            "openai_responses",
            {"object": "response", "id": "r1", "output": [], "status": "completed"},
            "the items of response.output",
        ),
        (
            "openai_chat",
            {"object": "chat.completion", "id": "c1", "choices": [{"message": said("Hi.")}]},
            r"choices\[0\].message",
        ),
    ],
)
def test_a_whole_reply_is_refused_as_an_item_of_a_list(dialect: DialectName, reply, right):
    context = Context("gpt-5.2", dialect=dialect)
    with pytest.raises(ValueError, match=rf"messages\[1\]: a whole reply .* use {right}, or add"):
        context.sync([user("Hello."), reply])


@pytest.mark.slow
def test_a_list_of_many_short_messages_is_taken_in_with_few_decisions():
    decisions: list[int] = []

    def decide(window: WindowView, _budget: Budget) -> Decision:
        decisions.append(window.seq)
        return Decision()

    messages = [user("Hello."), said("Hi.")] * 2_000
    Context("gpt-4o", policy=decide).sync(messages)
    assert len(decisions) < 20
