"""`reveal` and `pin`: what a caller wants seen, whatever the policy."""

import pytest

from tests.conversations import calls as called
from tests.conversations import (
    chat,
    claude,
    contents,
    prose,
    result,
    results,
    said,
    talk,
    texts,
    use,
    user,
)
from tests.recording import apply_decided, checkpoint, decide, request_anyway
from trimtab import Context
from trimtab.engine.log.event import Edit
from trimtab.engine.policy.planning.plan import Decision, Plan
from trimtab.engine.policy.presets import POLICY_NAMES


def busy(policy="layered", **options) -> Context:
    """Twelve results; `layered` masks those in the middle."""
    context = chat(policy, **options)
    context.add(user("Read all."))
    context.request()
    for number in range(12):
        use(context, f"c{number}", prose(600, f"file {number}"))
    return context


def handle_of(context, number):
    return next(
        entry.seq
        for entry in context.window.entries.values()
        if entry.message.results and entry.message.results[0].text.startswith(f"file {number}\n")
    )


def only_the_newest(window, budget) -> Decision:
    plan = Plan(window, budget)
    for seen in list(window.results.values())[:-1]:
        plan.mask(seen.entry, seen.part, "older than the newest")
    return plan.to_decision()


@pytest.mark.parametrize("form", ["m{}", "m{}.0", "m1-m{}"])
def test_what_was_masked_is_in_the_next_request_and_may_go_after_it(form):
    context = busy()
    seq = handle_of(context, 4)
    assert not results(context.request())[4].startswith("file 4\n")
    context.reveal(form.format(seq))
    assert results(context.request())[4] == prose(600, "file 4")
    context.add(called("next"))
    context.add(result("next", "done"))
    assert results(context.request())[4].startswith("[result masked")


def test_what_was_cut_is_shown_whole():
    context = chat("layered", limits={"max_tool_result_tokens": 100})
    context.add(user("Read."))
    context.request()
    use(context, "c", prose(4_000, "file"))
    assert "[truncated" in results(context.request())[0]
    context.reveal("m5")
    assert results(context.request()) == [prose(4_000, "file")]


def test_a_message_is_shown_with_all_that_it_goes_with():
    context = busy("rolling")
    seq = handle_of(context, 2)
    assert context.window.entries[seq].round.group.hidden is not None
    context.reveal(f"m{seq}.0")
    shown = context.request()
    assert prose(600, "file 2") in results(shown)
    assert any(
        call["id"] == "c2"
        for message in shown["messages"]
        for call in message.get("tool_calls", ())
    )


def test_what_is_to_be_seen_is_so_after_a_checkpoint_too():
    context = busy()
    seq = handle_of(context, 4)
    context.reveal(f"m{seq}")
    snapshot, kept = checkpoint(context), [*context.window.base.snapshot_events.values()]
    again = Context.load(kept, snapshot=snapshot)
    assert results(again.request())[4] == prose(600, "file 4")
    assert results(context.request())[4] == prose(600, "file 4")


@pytest.mark.parametrize("verb", ["reveal", "pin"])
@pytest.mark.parametrize(
    ("handle", "told"),
    [
        ("m99", "positions go up to m4"),
        ("m1", "is not a message"),
        ("m2.7", "the last part is m2.0"),
    ],
)
def test_a_handle_that_names_nothing_is_refused(verb, handle, told):
    context = chat()
    talk(context, 1)
    with pytest.raises(LookupError, match=told):
        getattr(context, verb)(handle)
    assert not [event for event in context.events if isinstance(event.body, Edit)]


@pytest.mark.parametrize("policy", [*POLICY_NAMES, only_the_newest])
def test_what_is_pinned_is_hidden_by_no_policy(policy):
    context = chat(policy, context_window=6_000, max_output_tokens=200)
    context.add(user("Read all."))
    context.request()
    use(context, "c0", prose(600, "file 0"))
    context.pin("m5")
    for number in range(1, 20):
        use(context, f"c{number}", prose(1_200, f"file {number}"))
        assert results(context.request())[0] == prose(600, "file 0")
    context.add(said("Done."))
    context.add(user("And?"))
    assert prose(600, "file 0") in texts(context.request())


def long_talk(policy, **options) -> Context:
    """Of thirty questions and answers the first ones are hidden, whatever the policy."""
    context = chat(policy, context_window=16_000, max_output_tokens=500, **options)
    talk(context, 30, size=2_000)
    context.add(user("And now?"))
    return context


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_what_was_dropped_or_summarised_is_in_the_next_request(policy):
    context = long_talk(policy)
    assert prose(2_000, "question 1") not in texts(context.request())
    context.reveal("m5")
    for _ in range(2):
        assert prose(2_000, "question 1") in texts(context.request())
    context.add(said("Nothing."))
    context.add(user("And then?"))
    context.request()
    assert context.window.tokens <= context.budget().limit


def test_nothing_goes_for_what_was_revealed_where_it_fits():
    context = long_talk("layered", max_input_tokens=100_000)
    before = contents(context.request())
    assert "messages omitted" in before[0]
    context.reveal("m2")
    shown = contents(context.request())
    assert shown[1:] == [prose(2_000, "question 0"), *before[1:]]


def test_what_cannot_be_shown_costs_nothing_else():
    context = chat("full", context_window=16_000, max_output_tokens=500)
    context.add(user(prose(64_000, "a book")))
    context.request()
    context.add(said("Read."))
    talk(context, 12, size=2_000)
    context.add(user("And now?"))
    before = texts(context.request())
    assert "messages omitted" in before
    context.reveal("m2")
    assert texts(context.request()) == before


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["auto", "layered", "rolling"])
def test_what_is_revealed_while_a_call_is_out_is_in_the_next(policy):
    context = long_talk(policy, limits={"max_history_tokens": 900})
    context.request()
    context.reveal("m2")
    context.add(said("To what was asked before."))
    context.add(user("And then?"))
    assert prose(2_000, "question 0") in texts(context.request())


def test_a_summary_that_spares_what_was_revealed_does_so_when_it_is_folded_again():
    context = long_talk("rolling")
    context.request()
    context.reveal("m2")
    for number in range(9):
        context.add(user(f"more {number}"))
    shown = context.request()
    assert prose(2_000, "question 0") in texts(shown)
    assert any(event.body.spares for event in context.events if isinstance(event.body, Edit))
    position = context.window.seq
    assert context.rebuild_request(position) == shown
    assert Context.load(context.dump()).request() == shown
    context.add(said("Nothing."))
    context.rewind(position)  # folds all of it again
    assert texts(context.request()) == texts(shown)


@pytest.mark.parametrize("more", range(10, 400, 30))
def test_what_cannot_be_shown_is_decided_about_once(more):
    """The notice that stands for it then counts as history, too."""
    context = chat(
        "full", context_window=8_000, max_output_tokens=500, limits={"max_history_tokens": 300}
    )
    context.add(user(prose(20_000, "a book")))
    context.request()
    context.add(said("Read."))
    talk(context, 4, size=100)
    request_anyway(context)
    context.reveal("m2")
    context.add(user(prose(more)))
    context.add(user(prose(12_000)))
    context.request()
    assert decide(context) == []


def test_a_cap_of_results_beside_what_was_revealed_is_decided_about_once():
    """Rounds of a thinking loop are one group: a result in it may be cut while another is shown."""
    caps = {"max_history_tokens": 20, "max_tool_result_tokens": 1}
    context = claude("full", limits=caps)
    context.add(user("Read both."))
    for number in range(2):
        thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
        call = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {}}
        context.add({"role": "assistant", "content": [thought, call]})
        found = {"type": "tool_result", "tool_use_id": f"c{number}", "content": prose(1_500)}
        handle = context.add({"role": "user", "content": [found]})
        if number == 0:
            context.request()
            context.reveal(handle)
    context.add(user(prose(300)))
    context.add(user("And?"))
    apply_decided(context)
    assert decide(context) == []


def test_auto_hides_nothing_that_was_revealed_as_long_as_it_fits():
    context = Context(
        "gpt-4o", context_window=8_000, max_output_tokens=500, tokenizer=lambda t: len(t.split())
    )
    replies = list[str]()
    for number in range(16):
        context.add({"role": "user", "content": f"Question {number}"})
        context.request()
        replies.append(context.add({"role": "assistant", "content": "word " * 1_000}))
    context.add({"role": "user", "content": "Compare the older replies."})
    asked = replies[2:9]
    for handle in asked:
        context.reveal(handle)
    context.request()
    assert [handle for handle in asked if context.why(handle).state != "shown"] == []
