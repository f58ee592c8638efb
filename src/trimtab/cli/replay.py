"""`trimtab replay`: recorded conversations under other policies."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from trimtab.cli.setups import setups_of, tokens_of
from trimtab.cli.show import show
from trimtab.cli.words import counted, listed
from trimtab.replay.choose import Half, choose
from trimtab.replay.conversation import Conversation
from trimtab.replay.many import run_all
from trimtab.replay.providers import providers_for
from trimtab.replay.readers import ENDINGS, KINDS, Unreadable, read
from trimtab.replay.run import Setup
from trimtab.replay.study import Study, study_of

MODEL = "claude-sonnet-4-5"


def replay(  # noqa: PLR0917 - typer reads the options from its signature
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
    half: Annotated[Half, typer.Option(help="Which half, by the SHA-256 of the id.")] = "all",
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
        size = None if window is None else tokens_of(window)
        # What is wrong is said before anything long is read.
        setups_of(policies, goal=goal, window=size, model=model or MODEL)
        if report or png:
            _check_plots()
        found = _read(paths, notes)
    except (Unreadable, ValueError) as error:
        _say(notes, f"trimtab replay: {error}", "red")
        raise typer.Exit(2) from error
    chosen = choose(found, min_calls=min_calls, half=half, limit=limit)
    if not chosen:
        why = _nothing(paths, len(found), min_calls)
        _say(notes, f"trimtab replay: {why}")
        raise typer.Exit(1)
    whose, size = _whose(chosen, model, size, notes)
    setups = setups_of(policies, goal=goal, window=size, model=whose)
    study = _run(chosen, setups, whose, jobs, notes)
    _write(study, report, png, notes)
    if as_json:
        typer.echo(json.dumps(study.to_json(), indent=2))
    else:
        show(study, Console(), notes=explain)


def _read(paths: list[Path], notes: Console) -> list[Conversation]:
    skipped: list[Unreadable] = []
    with notes.status("reading"):
        found = [one for path in paths for one in read(path, skipped.append)]
    for error in skipped[:3]:
        _say(notes, f"skipped {error}", "yellow")
    if len(skipped) > 3:
        notes.print(f"skipped {counted(len(skipped) - 3, 'more file')}", style="yellow")
    return found


def _say(notes: Console, text: str, style: str | None = None) -> None:
    notes.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _nothing(paths: list[Path], found: int, min_calls: int) -> str:
    """Why there is nothing to replay, and what to do."""
    if found:
        return (
            f"none of {counted(found, 'conversation')} is left to replay; lower --min-calls "
            f"{min_calls} or choose another --half"
        )
    return (
        f"no conversations were found in {listed([str(path) for path in paths])}; looked for "
        f"{KINDS}, in files whose names end in {', '.join(ENDINGS)}"
    )


def _whose(
    chosen: list[Conversation], model: str | None, size: int | None, notes: Console
) -> tuple[str, int | None]:
    """Model and window: as asked for, else as recorded where all agree, else the default."""
    models = {conversation.model for conversation in chosen}
    windows = {conversation.window for conversation in chosen}
    agreed = next(iter(models)) if len(models) == 1 else None
    if model is None and agreed is None:
        named = sorted(filter(None, models))
        why = f"the logs name {', '.join(named)}" if named else "the recordings name none"
        notes.print(
            f"model {MODEL} is assumed: {why}; --model chooses another",
            style="yellow",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    whose = model or agreed or MODEL
    if size is None and whose == agreed and len(windows) == 1:
        size = next(iter(windows))
    return whose, size


def _run(
    chosen: list[Conversation], setups: list[Setup], model: str, jobs: int | None, notes: Console
) -> Study:
    providers = providers_for(model)
    columns: list[Any] = [
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=notes, transient=True) as bar:
        told = f"{counted(len(chosen), 'conversation')} × {counted(len(setups), 'setup')}"
        task = bar.add_task(told, total=None)
        runs = run_all(
            chosen,
            setups,
            {provider.name: provider.rules for provider in providers},
            jobs=jobs,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    return study_of(chosen, setups, runs, providers)


def _check_plots() -> None:
    try:
        import_module("matplotlib")
    except ModuleNotFoundError as error:
        raise ValueError(
            "the plots need one more package: pip install 'trimtab[report]'"
        ) from error


def _write(study: Study, report: Path | None, png: Path | None, notes: Console) -> None:
    if report is not None:
        from trimtab.replay.report import html

        report.write_text(html(study), encoding="utf-8")
        notes.print(f"wrote {report}", markup=False, highlight=False, soft_wrap=True)
    if png is not None:
        from trimtab.replay.plots import write_png

        for path in write_png(study, png):
            notes.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)
