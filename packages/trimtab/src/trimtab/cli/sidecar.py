"""`trimtab sidecar`: bodies of model calls in, bodies to send out, for programs in any language."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.stderr_messages import print_error_for_exit, warn_about_typed_password
from trimtab.sidecar.process import run_on_stdio, run_over_http
from trimtab.sidecar.sidecar import MAX_CONVERSATIONS
from trimtab.sidecar.state_file import SidecarRunning, UnsafeStateFolder, find_state_folder


def check_store_option(context: typer.Context, store: str | None) -> str | None:
    """Warn about a password in the address of a database."""
    warn_about_typed_password(context, "store", store or "", variable="TRIMTAB_STORE")
    return store


def sidecar_command(  # noqa: PLR0917 - typer reads the options from its signature
    stdio: Annotated[
        bool,
        typer.Option("--stdio", help="Read calls from standard input, one JSON object a line."),
    ] = False,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="TRIMTAB_STORE",
            callback=check_store_option,
            help="Keep conversations in this folder or database. Default: in memory.",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 0,
    socket: Annotated[
        bool, typer.Option("--socket", help="Listen on a Unix socket and on no port.")
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Folder for sidecar.json, which has the address and the token. "
            "Default: ~/.local/state/trimtab.",
            show_default=False,
        ),
    ] = None,
    max_conversations: Annotated[
        int, typer.Option(min=1, help="Conversations that are kept in memory.")
    ] = MAX_CONVERSATIONS,
) -> None:
    """Fit the model calls of programs in any language, over HTTP or standard input."""
    try:
        folder = find_state_folder(os.environ) if state is None else state.expanduser()
        if stdio:
            run_on_stdio(folder=folder, store=store, max_conversations=max_conversations)
            return
        run_over_http(
            folder=folder,
            store=store,
            port=port,
            uses_socket=socket,
            max_conversations=max_conversations,
        )
    except (OSError, SidecarRunning, UnsafeStateFolder, ValueError) as error:
        raise print_error_for_exit(str(error)) from error
