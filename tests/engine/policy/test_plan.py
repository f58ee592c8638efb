"""What a plan refuses, whoever asks: the laws found each of these in a longer life."""

from __future__ import annotations

from tests.conversations import calls, chat, contents, prose, result, texts, use, user
from trimtab import Context
from trimtab.engine.log.event import Edit, ModelCall, ToolResultRepair
from trimtab.engine.log.message import Message, ToolCall
from trimtab.engine.policy.planning.plan import Plan, TextCap
from trimtab.engine.prompt.render import render_entry_message
from trimtab.engine.tokens.counter import measure_message_parts
from trimtab.engine.window.window import Entry


def plan_of(context: Context) -> Plan:
    return Plan(context.window, context.budget())


def of_one_result() -> tuple[Plan, Entry]:
    """The plan of a conversation with one large result, and its entry."""
    context = chat("full")
    context.add(user("go"))
    use(context, "c1", prose(20_000))
    [entry] = [e for e in context.window.entries.values() if e.message.results]
    return plan_of(context), entry


def edit_of(op, first, last, **fields) -> Edit:
    return Edit(op=op, first=first, last=last, why="mine", **fields)


def test_a_placeholder_is_neither_masked_nor_cut_again():
    plan, entry = of_one_result()
    assert plan.mask(entry, 0, "once")
    assert not plan.mask(entry, 0, "twice")
    assert not plan.truncate(entry, 0, TextCap(amount=1), "twice")


def test_a_part_is_not_counted_from_the_end():
    plan, entry = of_one_result()
    plan.adopt_edits([edit_of("mask", entry.seq, entry.seq, part=-1, text="gone")])
    assert plan.to_decision().edits == ()
    plan.adopt_edits([edit_of("mask", entry.seq, entry.seq, part=0, text="gone")])
    assert [edit.part for edit in plan.to_decision().edits] == [0]


def test_a_call_is_never_hidden_without_its_result():
    context = chat("full")
    context.add(user("go"))
    call = ToolCall(id="c", name="write", arguments=f'{{"text": "{prose(5_000)}"}}')
    context.add(Message(role="assistant", parts=(call,)))
    plan = plan_of(context)
    plan.adopt_edits([edit_of("mask", 3, 3, part=0, text="[gone]")])
    assert plan.to_decision().edits == ()


def test_what_is_hidden_whole_is_not_cut_as_well():
    context = chat("full")
    for text in ("one ", "two ", "three "):
        context.add(user(text * 100))
    plan = plan_of(context)
    cut = edit_of("mask", 2, 2, part=0, text="[gone]")
    plan.adopt_edits([edit_of("drop", 2, 2)])
    tokens = plan.tokens
    plan.adopt_edits([cut])
    assert plan.tokens == tokens
    context._apply([context._build_event(edit) for edit in plan.to_decision().edits])
    after = plan_of(context)
    after.adopt_edits([cut])
    assert after.to_decision().edits == ()


def test_messages_that_take_less_than_the_notice_are_not_dropped_for_it():
    context = chat("full")
    for text in ("one", "two", "three " * 100, "four"):
        context.add(user(text))
    plan = plan_of(context)
    plan.adopt_edits([edit_of("drop", 2, 3)])
    assert plan.to_decision().edits == ()
    plan.adopt_edits([edit_of("drop", 2, 4)])
    assert [(e.first, e.last) for e in plan.to_decision().edits] == [(2, 4)]


def test_what_a_summary_takes_is_not_counted_among_what_a_drop_saves():
    context = chat("full")
    for text in ("one " * 100, "two", "three"):
        context.add(user(text))
    plan = plan_of(context)
    plan.adopt_edits([edit_of("drop", 2, 3), edit_of("summarise", 2, 2, text="first")])
    assert [edit.op for edit in plan.to_decision().edits] == ["summarise"]


def test_a_summary_that_says_nothing_replaces_nothing():
    context = chat("full")
    for number in range(4):
        context.add(user(f"{number} " * 100))
    plan = plan_of(context)
    assert not plan.summarise(list(context.window.conversation.groups), " \n", "mine")


def test_two_summaries_in_one_plan_cover_what_both_replace():
    context = chat("full")
    for number in range(6):
        context.add(user(f"{number} " * 100))
    plan = plan_of(context)
    plan.adopt_edits(
        [
            edit_of("summarise", 2, 3, text="first"),
            edit_of("summarise", 4, 5, text="first and second"),
        ]
    )
    context._apply([context._build_event(edit) for edit in plan.to_decision().edits])
    assert context.window.tokens <= plan.tokens
    assert [entry.seq for g in context.window.visible_groups.values() for entry in g.entries()] == [
        6,
        7,
    ]


def test_sizes_of_cuts_and_repairs_are_taken_again_for_another_model():
    context = chat("layered", limits={"max_tool_result_tokens": 500})
    context.add(user("go"))
    context.add(calls("c1", "c2"))
    context.add(result("c1", "数据" * 5_000))
    context.request()
    assert [type(event.body) for event in context.events[-3:]] == [
        ToolResultRepair,
        Edit,
        ModelCall,
    ]
    before = context.window.tokens
    context.configure(model="claude-opus-5", dialect="openai_chat")
    now = [render_entry_message(entry) for entry in context.window.entries.values()]
    sizes = [
        size for message in now for size in measure_message_parts(message, context.window.counter)
    ]
    assert context.window.tokens == sum(size.tokens for size in sizes) != before


def test_a_look_at_a_call_that_is_not_made_leaves_no_trace_in_the_next_one():
    context = chat("full")
    context.add(user("go"))
    context.add(calls("c1"))
    context._build_call_event()
    context.add(result("c1", "found"))
    assert "found" in contents(context.request())


def test_a_message_without_parts_is_counted():
    context = chat("full")
    context.add(user("go"))
    before = context.window.tokens
    context.add(Message(role="assistant", parts=()))
    assert context.window.tokens > before


def test_a_fork_runs_the_preset_of_its_time():
    context = chat("compact")
    context.add(user("go"))
    context.configure(policy="full")
    fork = context.fork(at=2)
    assert fork.options.policy == "compact"
    assert Context.load(fork.dump()).options.policy == "compact"


def test_texts_of_a_late_result_can_be_cut():
    context = chat("full", context_window=4_000, max_output_tokens=500)
    context.add(user("go"))
    context.add(result("unknown", prose(50_000)))
    assert "truncated" in texts(context.request())


def test_what_a_rewind_has_undone_is_erased_as_well():
    context = chat("full")
    context.add(user("one"))
    context.add(user("secret"))
    context.rewind(2)
    context.erase("m1-m9")
    context.rewind(3)
    assert contents(context.request()) == ["[erased]", "[erased]"]
    assert "secret" not in "".join(context.dump())
