"""`trimtab user`, `trimtab tenant` and `trimtab erasures`: export or erase all data of a user or a
tenant, and list past erasures."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.lazy import TYPER_SETTINGS
from trimtab.cli.session.changes import open_output
from trimtab.cli.store_command import (
    UNSET_STORE,
    JsonOption,
    ProgressStatus,
    StoreOption,
    YesOption,
    describe_store,
    make_output_console,
    run_on_store,
)
from trimtab.cli.text_format import escape_control_characters, format_count, join_names
from trimtab.stores.base import Store
from trimtab_serve.forgetting.history_file import forget_history_lines_with

if TYPE_CHECKING:
    from trimtab_serve.service.erasure_records import ErasureJob, ErasureRecord
    from trimtab_serve.service.service import AgentService

UserArgument = Annotated[
    str, typer.Argument(metavar="USER", help="telegram:123, discord:456, or a caller's name.")
]
TenantArgument = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant.")]
TenantOption = Annotated[
    str, typer.Option(help="The tenant. Chats on Telegram and Discord belong to `default`.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write to this file. Default: standard output."),
]

user = typer.Typer(name="user", no_args_is_help=True, add_completion=False, **TYPER_SETTINGS)
tenant = typer.Typer(name="tenant", no_args_is_help=True, add_completion=False, **TYPER_SETTINGS)


@user.callback()
def user_options() -> None:
    """Export or erase all data of a user, in all sessions of a tenant."""


@tenant.callback()
def tenant_options() -> None:
    """Export or erase all sessions of a tenant."""


@user.command("erase")
def erase_user_command(
    user_id: UserArgument,
    tenant: TenantOption = "default",
    yes: YesOption = False,
    store: StoreOption = UNSET_STORE,
) -> None:
    """Delete the sessions of a user; in sessions shared with others, erase the user's messages."""
    if not yes:
        typer.confirm(
            f"Erase all data of user {user_id} of tenant {tenant} from {describe_store(store)}? "
            "This cannot be undone",
            abort=True,
            err=True,
        )
    _erase(store, user_id, tenant, user_id)


@user.command("export")
def export_user_command(
    user_id: UserArgument,
    tenant: TenantOption = "default",
    output: OutputOption = None,
    store: StoreOption = UNSET_STORE,
) -> None:
    """Write all data of a user as lines of JSON, including hidden messages and files."""

    def lines(service: AgentService) -> AsyncIterator[Mapping[str, Any]]:
        from trimtab_serve.forgetting import export

        return export.export_user(service, tenant, user_id)

    _export(store, user_id, output, lines)


@tenant.command("erase")
def erase_tenant_command(
    name: TenantArgument, yes: YesOption = False, store: StoreOption = UNSET_STORE
) -> None:
    """Delete all sessions of a tenant, with their waiting messages and schedules.

    Revoke the tenant's keys first.
    """
    if not yes:
        typer.confirm(
            f"Erase all sessions of tenant {name} from {describe_store(store)}? This cannot be "
            "undone",
            abort=True,
            err=True,
        )
    _erase(store, f"tenant {name}", name, "")


@tenant.command("export")
def export_tenant_command(
    name: TenantArgument, output: OutputOption = None, store: StoreOption = UNSET_STORE
) -> None:
    """Write all data of a tenant as lines of JSON, including hidden messages and files."""

    def lines(service: AgentService) -> AsyncIterator[Mapping[str, Any]]:
        from trimtab_serve.forgetting import export

        return export.export_tenant(service, name)

    _export(store, f"tenant {name}", output, lines)


def erasures_command(  # noqa: PLR0917 - typer reads options from parameters
    tenant: Annotated[
        str | None, typer.Option(help="Only erasures of this tenant. Default: all tenants.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Only erasures of this user.")] = None,
    session: Annotated[
        str | None, typer.Option(help="Only erasures of this session, by its id.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of erasures.")] = 100,
    as_json: JsonOption = False,
    store: StoreOption = UNSET_STORE,
) -> None:
    """List past erasures, when and by whom, newest first. No erased content is stored."""

    async def look(kept: Store, _: ProgressStatus) -> list[ErasureRecord]:
        from trimtab_serve.forgetting.stored_sessions import open_erasure_records
        from trimtab_serve.service.erasure_records import list_running_and_recorded

        async with open_erasure_records(store, kept) as records:
            subject = user or session
            target = await records.digest(subject) if subject else None
            return await list_running_and_recorded(records, tenant, target=target, limit=limit)

    erasures = run_on_store(store, "reading the erasure records", look)
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in erasures], indent=2))
        return
    console = make_output_console()
    for one in erasures:
        at = datetime.fromtimestamp(one.at, UTC)
        where = "/".join(filter(None, (one.tenant, one.agent))) or "-"
        counts = f"{format_count(one.sessions, 'session')}, {format_count(one.messages, 'message')}"
        line = f"{at:%Y-%m-%d %H:%M:%S}Z  {one.outcome:10}  {one.kind:7}  {where}  {counts}"
        console.print(f"{line}  by {one.by}  {one.target[:12]}".rstrip(), markup=False)


def _erase(store: str, what: str, tenant: str, user: str) -> None:
    """Erase a user, or the tenant if there is no user. Show the progress and the result."""

    async def erase(kept: Store, status: ProgressStatus) -> ErasureJob:
        from trimtab_serve.forgetting import stored_sessions

        total = 0

        def show(job: ErasureJob) -> None:
            nonlocal total
            total = max(total, job.to_do)
            if total:
                status.show_count(total - job.to_do, total, "sessions")

        return await stored_sessions.erase_stored_data(
            store, kept, tenant, user, show, prepare=_forget_typed_lines
        )

    _print_totals(what, run_on_store(store, f"erasing {what}", erase))


def _export(
    store: str,
    what: str,
    output: Path | None,
    lines: Callable[[AgentService], AsyncIterator[Mapping[str, Any]]],
) -> None:
    async def write(kept: Store, _: ProgressStatus) -> Mapping[str, Any]:
        from trimtab_serve.forgetting.stored_sessions import open_idle_service
        from trimtab_serve.queue.sqlite.database import QueueInUse

        last: Mapping[str, Any] = {}
        try:
            async with open_idle_service(store, kept) as service:
                with open_output(output) as file:
                    async for last in lines(service):
                        file.write(f"{json.dumps(last)}\n")
        except QueueInUse as busy:
            raise ValueError(
                f"{busy}; export from that server over HTTP (GET /v1/users/USER/export, "
                "/v1/tenant/export), or stop it first"
            ) from busy
        return last

    summary = run_on_store(store, f"exporting {what}", write)
    if output is not None:
        _print_note(
            f"exported {format_count(summary['messages'], 'message')} of "
            f"{format_count(summary['sessions'], 'session')} of {what} to {output}"
        )
    if summary["unreadable"]:
        _print_note(f"not exported because they are damaged: {join_names(summary['unreadable'])}")


def _forget_typed_lines(service: AgentService) -> None:
    forget_history_lines_with(service, logging.getLogger("trimtab.cli"))


def _print_totals(what: str, totals: ErasureJob) -> None:
    _print_note(
        f"erased {what}: {format_count(totals.sessions, 'session')} deleted, "
        f"{format_count(totals.messages + totals.waiting, 'message')} erased in other sessions"
    )
    if totals.unreadable:
        _print_note(
            f"not searched because they are damaged: {join_names(totals.unreadable)}; delete these "
            "sessions"
        )
    if totals.configured_schedules:
        _print_note(
            "schedules in agent.yaml will start a deleted session again: "
            f"{join_names(totals.configured_schedules)}; remove them from the file"
        )


def _print_note(text: str) -> None:
    typer.echo(escape_control_characters(text), err=True)
