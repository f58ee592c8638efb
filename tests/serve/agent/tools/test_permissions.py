"""Who may call what: deny before ask before allow before the default."""

import itertools
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.serve.agent.tools.toolboxes import Person, invocation
from trimtab.session.tools import ToolError
from trimtab_serve.agent.tools.permissions.rules import (
    USER_REFUSED_TEXT,
    PermissionGate,
    PermissionRules,
    decide_permission,
    decline_unattended,
    format_arguments_for_patterns,
)

pytestmark = pytest.mark.anyio

PATTERNS = st.lists(st.sampled_from(["a*", "b*", "*", "ab", "c"]), max_size=3).map(tuple)


@given(
    text=st.sampled_from(["a", "ab", "b x", "c"]),
    allow=PATTERNS,
    ask=PATTERNS,
    deny=PATTERNS,
    default=st.sampled_from(["allow", "ask", "deny"]),
    by_command=st.booleans(),
)
def test_one_more_pattern_never_loosens_what_stands_before_it(
    *, text, allow, ask, deny, default, by_command
):
    strict = {"deny": 0, "ask": 1, "allow": 2}

    def found(**own):
        kept = {"allow": allow, "ask": ask, "deny": deny, **own}
        return strict[
            decide_permission(
                PermissionRules(default=default, is_shell=by_command, **kept), text
            ).permission
        ]

    assert found(deny=(*deny, "*")) == 0
    assert found(deny=()) >= found()
    assert found(ask=()) >= found() or default == "deny"
    assert found(allow=()) <= found() or default == "allow"


def test_the_pattern_that_decided_is_named():
    rules = PermissionRules(
        default="ask", allow=("git *",), ask=("git push*",), deny=("git push -f*",)
    )
    said = [
        decide_permission(rules, text) for text in ("git push -f x", "git push", "git log", "ls")
    ]
    assert [(each.permission, each.pattern) for each in said] == [
        ("deny", "git push -f*"),
        ("ask", "git push*"),
        ("allow", "git *"),
        ("ask", None),
    ]


def test_a_pattern_without_a_star_allows_that_very_line_whatever_it_holds():
    rules = PermissionRules(default="ask", allow=("make | tee build.log > x",), is_shell=True)
    assert decide_permission(rules, "make | tee build.log > x").permission == "allow"
    assert decide_permission(rules, "make | tee build.log > y").permission == "ask"


def test_each_command_of_a_line_needs_a_pattern_of_its_own():
    rules = PermissionRules(default="ask", allow=("git *", "tail*"), is_shell=True)
    assert decide_permission(rules, "git log | tail -n 5 && git status").permission == "allow"
    assert decide_permission(rules, "git log | tail -n 5 && make").permission == "ask"


def test_arguments_are_rendered_by_name_with_blanks_in_quotes():
    given = {"path": "a.txt", "n": 3, "all": True, "text": "two words", "to": ["x", {"y": None}]}
    assert format_arguments_for_patterns(given) == (
        'all=true n=3 path=a.txt text="two words" to=["x", {"y": null}]'
    )
    assert (
        format_arguments_for_patterns({"a": "", "b": "x=1", "c": "it's"})
        == 'a="" b="x=1" c="it\'s"'
    )


@given(
    st.dictionaries(st.sampled_from("abc"), st.text(max_size=6) | st.integers(), max_size=3),
    st.dictionaries(st.sampled_from("abc"), st.text(max_size=6) | st.integers(), max_size=3),
)
def test_the_rendering_does_not_depend_on_the_order_of_the_arguments(one, other):
    for order in itertools.permutations(one.items()):
        assert format_arguments_for_patterns(dict(order)) == format_arguments_for_patterns(one)
    joined = {name: (one[name], other.get(name)) for name in one}
    if any(str(mine) != str(others) for mine, others in joined.values()) or len(one) != len(other):
        assert format_arguments_for_patterns(one) != format_arguments_for_patterns(other)


async def permitted(gate, rules, text="x=1", name="tool"):
    return await gate.make_permission_check(rules, lambda asked: text)(invocation(name, {"x": 1}))


async def test_what_is_allowed_is_not_asked_about():
    person = Person("no")
    assert await permitted(PermissionGate(approve=person), PermissionRules(default="allow")) is None
    assert person.asked == []


async def test_a_question_shows_the_tool_the_text_and_the_arguments():
    person = Person("yes")
    assert (
        await permitted(PermissionGate(approve=person), PermissionRules(default="ask"), "make all")
        is None
    )
    (question,) = person.asked
    assert (question.tool, question.text, question.arguments) == ("tool", "make all", {"x": 1})


async def test_always_holds_for_the_same_text_of_the_same_tool_alone():
    person = Person("always")
    gate = PermissionGate(approve=person)
    for name, text in (("a", "x"), ("a", "x"), ("a", "y"), ("b", "x"), ("b", "x")):
        assert await permitted(gate, PermissionRules(default="ask"), text, name) is None
    assert [(each.tool, each.text) for each in person.asked] == [("a", "x"), ("a", "y"), ("b", "x")]


async def test_always_does_not_outdo_a_denial():
    gate = PermissionGate(approve=Person("always"))
    assert await permitted(gate, PermissionRules(default="ask"), "x") is None
    assert await permitted(gate, PermissionRules(default="ask", deny=("x",)), "x")


async def test_yes_holds_once():
    person = Person("yes")
    gate = PermissionGate(approve=person)
    for _ in range(2):
        assert await permitted(gate, PermissionRules(default="ask")) is None
    assert len(person.asked) == 2


async def test_where_nobody_is_there_to_ask_nothing_runs_that_needs_asking():
    assert await permitted(
        PermissionGate(approve=decline_unattended), PermissionRules(default="ask")
    ) == (
        "[not run: tool needs approval for this, and nobody can approve it here. The user you talk "
        "to cannot allow it. Do not try to reach the same in another way; go on without it, and "
        "say what has to change in agent.yaml: a pattern under `allow` of tool has to match the "
        "call.]"
    )


async def test_where_a_pattern_wants_somebody_asked_it_is_named():
    rules = PermissionRules(default="allow", ask=("x=*",))
    said = await permitted(PermissionGate(approve=decline_unattended), rules)
    assert "agent.yaml: the pattern 'x=*' under `ask` of tool would have to go.]" in (said or "")


async def test_a_call_that_nobody_could_allow_is_logged_by_its_tool_alone(caplog):
    with caplog.at_level(logging.INFO, "trimtab.agent"):
        await permitted(
            PermissionGate(approve=decline_unattended), PermissionRules(default="ask"), "rm secret"
        )
    (record,) = caplog.records
    told = "tool was not run: the call needs approval, and nobody can approve it here"
    assert (record.getMessage(), record.tool) == (told, "tool")
    assert "secret" not in str(vars(record))


async def test_a_person_s_no_is_told_as_one():
    assert (
        await permitted(PermissionGate(approve=Person("no")), PermissionRules(default="ask"))
        == USER_REFUSED_TEXT
    )


async def test_a_denial_names_its_pattern_and_tells_the_model_not_to_go_around_it():
    said = await permitted(
        PermissionGate(approve=decline_unattended), PermissionRules(default="allow", deny=("x=*",))
    )
    assert said == (
        "[not run: the pattern 'x=*' denies it, by the user's settings in agent.yaml. Do not try "
        "to reach the same in another way; go on without it, or tell the user what you would need "
        "it for.]"
    )


async def test_a_call_that_could_not_run_anyway_is_answered_without_asking():
    person = Person()

    def text_of(asked):
        raise ToolError("the argument `command` is missing")

    permit = PermissionGate(approve=person).make_permission_check(
        PermissionRules(default="ask"), text_of
    )
    assert await permit(invocation("shell", {})) == "the argument `command` is missing"
    assert person.asked == []
