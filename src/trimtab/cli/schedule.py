"""`trimtab schedule`: what agents are told at set times, and what became of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from trimtab.cli.later import LOOK
from trimtab.cli.storing import UNSAID, JsonOption, StoreOption, friendly, here, waiting, where
from trimtab.cli.words import brief, counted, listed

if TYPE_CHECKING:
    from trimtab.worker.schedules.asked import Verb
    from trimtab.worker.schedules.desk import Desk
    from trimtab.worker.schedules.schedule import Run, Schedule

T = TypeVar("T")
FEW = 8
"""Schedules that are named where one was not found."""

ScheduleArgument = Annotated[
    str, typer.Argument(metavar="SCHEDULE", help="The schedule: its name, or its whole id.")
]

schedule = typer.Typer(name="schedule", no_args_is_help=True, add_completion=False, **LOOK)


@schedule.callback()
def options() -> None:
    """See what agents are told at set times, run it now, put it aside; whoever serves goes on."""


@schedule.command("list")
def list_(store: StoreOption = UNSAID, as_json: JsonOption = False) -> None:
    """List the schedules of a store: when each is due next, and who gets the result."""
    found = _work(store, "reading schedules", lambda desk: desk.find())
    if as_json:
        typer.echo(json.dumps([_told(one) for one in found]))
    elif not found:
        typer.echo(
            f"no schedules in {where(store)}; write `schedules` into agent.yaml and serve it, or "
            "ask an agent that is served to remind you",
            err=True,
        )
    else:
        _show_schedules(found)


@schedule.command()
def runs(
    name: Annotated[
        str,
        typer.Argument(metavar="[SCHEDULE]", help="One schedule; unset, all.", show_default=False),
    ] = "",
    store: StoreOption = UNSAID,
    limit: Annotated[int, typer.Option(min=1, help="So many at most.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Show the run log, the newest first: what ran, what was skipped, and why."""

    async def look(desk: Desk) -> tuple[list[Schedule], list[Run]]:
        found = await desk.find()
        mine = _named(found, name).id if name else None
        return found, await desk.runs(mine, limit)

    found, log = _work(store, "reading the run log", look)
    if as_json:
        typer.echo(json.dumps([asdict(run) for run in log]))
    elif not log:
        typer.echo("nothing has run yet; see what is to come: trimtab schedule list", err=True)
    else:
        _show_runs(log, {one.id: one.when.timezone for one in found})


@schedule.command()
def pause(name: ScheduleArgument, store: StoreOption = UNSAID) -> None:
    """Let a schedule not run until it is resumed; it misses nothing meanwhile."""
    was, _ = _do("pause", name, store)
    _say(f"{was.id} is paused; go on with: trimtab schedule resume {was.name}{here(store)}")


@schedule.command()
def resume(name: ScheduleArgument, store: StoreOption = UNSAID) -> None:
    """Let a paused schedule run again, from now on."""
    was, now = _do("resume", name, store)
    told = "is resumed" if was.paused else "was not paused"
    _say(f"{was.id} {told}. {_coming(now or was)}")


@schedule.command("run-now")
def run_now(name: ScheduleArgument, store: StoreOption = UNSAID) -> None:
    """Run a schedule once, now, besides the times it is due; paused ones, too."""
    was, now = _do("run-now", name, store)
    _say(
        f"{was.id} is told now, in session {was.session}; whoever serves it answers. "
        f"{_coming(now or was)}"
    )


@schedule.command()
def remove(name: ScheduleArgument, store: StoreOption = UNSAID) -> None:
    """Remove a schedule that an agent has made, with its run log."""

    def check(found: Schedule) -> None:
        if found.origin == "file":
            raise ValueError(
                f"{found.id} stands in the agent's file and would come back; take it out of "
                f"`schedules` in agent.yaml, or: trimtab schedule pause {found.name}{here(store)}"
            )

    was, _ = _do("remove", name, store, check)
    _say(f"removed {was.id}: {brief(was.says, 60)}")


def _do(
    verb: Verb, name: str, store: str, check: Callable[[Schedule], None] = lambda _: None
) -> tuple[Schedule, Schedule | None]:
    """Do it; returns the schedule as it was and as it is."""

    async def doing(desk: Desk) -> tuple[Schedule, Schedule | None]:
        from trimtab.worker.schedules.asked import Asked

        was = _named(await desk.find(), name)
        check(was)
        if not await desk.do(Asked(verb=verb, schedule=was.id, at=time.time())):
            raise LookupError(f"{was.id} was removed meanwhile")
        now = [one for one in await desk.find() if one.id == was.id]
        return was, now[0] if now else None

    return _work(store, f"asking for {verb} of {name}", doing)


def _work(store: str, doing: str, verb: Callable[[Desk], Awaitable[T]]) -> T:
    async def run() -> T:
        from trimtab.worker.schedules.desk import desk

        async with desk(store) as opened:
            return await verb(opened)

    with friendly(), waiting(doing):
        return asyncio.run(run())


def _named(found: Sequence[Schedule], name: str) -> Schedule:
    """The one of that id or, where no other has it, of that name."""
    mine = [one for one in found if one.id == name] or [one for one in found if one.name == name]
    if len(mine) == 1:
        return mine[0]
    if mine:
        ids = listed([one.id for one in mine])
        raise LookupError(f"{counted(len(mine), 'schedule')} are called {name}: say which, {ids}")
    few = [one.name for one in found[:FEW]] + (["more"] if len(found) > FEW else [])
    raise LookupError(f"there is no schedule {name!r}; there is {listed(few) or 'none'}")


def _told(one: Schedule) -> dict[str, Any]:
    """A schedule for programs."""
    from trimtab.worker.schedules.schedule import schedule_to_json

    told = schedule_to_json(one)
    del told["v"]
    return told | {"name": one.name, "agent": one.agent}


def _show_schedules(found: Sequence[Schedule]) -> None:
    rows = [
        (one.name, one.agent, one.when.cron or "once", _next(one), _to(one), brief(one.says, 60))
        for one in found
    ]
    _print(("schedule", "agent", "when", "next", "result goes to", "says"), rows)


def _show_runs(log: Sequence[Run], zones: dict[str, str]) -> None:
    from trimtab.worker.schedules.when import shown

    rows: list[tuple[str, ...]] = []
    for run in log:
        zone = zones.get(run.schedule, "UTC")
        name = run.schedule.rpartition("/")[2]
        late = max(0.0, run.at - run.due)
        became = "skipped" if run.why else f"ran {late:,.0f} s later" if late >= 1 else "ran"
        rows.append((name, shown(run.due, zone), became, run.why))
    _print(("schedule", "due", "what became of it", "why"), rows)


def _print(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from trimtab.cli.storing import page
    from trimtab.cli.words import plain

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    page().print(table)


def _next(one: Schedule) -> str:
    from trimtab.worker.schedules.when import shown

    if one.paused:
        return "paused"
    if one.next_run_at is None:
        return "done"
    return shown(one.next_run_at, one.when.timezone)


def _to(one: Schedule) -> str:
    if one.route is None:
        return f"session {one.session}"
    return ":".join([one.route.door, *(str(part) for part in one.route.address.values())])


def _coming(one: Schedule) -> str:
    due = _next(one)
    return {"paused": "It stays paused.", "done": "It is done."}.get(due, f"It is due next {due}.")


def _say(text: str) -> None:
    from trimtab.cli.words import plain

    typer.echo(plain(text), err=True)
