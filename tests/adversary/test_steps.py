"""A context that breaks a promise is found out by the step that asks for it; one that keeps it is
not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.adversary import steps
from tests.adversary.asking import request_of
from tests.adversary.conversation import SMALL, Conversation
from tests.adversary.dice import Dice
from tests.adversary.findings import Findings
from tests.adversary.resending import resend
from tests.adversary.subject import RequestChangedError, Subject

SEED = 40
"""Of a conversation whose first steps break nothing."""
Act = Callable[[Conversation], object]


def talk() -> Conversation:
    """A user and a model have said some things, and nobody waits for a result."""
    conversation = Conversation(SEED, replace(SMALL, windows=(120_000,)), Findings())
    for number in range(6):
        conversation.ask(Dice(SEED, "ask", number), 100)
        steps.turn(conversation, Dice(SEED, "turn", number))
        while conversation.open_calls:
            conversation.return_result(Dice(SEED, "result", number, len(conversation.said)))
    steps.turn(conversation, Dice(SEED, "last"))
    conversation.open_calls.clear()
    return conversation


class Always(Dice):
    """Whatever may be done is done."""

    def chance(self, share: float) -> bool:
        return True


def ask(conversation: Conversation) -> None:
    """A request with a preview, and a look back at the one before."""
    conversation.ask(Dice(SEED, "more"), 20)
    request_of(conversation, Always(SEED, "request"))


def unknown(self: Subject, handle: str) -> str:
    raise LookupError(f"{handle} names nothing")


def changed(self: Subject, position: int) -> dict[str, Any]:
    raise RequestChangedError(f"the request of {position} is another")


def another(self: Subject) -> Subject:
    made = Subject(self.settings)
    made.add({"role": "user", "content": "Good morning."})
    return made


def not_rewound(self: Subject, handle: str) -> None:
    """Does nothing."""


def crash(self: Subject, handle: str) -> None:
    raise RuntimeError("the log is gone")


def undo_and_reveal(conversation: Conversation) -> None:
    steps.rewind(conversation, Dice(SEED, "rewind"))
    for number in range(30):
        steps.reveal(conversation, Dice(SEED, "reveal", number))


FAULTS: dict[str, tuple[Act, str, Any]] = {
    "what is recalled is what was said": (
        lambda c: steps.recall(c, Dice("a")),
        "recall",
        lambda self, handle: "something else",
    ),
    "every handle in force is known": (lambda c: steps.recall(c, Dice("a")), "recall", unknown),
    "what is recalled in a fork is what was said": (
        lambda c: steps.fork(c, Dice("a")),
        "recall",
        lambda self, handle: "something else",
    ),
    "what was erased is nowhere in the log": (
        lambda c: [steps.erase(c, Dice("erase", n)) for n in range(4)],
        "erase",
        lambda self, handle: None,
    ),
    "what was erased or taken back is in no request": (
        lambda c: steps.rewind(c, Dice("a")),
        "rewind",
        not_rewound,
    ),
    "what was taken back is not shown again": (
        undo_and_reveal,
        "reveal",
        lambda self, handle: None,
    ),
    "a loaded log makes the same request": (
        lambda c: steps.load_the_log(c, Dice("a")),
        "loaded",
        another,
    ),
    "a preview is the request": (ask, "preview", lambda self, volatile: {"messages": []}),
    "a past request is rebuilt as it was": (ask, "rebuilt", lambda self, position: {}),
    "a past request is rebuilt": (ask, "rebuilt", changed),
    "a history has as many messages as were sent": (
        lambda c: [resend(c, Dice("resend", n)) for n in range(3)],
        "messages",
        property(lambda self: 1_000),
    ),
}


@pytest.mark.parametrize("rule", FAULTS)
def test_a_broken_promise_is_found(rule, monkeypatch):
    act, name, faulty = FAULTS[rule]
    conversation = talk()
    act(conversation)
    assert rule not in {violation.rule for violation in conversation.findings.told}
    monkeypatch.setattr(Subject, name, faulty)
    conversation = talk()
    act(conversation)
    assert rule in {violation.rule for violation in conversation.findings.told}


def test_what_breaks_the_prefix_is_known_by_the_names_of_its_events():
    subject = talk().subject
    since = subject.position
    subject.request()
    assert not subject.prefix_broken_since(since)
    assert not subject.hid_since(since)
    breaks: tuple[Callable[[], object], ...] = (
        lambda: subject.change(replace(subject.settings, window=60_000)),
        lambda: subject.erase("m2"),
        lambda: subject.rewind("m3"),
        lambda: subject.reveal("m2"),
    )
    for act in breaks:
        since = subject.position
        act()
        assert subject.prefix_broken_since(since)
    subject.add({"role": "user", "content": "word " * 5_000})
    subject.change(replace(subject.settings, window=3_000))
    since = subject.position
    subject.request()
    assert subject.hid_since(since)


def test_an_error_that_nobody_documents_ends_a_conversation_and_is_told(monkeypatch):
    monkeypatch.setattr(Subject, "add", crash)
    findings = Findings()
    steps.have(SEED, SMALL, findings)
    (violation,) = findings.told
    assert (violation.kind, violation.rule) == ("v13", "RuntimeError is not raised")
    assert "the log is gone (test_steps.py:" in violation.detail


def test_a_conversation_that_cannot_go_on_is_no_violation(monkeypatch):
    monkeypatch.setattr(steps, "request_of", lambda conversation, dice: None)
    findings = Findings()
    steps.have(SEED, SMALL, findings)
    assert findings.violations == 0
    assert findings.figures["ended_early"] == 1
