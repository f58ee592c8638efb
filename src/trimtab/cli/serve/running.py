"""From what was typed to agents that are served, and back to an orderly end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from trimtab.cli.serve import logs
from trimtab.cli.serve.banner import banner, notes, refused
from trimtab.cli.serve.crew import Crew, crew_of
from trimtab.cli.serve.house import House, opened
from trimtab.cli.serve.listening import Listening, address, keys_for, listen, place, server_of
from trimtab.cli.storing import friendly
from trimtab.cli.words import counted
from trimtab.gateways.http.app import make_app
from trimtab.gateways.http.asking import Offer
from trimtab.gateways.http.keys import KeyFile

log = logging.getLogger("trimtab.serve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was typed."""

    files: tuple[Path, ...]
    """The agents'."""
    host: str | None
    """The address to listen on, if not the file's."""
    port: int | None
    """The port, if not the file's."""
    json_logs: bool
    """Whether a program reads the log."""
    http: bool
    """Whether HTTP is offered."""
    turns: bool
    """Whether turns are run."""
    doors: bool
    """Whether anything is taken in but by HTTP."""
    metrics_port: int | None = None
    """Where metrics are shown beside HTTP, or without it."""


def start(wanted: Wanted) -> int:
    """Serve until a signal comes; returns the exit status."""
    with friendly():
        crew = crew_of(wanted.files)
        if not crew.database and not (wanted.turns and wanted.doors):
            raise ValueError(
                "--no-turns and --workers-only are for several processes on PostgreSQL; on files "
                "one process does it all"
            )
        changed = {"host": wanted.host, "port": wanted.port}
        given = {name: value for name, value in changed.items() if value is not None}
        serve = crew.serve.model_copy(update=given)
        keys, listener = None, None
        if wanted.http:
            keys = keys_for(serve.host, crew.keys)
            listener = listen(serve.host, serve.port)
        metrics = None
        if wanted.metrics_port is not None:
            metrics = _show_metrics(wanted.metrics_port, wanted.host or "127.0.0.1")
        logs.set_up(as_json=wanted.json_logs)
        return asyncio.run(_Serving(wanted, crew, keys, listener, metrics).run())


class _Serving:
    """One process that serves."""

    def __init__(
        self,
        wanted: Wanted,
        crew: Crew,
        keys: KeyFile | None,
        listener: socket.socket | None,
        metrics: str | None,
    ) -> None:
        self._wanted = wanted
        self._crew = crew
        self._keys = keys
        self._listener = listener
        self._metrics = metrics
        self._stop = asyncio.Event()
        self._signals = 0
        self._tasks: dict[asyncio.Task[None], str] = {}

    async def run(self) -> int:
        self._heed_signals()
        async with opened(self._crew, turns=self._wanted.turns, doors=self._wanted.doors) as house:
            offer, server = self._offer(house), None
            for name, work in house.work.items():
                self._begin(name, work())
            if offer is not None and self._listener is not None:
                server = server_of(make_app(offer), drain=self._crew.serve.drain)
                self._begin("HTTP", server.serve(sockets=[self._listener]))
                await self._until_up(server)
            if not self._stop.is_set():
                self._greet(house)
            await self._stop.wait()
            return await self._end(house, offer, server)

    def _offer(self, house: House) -> Offer | None:
        if self._listener is None:
            return None
        return Offer(
            service=house.service,
            serve=self._crew.serve,
            keys=self._keys,
            due=house.due,
            metrics=_metrics(),
            doors=[route for _, door in house.doors for route in door.routes],
        )

    async def _end(self, house: House, offer: Offer | None, server: Listening | None) -> int:
        """Nothing new, then what runs is finished or left for others, then all else stops."""
        drain = self._crew.serve.drain
        failed = self._failure()
        if offer is not None and server is not None:
            offer.drain()
            server.should_exit = True
        left = 0
        if house.turns is not None:
            log.info("stopping: running turns have %g s", drain, extra={"event": "draining"})
            left = await house.turns.drain(drain)
        if offer is not None:
            await offer.close()
        await self._finish()
        told = f"; {counted(left, 'turn')} go on with the next process" if left else ""
        log.info("stopped%s", told, extra={"event": "stopped", "handed_over": left})
        return 1 if failed else 0

    async def _finish(self) -> None:
        """HTTP ends by itself; all else is cancelled."""
        for task, name in self._tasks.items():
            if name != "HTTP":
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _failure(self) -> bool:
        failed = False
        for task, name in self._tasks.items():
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                log.error("%s has failed and the server stops: %s", name, error)
                failed = True
        return failed

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = name
        # What should run until it is cancelled has failed where it ends.
        task.add_done_callback(lambda _: self._stop.set())

    async def _until_up(self, server: Listening) -> None:
        waits = [asyncio.ensure_future(each.wait()) for each in (server.up, self._stop)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _heed_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._heed)

    def _heed(self) -> None:
        self._signals += 1
        self._stop.set()
        if self._signals > 1:
            # Whoever asks twice does not want to wait: what is in the log is safe.
            raise SystemExit(1)

    def _greet(self, house: House) -> None:
        url = address(self._listener) if self._listener is not None else None
        facts = {
            "event": "serving",
            "url": url,
            "agents": list(self._crew.members),
            "doors": [door.name for _, door in house.doors],
            "waiting": house.resumed,
            "metrics": self._metrics,
            "refused": refused(self._crew) if house.turns is not None else [],
            "notes": notes(self._crew) if house.turns is not None else [],
        }
        if self._wanted.json_logs:
            log.info("serving", extra=facts)
            return
        told = banner(
            self._crew,
            url=url,
            keys=self._keys,
            doors=house.doors,
            turns=house.turns is not None,
            waiting=house.resumed,
            metrics=self._metrics,
        )
        with suppress(OSError):
            typer.echo(f"{told}\n")
            sys.stdout.flush()


def _metrics():  # noqa: ANN202 - the type of `render`, which may not be there
    try:
        from trimtab.observe.prometheus import render
    except ImportError:
        return None
    return render


def _show_metrics(port: int, host: str) -> str:
    """Answer there; returns the address."""
    try:
        from trimtab.observe.prometheus import show
    except ImportError as missing:
        raise ValueError(str(missing)) from missing
    return f"{place(host, show(port, host))}/metrics"
