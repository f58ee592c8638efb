"""`trimtab replay`: what recorded sessions cost, and what to tell the client that recorded them.

This module says at once what will be read. Everything that takes time to import comes after.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.text_format import escape_control_characters, format_count, join_names
from trimtab.replay.locations import list_client_logs, list_recording_files


def replay_command(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Logs of Claude Code, Codex, opencode, pi or Trimtab, messages, or folders that "
            "contain them. Default: the folders in which these clients keep their logs.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="The model of all logs. Default: that of each log."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Also write the answer, and a page of each of the sessions that cost most, to "
            "this folder."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Say what recorded sessions cost, and what to tell the client so that they cost less."""
    try:
        places = [path.expanduser() for path in paths or ()] or _find_logs()
        _require_existing(places)
        files = [file for path in places for file in list_recording_files(path)]
    except ValueError as error:
        typer.echo(escape_control_characters(f"trimtab replay: {error}"), err=True)
        raise typer.Exit(2) from error
    typer.echo(escape_control_characters(_describe_files(places, files)), err=True)
    from trimtab.cli.replay_run import run_replay

    run_replay(places, files, model=model, report=report, as_json=as_json)


def _find_logs() -> list[Path]:
    """Return the folders in which clients keep their logs."""
    clients = list_client_logs(Path.home(), os.environ)
    logs = [client.path for client in clients if client.path.exists()]
    if not logs:
        places = join_names([str(client.path) for client in clients])
        raise ValueError(f"no logs found in {places}; name a file or a folder with logs")
    return logs


def _describe_files(named: list[Path], files: list[Path]) -> str:
    size = sum(file.stat().st_size for file in files) / 1_000_000
    places = join_names([str(path) for path in named])
    return f"Reading {format_count(len(files), 'file')} ({size:,.0f} MB) in {places}."


def _require_existing(paths: list[Path]) -> None:
    for path in paths:
        if not path.exists():
            raise ValueError(
                f"{path} does not exist; name a file or a folder with recordings, such as "
                "~/.claude/projects or ~/.codex/sessions"
            )
