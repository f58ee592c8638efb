"""Callers who keep a list of their own and send all of it each time, with its past rewritten."""

from __future__ import annotations

import json
from typing import Any

from tests.adversary import check_anthropic, check_openai_chat, laws
from tests.adversary.conversation import Conversation
from tests.adversary.dice import Dice
from tests.adversary.laws import Question, Size
from tests.adversary.speech import Call, Reply, reply, result
from tests.adversary.subject import POLICIES, CannotFit, Settings, Subject, dumps
from tests.adversary.texts import text

Wire = dict[str, Any]
MODELS = {"anthropic": "claude-sonnet-4-5", "openai_chat": "gpt-4o"}


def resend(conversation: Conversation, dice: Dice) -> None:
    """A list of its own, beside the conversation; what is found counts for it."""
    dialect = dice.one_of(list(MODELS))
    window, policy = dice.one_of((4_000, 20_000)), dice.one_of(POLICIES)
    subject = Subject(Settings(model=MODELS[dialect], policy=policy, window=window))
    history: list[Wire] = []
    for _ in range(dice.between(4, 13)):
        if history and dice.chance(0.25):
            _rewrite(history, dice)
        words = text(dice, dice.one_of((40, 400, 4_000)))
        question = Question(name=conversation.name(dice), words=words)
        history.append({"role": "user", "content": question.text})
        subject.sync(history)
        try:
            request = json.loads(dumps(subject.request()))
        except CannotFit:
            return
        _check(conversation, subject, request, dialect, question)
        if dice.chance(0.6):
            _use_a_tool(history, dialect, conversation.name(dice), dice)
        history.append({"role": "assistant", "content": f"‹{conversation.name(dice)}› Done."})
    subject.sync(history)
    subject.sync(history)
    conversation.broke("v12", laws.as_many(len(history), subject.messages))


def _check(
    conversation: Conversation, subject: Subject, request: Wire, dialect: str, question: Question
) -> None:
    conversation.findings.requests += 1
    conversation.shown = request
    if dialect == "anthropic":
        conversation.broke("v3", check_anthropic.check(request))
    else:
        conversation.broke("v3", check_openai_chat.check(request))
        conversation.broke("v3", check_openai_chat.check_template(request))
    input_bound, output = subject.bound(), laws.output_of(request)
    size = Size(bound=input_bound, output=output, limit=subject.limit)
    conversation.broke("v7", laws.fits(size))
    conversation.broke("v1", laws.newest_is_there(request, question, size))
    now, whole = laws.kept_of(request, question), laws.all_of(question)
    conversation.broke("v1", laws.newest_keeps_its_share(now, whole, question, subject.room()))


def _rewrite(history: list[Wire], dice: Dice) -> None:
    """Go back to a place at which a reply without calls was the last."""
    del history[dice.below(len(history)) :]
    while history and not (
        history[-1]["role"] == "assistant" and isinstance(history[-1]["content"], str)
    ):
        history.pop()


def _use_a_tool(history: list[Wire], dialect: str, name: str, dice: Dice) -> None:
    call = Call(id=f"call_{name}", tool="run_command", argument="ls")
    wire, _ = reply(dialect, Reply(id=name, model="", calls=[call]), dice)
    if dialect == "anthropic":
        history.append({"role": "assistant", "content": wire["content"]})
    else:
        history.append(wire["choices"][0]["message"])
    history.append(result(dialect, call.id, text(dice, 900)))
