"""Read logs, replay them and print the result: all of `trimtab replay` after its first line."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from trimtab.cli.replay_screen import Screen, list_screen_lines, list_share_lines
from trimtab.cli.text_format import (
    escape_control_characters,
    format_count,
    join_names,
    wrap_for_terminal,
)
from trimtab.cli.token_count import parse_token_count
from trimtab.engine.policy.config import Goal
from trimtab.models.catalog import find_model_info, resolve_model_info, suggest_model_names
from trimtab.replay.billing import get_provider_pricing
from trimtab.replay.locations import RECORDING_SUFFIXES
from trimtab.replay.payments import Payments
from trimtab.replay.readers import RECORDING_FORMATS_TEXT, UnreadableRecording, read_recordings
from trimtab.replay.runner import EVERYTHING, ReplaySetup, replay_all
from trimtab.replay.savings import ReplayStudy, compute_savings
from trimtab.replay.selection import RecordedConversation, select_conversations

REPLAYED_GOALS: dict[str, Goal] = {"auto": "balanced", "auto:cost": "cost"}
"""The goals under which the default policy is replayed, by the names on the screen."""
DEFAULT_REPLAY_MODEL = "claude-sonnet-4-5"
MAX_REPLAYED_CALLS = 3_000
"""Calls after which no more sessions are replayed, unless the user names a number of sessions. They
take about half a minute on one core; what was paid is read from all sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The options of the command, as they were typed."""

    window: str | None
    model: str | None
    min_calls: int
    limit: int | None
    jobs: int | None
    as_json: bool
    share: bool


def run_replay(named: list[Path], files: list[Path], options: ReplayOptions) -> None:
    """Read the files, replay their conversations and print what it says."""
    notes = Console(stderr=True)
    try:
        window = None if options.window is None else parse_token_count(options.window)
    except ValueError as error:
        _print_note(notes, f"trimtab replay: {error}", "red")
        raise typer.Exit(2) from error
    payments, unreadable = Payments(), list[UnreadableRecording]()
    conversations = select_conversations(
        _read_and_price(files, payments, unreadable, notes),
        min_calls=options.min_calls,
        limit=options.limit,
        max_calls=MAX_REPLAYED_CALLS if options.limit is None else None,
    )
    _describe_skipped(unreadable, notes)
    if not conversations:
        why = _explain_nothing_to_replay(named, len(payments.total.sessions), options.min_calls)
        _print_note(notes, f"trimtab replay: {why}")
        raise typer.Exit(1)
    groups = _group_by_model(conversations, options.model, notes)
    studies = _run_studies(groups, window, options.jobs, notes)
    screen = Screen(payments, compute_savings(studies), len(unreadable))
    if options.as_json:
        typer.echo(json.dumps(screen.to_json(), indent=2))
        return
    lines = list_share_lines(screen) if options.share else list_screen_lines(screen)
    typer.echo(wrap_for_terminal(sys.stdout, escape_control_characters("\n".join(lines))))


def _read_and_price(
    files: list[Path], payments: Payments, skipped: list[UnreadableRecording], notes: Console
) -> Iterator[RecordedConversation]:
    """Yield the conversations of all files, and add up what was paid for each."""
    with _show_progress(notes) as bar:
        for file in bar.track(files, description="reading"):
            for conversation in read_recordings(file, skipped.append):
                payments.add(conversation)
                yield conversation


def _show_progress(notes: Console) -> Progress:
    columns: list[Any] = [
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    ]
    return Progress(*columns, console=notes, transient=True, disable=not notes.is_terminal)


def _describe_skipped(skipped: list[UnreadableRecording], notes: Console) -> None:
    if skipped:
        files = format_count(len({error.path for error in skipped}), "file")
        count = f"Skipped {format_count(len(skipped), 'entry')} of {files} that could not be read"
        _print_note(notes, f"{count}, the first in {skipped[0]}", "yellow")


def _print_note(notes: Console, text: str, style: str | None = None) -> None:
    # A text may come from a log, such as the name of a model.
    text = escape_control_characters(text)
    notes.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _explain_nothing_to_replay(paths: list[Path], sessions: int, min_calls: int) -> str:
    """Explain why there is nothing to replay, and what to do."""
    if sessions:
        return (
            f"{format_count(sessions, 'session')} found, but none is left to replay; lower "
            f"--min-calls {min_calls}"
        )
    return (
        f"no conversations found in {join_names([str(path) for path in paths])}; supported "
        f"formats: {RECORDING_FORMATS_TEXT}, in files whose names end in "
        f"{', '.join(RECORDING_SUFFIXES)}"
    )


def _group_by_model(
    chosen: list[RecordedConversation], model: str | None, notes: Console
) -> dict[str, list[RecordedConversation]]:
    """Return the conversations by the model to replay them with, the one with most calls first."""
    groups: dict[str, list[RecordedConversation]] = {}
    calls: Counter[str] = Counter()
    for conversation in chosen:
        model_name = model or conversation.model or DEFAULT_REPLAY_MODEL
        info = find_model_info(model_name)
        name = info.name if info is not None else model_name
        groups.setdefault(name, []).append(conversation)
        calls[name] += conversation.calls
    if model is None and any(conversation.model is None for conversation in chosen):
        why = f"assuming model {DEFAULT_REPLAY_MODEL} for logs that name none"
        _print_note(notes, f"{why}; --model chooses another", "yellow")
    for name in groups:
        if find_model_info(name) is None:
            _print_note(notes, _describe_unknown_model(name), "yellow")
    return {name: groups[name] for name, _ in calls.most_common()}


def _run_studies(
    groups: dict[str, list[RecordedConversation]],
    window: int | None,
    jobs: int | None,
    notes: Console,
) -> list[ReplayStudy]:
    """Replay the conversations of each model under its own prices and window."""
    studies: list[ReplayStudy] = []
    with _show_progress(notes) as bar:
        task = bar.add_task("replaying", total=sum(one.calls for g in groups.values() for one in g))
        calls_before = 0
        for model, group in groups.items():
            info = find_model_info(model)
            # A window that logs name is that of the model which they name.
            windows = {one.window for one in group if find_model_info(one.model or "") == info}
            size = window if window is not None or len(windows) != 1 else next(iter(windows))
            setups = list_setups(model, size)
            pricing = get_provider_pricing(model)
            runs = replay_all(
                group,
                setups,
                {pricing.name: pricing.rules},
                jobs=jobs,
                on_progress=lambda done, _, calls_before=calls_before, setups=setups: bar.update(
                    task, completed=calls_before + done / len(setups)
                ),
            )
            calls_before += sum(one.calls for one in group)
            studies.append(
                ReplayStudy(conversations=group, setups=setups, runs=runs, pricing=pricing)
            )
    return studies


def list_setups(model: str, window: int | None) -> list[ReplaySetup]:
    """Return the setups to replay a model under. The first one sends everything."""
    options: dict[str, Any] = {} if window is None else {"context_window": window}
    setups = [ReplaySetup(name=EVERYTHING, options={"policy": EVERYTHING, **options}, model=model)]
    if resolve_model_info(model).dialect is None:
        options["dialect"] = "openai_chat"
    for name, goal in REPLAYED_GOALS.items():
        goal_options = {"policy": "auto", "goal": goal, **options}
        setups.append(ReplaySetup(name=name, options=goal_options, model=model))
    return setups


def _describe_unknown_model(model: str) -> str:
    close = suggest_model_names(model)
    hint = f": did you mean {' or '.join(close)}?" if close else "."
    window_tokens = resolve_model_info(model).context_window
    return (
        f"{model} is not in the catalog{hint} Its window is assumed to have {window_tokens:,} "
        "tokens, and the cache rules may be wrong. Name another model with --model, or set the "
        "size of the window with --window"
    )
