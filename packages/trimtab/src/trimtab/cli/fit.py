"""`trimtab fit`: the body of one model call in, the body to send out."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Annotated, Any

import typer

from trimtab.cli.sidecar import check_store_option
from trimtab.cli.stderr_messages import print_error_for_exit
from trimtab.cli.store_command import format_store_option
from trimtab.cli.text_format import escape_control_characters
from trimtab.engine.policy.config import parse_goal
from trimtab.integrations.session_ids import make_session_id
from trimtab.sidecar.call import Answer
from trimtab.sidecar.json_text import JsonText
from trimtab.sidecar.sidecar import Sidecar


def fit_command(  # noqa: PLR0917 - typer reads the options from its signature
    window: Annotated[
        int | None, typer.Option(min=1, help="Window in tokens. Default: that of the model.")
    ] = None,
    dialect: Annotated[
        str | None,
        typer.Option(
            help="anthropic, openai_chat or openai_responses. Default: what the body looks like."
        ),
    ] = None,
    policy: Annotated[str, typer.Option(help="The policy.")] = "auto",
    goal: Annotated[
        str, typer.Option(help="cost, balanced, quality, or a price such as 1.")
    ] = "balanced",
    store: Annotated[
        str | None,
        typer.Option(
            envvar="TRIMTAB_STORE",
            callback=check_store_option,
            help="Keep the conversation in this folder or database, so that what is hidden stays "
            "hidden.",
        ),
    ] = None,
    conversation: Annotated[
        str, typer.Option(help="The conversation's id in the store.")
    ] = "default",
) -> None:
    """Read the body of a model call from standard input, and print the body that fits.

    Unless something is hidden, it is printed as it came. What was hidden goes to standard error.
    """
    raw = sys.stdin.buffer.read()
    if not raw.strip():
        raise print_error_for_exit(
            "nothing was piped in; pipe in the body of a model call: trimtab fit < body.json"
        )
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise print_error_for_exit(f"the body is not UTF-8: {error.reason}") from error
    try:
        JsonText(text).read({})
    except ValueError as error:
        raise print_error_for_exit(f"the body is not JSON: {_explain(text, error)}") from error
    try:
        options = {"context_window": window, "policy": policy, "goal": parse_goal(goal)}
    except ValueError as error:
        raise print_error_for_exit(str(error)) from error
    fields = {"conversation": conversation, "options": options, "dialect": dialect}
    answer = _fit(f'{json.dumps(fields)[:-1]}, "body": {text}}}', store)
    if "error" in answer.fields:
        raise print_error_for_exit(answer.fields["error"])
    sys.stdout.buffer.write(raw if answer.body is None else answer.body.encode())
    sys.stdout.buffer.flush()
    _print_outcome(answer.fields)
    if answer.fields["why"].startswith(("cannot fit", "not read")):
        raise typer.Exit(1)
    if store and answer.fields["hidden"]:
        name = shlex.quote(make_session_id(conversation))
        place = format_store_option(store)
        typer.echo(f"read it: trimtab session recall {name} HANDLE{place}", err=True)


def _explain(body: str, error: ValueError) -> str:
    """Say in which line and column of the body the fault is."""
    try:
        json.loads(body)
    except json.JSONDecodeError as fault:
        return f"{fault.msg}, at line {fault.lineno}, column {fault.colno}"
    except RecursionError:
        pass
    return str(error)


def _fit(call: str, store: str | None) -> Answer:
    try:
        sidecar = Sidecar(store)
    except (TypeError, ValueError) as error:
        raise print_error_for_exit(str(error)) from error
    answer = sidecar.run(sidecar.answer("fit", call))
    sidecar.run(sidecar.close())
    return answer


def _print_outcome(fields: Any) -> None:
    for hidden in fields["hidden"]:
        handle = hidden["handle"].partition("~")[0]
        typer.echo(
            f"{hidden['kind']} {handle}: {hidden['tokens']:,} tokens became "
            f"{hidden['tokens_after']:,}: {hidden['why']}",
            err=True,
        )
    if problem := fields["fault"] or fields["why"]:
        typer.echo(f"trimtab: {escape_control_characters(problem)}", err=True)
    if fields["managed"]:
        typer.echo(f"{fields['used']:,} of {fields['limit']:,} tokens", err=True)
