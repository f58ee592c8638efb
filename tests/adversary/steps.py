"""What else happens in a conversation: people look back, undo, erase, change their minds.

`have` is the whole: one conversation of a seed, from its first message to its last check.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.adversary import laws
from tests.adversary.asking import request_of
from tests.adversary.conversation import Conversation, Scale
from tests.adversary.counting import count_request
from tests.adversary.dice import Dice
from tests.adversary.findings import Broken, Findings
from tests.adversary.resending import resend
from tests.adversary.subject import (
    GOALS,
    POLICIES,
    CannotFit,
    Subject,
    UnusableSummary,
    dumps,
)
from tests.adversary.texts import FALSE_SUMMARY, text

Step = Callable[[Conversation, Dice], None]
Wire = dict[str, Any]

ROOMY = 120_000
"""Tokens of the window that is set when nothing else makes a request fit."""


class Ended(Exception):
    """No request can be made any more."""


def have(seed: int, scale: Scale, findings: Findings) -> None:
    """One whole conversation."""
    conversation = Conversation(seed, scale, findings)
    findings.conversations += 1
    try:
        conversation.ask(Dice(seed, "first"))
        turn(conversation, Dice(seed, "first", "turn"))
        for number in range(scale.steps):
            _step(conversation, Dice(seed, number))
        recall(conversation, Dice(seed, "last"), most=30)
    except Ended:
        findings.figures["ended_early"] += 1
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
        conversation.crashed(error)


def _step(conversation: Conversation, dice: Dice) -> None:
    conversation.now += -1_000 if dice.chance(0.03) else dice.one_of((1, 5, 20, 400))
    if conversation.open_calls and dice.chance(0.93):
        _go_on(conversation, dice)
        turn(conversation, dice)
        return
    at = dice.below(sum(STEPS.values()))
    for step, weight in STEPS.items():
        at -= weight
        if at < 0:
            conversation.did.append(step.__name__.replace("_", " "))
            step(conversation, dice)
            return


def _go_on(conversation: Conversation, dice: Dice) -> None:
    """A result comes in, or the user does not wait for it."""
    what = dice.share()
    if what < 0.04:
        conversation.did.append("user speaks while calls wait")
        conversation.ask(dice, 100)
    elif what < 0.07:
        conversation.did.append("user gives up on calls")
        conversation.ask(dice, 50)
        conversation.open_calls.clear()
    else:
        conversation.did.append("result")
        conversation.return_result(dice)


def turn(conversation: Conversation, dice: Dice) -> None:
    """A request, refused now and then, and its reply; nothing while calls wait."""
    if conversation.open_calls:
        return
    request = _request_or_room(conversation, dice)
    if dice.chance(0.05):
        request = _refuse(conversation, dice, request)
    elif dice.chance(0.03):
        conversation.did.append("server error")
        conversation.subject.server_error()
        request = _request_or_room(conversation, dice)
    usage = count_request(request)
    if conversation.dialect == "anthropic":
        usage = int(usage * 1.3) + 350
    conversation.answer(dice, usage if dice.chance(0.8) else None)


def _request_or_room(conversation: Conversation, dice: Dice) -> Wire:
    """If nothing fits any more, somebody gives it more room."""
    request = request_of(conversation, dice)
    if request is None:
        conversation.set_window(ROOMY)
        request = request_of(conversation, dice)
    if request is None:
        raise Ended
    return request


def _refuse(conversation: Conversation, dice: Dice, request: Wire) -> Wire:
    """The provider says that the request is too long, with numbers or without."""
    before, limit = conversation.size(request), conversation.subject.limit
    figures: dict[str, int] = {}
    if dice.chance(0.5):
        figures = {"limit": max(1_500, limit * 3 // 4), "input": limit + 10}
    conversation.did.append(f"overflow {figures}")
    try:
        conversation.subject.overflow(**figures)
    except CannotFit:
        return request  # somebody goes on nevertheless
    again = request_of(conversation, dice)
    if again is None:
        return _request_or_room(conversation, dice)
    after = conversation.size(again)
    if figures:
        conversation.broke("v7", laws.respects(after, figures["limit"]))
    else:
        conversation.broke("v2", laws.is_smaller(before, after))
    # A window that is set anew ends what the refusal has taught.
    conversation.set_window((conversation.settings.window or ROOMY) + 1)
    return again


def user_speaks(conversation: Conversation, dice: Dice) -> None:
    conversation.ask(dice)
    conversation.open_calls.clear()
    turn(conversation, dice)


def recall(conversation: Conversation, dice: Dice, most: int = 6) -> None:
    """Law 6: whatever was said and not erased is recalled to the letter."""
    _check_recall(
        conversation, conversation.subject, "what is recalled is what was said", dice, most
    )


def _check_recall(
    conversation: Conversation, subject: Subject, rule: str, dice: Dice, most: int
) -> None:
    parts = [
        (f"{said.handle}.{part}", words)
        for said in conversation.said
        for part, words in said.texts.items()
        if not {said.handle, f"{said.handle}.{part}"} & conversation.erased
    ]
    for handle, words in dice.some_of(parts, most):
        try:
            text = subject.recall(handle)
        except LookupError as error:
            conversation.broke("v10", [Broken("every handle in force is known", str(error)[:200])])
            continue
        conversation.broke("v10", laws.recalled(rule, words, text))


def _handle(conversation: Conversation, dice: Dice, whole: float) -> str | None:
    """Of a message, or of one of its parts; None if there is none."""
    candidates = [each for each in conversation.said if each.texts]
    if not candidates:
        return None
    one = dice.one_of(candidates)
    part = dice.one_of(list(one.texts))
    return one.handle if dice.chance(whole) else f"{one.handle}.{part}"


def reveal(conversation: Conversation, dice: Dice) -> None:
    """Now and then of what was taken back, which a handle no longer names."""
    if conversation.undone and dice.chance(0.2):
        try:
            conversation.subject.reveal(dice.one_of(conversation.undone).handle)
        except LookupError:
            return
        conversation.broke("v10", [Broken("what was taken back is not shown again")])
    elif handle := _handle(conversation, dice, 0.5):
        conversation.subject.reveal(handle)


def pin(conversation: Conversation, dice: Dice) -> None:
    if handle := _handle(conversation, dice, 1.0):
        conversation.subject.pin(handle, pinned=dice.chance(0.4))


def erase(conversation: Conversation, dice: Dice) -> None:
    """Anything but the newest user message, which must be there."""
    handle = _handle(conversation, dice, 0.5)
    message = (handle or "").partition(".")[0]
    if handle is None or message in conversation.erased or handle in conversation.erased:
        return
    target = next(each for each in conversation.said if each.handle == message)
    newest = conversation.question
    if newest is not None and any(newest.ends[0] in words for words in target.texts.values()):
        return
    conversation.subject.erase(handle)
    conversation.erased.add(handle)
    log = conversation.subject.log()
    for part, words in target.texts.items():
        if handle in (message, f"{message}.{part}"):
            conversation.broke("v10", laws.is_gone(words, log))
            conversation.gone |= set(laws.NAME.findall(words)[:1])


def rewind(conversation: Conversation, dice: Dice) -> None:
    """To one of the newer half of the messages; then the user goes on from there."""
    half = conversation.said[len(conversation.said) // 2 :]
    if len(conversation.said) <= 6:
        return
    to = dice.one_of(half)
    conversation.subject.rewind(to.handle)
    messages = conversation.said
    conversation.said = [each for each in messages if each.position <= to.position]
    for each in messages[len(conversation.said) :]:
        conversation.undone.append(each)
        conversation.gone |= each.names
    conversation.open_calls.clear()
    conversation.takes_turns = False
    conversation.last_role = ""
    conversation.ask(dice, 80)
    turn(conversation, dice)


def switch_model(conversation: Conversation, dice: Dice) -> None:
    """Thinking and the exact tokenizer go with the model that they were for."""
    model, dialect = dice.one_of(conversation.models)
    now = conversation.settings
    changes = {"model": model, "dialect": dialect, "max_output": None, "thinking": False}
    conversation.subject.change(replace(now, **changes, exact=now.exact and model == now.model))


def change_window(conversation: Conversation, dice: Dice) -> None:
    conversation.set_window(dice.one_of(conversation.scale.windows))


def change_policy(conversation: Conversation, dice: Dice) -> None:
    policy, goal = dice.one_of(POLICIES), dice.one_of(GOALS)
    conversation.subject.change(replace(conversation.settings, policy=policy, goal=goal))


def load_the_log(conversation: Conversation, dice: Dice) -> None:
    """Law 7: a context made from the log makes the same request."""
    if conversation.open_calls:
        return  # a request would make up their results
    twin = conversation.subject.loaded()
    one, other = _request_of(conversation.subject), _request_of(twin)
    conversation.broke("v11", laws.same("a loaded log makes the same request", one, other))
    conversation.before = None


def fork(conversation: Conversation, dice: Dice) -> None:
    """A fork knows all that was said before it, and can be asked."""
    twin = conversation.subject.fork()
    rule = "what is recalled in a fork is what was said"
    _check_recall(conversation, twin, rule, dice, 3)
    _request_of(twin)


def _request_of(subject: Subject) -> str:
    try:
        return dumps(subject.request())
    except CannotFit:
        return "cannot fit"


def summarise(conversation: Conversation, dice: Dice) -> None:
    """Somebody writes a summary: a good one, an empty one, a huge one, or one that imitates."""
    good_summary = text(dice, 800, "english")
    words = dice.one_of(("", "  \n", "The user asked.", "x" * 50_000, FALSE_SUMMARY, good_summary))
    try:
        conversation.subject.summarise(words, forced=dice.chance(0.3))
    except UnusableSummary:
        return


def system_message(conversation: Conversation, dice: Dice) -> None:
    """Only Chat Completions takes one in the middle from everybody."""
    if conversation.dialect != "openai_chat" or conversation.last_role != "assistant":
        return
    if conversation.open_calls:
        return
    conversation.subject.add({"role": "system", "content": f"Note. {text(dice, 50, 'english')}"})
    conversation.takes_turns = False


def report(conversation: Conversation, dice: Dice) -> None:
    conversation.subject.report()


def resend_elsewhere(conversation: Conversation, dice: Dice) -> None:
    resend(conversation, dice)


STEPS: dict[Step, int] = {
    user_speaks: 60,
    recall: 6,
    reveal: 4,
    pin: 4,
    erase: 3,
    rewind: 4,
    switch_model: 5,
    change_window: 3,
    change_policy: 2,
    load_the_log: 2,
    fork: 2,
    summarise: 2,
    system_message: 2,
    report: 1,
    resend_elsewhere: 4,
}
"""By step: how often it is taken, when no call waits for its result."""
