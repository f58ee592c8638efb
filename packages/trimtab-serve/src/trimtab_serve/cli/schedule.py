"""`trimtab schedule`: messages to agents at set times, and the log of their runs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from trimtab.cli.lazy import TYPER_SETTINGS
from trimtab.cli.store_command import (
    UNSET_STORE,
    JsonOption,
    StoreOption,
    describe_store,
    format_store_option,
    report_known_errors,
    show_progress_if_slow,
)
from trimtab.cli.text_format import format_count, join_names, shorten_to_line

if TYPE_CHECKING:
    from trimtab_serve.schedules.schedule import Schedule, ScheduleRunLogEntry
    from trimtab_serve.schedules.store import ScheduleStore, ScheduleVerb

T = TypeVar("T")
MAX_LISTED_SCHEDULES = 100_000
MAX_NAMED_SCHEDULES = 8
"""Schedules to list in the error when a name is not found."""

ScheduleArgument = Annotated[
    str, typer.Argument(metavar="SCHEDULE", help="The schedule: its name, or its full id.")
]

schedule = typer.Typer(
    name="schedule", no_args_is_help=True, add_completion=False, **TYPER_SETTINGS
)


@schedule.callback()
def schedule_options() -> None:
    """List, run, pause or remove schedules, even while a server runs."""


@schedule.command("list")
def list_schedules_command(store: StoreOption = UNSET_STORE, as_json: JsonOption = False) -> None:
    """List the schedules of a store: when each is due next, and who gets the result."""
    all_schedules = _with_schedules(store, "reading schedules", _list_schedules)
    if as_json:
        typer.echo(json.dumps([_schedule_to_json(one) for one in all_schedules]))
    elif not all_schedules:
        typer.echo(
            f"no schedules in {describe_store(store)}; write `schedules` into agent.yaml and "
            "serve it, or ask a served agent to remind you",
            err=True,
        )
    else:
        _show_schedules(all_schedules)


@schedule.command()
def runs(
    name: Annotated[
        str,
        typer.Argument(
            metavar="SCHEDULE", help="Only this schedule. Default: all.", show_default=False
        ),
    ] = "",
    store: StoreOption = UNSET_STORE,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of runs.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Show the run log, newest first: what ran, what was skipped, and why."""

    async def look(schedules: ScheduleStore) -> tuple[list[Schedule], list[ScheduleRunLogEntry]]:
        all_schedules = await _list_schedules(schedules)
        mine = _find_schedule(all_schedules, name).id if name else None
        return all_schedules, await schedules.list_runs(schedule_id=mine, limit=limit)

    all_schedules, log = _with_schedules(store, "reading the run log", look)
    if as_json:
        typer.echo(json.dumps([asdict(run) for run in log]))
    elif not log:
        typer.echo("nothing has run yet; to see what is planned: trimtab schedule list", err=True)
    else:
        _show_runs(log, {one.id: one.trigger.timezone for one in all_schedules})


@schedule.command()
def pause(name: ScheduleArgument, store: StoreOption = UNSET_STORE) -> None:
    """Pause a schedule until you resume it. Runs that fall due meanwhile do not count as missed."""
    was, _ = _change_schedule("pause", name, store)
    _print_note(
        f"{was.id} is paused; to continue: trimtab schedule resume "
        f"{was.name}{format_store_option(store)}"
    )


@schedule.command()
def resume(name: ScheduleArgument, store: StoreOption = UNSET_STORE) -> None:
    """Resume a paused schedule from now on."""
    was, now = _change_schedule("resume", name, store)
    state = "is resumed" if was.paused else "was not paused"
    _print_note(f"{was.id} {state}. {_describe_next_run(now or was)}")


@schedule.command("run-now")
def run_schedule_now(name: ScheduleArgument, store: StoreOption = UNSET_STORE) -> None:
    """Run a schedule once now, in addition to its times, even if it is paused."""
    was, now = _change_schedule("run-now", name, store)
    _print_note(
        f"{was.id} is due now, in session {was.session}; the server runs it. "
        f"{_describe_next_run(now or was)}"
    )


@schedule.command()
def remove(name: ScheduleArgument, store: StoreOption = UNSET_STORE) -> None:
    """Remove a schedule that an agent created, with its run log."""

    def check(found: Schedule) -> None:
        if found.origin == "file":
            raise ValueError(
                f"{found.id} is in the agent's file and would come back; remove it from "
                "`schedules` in agent.yaml, or run: trimtab schedule pause "
                f"{found.name}{format_store_option(store)}"
            )

    was, _ = _change_schedule("remove", name, store, check)
    _print_note(f"removed {was.id}: {shorten_to_line(was.message, 60)}")


def _change_schedule(
    verb: ScheduleVerb, name: str, store: str, check: Callable[[Schedule], None] = lambda _: None
) -> tuple[Schedule, Schedule | None]:
    """Change a schedule, and return it as it was and as it is now."""

    async def doing(schedules: ScheduleStore) -> tuple[Schedule, Schedule | None]:
        from trimtab_serve.schedules.store import execute_schedule_command

        was = _find_schedule(await _list_schedules(schedules), name)
        check(was)
        if not await execute_schedule_command(schedules, verb, was.id, time.time()):
            raise LookupError(f"{was.id} was removed in the meantime")
        return was, await schedules.get(was.id)

    return _with_schedules(store, f"requesting {verb} of {name}", doing)


async def _list_schedules(schedules: ScheduleStore) -> list[Schedule]:
    return await schedules.find(limit=MAX_LISTED_SCHEDULES)


def _with_schedules(store: str, doing: str, verb: Callable[[ScheduleStore], Awaitable[T]]) -> T:
    async def run() -> T:
        from trimtab_serve.schedules.command_line_control import open_schedules

        async with open_schedules(store) as schedules:
            return await verb(schedules)

    with report_known_errors(), show_progress_if_slow(doing):
        return asyncio.run(run())


def _find_schedule(found: Sequence[Schedule], name: str) -> Schedule:
    """Find a schedule by its id, or by its name if only one has it."""
    mine = [one for one in found if one.id == name] or [one for one in found if one.name == name]
    if len(mine) == 1:
        return mine[0]
    if mine:
        ids = join_names([one.id for one in mine])
        raise LookupError(
            f"{format_count(len(mine), 'schedule')} are called {name}; use an id instead: {ids}"
        )
    few = [one.name for one in found[:MAX_NAMED_SCHEDULES]] + (
        ["more"] if len(found) > MAX_NAMED_SCHEDULES else []
    )
    raise LookupError(
        f"there is no schedule {name!r}; existing schedules: {join_names(few) or 'none'}"
    )


def _schedule_to_json(one: Schedule) -> dict[str, Any]:
    """Convert a schedule to JSON, for programs."""
    from trimtab_serve.schedules.schedule import schedule_to_json

    stored_json = schedule_to_json(one)
    return {
        "id": one.id,
        "name": one.name,
        "agent": one.agent,
        "session": one.session,
        "message": one.message,
        **{name: stored_json[name] for name in ("cron", "at", "timezone", "origin")},
        "created_at": one.created_at,
        "next_run_at": one.next_run_at,
        "route": one.route and {"channel": one.route.channel, "address": dict(one.route.address)},
        "catch_up": one.catch_up,
        "catch_up_window": one.catch_up_window,
        "paused": one.paused,
    }


def _show_schedules(found: Sequence[Schedule]) -> None:
    rows = [
        (
            one.name,
            one.agent,
            one.trigger.cron or "once",
            _format_next_run(one),
            _format_destination(one),
            shorten_to_line(one.message, 60),
        )
        for one in found
    ]
    _print_table(("schedule", "agent", "when", "next", "result goes to", "message"), rows)


def _show_runs(log: Sequence[ScheduleRunLogEntry], zones: dict[str, str]) -> None:
    from trimtab_serve.schedules.triggers import format_time_in_zone

    rows: list[tuple[str, ...]] = []
    for run in log:
        zone = zones.get(run.schedule, "UTC")
        name = run.schedule.rpartition("/")[2]
        late = max(0.0, run.at - run.due)
        outcome = "skipped" if run.reason else f"ran {late:,.0f} s later" if late >= 1 else "ran"
        rows.append((name, format_time_in_zone(run.due, zone), outcome, run.reason))
    _print_table(("schedule", "due", "outcome", "reason"), rows)


def _print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from trimtab.cli.store_command import make_output_console
    from trimtab.cli.text_format import escape_control_characters

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(escape_control_characters(cell)) for cell in row))
    make_output_console().print(table)


def _format_next_run(one: Schedule) -> str:
    from trimtab_serve.schedules.triggers import format_time_in_zone

    if one.paused:
        return "paused"
    if one.next_run_at is None:
        return "done"
    return format_time_in_zone(one.next_run_at, one.trigger.timezone)


def _format_destination(one: Schedule) -> str:
    if one.route is None:
        return f"session {one.session}"
    return ":".join([one.route.channel, *(str(part) for part in one.route.address.values())])


def _describe_next_run(one: Schedule) -> str:
    due = _format_next_run(one)
    return {"paused": "It stays paused.", "done": "It is done."}.get(due, f"It is due next {due}.")


def _print_note(text: str) -> None:
    from trimtab.cli.text_format import escape_control_characters

    typer.echo(escape_control_characters(text), err=True)
