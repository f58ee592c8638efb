"""`trimtab session`: look into sessions, find what is hidden, and look after them."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from trimtab.cli.session_calls import chosen
from trimtab.cli.session_request import show_request
from trimtab.cli.session_show import show_list, show_view
from trimtab.cli.session_view import folded, view
from trimtab.cli.session_why import reasons, show_reason
from trimtab.cli.storing import (
    UNSAID,
    HandleArgument,
    JsonOption,
    SessionArgument,
    StoreOption,
    here,
    known,
    page,
    raw,
    work,
)
from trimtab.cli.words import counted, plain
from trimtab.core.event import canonical
from trimtab.core.recall import NOTHING
from trimtab.session import audit, lookup


def list_(
    store: StoreOption = UNSAID,
    after: Annotated[str, typer.Option(help="Begin behind this id.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="So many at most.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """List the sessions of a store, in the order of their ids."""
    found = work(
        store, "listing sessions", lambda kept, _: kept.sessions(after=after, limit=limit + 1)
    )
    rows, more = found[:limit], len(found) > limit
    following = rows[-1].session if more else None
    if as_json:
        typer.echo(json.dumps({"sessions": [asdict(row) for row in rows], "after": following}))
        return
    if not rows:
        typer.echo(f"no sessions{f' behind {after!r}' if after else ''}")
        return
    console = page()
    show_list(rows, console)
    told = f"{counted(len(rows), 'session')}"
    if following is not None:
        told += f"; more: trimtab session list --after {following!r}{here(store)}"
    console.print(Text(plain(told), "dim"), soft_wrap=True)


def show(
    session: SessionArgument,
    store: StoreOption = UNSAID,
    call: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="The exact request of this call: its position in the log, last, or last-1.",
        ),
    ] = None,
    last: Annotated[int, typer.Option(min=0, help="So many messages and calls.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Show what the model sees now; with --call, the exact request of a past call.

    A past request is rendered from the log and checked against the hash that the call recorded;
    with --json it is printed as canonical JSON, byte for byte, and nothing else.
    """
    if call is not None:
        _show_call(session, store, call, as_json=as_json)
        return
    seen = work(store, f"reading {session}", lambda kept, _: view(kept, session, last))
    if as_json:
        typer.echo(json.dumps(seen.to_json()))
        return
    hidden = [handles[-1].partition("-")[0] for handles in seen.hidden.values()]
    hints: list[str] = []
    if seen.newest:
        hints.append(f"what a call sent:  trimtab session show {session} --call last{here(store)}")
    if hidden:
        hints.append(f"why it is hidden:  trimtab session why {session} {hidden[0]}{here(store)}")
    show_view(seen, page(), hints)


def why(
    session: SessionArgument,
    handle: HandleArgument,
    store: StoreOption = UNSAID,
    as_json: JsonOption = False,
) -> None:
    """Say why something is not in the context, since when and by which edit, and show it."""
    found = work(store, f"reading {session}", lambda kept, _: reasons(kept, session, handle))
    if as_json:
        told = [asdict(reason) for reason in found]
        typer.echo(json.dumps(told[0] if len(told) == 1 else told))
        return
    console = page()
    for reason in found:
        recall = f"trimtab session recall {session} {reason.handle}{here(store)}"
        show_reason(reason, console, recall)


def search(
    session: SessionArgument,
    query: Annotated[list[str], typer.Argument(metavar="QUERY...", help="Words to look for.")],
    store: StoreOption = UNSAID,
) -> None:
    """Find messages by their words, hidden ones included; the best match comes first."""
    wanted = " ".join(query)

    async def look(kept: Any, _: object) -> str:
        window = (await folded(kept, session)).window
        return await lookup.search(kept, session, window, wanted)

    found = work(store, f"searching {session}", look)
    if found == NOTHING:
        typer.echo(f"nothing in {session} holds {wanted!r}; words match by how they begin")
        raise typer.Exit(1)
    typer.echo(plain(found))


def recall(session: SessionArgument, handle: HandleArgument, store: StoreOption = UNSAID) -> None:
    """Print the text behind a handle, hidden or not.

    A part, such as m12.0, is printed exactly as it was said; a message, such as m12, below a line
    that names it.
    """

    async def look(kept: Any, _: object) -> str:
        window = (await folded(kept, session)).window
        return await lookup.recall(kept, session, window, handle)

    raw(work(store, f"reading {session}", look))


def _show_call(session: str, store: str, call: str, *, as_json: bool) -> None:
    async def look(kept: Any, _: object) -> Any:
        position = await known(kept, session)
        made = await chosen(kept, session, position, call)
        return made, await audit.rebuild(kept, session, made.seq)

    made, request = work(store, f"rendering a call of {session}", look)
    if as_json:
        typer.echo(canonical(request), nl=sys.stdout.isatty())
    else:
        show_request(made, request, page())
