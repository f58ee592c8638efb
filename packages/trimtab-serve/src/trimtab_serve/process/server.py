"""Start the server from its arguments, run it, and shut it down in order."""

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

from trimtab.cli.store_command import report_known_errors
from trimtab.cli.text_format import format_count
from trimtab_serve.channels.http.api_keys import ApiKeyFile, read_stored_api_keys
from trimtab_serve.channels.http.app import create_http_app
from trimtab_serve.channels.http.server_state import HttpServerState
from trimtab_serve.process import logging_setup
from trimtab_serve.process.banner import (
    list_config_notes,
    list_tools_needing_approval,
    render_startup_banner,
)
from trimtab_serve.process.health_file import keep_health_file_fresh
from trimtab_serve.process.http_connections import (
    choose_connection_limits,
    get_descriptor_limit,
    raise_descriptor_limit,
)
from trimtab_serve.process.http_server import (
    ManagedUvicornServer,
    build_http_server,
    build_listener_url,
    build_local_url,
    load_api_keys,
    open_listening_socket,
)
from trimtab_serve.process.loading import AgentSetSpec, load_agent_set
from trimtab_serve.process.runtime import ServerRuntime, open_server_runtime

log = logging.getLogger("trimtab.serve")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeArguments:
    """The arguments that the user typed."""

    agent_files: tuple[Path, ...]
    """The paths of the agents' files."""
    host: str | None
    """The address to listen on. None for that of the file."""
    port: int | None
    """The port. None for that of the file."""
    json_logs: bool
    """Whether to log JSON."""
    serve_http: bool
    """Whether to serve HTTP."""
    run_turns: bool
    """Whether to run turns."""
    run_channels: bool
    """Whether to accept messages from channels other than HTTP."""
    metrics_port: int | None = None
    """The separate port for metrics. None for no such port."""
    health_file: Path | None = None
    """The file to touch while the process is alive."""


def run_server(arguments: ServeArguments) -> int:
    """Serve until a signal arrives, and return the exit status."""
    with report_known_errors():
        agents = load_agent_set(arguments.agent_files)
        if not agents.uses_database and not (arguments.run_turns and arguments.run_channels):
            raise ValueError(
                "--no-turns and --workers-only need PostgreSQL and several processes; "
                "with a store of files, one process does everything"
            )
        changed = {"host": arguments.host, "port": arguments.port}
        given = {name: value for name, value in changed.items() if value is not None}
        serve = agents.serve_config.model_copy(update=given)
        keys, listener = None, None
        if arguments.serve_http:
            keys = load_api_keys(serve.host, agents.key_file)
            listener = open_listening_socket(serve.host, serve.port)
        metrics = None
        if arguments.metrics_port is not None:
            metrics = _serve_metrics(arguments.metrics_port, arguments.host or "127.0.0.1")
        logging_setup.configure_logging(as_json=arguments.json_logs)
        raise_descriptor_limit()
        return asyncio.run(_ServerProcess(arguments, agents, keys, listener, metrics).run())


class _ServerProcess:
    """One process that serves."""

    def __init__(
        self,
        arguments: ServeArguments,
        agent_set: AgentSetSpec,
        keys: ApiKeyFile | None,
        listener: socket.socket | None,
        metrics_url: str | None,
    ) -> None:
        self._wanted = arguments
        self._agents = agent_set
        self._keys = keys
        self._listener = listener
        self._metrics = metrics_url
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._signals = 0
        self._tasks: dict[asyncio.Task[None], str] = {}

    async def run(self) -> int:
        self._install_signal_handlers()
        async with open_server_runtime(
            self._agents, run_turns=self._wanted.run_turns, run_channels=self._wanted.run_channels
        ) as runtime:
            offer, server = self._build_server_state(runtime), None
            if (path := self._wanted.health_file) is not None:
                self._start_task("health file", keep_health_file_fresh(path))
            if self._keys is not None:
                self._start_task("last use of keys", self._keys.save_last_use_regularly())
            for name, work in runtime.background_tasks.items():
                self._start_task(name, work())
            if offer is not None and self._listener is not None:
                serve = self._agents.serve_config
                server = build_http_server(
                    create_http_app(offer),
                    drain_seconds=serve.shutdown_timeout,
                    limits=choose_connection_limits(serve, get_descriptor_limit()),
                )
                self._start_task("HTTP", server.serve(sockets=[self._listener]))
                await self._wait_until_ready(server)
            if not self._stop.is_set():
                self._announce(runtime)
            reloads = asyncio.create_task(self._reload_when_asked(runtime), name="reloads")
            await self._stop.wait()
            reloads.cancel()
            return await self._shut_down(runtime, offer, server)

    async def _reload_when_asked(self, runtime: ServerRuntime) -> None:
        """Read the agents' files and the key file again at each SIGHUP. If they contain an error,
        log it and keep the last good ones."""
        while True:
            await self._reload.wait()
            self._reload.clear()
            try:
                changed = load_agent_set(self._wanted.agent_files)
                # Read and checked, whether or not its date has changed.
                keys = [] if self._keys is None else read_stored_api_keys(self._keys.path)
                if runtime.served_agents is not None:
                    await runtime.served_agents.reload(
                        self._agents, changed, runtime.service, runtime.prepare_agent
                    )
            except Exception as error:  # noqa: BLE001 - whatever is in a file, the server goes on
                told = " ".join(str(error).split()) or type(error).__name__
                log.error(  # noqa: TRY400 - one line; what is wrong is in a file
                    "reload failed, the agents are unchanged: %s",
                    told,
                    extra={"event": "reload_failed"},
                )
                continue
            self._agents = changed
            log.info(
                "reloaded: %s",
                ", ".join(changed.members),
                extra={"event": "reloaded", "agents": list(changed.members), "keys": len(keys)},
            )

    def _build_server_state(self, runtime: ServerRuntime) -> HttpServerState | None:
        if self._listener is None:
            return None
        return HttpServerState(
            service=runtime.service,
            serve_config=self._agents.serve_config,
            key_file=self._keys,
            schedule_turn=runtime.schedule_turn,
            render_metrics=_load_metrics_renderer(),
            channel_routes=[route for _, channel in runtime.channels for route in channel.routes],
        )

    async def _shut_down(
        self,
        runtime: ServerRuntime,
        state: HttpServerState | None,
        server: ManagedUvicornServer | None,
    ) -> int:
        """Accept nothing new, finish or hand over running turns, then stop everything else."""
        drain = self._agents.serve_config.shutdown_timeout
        failed = self._has_failed_task()
        if state is not None and server is not None:
            state.drain()
            server.should_exit = True
        left = 0
        if runtime.turn_runner is not None:
            log.info(
                "stopping: running turns have %g s to finish", drain, extra={"event": "draining"}
            )
            left = await runtime.turn_runner.drain(drain)
        if state is not None:
            await state.close()
        await self._stop_tasks()
        told = f"; {format_count(left, 'turn')} continue in the next process" if left else ""
        log.info("stopped%s", told, extra={"event": "stopped", "handed_over": left})
        return 1 if failed else 0

    async def _stop_tasks(self) -> None:
        """Cancel all tasks except HTTP, which ends by itself."""
        for task, name in self._tasks.items():
            if name != "HTTP":
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _has_failed_task(self) -> bool:
        failed = False
        for task, name in self._tasks.items():
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                log.error("%s failed, so the server stops: %s", name, error)
                failed = True
        return failed

    def _start_task(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = name
        # What should run until it is cancelled has failed where it ends.
        task.add_done_callback(lambda _: self._stop.set())

    async def _wait_until_ready(self, server: ManagedUvicornServer) -> None:
        waits = [asyncio.ensure_future(each.wait()) for each in (server.ready, self._stop)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    def _install_signal_handlers(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)

    def _on_signal(self) -> None:
        self._signals += 1
        self._stop.set()
        if self._signals > 1:
            # Whoever asks twice does not want to wait: what is in the log is safe.
            raise SystemExit(1)

    def _announce(self, runtime: ServerRuntime) -> None:
        url = build_listener_url(self._listener) if self._listener is not None else None
        facts = {
            "event": "serving",
            "url": url,
            "agents": list(self._agents.members),
            "channels": [channel.name for _, channel in runtime.channels],
            "resumed_sessions": runtime.resumed_sessions,
            "metrics": self._metrics,
            "refused_tools": list_tools_needing_approval(self._agents)
            if runtime.turn_runner is not None
            else [],
            "notes": list_config_notes(self._agents) if runtime.turn_runner is not None else [],
        }
        if self._wanted.json_logs:
            log.info("serving", extra=facts)
            return
        told = render_startup_banner(
            self._agents,
            url=url,
            keys=self._keys,
            channels=runtime.channels,
            runs_turns=runtime.turn_runner is not None,
            resumed_sessions=runtime.resumed_sessions,
            metrics_url=self._metrics,
        )
        with suppress(OSError):
            typer.echo(f"{told}\n")
            sys.stdout.flush()


def _load_metrics_renderer():  # noqa: ANN202 - the type of `render`, which may not be there
    try:
        from trimtab_serve.metrics.prometheus import render_metrics
    except ImportError:
        return None
    return render_metrics


def _serve_metrics(port: int, host: str) -> str:
    """Serve metrics on this port, and return the address."""
    try:
        from trimtab_serve.metrics.prometheus import start_metrics_server
    except ImportError as missing:
        raise ValueError(str(missing)) from missing
    return f"{build_local_url(host, start_metrics_server(port, host))}/metrics"
