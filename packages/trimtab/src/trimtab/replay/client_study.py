"""Replay the sessions of one client under what it can be told, and choose."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.models.catalog import find_model_info
from trimtab.replay.advice import (
    AS_IT_IS,
    MIN_CALLS,
    MIN_SESSIONS,
    TRIMTAB,
    Advice,
    Setting,
    choose_settings,
    list_settings,
)
from trimtab.replay.billing import get_provider_pricing
from trimtab.replay.calls import EVERYTHING
from trimtab.replay.runner import OnReplayProgress, replay_all
from trimtab.replay.savings import Saving, add_savings, compute_input_bill, compute_savings
from trimtab.replay.selection import RecordedConversation

DEFAULT_REPLAY_MODEL = "claude-sonnet-4-5"
"""The model of logs that name none."""
MAX_CALLS_IN_PROCESS = 300
"""Calls that one process replays faster than others could be started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientStudy:
    """The sessions of one client, replayed."""

    client: str
    """The client's name."""
    sessions: int
    """Sessions that were replayed."""
    calls: int
    """Calls that were replayed."""
    settings: dict[str, Setting]
    """What the client can be told, by name."""
    advice: Advice
    """What to tell it."""
    advice_by_model: dict[str, Advice]
    """What to tell it by the sessions of one model, if these are enough to judge by."""
    error: float | None
    """How far the computed cost of a conversation's input is from what was paid, as a share: the
    median of the conversations. None if no usage is recorded."""

    @property
    def is_too_little(self) -> bool:
        """Whether there are too few sessions or calls for a judgement."""
        return self.sessions < MIN_SESSIONS or self.calls < MIN_CALLS

    def to_json(self) -> dict[str, Any]:
        """Return plain figures under plain names."""
        advice = self.advice
        return {
            "sessions": self.sessions,
            "calls": self.calls,
            "error": self.error,
            "trimtab": _saving_to_json(advice.trimtab),
            "settings": {name: _saving_to_json(one) for name, one in advice.saving.items()},
            "best": advice.best,
            "next": advice.next,
            "best_by_model": {model: own.best for model, own in self.advice_by_model.items()},
            "lines": list(self.settings[advice.best].lines) if advice.best else [],
        }


def study_client(
    client: str,
    conversations: Sequence[RecordedConversation],
    *,
    model: str | None = None,
    on_progress: OnReplayProgress | None = None,
) -> ClientStudy:
    """Replay conversations of one client, each with the prices and the window of its model.

    Args:
        client: The client's name in logs.
        conversations: The conversations.
        model: The model of all of them. Default: that of each.
        on_progress: Called after each conversation with the calls done and all calls.
    """
    settings = [AS_IT_IS, TRIMTAB, *list_settings(client)]
    groups = _group_by_model(conversations, model)
    all_calls = sum(one.calls for one in conversations)
    calls_before = 0
    savings_by_model: dict[str, dict[str, dict[str, Saving]]] = {}
    errors: list[float] = []
    for name, group in groups.items():
        pricing = get_provider_pricing(name)
        calls = sum(one.calls for one in group)

        def report(done: int, total: int, before: int = calls_before, calls: int = calls) -> None:
            if on_progress is not None:
                on_progress(before + round(calls * done / total), all_calls)

        runs = replay_all(
            group,
            [setting.build_setup(name) for setting in settings],
            {pricing.name: pricing.rules},
            jobs=1 if calls < MAX_CALLS_IN_PROCESS else None,
            on_progress=report,
        )
        calls_before += calls
        savings_by_model[name] = compute_savings(runs, pricing)
        sent = {run.conversation: run for run in runs if run.setup == EVERYTHING}
        bills = [compute_input_bill(one, sent[one.id], pricing) for one in group]
        errors += [abs(computed - paid) / paid for paid, computed in bills if paid]
    advice_by_model = {
        name: choose_settings(_add_up([savings]))
        for name, savings in savings_by_model.items()
        if len(groups[name]) >= MIN_SESSIONS and sum(c.calls for c in groups[name]) >= MIN_CALLS
    }
    return ClientStudy(
        client=client,
        sessions=len({one.session for one in conversations}),
        calls=all_calls,
        settings={setting.name: setting for setting in settings},
        advice=choose_settings(_add_up(list(savings_by_model.values()))),
        advice_by_model=advice_by_model,
        error=statistics.median(errors) if errors else None,
    )


def _group_by_model(
    conversations: Sequence[RecordedConversation], model: str | None
) -> dict[str, list[RecordedConversation]]:
    groups: dict[str, list[RecordedConversation]] = {}
    for conversation in conversations:
        model_name = model or conversation.model or DEFAULT_REPLAY_MODEL
        info = find_model_info(model_name)
        name = info.name if info is not None else model_name
        groups.setdefault(name, []).append(conversation)
    return groups


def _add_up(savings: Sequence[dict[str, dict[str, Saving]]]) -> dict[str, Saving]:
    """Return what each setting saves over all conversations and models."""
    return {
        name: add_savings(one for own in savings for one in own[name].values())
        for name in savings[0]
    }


def _saving_to_json(saving: Saving) -> dict[str, Any]:
    return {**saving._asdict(), "saved": saving.saved, "hidden_share": saving.hidden_share}
