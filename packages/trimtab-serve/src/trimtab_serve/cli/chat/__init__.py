"""`trimtab chat`: talk to an agent in the terminal, through a pipe, or from a program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.extension import DEFAULT_AGENT_PATH


def chat_command(
    question: Annotated[
        str | None,
        typer.Argument(help="Ask only this question. The answer goes to standard output."),
    ] = None,
    agent: Annotated[Path, typer.Option(help="The agent's file.")] = DEFAULT_AGENT_PATH,
    continue_newest: Annotated[
        bool,
        typer.Option(
            "--continue",
            "-c",
            help="Continue the newest session of a chat.",
        ),
    ] = False,
    session: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Continue this session, or start one with this name."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each event as a line of JSON.")
    ] = False,
) -> None:
    """Talk to an agent in the terminal.

    Piped input is read as one question.
    """
    # Imported here, so that `--help` does not wait for it.
    from trimtab_serve.cli.chat.startup import ChatArguments, run_chat

    arguments = ChatArguments(
        question=question,
        agent_file=agent,
        continue_newest=continue_newest,
        session_id=session,
        as_json=as_json,
    )
    raise typer.Exit(run_chat(arguments))
