"""`trimtab replay`: recorded conversations under other policies.

`full,auto:cost,layered:naive` and `200k`, as people type them.

A study as a table on the terminal.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from trimtab.catalog import resolve_model_info
from trimtab.cli.terminal_text_format import format_count, join_names
from trimtab.policy.config import GOALS
from trimtab.policy.presets import POLICY_NAMES
from trimtab.replay.billing import list_billed_providers
from trimtab.replay.readers import (
    RECORDING_FORMATS_TEXT,
    RECORDING_SUFFIXES,
    UnreadableRecording,
    read_recordings,
)
from trimtab.replay.recorded_conversation_selection import (
    CorpusHalf,
    RecordedConversation,
    select_conversations,
)
from trimtab.replay.runner import ReplaySetup, replay_all
from trimtab.replay.study_results import (
    ReplayStudy,
    build_cost_columns,
    build_study,
    build_visibility_and_cache_columns,
    find_best_setup,
)

DEFAULT_REPLAY_MODEL = "claude-sonnet-4-5"


def replay_command(  # noqa: PLR0917 - typer reads the options from its signature
    paths: Annotated[
        list[Path],
        typer.Argument(
            exists=True, help="Logs, exports, transcripts, rollouts, or folders of them."
        ),
    ],
    policies: Annotated[
        str, typer.Option(help="Comma-separated; each may carry a goal, or `naive` for the marks.")
    ] = "full,layered,compact,rolling,thresholds,auto",
    goal: Annotated[str, typer.Option(help="For policies that carry none.")] = "balanced",
    window: Annotated[
        str | None, typer.Option(help="Tokens, as 200k; unset, the log's or the model's.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Whose tokenizer, window and prices hold; unset, what the logs say."),
    ] = None,
    min_calls: Annotated[int, typer.Option(help="Leave out shorter conversations.")] = 1,
    half: Annotated[CorpusHalf, typer.Option(help="Which half, by the SHA-256 of the id.")] = "all",
    limit: Annotated[int | None, typer.Option(help="So many conversations at most.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes; unset, one for each core.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, not a table.")] = False,
    explain: Annotated[
        bool, typer.Option("--notes", help="Say how each column is measured.")
    ] = False,
    report: Annotated[Path | None, typer.Option(help="Write one HTML file.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the plots into this folder.")] = None,
) -> None:
    """Run recorded conversations again under other policies, and compare cost and recall."""
    notes = Console(stderr=True)
    try:
        size = None if window is None else parse_token_count(window)
        # What is wrong is said before anything long is read.
        parse_setups(policies, goal=goal, window=size, model=model or DEFAULT_REPLAY_MODEL)
        if report or png:
            _require_matplotlib()
        found = _read_conversations(paths, notes)
    except (UnreadableRecording, ValueError) as error:
        _print_note(notes, f"trimtab replay: {error}", "red")
        raise typer.Exit(2) from error
    chosen = select_conversations(found, min_calls=min_calls, half=half, limit=limit)
    if not chosen:
        why = _explain_nothing_to_replay(paths, len(found), min_calls)
        _print_note(notes, f"trimtab replay: {why}")
        raise typer.Exit(1)
    whose, size = _choose_model_and_window(chosen, model, size, notes)
    setups = parse_setups(policies, goal=goal, window=size, model=whose)
    study = _run_study(chosen, setups, whose, jobs, notes)
    _write_reports(study, report, png, notes)
    if as_json:
        typer.echo(json.dumps(study.to_json(), indent=2))
    else:
        print_study(study, Console(), with_notes=explain)


def _read_conversations(paths: list[Path], notes: Console) -> list[RecordedConversation]:
    skipped: list[UnreadableRecording] = []
    with notes.status("reading"):
        found = [one for path in paths for one in read_recordings(path, skipped.append)]
    for error in skipped[:3]:
        _print_note(notes, f"skipped {error}", "yellow")
    if len(skipped) > 3:
        notes.print(f"skipped {format_count(len(skipped) - 3, 'more file')}", style="yellow")
    return found


def _print_note(notes: Console, text: str, style: str | None = None) -> None:
    notes.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _explain_nothing_to_replay(paths: list[Path], found: int, min_calls: int) -> str:
    """Why there is nothing to replay, and what to do."""
    if found:
        return (
            f"none of {format_count(found, 'conversation')} is left to replay; lower --min-calls "
            f"{min_calls} or choose another --half"
        )
    return (
        f"no conversations were found in {join_names([str(path) for path in paths])}; looked for "
        f"{RECORDING_FORMATS_TEXT}, in files whose names end in {', '.join(RECORDING_SUFFIXES)}"
    )


def _choose_model_and_window(
    chosen: list[RecordedConversation], model: str | None, size: int | None, notes: Console
) -> tuple[str, int | None]:
    """Model and window: as asked for, else as recorded where all agree, else the default."""
    models = {conversation.model for conversation in chosen}
    windows = {conversation.window for conversation in chosen}
    agreed = next(iter(models)) if len(models) == 1 else None
    if model is None and agreed is None:
        named = sorted(filter(None, models))
        why = f"the logs name {', '.join(named)}" if named else "the recordings name none"
        notes.print(
            f"model {DEFAULT_REPLAY_MODEL} is assumed: {why}; --model chooses another",
            style="yellow",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    whose = model or agreed or DEFAULT_REPLAY_MODEL
    if size is None and whose == agreed and len(windows) == 1:
        size = next(iter(windows))
    return whose, size


def _run_study(
    chosen: list[RecordedConversation],
    setups: list[ReplaySetup],
    model: str,
    jobs: int | None,
    notes: Console,
) -> ReplayStudy:
    providers = list_billed_providers(model)
    columns: list[Any] = [
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=notes, transient=True) as bar:
        told = f"{format_count(len(chosen), 'conversation')} × {format_count(len(setups), 'setup')}"
        task = bar.add_task(told, total=None)
        runs = replay_all(
            chosen,
            setups,
            {provider.name: provider.rules for provider in providers},
            jobs=jobs,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    return build_study(chosen, setups, runs, providers)


def _require_matplotlib() -> None:
    try:
        import_module("matplotlib")
    except ModuleNotFoundError as error:
        raise ValueError(
            "the plots need one more package: pip install 'trimtab[report]'"
        ) from error


def _write_reports(
    study: ReplayStudy, report: Path | None, png: Path | None, notes: Console
) -> None:
    if report is not None:
        from trimtab.replay.report import render_html_report

        report.write_text(render_html_report(study), encoding="utf-8")
        notes.print(f"wrote {report}", markup=False, highlight=False, soft_wrap=True)
    if png is not None:
        from trimtab.replay.plots import write_png_files

        for path in write_png_files(study, png):
            notes.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)


NAIVE_MARKS_SUFFIX = "naive"


def parse_setups(policies: str, *, goal: str, window: int | None, model: str) -> list[ReplaySetup]:
    """One setup for each policy named; raises ValueError with what may be named."""
    if goal not in GOALS:
        raise ValueError(f"unknown goal {goal!r}; choose one of {', '.join(GOALS)}")
    names = list(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip()))
    if not names:
        raise ValueError(f"no policy is named; choose from {', '.join(POLICY_NAMES)}")
    return [_parse_setup(name, goal=goal, window=window, model=model) for name in names]


def parse_token_count(text: str) -> int:
    """`200k`, `1m`, `200_000` or `200000` as a number."""
    lowered = text.strip().lower().replace(",", "").replace("_", "")
    factor = {"k": 1_000, "m": 1_000_000}.get(lowered[-1:], 1)
    digits = lowered.rstrip("km") if factor > 1 else lowered
    try:
        tokens = int(float(digits) * factor)
    except (OverflowError, ValueError) as error:
        raise ValueError(f"{text!r} is no number of tokens; write 200k or 200000") from error
    if tokens <= 0:
        raise ValueError(f"{text!r} is no number of tokens; it must be above 0")
    return tokens


def _parse_setup(name: str, *, goal: str, window: int | None, model: str) -> ReplaySetup:
    policy, *extras = name.split(":")
    if policy not in POLICY_NAMES:
        raise ValueError(f"unknown policy {policy!r}; choose from {', '.join(POLICY_NAMES)}")
    unknown = [extra for extra in extras if extra not in (*GOALS, NAIVE_MARKS_SUFFIX)]
    if unknown:
        raise ValueError(
            f"unknown {unknown[0]!r} in {name!r}; a policy may carry a goal "
            f"({', '.join(GOALS)}) or {NAIVE_MARKS_SUFFIX}"
        )
    own = next((extra for extra in extras if extra in GOALS), goal)
    options: dict[str, Any] = {"policy": policy, "goal": own}
    if window is not None:
        options["context_window"] = window
    if resolve_model_info(model).dialect is None:
        options["dialect"] = "openai_chat"
    return ReplaySetup(
        name=name, options=options, model=model, naive_marks=NAIVE_MARKS_SUFFIX in extras
    )


FULL_TABLE_WIDTH_CHARS = 140
"""Characters of a terminal that shows all columns side by side."""
MORE_COLUMNS_HINT = "every column, and how it is measured: --notes, or --report FILE"


def print_study(study: ReplayStudy, console: Console, *, with_notes: bool = False) -> None:
    """One setup a row, in one table or in two, and under it what the numbers mean, or in brief."""
    console.print(study.title, style="bold", highlight=False)
    left, right = build_cost_columns(study), build_visibility_and_cache_columns(study)
    for columns in [[*left, *right]] if console.width >= FULL_TABLE_WIDTH_CHARS else [left, right]:
        made = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        made.add_column("setup", no_wrap=True)
        for column in columns:
            heading = f"{column.name}\n{column.unit}".rstrip()
            made.add_column(heading, justify="right", no_wrap=True)
        best = [find_best_setup(column, study) for column in columns]
        for row in study.rows:
            cells = (
                f"[green]{column.text(row)}[/]"
                if name == row.setup
                else _escape_markup(column.text(row))
                for column, name in zip(columns, best, strict=True)
            )
            made.add_row(row.setup, *cells)
        console.print(made)
    for line in (
        study.list_notes() if with_notes else [*study.list_short_notes(), MORE_COLUMNS_HINT]
    ):
        console.print(Padding(_escape_markup(line), (0, 0, 0, 2)), style="dim", highlight=False)


def _escape_markup(text: str) -> str:
    """An interval's brackets are no markup."""
    return text.replace("[", r"\[")
