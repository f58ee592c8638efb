"""`trimtab keys`: manage the API keys of a server. A key is shown once and never stored."""

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
    Path, typer.Option("--file", help="The key file, `serve.keys` in agent.yaml.")
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
    """Create and revoke API keys of `trimtab serve`. A running server sees the change at once."""


@keys.command()
def create(  # noqa: PLR0917 - typer reads options from parameters
    name: NameArgument,
    tenant: Annotated[
        str, typer.Option(help="The tenant whose sessions the key may use.")
    ] = "default",
    agent: Annotated[
        list[str] | None,
        typer.Option(help="An agent that the key may use. Can be repeated. Default: all agents."),
    ] = None,
    role: Annotated[
        RoleChoice,
        typer.Option(
            help="What the key may do. read: read sessions. talk: also send messages, stop, undo "
            "and fork. admin: also delete, erase and retry dead letters. metrics: read /metrics, "
            "which counts all tenants, and nothing else."
        ),
    ] = RoleChoice.talk,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="90d|2027-01-31",
            help="When the key expires: after hours (12h), days (90d) or weeks (4w), or at the end "
            "of a day (UTC). Default: never.",
        ),
    ] = None,
    file: FileOption = DEFAULT_KEYS_PATH,
    as_json: KeysJsonOption = False,
) -> None:
    """Create a key and print it once. Only its hash is stored."""
    from trimtab.cli.store_command import report_known_errors
    from trimtab_serve.channels.http.api_keys import (
        create_api_key,
        read_stored_api_keys,
        write_key_file,
    )

    with report_known_errors():
        known = read_stored_api_keys(file) if file.exists() else []
        if any(key.name == name for key in known):
            raise ValueError(
                f"{file} already has a key called {name}; to replace it, create a key with another "
                "name, let its users switch, then revoke this one"
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
        f"\nThe key {name} {what}{until}. It is shown only once: {file} stores only its "
        f"hash.\nTo serve with it, write `keys: {file}` under `serve` in agent.yaml.\nTo use it: "
        'curl -H "Authorization: Bearer KEY" …',
        err=True,
    )


@keys.command("list")
def list_api_keys(file: FileOption = DEFAULT_KEYS_PATH, as_json: KeysJsonOption = False) -> None:
    """List the keys of a file: names, roles, tenants, agents, when they expire, and when each was
    last used, to the minute."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from trimtab.cli.store_command import make_output_console, report_known_errors
    from trimtab.cli.text_format import escape_control_characters, format_age
    from trimtab_serve.channels.http.api_key_last_use import (
        build_last_use_path,
        read_api_key_last_use,
    )
    from trimtab_serve.channels.http.api_keys import read_stored_api_keys

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
        typer.echo(f"no keys in {file} yet; create one: trimtab keys create NAME", err=True)
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


def parse_expiry(text: str, now: datetime) -> datetime:
    """Return the time at which a key expires. Raise `ValueError` with what to write instead."""
    if (found := _DURATION_PATTERN.fullmatch(text)) is not None:
        return now + int(found[1]) * _DURATION_UNITS[found[2]]
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"invalid --expires {text}: write a duration such as 12h, 90d or 4w, or a day such as "
            "2027-01-31"
        ) from None
    # It works to the end of the day.
    ends = datetime.combine(day, time.max, UTC)
    if ends <= now:
        raise ValueError(f"--expires {text} is in the past; today is {now:%Y-%m-%d}")
    return ends


def format_expiry(expires: float | None, *, expired: bool) -> str:
    """Return the day on which a key expires (UTC), for people."""
    if expires is None:
        return "never"
    day = f"{datetime.fromtimestamp(expires, UTC):%Y-%m-%d}"
    return f"EXPIRED {day}" if expired else day


@keys.command()
def revoke(name: NameArgument, file: FileOption = DEFAULT_KEYS_PATH) -> None:
    """Revoke a key. The server refuses it from now on."""
    from trimtab.cli.store_command import report_known_errors
    from trimtab.cli.text_format import join_names
    from trimtab_serve.channels.http.api_keys import read_stored_api_keys, write_key_file

    with report_known_errors():
        known = read_stored_api_keys(file)
        left = [key for key in known if key.name != name]
        if len(left) == len(known):
            there = join_names([key.name for key in known]) or "none"
            raise LookupError(f"{file} has no key called {name}; its keys: {there}")
        write_key_file(file, left)
    typer.echo(f"revoked {name}; a running server refuses it from now on", err=True)
