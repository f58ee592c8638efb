"""`trimtab serve`: agents for programs, chats and the clock, until they are stopped."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.local_agent_store_location import DEFAULT_AGENT_PATH


class LogFormat(StrEnum):
    """How log lines look."""

    text = "text"
    json = "json"


def serve_command(  # noqa: PLR0917 - typer reads options from parameters
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[AGENT.YAML]...", help="The agents' files; one store for all."),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on; `serve.host` of the file.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="The port; 0 takes a free one. `serve.port`."),
    ] = None,
    log: Annotated[LogFormat, typer.Option(help="Log lines for people, or JSON for programs.")] = (
        LogFormat.text
    ),
    no_http: Annotated[bool, typer.Option("--no-http", help="Do not serve HTTP.")] = False,
    no_turns: Annotated[
        bool,
        typer.Option("--no-turns", help="Accept messages and deliver replies; others run turns."),
    ] = False,
    workers_only: Annotated[
        bool,
        typer.Option(
            "--workers-only", help="Run turns and deliver replies; others accept messages."
        ),
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65_535,
            help="Show metrics here as well, without keys, to this machine or --host: for "
            "processes without HTTP.",
        ),
    ] = None,
    health_file: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="Touch this file every 5 seconds while the process is alive: for processes "
            "without HTTP.",
        ),
    ] = None,
) -> None:
    """Serve agents over HTTP, on chat platforms and on schedules, as their files say.

    One process does all of it. With PostgreSQL many may share the work: run as many as you like,
    with --workers-only or --no-turns if they should differ.
    """
    # Imported late, so that --help is fast.
    from trimtab.cli.serve.server_process import ServeArguments, run_server

    wanted = ServeArguments(
        agent_files=tuple(files or [DEFAULT_AGENT_PATH]),
        host=host,
        port=port,
        json_logs=log is LogFormat.json,
        serve_http=not (no_http or workers_only),
        run_turns=not no_turns,
        run_channels=not workers_only,
        metrics_port=metrics_port,
        health_file=health_file,
    )
    raise typer.Exit(run_server(wanted))
