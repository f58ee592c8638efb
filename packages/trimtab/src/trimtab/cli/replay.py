"""`trimtab replay`: replay recorded conversations under other policies.

Parse arguments such as `full,auto:cost,layered:naive` and `200k`.

Print a study as a table on the terminal.
"""

from __future__ import annotations

import json
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from trimtab.cli.text_format import format_count, join_names
from trimtab.engine.policy.config import GOALS
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.models.catalog import find_model_info, resolve_model_info, suggest_model_names
from trimtab.replay.billing import list_billed_providers
from trimtab.replay.readers import (
    RECORDING_FORMATS_TEXT,
    RECORDING_SUFFIXES,
    UnreadableRecording,
    read_recordings,
)
from trimtab.replay.results import (
    ReplayStudy,
    build_cost_columns,
    build_study,
    build_visibility_and_cache_columns,
    find_best_setup,
)
from trimtab.replay.runner import ReplaySetup, replay_all
from trimtab.replay.selection import CorpusHalf, RecordedConversation, select_conversations

DEFAULT_REPLAY_MODEL = "claude-sonnet-4-5"


def replay_command(  # noqa: PLR0917 - typer reads the options from its signature
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Session logs, exports, transcripts, rollouts, or folders that contain them.",
        ),
    ],
    policies: Annotated[
        str,
        typer.Option(
            help="Comma-separated policies. Add :GOAL to set a goal. Add :naive to set cache "
            "marks only after the system prompt and at the end."
        ),
    ] = "full,layered,compact,rolling,thresholds,auto",
    goal: Annotated[str, typer.Option(help="The goal of policies without :GOAL.")] = "balanced",
    window: Annotated[
        str | None,
        typer.Option(help="Window in tokens, such as 200k. Default: that of the log or the model."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="The model whose tokenizer, window and prices apply. Default: the one with the "
            "most calls in the logs."
        ),
    ] = None,
    min_calls: Annotated[
        int, typer.Option(help="Leave out conversations with fewer model calls.")
    ] = 1,
    half: Annotated[
        CorpusHalf,
        typer.Option(
            help="Replay only one half of the conversations, even or odd. A hash of their ids "
            "decides which half each is in."
        ),
    ] = "all",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of conversations.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Number of processes. Default: one per core.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    explain: Annotated[
        bool, typer.Option("--notes", help="Explain how each column is measured.")
    ] = False,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report to this file.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the plots to this folder.")] = None,
) -> None:
    """Replay recorded conversations under other policies, and compare cost and recall."""
    notes = Console(stderr=True)
    paths = [path.expanduser() for path in paths]
    try:
        size = None if window is None else parse_token_count(window)
        # What is wrong is said before anything long is read.
        parse_setups(policies, goal=goal, window=size, model=model or DEFAULT_REPLAY_MODEL)
        _require_existing(paths)
        _require_writable_reports(report, png)
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
    """Explain why there is nothing to replay, and what to do."""
    if found:
        return (
            f"{format_count(found, 'conversation')} found, but none is left to replay; lower "
            f"--min-calls {min_calls} or choose another --half"
        )
    return (
        f"no conversations found in {join_names([str(path) for path in paths])}; supported "
        f"formats: {RECORDING_FORMATS_TEXT}, in files whose names end in "
        f"{', '.join(RECORDING_SUFFIXES)}"
    )


def _choose_model_and_window(
    chosen: list[RecordedConversation], model: str | None, size: int | None, notes: Console
) -> tuple[str, int | None]:
    """Choose the model that the user names, or the one with the most recorded calls. The window is
    the user's, or the one on which all recordings with that model agree."""
    calls = Counter[str]()
    for conversation in chosen:
        if conversation.model is not None:
            calls[conversation.model] += conversation.calls
    whose = model or next((name for name, _ in calls.most_common(1)), DEFAULT_REPLAY_MODEL)
    if model is None and not calls:
        why = "the recordings do not name a model"
        _print_note(notes, f"assuming model {whose}: {why}; --model chooses another", "yellow")
    elif model is None and len(calls) > 1:
        named = ", ".join(f"{name} ({count:,} calls)" for name, count in calls.most_common())
        note = f"all calls are replayed with {whose}: the recordings name {named}"
        _print_note(notes, f"{note}; --model chooses another", "yellow")
    if find_model_info(whose) is None:
        _print_note(notes, _describe_unknown_model(whose), "yellow")
    windows = {one.window for one in chosen if one.model == whose}
    if size is None and len(windows) == 1:
        size = next(iter(windows))
    return whose, size


def _describe_unknown_model(model: str) -> str:
    close = suggest_model_names(model)
    hint = f": did you mean {' or '.join(close)}?" if close else "."
    assumed = resolve_model_info(model).context_window
    return (
        f"{model} is not in the catalog{hint} Its window is assumed to have {assumed:,} tokens, "
        "and the cache rules may be wrong. Name another model with --model, or set the size of the "
        "window with --window"
    )


def _require_existing(paths: list[Path]) -> None:
    for path in paths:
        if not path.exists():
            raise ValueError(
                f"{path} does not exist; name a file or a folder with recordings, such as "
                "~/.claude/projects or ~/.codex/sessions"
            )


def _require_writable_reports(report: Path | None, png: Path | None) -> None:
    """Find a report that cannot be written before the replay, which may take minutes."""
    if report is not None and report.is_dir():
        raise ValueError(
            f"--report {report} is a folder; name a file, such as {report}/replay.html"
        )
    if report is not None and not report.absolute().parent.is_dir():
        raise ValueError(f"--report {report}: the folder {report.parent} does not exist; create it")
    if png is not None and png.exists() and not png.is_dir():
        raise ValueError(f"--png {png} is a file; name a folder")
    if report or png:
        _require_matplotlib()


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
    """Parse the policies into setups. Raise `ValueError` with the valid names."""
    if goal not in GOALS:
        raise ValueError(f"unknown goal {goal!r}; choose one of {', '.join(GOALS)}")
    names = list(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip()))
    if not names:
        raise ValueError(f"no policy is named; choose from {', '.join(POLICY_NAMES)}")
    return [_parse_setup(name, goal=goal, window=window, model=model) for name in names]


def parse_token_count(text: str) -> int:
    """Parse `200k`, `1m`, `200_000` or `200000` as a number."""
    lowered = text.strip().lower().replace(",", "").replace("_", "")
    factor = {"k": 1_000, "m": 1_000_000}.get(lowered[-1:], 1)
    digits = lowered.rstrip("km") if factor > 1 else lowered
    try:
        tokens = int(float(digits) * factor)
    except (OverflowError, ValueError) as error:
        raise ValueError(f"invalid number of tokens {text!r}: write 200k or 200000") from error
    if tokens <= 0:
        raise ValueError(f"invalid number of tokens {text!r}: it must be above 0")
    return tokens


def _parse_setup(name: str, *, goal: str, window: int | None, model: str) -> ReplaySetup:
    policy, *extras = name.split(":")
    if policy not in POLICY_NAMES:
        raise ValueError(f"unknown policy {policy!r}; choose from {', '.join(POLICY_NAMES)}")
    unknown = [extra for extra in extras if extra not in (*GOALS, NAIVE_MARKS_SUFFIX)]
    if unknown:
        raise ValueError(
            f"unknown {unknown[0]!r} in {name!r}; after a policy, write a goal "
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
"""Width of a terminal that fits all columns in one table, in characters."""
MORE_COLUMNS_HINT = "for all columns and how they are measured: --notes, or --report FILE"


def print_study(study: ReplayStudy, console: Console, *, with_notes: bool = False) -> None:
    """Print one row per setup, in one table or in two, then notes on what the numbers mean."""
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
    """Escape the brackets of intervals, which are not markup."""
    return text.replace("[", r"\[")
