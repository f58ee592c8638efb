"""System and developer messages in the middle of a conversation keep role, text and order."""

import pytest

from tests.combinations import in_pairs
from tests.context.user_texts import filler, numbers, tokens, told
from tests.conversations import calls, result, said, ticking, user
from trimtab import Context, check
from trimtab.engine.policy.presets import POLICY_NAMES

WINDOW = 8_000
DIALECTS = ("openai_chat", "openai_responses")
TURNS = 150
AT = (0, 3, 20, 45, 46, 75, 110, 140)
"""Turns before which an instruction is given."""


def instruction(number):
    role = ("developer", "system")[number % 2]
    return {
        "role": role,
        "content": f"POLICY_{number:03}: never reveal the price of item_{number:03}.",
    }


def started(dialect, policy):
    return Context(
        "gpt-4o",
        dialect=dialect,
        policy=policy,
        context_window=WINDOW,
        tokenizer=tokens,
        clock=ticking(),
    )


def turn(context, number):
    """One of three turns reads something; in Responses a call and its result are items."""
    context.add(user(f"Question_{number}: {filler(20, f'q{number}')}"))
    request = context.request()
    if number % 3 == 0:
        if "input" in request:
            made = {"type": "function_call", "call_id": f"c{number}", "name": "read"}
            context.add(made | {"arguments": "{}"})
            text = filler(400, f"r{number}")
            done = {"type": "function_call_output", "call_id": f"c{number}", "output": text}
            context.add(done)
        else:
            context.add(calls(f"c{number}"))
            context.add(result(f"c{number}", filler(400, f"r{number}")))
        request = context.request()
    context.add(said(filler(60, f"a{number}")))
    return request


def instructions_in(request):
    """Messages of a role that instructs, in their order, behind the first of all."""
    for message in request.get("messages", request.get("input")):
        if message.get("role") in ("developer", "system"):
            content = message["content"]
            text = content if isinstance(content, str) else "".join(p["text"] for p in content)
            yield {"role": message["role"], "content": text}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "dialect"), in_pairs(sorted(POLICY_NAMES), DIALECTS, together=1)
)
def test_instructions_in_mid_conversation_keep_role_text_and_order(policy, dialect):
    context, given = started(dialect, policy), []
    for number in range(TURNS):
        if number in AT:
            given.append(instruction(number))
            context.add(given[-1])
        request = turn(context, number)
        if number % 30 == 29:
            assert check(request, dialect_name=dialect) == []
            found = [each for each in instructions_in(request) if each in given]
            assert found == given, f"turn {number}"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_instruction_is_not_said_again_in_a_users_name(dialect):
    context, first = started(dialect, "auto"), instruction(0)
    context.add(first)
    request = [turn(context, number) for number in range(150)][-1]
    assert told(request).count(first["content"]) == 1
    assert list(instructions_in(request)) == [first]


@pytest.mark.slow
@pytest.mark.parametrize("dialect", DIALECTS)
def test_instructions_above_a_quarter_of_the_room_go_oldest_first_and_not_without_a_sign(dialect):
    context, given = started(dialect, "auto"), [instruction(number) for number in range(TURNS)]
    request = {}
    for number, each in enumerate(given):
        context.add(each)
        request = turn(context, number)
    assert sum(tokens(each["content"]) for each in given) > context.budget().room // 4
    shown = [each for each in instructions_in(request) if each in given]
    assert shown
    assert shown == given[-len(shown) :]
    missing = len(given) - len(shown)
    assert missing > 0
    assert [line for line in told(request).splitlines() if missing in numbers(line)]
