"""Summary and notice in a chat request: servers whose chat template is strict take it."""

from typing import Any

import pytest

from tests.combinations import in_pairs
from tests.conversations import chat, prose, said, system, talk, use, user
from tests.pictures import PNG_TEXT
from trimtab import Context
from trimtab.engine.log.event import ModelCall
from trimtab.engine.policy.planning.plan import MessageSpan
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.testing.server.openai_chat_rules import validate_chat_request
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.types import PolicyName

STRICT = ProviderSimulatorOptions(template="strict")
NOTICE = "[conversation truncated — 6 older messages omitted]"
KEY = "prompt_cache_breakpoint"


def small(policy: PolicyName, head: str) -> Context:
    return Context(
        "qwen3.8-max",
        dialect="openai_chat",
        policy=policy,
        system=head,
        context_window=9_000,
        max_output_tokens=1_000,
    )


def longer(context: Context, number: int, *, tools: bool) -> list[dict[str, Any]]:
    """One turn more; the requests of it."""
    context.add(user(prose(600, f"question {number}")))
    made = [context.request()]
    if tools:
        made += [use(context, f"c{number}_{each}", prose(900)) for each in range(number % 3)]
    context.add(said(prose(600, f"answer {number}")))
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "head", "tools"), in_pairs(POLICY_NAMES, ["Be brief.", ""], [False, True])
)
def test_a_strict_template_takes_every_request_far_beyond_the_window(policy, head, tools):
    context = small(policy, head)
    for number in range(80):
        for request in longer(context, number, tools=tools):
            validate_chat_request(request, STRICT)
    assert context.window.conversation.dropped_groups or context.window.summary


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_one_turn_that_fills_the_window_many_times_is_taken_by_a_strict_template(policy):
    context = small(policy, "Be brief.")
    talk(context, 8, size=600)
    context.add(user("go"))
    for number in range(60):
        validate_chat_request(use(context, f"c{number}", prose(1_500)), STRICT)


def short(**options: Any) -> Context:
    """A context that hides all but the newest message."""
    context = chat(limits={"max_history_tokens": 30}, **options)
    talk(context, 3, size=300)
    return context


def test_the_notice_is_the_first_text_of_the_message_that_the_user_said():
    context = short(system="Be brief.")
    context.add(user("now"))
    assert context.request()["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": f"{NOTICE}\n\nnow"},
    ]


def test_it_is_a_part_of_its_own_where_the_user_said_parts():
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG_TEXT}"}}
    context = short()
    context.add({"role": "user", "content": [{"type": "text", "text": "look"}, picture]})
    [message] = context.request()["messages"]
    assert message["content"] == [
        {"type": "text", "text": NOTICE},
        {"type": "text", "text": "look"},
        picture,
    ]


def test_it_stands_alone_where_the_user_said_nothing():
    context = short()
    context.add(user(""))
    assert context.request()["messages"] == [{"role": "user", "content": NOTICE}]


def test_summary_and_notice_are_one_message_of_the_users_before_an_assistants():
    context = chat("layered", limits={"max_history_tokens": 200})
    talk(context, 2, size=300)
    context.add_summary("They asked twice.", span=MessageSpan(first=2, last=4))
    talk(context, 3, size=400, start=2)
    context.add(user("now"))
    first, second, *_ = context.request()["messages"]
    assert (first["role"], second["role"]) == ("user", "assistant")
    told, notice = first["content"].split("\n\n")
    assert told.endswith("\nThey asked twice.")
    assert notice.startswith("[conversation truncated — ")


def test_a_system_message_of_the_conversation_is_not_joined():
    context = short()
    context.add(user("now"))
    context.request()
    context.add(system("steer"))
    context.add(said("done"))
    context.pin(context.add(system("stay")))
    context.add(user(prose(400)))
    context.add(user("and then?"))
    roles = [message["role"] for message in context.request()["messages"]]
    assert roles[:2] == ["user", "system"]


def test_between_two_edits_a_joined_message_is_the_same_object():
    context = short()
    context.add(user("now"))
    first = context.request()
    context.add(said("yes"))
    context.add(user("on"))
    second = context.request()
    assert second["messages"][0] is first["messages"][0]
    assert len(second["messages"]) == 3


def test_a_past_request_with_a_joined_message_and_a_tail_is_shown_as_it_was_sent():
    context = short()
    context.add(user("now"))
    sent = context.request(volatile="It is noon.")
    [*_, call] = [event.seq for event in context.events if isinstance(event.body, ModelCall)]
    context.add(said("yes"))
    talk(context, 3, size=300, start=3)
    assert sent["messages"][0]["content"] == f"{NOTICE}\n\nnow\n\nIt is noon."
    assert context.rebuild_request(call) == sent


def test_a_cache_mark_stands_behind_the_message_that_was_joined():
    context = short(model="gpt-5.6", system="Be brief.")
    context.add(user("now"))
    head, first = context.request()["messages"]
    assert KEY in head["content"][-1]
    assert [part["text"] for part in first["content"]] == [f"{NOTICE}\n\nnow"]
    assert KEY in first["content"][-1]
