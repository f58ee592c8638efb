"""`trimtab keys`: manage the API keys of a server. A key is shown once and never stored."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from trimtab.cli.lazy import TYPER_SETTINGS
from trimtab.cli.store_command import (
    UNSET_STORE,
    ImplicitStoreLocation,
    JsonOption,
    StoreOption,
    describe_store,
    report_known_errors,
    show_progress_if_slow,
)
from trimtab.cli.text_format import join_names

if TYPE_CHECKING:
    from trimtab_serve.api_keys.store import ApiKeyStore

T = TypeVar("T")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the key.")]
MAX_NAMED_KEYS = 8
"""Keys to list in the error when a name is not found."""
MAX_SHOWN_KEYS = 1_000
"""Keys that the table shows: the newest. A table of 100,000 takes a minute and a half."""
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
    """Create and revoke API keys of `trimtab serve`. All running servers see the change at once."""


@keys.command()
def create(  # noqa: PLR0917 - typer reads options from parameters
    name: NameArgument,
    tenant: Annotated[
        str, typer.Option(help="The tenant whose sessions the key may use.")
    ] = "default",
    agent: Annotated[
        list[str] | None,
        typer.Option(help="An agent that the key may use; repeatable. Default: all."),
    ] = None,
    role: Annotated[
        RoleChoice,
        typer.Option(
            help="read: read sessions. talk: also change them. admin: also delete and erase. "
            "metrics: only read /metrics, of all tenants."
        ),
    ] = RoleChoice.talk,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="90d|2027-01-31",
            help="After hours (12h), days (90d) or weeks (4w), or at the end of a day (UTC). "
            "Default: never.",
        ),
    ] = None,
    store: StoreOption = UNSET_STORE,
    as_json: JsonOption = False,
) -> None:
    """Create a key and print it once. Only its hash is stored."""
    from trimtab_serve.api_keys.api_key import create_api_key

    with report_known_errors():
        if isinstance(store, ImplicitStoreLocation):
            _check_agents(agent or ())
        ends = None if expires is None else parse_expiry(expires, datetime.now(UTC))
        text, key = create_api_key(
            name,
            tenant=tenant,
            agents=tuple(agent) if agent else None,
            role=role.value,
            expires=None if ends is None else ends.timestamp(),
        )
    _with_api_keys(store, "creating a key", lambda keys: keys.add(key))
    if as_json:
        owner = None if key.role == "metrics" else tenant
        fields = {"name": name, "role": key.role, "tenant": owner, "expires": key.expires}
        typer.echo(json.dumps({**fields, "agents": agent or None, "key": text}))
        return
    what = {
        RoleChoice.metrics: "reads /metrics and nothing else",
        RoleChoice.read: f"reads sessions of tenant {tenant}",
        RoleChoice.talk: f"reads sessions of tenant {tenant} and talks in them",
        RoleChoice.admin: f"may do everything with sessions of tenant {tenant}",
    }[role]
    with_agents = f", only with {join_names(key.agents)}" if key.agents else ""
    until = "" if ends is None else f" until {ends:%Y-%m-%d %H:%M} UTC"
    typer.echo(text)
    typer.echo(
        f"\nThe key {name} {what}{with_agents}{until}. It is shown only once: "
        f"{describe_store(store)} stores only its hash."
        '\nTo use it: curl -H "Authorization: Bearer KEY" …',
        err=True,
    )


@keys.command("list")
def list_api_keys(
    tenant: Annotated[str | None, typer.Option(help="Only the keys of this tenant.")] = None,
    store: StoreOption = UNSET_STORE,
    as_json: JsonOption = False,
) -> None:
    """List the keys of a store, when they expire and when each was last used."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from trimtab.cli.store_command import make_output_console
    from trimtab.cli.text_format import escape_control_characters, format_age

    api_keys = _with_api_keys(store, "reading keys", lambda keys: keys.list(tenant=tenant))
    now = datetime.now(UTC).timestamp()
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
                "last_used": key.last_used,
            }
            for key in api_keys
        ]
        typer.echo(json.dumps(rows))
        return
    if not api_keys:
        whose = "" if tenant is None else f" of tenant {tenant}"
        typer.echo(
            f"no keys{whose} in {describe_store(store)} yet; create one: trimtab keys create NAME",
            err=True,
        )
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in ("key", "role", "tenant", "agents", "made", "expires", "last used"):
        table.add_column(title)
    for key in api_keys[-MAX_SHOWN_KEYS:]:
        opens = (key.tenant, "all" if key.agents is None else ", ".join(key.agents))
        cells = (
            *(key.name, key.role, *(("–", "–") if key.role == "metrics" else opens)),
            format_age(key.created),
            format_expiry(key.expires, expired=key.has_expired(now)),
            "–" if key.last_used is None else format_age(key.last_used),
        )
        table.add_row(*(Text(escape_control_characters(cell)) for cell in cells))
    make_output_console().print(table)
    if (hidden_count := len(api_keys) - MAX_SHOWN_KEYS) > 0:
        typer.echo(
            f"{hidden_count:,} older keys are not shown: name a tenant with --tenant, or print "
            "all with --json",
            err=True,
        )


def _check_agents(names: Sequence[str]) -> None:
    """Raise `LookupError` for an agent that no file here describes.

    Without such a file, as on a machine of the operator's, nothing is known of the agents.
    """
    from trimtab_serve.agent.config.agent_name import read_agent_name

    agent_files = [*Path().glob("*.yaml"), *Path().glob("*/agent.yaml")]
    known_names = {name for file in agent_files if (name := read_agent_name(file)) is not None}
    unknown_names = [name for name in names if name not in known_names]
    if known_names and unknown_names:
        raise LookupError(
            f"no agent file here is for {unknown_names[0]}; they are for "
            f"{join_names(sorted(known_names))}. If its file is elsewhere, name the store with "
            "--store"
        )


def parse_expiry(text: str, now: datetime) -> datetime:
    """Return the time at which a key expires. Raise `ValueError` with what to write instead."""
    if (match := _DURATION_PATTERN.fullmatch(text)) is not None:
        return now + int(match[1]) * _DURATION_UNITS[match[2]]
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
def revoke(name: NameArgument, store: StoreOption = UNSET_STORE) -> None:
    """Revoke a key. All servers refuse it from now on."""

    async def remove(keys: ApiKeyStore) -> None:
        if not await keys.revoke(name):
            names = [key.name for key in await keys.list(limit=MAX_NAMED_KEYS + 1)]
            few = names[:MAX_NAMED_KEYS] + (["more"] if len(names) > MAX_NAMED_KEYS else [])
            raise LookupError(
                f"{describe_store(store)} has no key called {name}; its keys: "
                f"{join_names(few) or 'none'}"
            )

    _with_api_keys(store, f"revoking {name}", remove)
    typer.echo(f"revoked {name}; running servers refuse it from now on", err=True)


def _with_api_keys(store: str, doing: str, action: Callable[[ApiKeyStore], Awaitable[T]]) -> T:
    async def run() -> T:
        from trimtab_serve.api_keys.command_line_control import open_api_keys

        async with open_api_keys(store) as keys:
            return await action(keys)

    with report_known_errors(), show_progress_if_slow(doing):
        return asyncio.run(run())
