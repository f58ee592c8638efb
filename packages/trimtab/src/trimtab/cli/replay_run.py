"""Read logs, replay them and print the answer: all of `trimtab replay` after its first line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from trimtab.cli.replay_screen import Screen, list_screen_lines
from trimtab.cli.session.changes import open_output
from trimtab.cli.text_format import (
    escape_control_characters,
    format_count,
    join_names,
    wrap_for_terminal,
    wrap_text,
)
from trimtab.inspect.index_page import index_session, render_index
from trimtab.inspect.page import render_page
from trimtab.inspect.sources import read_file_timelines
from trimtab.models.catalog import find_model_info, resolve_model_info, suggest_model_names
from trimtab.replay.client_study import DEFAULT_REPLAY_MODEL, ClientStudy, study_client
from trimtab.replay.locations import RECORDING_SUFFIXES
from trimtab.replay.payments import Payments
from trimtab.replay.readers import RECORDING_FORMATS_TEXT, UnreadableRecording, read_recordings
from trimtab.replay.selection import RecordedConversation, SessionSample

MAX_REPLAYED_CALLS = 3_000
"""Calls after which no more sessions are replayed, over all clients. They take about half a minute
on one core; what was paid is read from all sessions."""
MAX_REPORTED_SESSIONS = 20
"""Sessions that a report shows: those that cost most."""
REPORT_COLUMNS = 100


def run_replay(
    named: list[Path], files: list[Path], *, model: str | None, report: Path | None, as_json: bool
) -> None:
    """Read the files, replay their conversations and print the answer."""
    notes = Console(stderr=True)
    payments, unreadable = Payments(), list[UnreadableRecording]()
    samples: dict[str, SessionSample] = {}
    for conversation in _read_files(files, unreadable, notes):
        payments.add(conversation)
        samples.setdefault(conversation.client, SessionSample(MAX_REPLAYED_CALLS)).add(conversation)
    _describe_skipped(unreadable, notes)
    chosen = {
        client: conversations
        for client, sample in samples.items()
        if (conversations := sample.take(MAX_REPLAYED_CALLS // len(samples)))
    }
    if not chosen:
        _print_note(notes, f"trimtab replay: {_explain_nothing_to_replay(named)}")
        raise typer.Exit(1)
    _describe_models([one for own in chosen.values() for one in own], model, notes)
    screen = Screen(payments, _replay_clients(chosen, model, notes), len(unreadable))
    lines = list_screen_lines(screen)
    if report is not None:
        sources = sorted(payments.by_source, key=lambda source: -payments.by_source[source])
        path = _write_report(report, sources[:MAX_REPORTED_SESSIONS], lines)
        _print_note(notes, f"Report: {path}")
    if as_json:
        typer.echo(json.dumps(screen.to_json(), indent=2))
        return
    typer.echo(wrap_for_terminal(sys.stdout, escape_control_characters("\n".join(lines))))


def _read_files(
    files: list[Path], skipped: list[UnreadableRecording], notes: Console
) -> Iterator[RecordedConversation]:
    with _show_progress(notes) as bar:
        for file in bar.track(files, description="reading"):
            yield from read_recordings(file, skipped.append)


def _replay_clients(
    chosen: dict[str, list[RecordedConversation]], model: str | None, notes: Console
) -> list[ClientStudy]:
    """Replay the sessions of each client under what it can be told."""
    studies: list[ClientStudy] = []
    with _show_progress(notes) as bar:
        for client, conversations in chosen.items():
            task = bar.add_task(f"replaying {client}", total=1.0)
            study = study_client(
                client,
                conversations,
                model=model,
                on_progress=lambda done, total, task=task: bar.update(task, completed=done / total),
            )
            studies.append(study)
    return studies


def _write_report(folder: Path, sources: list[str], lines: list[str]) -> Path:
    """Write the inspector's page of each session, and the answer above their list."""
    folder.mkdir(parents=True, exist_ok=True)
    timelines = [
        timeline
        for source in sources
        for timeline in read_file_timelines(Path(source), lambda _: None, redacted=False)
    ][:MAX_REPORTED_SESSIONS]
    pages = [(f"session-{number:04}.html", one) for number, one in enumerate(timelines, 1)]
    for name, timeline in pages:
        with open_output(folder / name) as file:
            file.write(render_page(timeline))
    index = folder / "index.html"
    with open_output(index) as file:
        sessions = [index_session(name, timeline) for name, timeline in pages]
        file.write(
            render_index(
                "the sessions that cost most",
                sessions,
                answer=wrap_text("\n".join(lines), REPORT_COLUMNS),
            )
        )
    return index


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


def _explain_nothing_to_replay(paths: list[Path]) -> str:
    """Explain why there is nothing to replay, and what to do."""
    return (
        f"no conversations found in {join_names([str(path) for path in paths])}; supported "
        f"formats: {RECORDING_FORMATS_TEXT}, in files whose names end in "
        f"{', '.join(RECORDING_SUFFIXES)}"
    )


def _describe_models(
    conversations: list[RecordedConversation], model: str | None, notes: Console
) -> None:
    """Say which models are assumed or unknown."""
    if model is None and any(conversation.model is None for conversation in conversations):
        why = f"assuming model {DEFAULT_REPLAY_MODEL} for logs that name none"
        _print_note(notes, f"{why}; --model chooses another", "yellow")
    names = {model or conversation.model for conversation in conversations}
    for name in sorted(filter(None, names)):
        if find_model_info(name) is None:
            close = suggest_model_names(name)
            hint = f": did you mean {' or '.join(close)}?" if close else "."
            window = resolve_model_info(name).context_window
            note = (
                f"{name} is not in the catalog{hint} Its window is assumed to have {window:,} "
                "tokens, and the cache rules may be wrong. Name another model with --model"
            )
            _print_note(notes, note, "yellow")
