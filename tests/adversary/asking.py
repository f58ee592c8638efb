"""The next request of a conversation, checked by every rule that applies to it."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.adversary import (
    check_anthropic,
    check_converse,
    check_openai_chat,
    check_openai_responses,
    laws,
)
from tests.adversary.conversation import Conversation
from tests.adversary.counting import count_request, has_picture
from tests.adversary.dice import Dice
from tests.adversary.findings import Broken
from tests.adversary.laws import Size
from tests.adversary.subject import REASONING, CannotFit, RequestChangedError, at_converse, dumps
from tests.adversary.texts import text

Wire = dict[str, Any]
BEDROCK_NAME = re.compile(r"^arn:|(?:^|\.)(?:anthropic|amazon|meta)\.")


def request_of(conversation: Conversation, dice: Dice) -> Wire | None:
    """The next request; None if there is none that fits."""
    subject = conversation.subject
    volatile = text(dice, 60, "english") if dice.chance(0.08) else None
    looks = dice.chance(0.05)
    since, input_bound = subject.position, subject.bound(volatile)
    try:
        preview = dumps(subject.preview(volatile)) if looks else None
        wire_text = dumps(subject.request(volatile))
    except CannotFit as refusal:
        conversation.findings.figures["cannot_fit"] += 1
        conversation.tightest = subject.room(volatile)
        conversation.broke("v7", laws.says_why(refusal.needed, refusal.limit))
        return None
    conversation.shown = request = json.loads(wire_text)
    conversation.findings.requests += 1
    size = conversation.size(request, volatile)
    if preview is not None:
        conversation.broke("v9", laws.same("a preview is the request", preview, wire_text))
    if subject.hid_since(since):
        conversation.broke("v2", laws.hides(input_bound, size.bound))
    conversation.check_newest(request, size, subject.room(volatile))
    conversation.broke("v10", laws.is_not_said(conversation.gone, wire_text))
    _check_wire(conversation, request, volatile)
    _check_size(conversation, request, size)
    _check_again(conversation, wire_text, volatile)
    _check_prefix(conversation, request, volatile)
    if dice.chance(0.1):
        _check_past(conversation, dice)
    return request


def _check_wire(conversation: Conversation, request: Wire, volatile: str | None) -> None:
    if conversation.dialect == "anthropic":
        conversation.broke("v3", check_anthropic.check(request))
        if BEDROCK_NAME.search(conversation.settings.model):
            conversation.broke("v3", check_converse.check(at_converse(request)))
    elif conversation.dialect == "openai_chat":
        conversation.broke("v3", check_openai_chat.check(request))
        if conversation.takes_turns and not conversation.settings.model.startswith("gpt-"):
            broken = check_openai_chat.check_template(request)
            tail = " (volatile text)" if volatile else ""
            conversation.broke("v3", (Broken(rule + tail, detail) for rule, detail in broken))
    else:
        reasons, belongs = conversation.settings.model in REASONING, conversation.belongs
        faults = check_openai_responses.check(request, reasons=reasons, belongs=belongs)
        conversation.broke("v3", faults)


def _check_size(conversation: Conversation, request: Wire, size: Size) -> None:
    conversation.broke("v7", laws.fits(size))
    if conversation.dialect == "anthropic" or has_picture(request):
        return  # what the provider counts there is not known here
    real = count_request(request)
    if conversation.settings.exact:
        conversation.broke("v4", laws.really_fits(real, size))
        return
    figures = conversation.findings.figures
    figures["estimated"] += 1
    figures["estimated_over_limit"] += real + size.output > size.limit


def _check_again(conversation: Conversation, written: str, volatile: str | None) -> None:
    position = conversation.subject.position
    again = dumps(conversation.subject.request(volatile))
    conversation.broke("v9", laws.same("asked twice, the request is the same", written, again))
    conversation.broke("v9", laws.records_nothing(position, conversation.subject.position))
    conversation.requests = [*conversation.requests[-7:], (position, written)]


def _check_prefix(conversation: Conversation, request: Wire, volatile: str | None) -> None:
    blocks, before = laws.blocks_of(request, conversation.dialect), conversation.before
    last = conversation.requests[-2][0] if len(conversation.requests) > 1 else 0
    if before is not None and not conversation.subject.prefix_broken_since(last):
        conversation.broke("v8", laws.grows_at_its_end(before, blocks))
    # The tail of one call is not in the next.
    conversation.before = None if volatile else blocks


def _check_past(conversation: Conversation, dice: Dice) -> None:
    position, wire_text = dice.one_of(conversation.requests)
    try:
        again = dumps(conversation.subject.rebuilt(position))
    except RequestChangedError as change:
        if not conversation.erased:
            fault = Broken("a past request is rebuilt", str(change)[:200])
            conversation.broke("v11", [fault])
        return
    conversation.broke("v11", laws.same("a past request is rebuilt as it was", wire_text, again))
