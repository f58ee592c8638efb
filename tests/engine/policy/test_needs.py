"""What a line of a result is worth, and which lines stay at a price."""

import itertools
import json
import tracemalloc
from random import Random

import pytest

from tests.agents import Agent
from tests.conversations import calls, result, said, user
from tests.recording import decide
from trimtab import Context
from trimtab.engine.log.edits import apply_edit_to_part
from trimtab.engine.policy.auto import KEPT_NEWEST_RESULTS, list_mask_candidates
from trimtab.engine.policy.config import PolicyConfig, parse_goal, price_of_goal, validate_goal
from trimtab.engine.policy.planning.needs import (
    LineCut,
    build_result_facts,
    classify_tool,
    get_need_index,
    value_results,
)
from trimtab.engine.policy.planning.plan import Plan
from trimtab.engine.tokens.counter import measure_part


def code(file: int, lines: int = 40, *, start: int = 0) -> str:
    """Source text of which each line has a name of its own."""
    return "\n".join(
        f"    total_{file} = self.read_{file}_{line}(buffer, offset)"
        for line in range(start, start + lines)
    )


def agent() -> Agent:
    return Agent(policy="full")


def cuts_at(made: Agent, price: int) -> dict[str, LineCut]:
    """By handle: what is not worth this price, in needs for a million tokens."""
    plan = Plan(made.window, made.context.budget())
    candidates = list_mask_candidates(plan, PolicyConfig(), KEPT_NEWEST_RESULTS)
    return {cut.result.handle: cut for cut in value_results(plan, candidates, price).cuts}


def busy(made: Agent) -> None:
    """Three rounds, so that nothing before them is among the newest results."""
    for number in range(KEPT_NEWEST_RESULTS):
        made.use(f"ok {number}", tool="wait")


def test_a_read_that_was_made_again_goes_and_the_newer_one_stays():
    made = agent()
    old = made.use(code(1), path="src/one.py")
    new = made.use(code(1), path="src/one.py")
    busy(made)
    cuts = cuts_at(made, 600)
    assert cuts[old].pieces == ()
    assert new not in cuts


def test_a_line_that_the_agent_wrote_itself_is_worth_nothing_in_a_result():
    made = agent()
    handle = made.use(code(1), path="src/one.py")
    made.use("done", tool="write", path="src/two.py", content=code(1))
    busy(made)
    assert cuts_at(made, 600)[handle].pieces == ()


def test_what_a_user_or_the_agent_said_need_not_stay_elsewhere():
    made = agent()
    handle = made.use(code(1), path="src/one.py")
    busy(made)
    assert handle not in cuts_at(made, 600)
    made.context.add(said(code(1)))
    assert cuts_at(made, 600)[handle].pieces == ()


def test_of_a_read_the_lines_that_nothing_else_shows_stay():
    made = agent()
    text = code(1, 60)
    handle = made.use(text, path="src/one.py")
    made.use(code(1, 40), path="src/one.py", limit=40)
    busy(made)
    (piece,) = cuts_at(made, 600)[handle].pieces
    assert text[slice(*piece)] == code(1, 20, start=40)


def test_lines_of_times_and_hashes_in_an_output_go_before_lines_with_names():
    made = agent()
    lines = [f"2026-11-17T04:{n:02}:{n:02} 9f3a{n:04}c1 12{n:04}" for n in range(60)]
    names = "\n".join(f"parse_header_{n}x read_u{n}_le" for n in range(20))
    text = "\n".join([*lines, names])
    handle = made.use(text, tool="bash", command="journalctl")
    busy(made)
    (piece,) = cuts_at(made, 2_000)[handle].pieces
    assert text[slice(*piece)] == names


def test_a_reports_names_stay_longer_than_those_of_a_read():
    made = agent()
    read = made.use(code(1), tool="grep", pattern="x")
    report = made.use(code(2), tool="Task", prompt="look")
    busy(made)
    assert not cuts_at(made, 15_000)[read].pieces
    assert report not in cuts_at(made, 15_000)


def test_a_higher_price_never_keeps_more():
    made = agent()
    for number in range(6):
        made.use(code(number), path=f"src/{number}.py")
        made.use("\n".join(f"src/{number}/{n}_name.py" for n in range(40)), tool="glob")
    busy(made)
    freed = [
        sum(cut.freed_tokens for cut in cuts_at(made, price).values())
        for price in (100, 300, 1_000, 3_000, 10_000, 100_000)
    ]
    assert freed == sorted(freed)
    assert freed[0] < freed[-1]


def test_prose_is_not_judged_by_its_names():
    made = agent()
    handle = made.use("Nothing to see here, and no name either. " * 200, path="notes.txt")
    busy(made)
    assert handle not in cuts_at(made, 100_000)


def test_one_line_of_json_is_cut_between_its_values():
    orders = [{"order_id": f"W_{n}", "item": f"item-{n}", "note": "x" * 9} for n in range(80)]
    text = json.dumps(orders)
    facts = build_result_facts("other", text)
    pieces = [text[a:b] for a, b in zip(facts.starts, facts.starts[1:], strict=False)]
    assert "".join(pieces) == text
    assert len(pieces) > 20
    assert all(piece.rstrip()[-1] in ',}]"' for piece in pieces)


def work_on(made: Agent, rounds: int) -> None:
    for number in range(rounds):
        made.use(code(number, 120), path=f"src/{number}.py")
        made.use("\n".join(f"src/{number}/{n}_name.py" for n in range(60)), tool="glob")
        if number % 3 == 2:
            made.use(code(number, 60), path=f"src/{number}.py", limit=60)


def uneven(file: int) -> str:
    """Source text whose lines have one to six names of their own."""
    return "\n".join(
        " ".join(f"value_{file}_{line}_{name}" for name in range(1 + line // 20))
        + " and a comment that says what happens here" * 2
        for line in range(120)
    )


def test_a_forced_compaction_truncates_results_to_their_best_lines_instead_of_masking_them_whole():
    made = Agent(goal="balanced", context_window=100_000, max_output_tokens=4_000)
    room = made.context.budget().room
    while not made.edits:
        made.use(uneven(made.count), path=f"src/{made.count}.py")
    assert made.window.tokens < 0.5 * room
    truncated = [edit for edit in made.edits if edit.pieces]
    masked = [edit for edit in made.edits if edit.op == "mask"]
    assert len(truncated) > len(masked)
    assert {edit.why for edit in made.edits} == {"not worth its tokens"}
    # The first lines of each result have the fewest names.
    assert all(edit.pieces[0][0] > 0 for edit in truncated)


def test_a_part_that_was_cut_by_lines_twice_is_recalled_whole():
    made = Agent(goal="cost", recall=True)
    texts = {}
    for number in range(30):
        text = uneven(number)
        texts[made.use(text, path=f"src/{number}.py")] = text
        made.clock.now += 301
    cut_again = {
        edit.handle
        for edit in made.edits
        if edit.pieces and sum(other.handle == edit.handle for other in made.edits) > 1
    }
    assert cut_again
    for handle in cut_again:
        assert made.context.recall(handle) == texts[handle]
        edits = [edit for edit in made.edits if edit.handle == handle]
        for before, after in itertools.pairwise(edits):
            assert all(
                any(b <= begin and end <= e for b, e in before.pieces)
                for begin, end in after.pieces
            )
            assert after.size.tokens < before.size.tokens


def test_no_edit_that_hides_for_room_makes_the_request_larger():
    made = Agent(goal="cost")
    work_on(made, 20)
    made.clock.now += 301
    before = made.window.tokens
    made.ask()
    made.answer("ok")
    made.context.request()
    assert made.edits
    assert made.window.tokens < before
    counter = made.window.counter
    for edit in made.edits:
        assert edit.part is not None
        part = made.window.entries[edit.first].message.parts[edit.part]
        shown = measure_part(apply_edit_to_part(part, edit), counter)
        assert edit.size == shown
        assert shown.tokens < measure_part(part, counter).tokens


def test_a_fold_of_the_log_decides_the_same():
    made = Agent(goal="cost")
    work_on(made, 12)
    made.clock.now += 301
    twin = type(made.context).load(made.context.dump(), clock=made.clock)
    for context in (made.context, twin):
        context.add(said("go on"))
        context.add({"role": "user", "content": "yes"})
    assert decide(twin) == decide(made.context)
    assert decide(made.context)


def test_hidden_results_do_not_keep_their_index():
    made = Agent(goal="cost")
    for number in range(40):
        made.use(code(number, 300), path=f"src/{number}.py")
        made.clock.now += 301
    index = get_need_index(made.window)
    assert set(index._facts) <= set(made.window.results)
    assert len(made.window.results) < 40


@pytest.mark.parametrize(
    ("text", "goal", "price"),
    [("cost", "cost", 5.0), ("balanced", "balanced", 0.8), ("1", 1.0, 1.0), (".3", 0.3, 0.3)],
)
def test_a_goal_is_a_name_or_a_price(text: str, goal: object, price: float):
    assert parse_goal(text) == goal
    assert price_of_goal(parse_goal(text)) == price


@pytest.mark.parametrize("goal", ["cheap", 0, -1, float("nan"), float("inf"), True, None])
def test_what_is_neither_a_name_nor_a_price_is_no_goal(goal: object):
    with pytest.raises(ValueError, match=r"choose one of cost, balanced, quality, or a number"):
        validate_goal(goal)


@pytest.mark.parametrize(
    ("tool", "asked", "kind"),
    [
        ("Task", "", "agent"),
        ("delegate_work", "", "agent"),
        ("Edit", "", "edit"),
        ("str_replace_based_tool", "", "edit"),
        ("Read", "", "read"),
        ("WebFetch", "", "read"),
        ("Grep", "", "search"),
        ("list_files", "", "search"),
        ("plan", "", "other"),
        ("Bash", "make check", "run"),
        ("Bash", "", "run"),
        ("Bash", "cat src/wire.py", "read"),
        ("Bash", "cd /repo && cd src && /usr/bin/head -5 a.py", "read"),
        ("shell", "bash\n-lc\nrg parse_header", "search"),
        ("exec_command", "find . -name x", "search"),
        ("run_command", "catalog build", "run"),
    ],
)
def test_the_kind_of_a_tool_is_told_by_its_name_or_its_command(tool: str, asked: str, kind: str):
    assert classify_tool(tool, asked) == kind


@pytest.mark.soak
def test_a_context_takes_at_most_twice_the_memory_of_long_results_of_which_few_are_visible():
    context = Context("claude-sonnet-5-5", context_window=100_000, recall=True)
    context.add(user("Go."))
    random = Random(1)  # noqa: S311 - no secret
    text_bytes = 0
    tracemalloc.start()
    try:
        for number in range(300):
            context.request()
            context.add(calls(f"c{number}", tool="read", arguments=f'{{"path": "{number}.log"}}'))
            lines = (f"INFO request id={random.getrandbits(32):x} took 31 ms" for _ in range(900))
            text = "\n".join(lines)
            text_bytes += len(text)
            context.add(result(f"c{number}", text))
        memory, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(context.window.results) < 12
    assert memory < 2 * text_bytes
