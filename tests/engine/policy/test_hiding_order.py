"""What is hidden first: what the agent is least likely to name again."""

from tests.agents import Agent, source
from tests.conversations import said
from trimtab.engine.policy.planning.relevance import (
    compute_need_score,
    get_reference_index,
    order_least_needed_first,
    order_oldest_first,
)


def agent() -> Agent:
    return Agent(policy="full")


def hidden_first(made: Agent) -> list[str]:
    """Handles in hiding order."""
    return [
        each.handle
        for each in order_least_needed_first(made.window, list(made.window.results.values()))
    ]


def test_a_read_that_was_made_again_goes_before_its_like():
    made = agent()
    fresh = made.use(source(1, 4_000), path="src/one.py")
    stale = made.use(source(2, 4_000), path="src/two.py")
    assert hidden_first(made) == [fresh, stale]
    again = made.use(source(2, 4_000), path="src/two.py")
    made.use("ok", path="src/one.py", tool="stat")
    order = hidden_first(made)
    assert order.index(stale) < order.index(fresh)
    assert order.index(stale) < order.index(again)


def test_a_file_that_was_changed_since_goes_before_one_that_was_not():
    made = agent()
    kept = made.use(source(1, 4_000), path="src/one.py")
    changed = made.use(source(2, 4_000), path="src/two.py")
    made.use("done", tool="edit", path="src/two.py")
    made.use("done", tool="stat", path="src/one.py")
    order = hidden_first(made)
    assert order.index(changed) < order.index(kept)


def test_the_confirmation_of_an_edit_goes_before_a_read_of_the_same_text():
    made = agent()
    read = made.use(source(1, 4_000), tool="read", path="src/one.py")
    edited = made.use(source(2, 4_000), tool="edit", path="src/two.py")
    assert hidden_first(made) == [edited, read]


def test_what_was_not_used_for_long_goes_first():
    made = agent()
    old = made.use(source(1, 4_000), path="src/one.py")
    made.work(6, 400)
    new = made.use(source(2, 4_000), path="src/two.py")
    order = hidden_first(made)
    assert order.index(old) < order.index(new)


def test_a_file_whose_names_were_just_used_is_kept_longer():
    made = agent()
    kept = made.use(source(100, 4_000), path="src/one.py")
    other = made.use(source(101, 4_000), path="src/two.py")
    made.work(6, 400)
    before = hidden_first(made)
    assert before.index(kept) < before.index(other)
    made.context.add(said("Now value_100_3 must change."))
    after = hidden_first(made)
    assert after.index(kept) > after.index(other)


def test_a_result_without_a_name_goes_before_one_with_many():
    made = agent()
    named = made.use(source(1, 4_000), path="src/one.py")
    plain = made.use("nothing to see here " * 200, path="src/two.py")
    assert hidden_first(made) == [plain, named]


def test_of_two_alike_the_older_goes_first():
    made = agent()
    made.context.add(
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": each, "name": "read", "input": {}} for each in "ab"
            ],
        }
    )
    for each in "ab":
        block = {"type": "tool_result", "tool_use_id": each, "content": "same_text"}
        made.context.add({"role": "user", "content": [block]})
    first, second = made.window.results.values()
    uses = get_reference_index(made.window)
    uses.stats_by_result[first.key].superseded = False
    assert compute_need_score(uses, uses.stats_by_result[first.key], 9) == compute_need_score(
        uses, uses.stats_by_result[second.key], 9
    )
    assert order_least_needed_first(made.window, [second, first]) == [first, second]


def test_a_result_that_nobody_knows_of_stands_in_the_middle():
    assert compute_need_score(get_reference_index(agent().window), None, 1_000) == 0.0


def test_the_order_is_the_same_after_a_restart():
    made = agent()
    made.work(8, 1_000)
    made.context.add(said("value_2_1 and value_5_3"))
    before = hidden_first(made)
    made.context = type(made.context).load(made.context.dump(), clock=made.clock)
    assert hidden_first(made) == before
    assert before != [each.handle for each in made.window.results.values()]


def test_the_baseline_leaves_the_order_of_the_log():
    made = agent()
    made.work(4, 400)
    results = list(made.window.results.values())
    assert order_oldest_first(made.window, results) == results
