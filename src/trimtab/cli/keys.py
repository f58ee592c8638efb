"""`trimtab keys`: who may ask a server. The keys themselves are shown once and kept nowhere."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli.lazy import TYPER_SETTINGS

FileOption = Annotated[
    Path, typer.Option("--file", help="The file of keys, `serve.keys` in agent.yaml.")
]
KeysJsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the key.")]
DEFAULT_KEYS_PATH = Path("keys.json")
_DURATION_PATTERN = re.compile(r"([1-9][0-9]{0,4})([hdw])")
_DURATION_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


class RoleChoice(StrEnum):
    """What a key may do."""

    metrics = "metrics"
    read = "read"
    talk = "talk"
    admin = "admin"


keys = typer.Typer(name="keys", no_args_is_help=True, add_completion=False, **TYPER_SETTINGS)


@keys.callback()
def keys_options() -> None:
    """Make and revoke API keys of `trimtab serve`; a server that runs sees it at once."""


@keys.command()
def create(  # noqa: PLR0917 - typer reads options from parameters
    name: NameArgument,
    tenant: Annotated[str, typer.Option(help="Whose sessions it opens.")] = "default",
    agent: Annotated[
        list[str] | None,
        typer.Option(help="An agent that it may use; can be repeated. Unset, all."),
    ] = None,
    role: Annotated[
        RoleChoice,
        typer.Option(
            help="What it may do: read sessions; talk as well, which sends messages and stops, "
            "undoes and forks; admin as well, which deletes, erases and retries dead letters. "
            "metrics reads /metrics, which counts all tenants, and nothing else."
        ),
    ] = RoleChoice.talk,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="90d|2027-01-31",
            help="When it stops to work: after hours (12h), days (90d) or weeks (4w), or after a "
            "day (UTC). Unset, never.",
        ),
    ] = None,
    file: FileOption = DEFAULT_KEYS_PATH,
    as_json: KeysJsonOption = False,
) -> None:
    """Make a key and print it, once; only its hash is kept."""
    from trimtab.cli.store_command import report_known_errors
    from trimtab.server.channels.http.api_keys import (
        create_api_key,
        read_stored_api_keys,
        write_key_file,
    )

    with report_known_errors():
        known = read_stored_api_keys(file) if file.exists() else []
        if any(key.name == name for key in known):
            raise ValueError(
                f"{file} has a key called {name} already; to replace it, create one of another "
                "name, let its users change over, then revoke this one"
            )
        ends = None if expires is None else parse_expiry(expires, datetime.now(UTC))
        text, kept = create_api_key(
            name,
            tenant=tenant,
            agents=tuple(agent) if agent else None,
            role=role.value,
            expires=None if ends is None else ends.timestamp(),
        )
        write_key_file(file, [*known, kept])
    if as_json:
        owner = None if kept.role == "metrics" else tenant
        told = {"name": name, "role": kept.role, "tenant": owner, "expires": kept.expires}
        typer.echo(json.dumps({**told, "key": text}))
        return
    what = {
        RoleChoice.metrics: "reads /metrics and nothing else",
        RoleChoice.read: f"reads sessions of tenant {tenant}",
        RoleChoice.talk: f"reads sessions of tenant {tenant} and talks in them",
        RoleChoice.admin: f"may do everything with sessions of tenant {tenant}",
    }[role]
    until = "" if ends is None else f" until {ends:%Y-%m-%d %H:%M} UTC"
    typer.echo(text)
    typer.echo(
        f"\nThe key {name} {what}{until}. It is shown this once: {file} keeps its "
        f"hash.\nServe with it: write `keys: {file}` under `serve` in agent.yaml.\nUse it: curl "
        '-H "Authorization: Bearer KEY" …',
        err=True,
    )


@keys.command("list")
def list_api_keys(file: FileOption = DEFAULT_KEYS_PATH, as_json: KeysJsonOption = False) -> None:
    """List the keys of a file: names, roles, tenants, agents, when they expire, and when each was
    last used, to a minute."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from trimtab.cli.store_command import make_output_console, report_known_errors
    from trimtab.cli.terminal_text_format import escape_control_characters, format_age
    from trimtab.server.channels.http.api_key_last_use import (
        build_last_use_path,
        read_api_key_last_use,
    )
    from trimtab.server.channels.http.api_keys import read_stored_api_keys

    with report_known_errors():
        found = read_stored_api_keys(file)
    now = datetime.now(UTC).timestamp()
    used = read_api_key_last_use(build_last_use_path(file))
    # A key that was revoked and made again under its name was not used before it was made.
    last_used = {
        key.name: used[key.name] for key in found if used.get(key.name, -1.0) >= key.created
    }
    if as_json:
        rows = [
            {
                "name": key.name,
                "role": key.role,
                "tenant": None if key.role == "metrics" else key.tenant,
                "agents": list(key.agents) if key.agents is not None else None,
                "narrowed": key.narrowed,
                "created": key.created,
                "expires": key.expires,
                "expired": key.has_expired(now),
                "last_used": last_used.get(key.name),
            }
            for key in found
        ]
        typer.echo(json.dumps(rows))
        return
    if not found:
        typer.echo(f"no keys in {file} yet; make one: trimtab keys create NAME", err=True)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in ("key", "role", "tenant", "agents", "made", "expires", "last used"):
        table.add_column(title)
    for key in found:
        opens = (key.tenant, "all" if key.agents is None else ", ".join(key.agents))
        cells = (
            *(key.name, key.role, *(("–", "–") if key.role == "metrics" else opens)),
            format_age(key.created),
            format_expiry(key.expires, expired=key.has_expired(now)),
            format_age(last_used[key.name]) if key.name in last_used else "–",
        )
        table.add_row(*(Text(escape_control_characters(cell)) for cell in cells))
    make_output_console().print(table)
    for key in found:
        if key.narrowed:
            typer.echo(
                f"{key.name} opened sessions of tenant {key.tenant} as well when it was made, and "
                "does no longer; for sessions make another one: trimtab keys create NAME",
                err=True,
            )


def parse_expiry(text: str, now: datetime) -> datetime:
    """The moment from which on a key is refused; raises `ValueError` with what to write."""
    if (found := _DURATION_PATTERN.fullmatch(text)) is not None:
        return now + int(found[1]) * _DURATION_UNITS[found[2]]
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"--expires {text} is neither a time such as 12h, 90d or 4w nor a day such as "
            "2027-01-31"
        ) from None
    # It works to the end of the day.
    ends = datetime.combine(day, time.max, UTC)
    if ends <= now:
        raise ValueError(f"--expires {text} is over already; today is {now:%Y-%m-%d}")
    return ends


def format_expiry(expires: float | None, *, expired: bool) -> str:
    """The day on which a key expires (UTC), for people."""
    if expires is None:
        return "never"
    day = f"{datetime.fromtimestamp(expires, UTC):%Y-%m-%d}"
    return f"EXPIRED {day}" if expired else day


@keys.command()
def revoke(name: NameArgument, file: FileOption = DEFAULT_KEYS_PATH) -> None:
    """Revoke a key; whoever uses it is refused from now on."""
    from trimtab.cli.store_command import report_known_errors
    from trimtab.cli.terminal_text_format import join_names
    from trimtab.server.channels.http.api_keys import read_stored_api_keys, write_key_file

    with report_known_errors():
        known = read_stored_api_keys(file)
        left = [key for key in known if key.name != name]
        if len(left) == len(known):
            there = join_names([key.name for key in known]) or "none"
            raise LookupError(f"{file} has no key called {name}; there is {there}")
        write_key_file(file, left)
    typer.echo(f"revoked {name}; a server that runs refuses it from now on", err=True)
