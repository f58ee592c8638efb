"""`trimtab serve`: serve agents to programs, chats and schedules until a signal stops it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.extension import DEFAULT_AGENT_PATH

REQUIRED_PACKAGES = (
    *("pydantic", "yaml"),
    *("fastapi", "starlette", "uvicorn", "cronsim", "prometheus_client"),
)
"""Packages of the extra `serve`, besides those of the command line."""


class LogFormat(StrEnum):
    """The format of log lines."""

    text = "text"
    json = "json"


def serve_command(  # noqa: PLR0917 - typer reads options from parameters
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="AGENT.YAML", help="The agents' files. All agents share one store."),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="The address. Default: `serve.host` of the file."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="The port; 0 chooses a free one. Default: `serve.port` of the file.",
        ),
    ] = None,
    log: Annotated[LogFormat, typer.Option(help="Log lines for people, or JSON for programs.")] = (
        LogFormat.text
    ),
    no_http: Annotated[bool, typer.Option("--no-http", help="Do not serve HTTP.")] = False,
    no_turns: Annotated[
        bool,
        typer.Option("--no-turns", help="Accept messages and deliver replies, but run no turns."),
    ] = False,
    workers_only: Annotated[
        bool,
        typer.Option(
            "--workers-only", help="Run turns and deliver replies, but accept no messages."
        ),
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Also serve /metrics and /healthz on this port, without keys, even "
            "while the server is busy.",
        ),
    ] = None,
) -> None:
    """Serve agents over HTTP, on chat platforms and on schedules, as set in their files."""
    # Imported late, so that --help is fast.
    from trimtab.cli.installed_packages import require_packages

    require_packages("the server", REQUIRED_PACKAGES, extra="serve")
    from trimtab_serve.process.server import ServeArguments, run_server

    arguments = ServeArguments(
        agent_files=tuple(files or [DEFAULT_AGENT_PATH]),
        host=host,
        port=port,
        json_logs=log is LogFormat.json,
        serve_http=not (no_http or workers_only),
        run_turns=not no_turns,
        run_channels=not workers_only,
        metrics_port=metrics_port,
    )
    raise typer.Exit(run_server(arguments))
