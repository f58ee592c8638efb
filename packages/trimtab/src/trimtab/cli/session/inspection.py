"""`trimtab session`: inspect sessions and find what is hidden."""

from __future__ import annotations

import base64
import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from trimtab.cli.session.display import (
    print_request,
    print_session_list,
    print_session_view,
)
from trimtab.cli.session.explanation import (
    print_visibility_explanation,
    require_first_message_of_handle,
)
from trimtab.cli.session.view_data import (
    build_session_view,
    find_call_by_reference,
    load_read_only_state,
)
from trimtab.cli.store_command import (
    UNSET_STORE,
    HandleArgument,
    JsonOption,
    SessionArgument,
    StoreOption,
    format_store_option,
    make_output_console,
    print_exact_text,
    require_session_position,
    run_on_store,
)
from trimtab.cli.text_format import escape_control_characters, format_count
from trimtab.engine.log.event import dump_canonical_json
from trimtab.engine.recall.tools import NOTHING_FOUND_TEXT
from trimtab.engine.recall.visibility import VisibilityReason
from trimtab.engine.tokens.counter import list_media
from trimtab.session import history, store_recall
from trimtab.stores.base import Store


def list_sessions_command(
    store: StoreOption = UNSET_STORE,
    after: Annotated[str, typer.Option(help="List sessions after this id.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of sessions.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """List the sessions of a store, ordered by id."""
    entries = run_on_store(
        store, "listing sessions", lambda kept, _: kept.sessions(after=after, limit=limit + 1)
    )
    rows = entries[:limit]
    more = len(entries) > limit
    following = rows[-1].session if more else None
    if as_json:
        typer.echo(json.dumps({"sessions": [asdict(row) for row in rows], "after": following}))
        return
    if not rows:
        typer.echo(f"no sessions{f' after {after!r}' if after else ''}")
        return
    console = make_output_console()
    print_session_list(rows, console)
    footer = f"{format_count(len(rows), 'session')}"
    if following is not None:
        option = f"--after {shlex.quote(following)}{format_store_option(store)}"
        footer += f"; more: trimtab session list {option}"
    console.print(Text(escape_control_characters(footer), "dim"), soft_wrap=True)


def show_session_command(
    session: SessionArgument,
    store: StoreOption = UNSET_STORE,
    call: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Show the exact request of this call: its position in the log, last, or last-1.",
        ),
    ] = None,
    last: Annotated[int, typer.Option(min=0, help="Number of messages and calls to show.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show what the model sees now. With --call, show the exact request of a past call.

    A past request is checked against the hash that the call recorded.
    """
    if call is not None:
        _print_past_request(session, store, call, as_json=as_json)
        return
    session_view = run_on_store(
        store, f"reading {session}", lambda kept, _: build_session_view(kept, session, last)
    )
    if as_json:
        typer.echo(json.dumps(session_view.to_json()))
        return
    hidden_handles = [
        handles[-1].partition("-")[0] for handles in session_view.report.hidden_handles.values()
    ]
    hints: list[str] = []
    if session_view.last_calls:
        hints.append(
            f"what a call sent:  trimtab session show {shlex.quote(session)} --call "
            f"last{format_store_option(store)}"
        )
    if hidden_handles:
        hints.append(
            f"why it is hidden:  trimtab session why {shlex.quote(session)} "
            f"{hidden_handles[0]}{format_store_option(store)}"
        )
    print_session_view(session_view, make_output_console(), hints)


def explain_hidden_command(
    session: SessionArgument,
    handle: HandleArgument,
    store: StoreOption = UNSET_STORE,
    as_json: JsonOption = False,
) -> None:
    """Say why a message or part is hidden, since when and by which edit, and show its text."""

    async def look(kept: Store, _: object) -> list[VisibilityReason]:
        await require_first_message_of_handle(
            kept, session, handle
        )  # a wrong handle is refused in its words
        return await history.explain_visibility_by_part(kept, session, handle)

    reasons = run_on_store(store, f"reading {session}", look)
    if as_json:
        reasons_json = [asdict(reason) for reason in reasons]
        typer.echo(json.dumps(reasons_json[0] if len(reasons_json) == 1 else reasons_json))
        return
    console = make_output_console()
    for reason in reasons:
        names = shlex.join([session, reason.handle])
        recall = f"trimtab session recall {names}{format_store_option(store)}"
        print_visibility_explanation(reason, console, recall)


def search_session_command(
    session: SessionArgument,
    query: Annotated[list[str], typer.Argument(metavar="QUERY", help="Words to search for.")],
    store: StoreOption = UNSET_STORE,
) -> None:
    """Find messages by their words, including hidden ones. The best match comes first."""
    words = " ".join(query)

    async def look(kept: Any, _: object) -> str:
        window = (await load_read_only_state(kept, session)).window
        return await store_recall.search_session(kept, session, window, words)

    snippets = run_on_store(store, f"searching {session}", look)
    if snippets == NOTHING_FOUND_TEXT:
        typer.echo(f"nothing in {session} matches {words!r}; words match by their beginning")
        raise typer.Exit(1)
    typer.echo(escape_control_characters(snippets))


def recall_text_command(
    session: SessionArgument,
    handle: HandleArgument,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the image or file of a part to this file."),
    ] = None,
    store: StoreOption = UNSET_STORE,
) -> None:
    """Print a message or a part, even if it is hidden.

    A part (m12.0) is printed exactly as stored, a message (m12) below a line that names it.
    """
    if output is not None:
        _write_recalled_file(session, handle, store, output)
        return

    async def look(kept: Any, _: object) -> str:
        window = (await load_read_only_state(kept, session)).window
        return await store_recall.recall_from_store(kept, session, window, handle)

    print_exact_text(run_on_store(store, f"reading {session}", look))


def _write_recalled_file(session: str, handle: str, store: str, output: Path) -> None:
    async def look(kept: Any, _: object) -> Any:
        window = (await load_read_only_state(kept, session)).window
        return await store_recall.recall_part_from_store(kept, session, window, handle)

    media_list = list_media(run_on_store(store, f"reading {session}", look))
    data = next((media.data for media in media_list if media.data is not None), None)
    if data is None:
        typer.echo(f"{handle} contains no image and no file", err=True)
        raise typer.Exit(1)
    output.write_bytes(base64.b64decode(data))
    typer.echo(f"{output}: {output.stat().st_size:,} bytes")


def _print_past_request(session: str, store: str, call: str, *, as_json: bool) -> None:
    async def look(kept: Any, _: object) -> Any:
        position = await require_session_position(kept, session)
        past_call = await find_call_by_reference(kept, session, position, call)
        return past_call, await history.rebuild_request_from_store(kept, session, past_call.seq)

    past_call, request = run_on_store(store, f"rendering a call of {session}", look)
    if as_json:
        typer.echo(dump_canonical_json(request), nl=sys.stdout.isatty())
    else:
        print_request(past_call, request, make_output_console())
