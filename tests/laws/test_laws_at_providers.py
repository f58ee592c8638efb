"""The provider takes each request, by rules from its documentation that share no code with the
library: see tests/provider_rules."""

from __future__ import annotations

from typing import Any

from tests.laws.lives import law
from tests.laws.oracle import tell
from tests.laws.test_law_2_pairs import erased
from tests.provider_rules import anthropic, openai_chat, openai_responses
from tests.provider_rules.rules import Broken
from tests.strategies.life import Hooks, Life
from tests.strategies.logs import Story, stories

RULES_OF_A_CONTINUED_REPLY = (
    "with thinking, the last message is not the assistant's",
    "this model goes on with no reply that has begun",
    "a reply to be continued does not end in white space",
    "the last block of a reply is not thinking",
)


def broken_rules(dialect: str, request: dict[str, Any]) -> list[Broken]:
    match dialect:
        case "anthropic":
            return list(anthropic.check(request))
        case "openai_chat":
            return list(openai_chat.check(request))
        case _:
            return list(openai_responses.check(request, reasons=True))


def is_the_users_wish(broken: Broken, life: Life) -> bool:
    """Whether the user has asked for what the provider refuses: for a reply to be continued, or
    that thinking is erased in a loop that is still open."""
    messages = tell(life.events).messages
    continues_reply = messages[max(messages)].role == "assistant"
    of_last_message = broken.rule in RULES_OF_A_CONTINUED_REPLY
    has_erased = any(erased(message) for message in messages.values())
    return (continues_reply and of_last_message) or (has_erased and "thinking" in broken.rule)


def the_provider_takes_it(life: Life, request: dict[str, Any]) -> None:
    broken = broken_rules(life.dialect, request)
    assert [rule for rule in broken if not is_the_users_wish(rule, life)] == []


@law(stories)
def test_the_provider_takes_each_request(story: Story) -> Hooks:
    return Hooks(asked=the_provider_takes_it)
