"""`trimtab sidecar`: bodies of model calls in, bodies to send out, for programs in any language."""

from __future__ import annotations

from typing import Annotated

import typer

from trimtab.cli.stderr_messages import print_error_for_exit, warn_about_typed_password
from trimtab.sidecar.process import run_sidecar
from trimtab.sidecar.sidecar import MAX_CONVERSATIONS


def check_store_option(context: typer.Context, store: str | None) -> str | None:
    """Warn about a password in the address of a database."""
    warn_about_typed_password(context, "store", store or "", variable="TRIMTAB_STORE")
    return store


def sidecar_command(
    store: Annotated[
        str | None,
        typer.Option(
            envvar="TRIMTAB_STORE",
            callback=check_store_option,
            help="Keep conversations in this folder or database. Default: in memory.",
        ),
    ] = None,
    max_conversations: Annotated[
        int, typer.Option(min=1, help="Conversations that are kept in memory.")
    ] = MAX_CONVERSATIONS,
) -> None:
    """Fit the model calls of the program that starts it, in any language.

    Each line of standard input is a call, and each line of standard output an answer.
    """
    try:
        run_sidecar(store=store, max_conversations=max_conversations)
    except (OSError, ValueError) as error:
        raise print_error_for_exit(str(error)) from error
