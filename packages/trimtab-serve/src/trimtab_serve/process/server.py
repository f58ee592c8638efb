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
from trimtab_serve.api_keys.requirement import requires_api_keys
from trimtab_serve.channels.http.app import create_http_app
from trimtab_serve.channels.http.server_state import HttpServerState
from trimtab_serve.process import logging_setup
from trimtab_serve.process.banner import (
    list_config_notes,
    list_tools_needing_approval,
    render_startup_banner,
)
from trimtab_serve.process.http_connections import (
    choose_connection_limits,
    get_descriptor_limit,
    raise_descriptor_limit,
)
from trimtab_serve.process.http_server import (
    ManagedUvicornServer,
    build_http_server,
    build_listener_url,
    open_listening_socket,
)
from trimtab_serve.process.loading import AgentSetSpec, load_agent_set
from trimtab_serve.process.loop_health import LoopHealth
from trimtab_serve.process.probe_server import ProbeServer
from trimtab_serve.process.runtime import ServerRuntime, open_server_runtime

log = logging.getLogger("trimtab.serve")

THREAD_SWITCH_INTERVAL_S = 0.0005
"""After this time the event loop gets the interpreter back from a thread that works on a long text.
Python's default is ten times as long, and a turn waits for it about twenty times."""


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
    """The separate port for metrics and probes. None for no such port."""


def run_server(arguments: ServeArguments) -> int:
    """Serve until a signal arrives, and return the exit status."""
    with report_known_errors():
        agents = load_agent_set(arguments.agent_files)
        if not agents.uses_database and not (arguments.run_turns and arguments.run_channels):
            raise ValueError(
                "--no-turns and --workers-only need PostgreSQL and several processes; "
                "with a store of files, one process does everything"
            )
        overrides = {"host": arguments.host, "port": arguments.port}
        given_overrides = {name: value for name, value in overrides.items() if value is not None}
        serve = agents.serve_config.model_copy(update=given_overrides)
        listener = None
        if arguments.serve_http:
            listener = open_listening_socket(serve.host, serve.port)
        probe_listener = None
        if arguments.metrics_port is not None:
            probe_listener = open_listening_socket(
                arguments.host or "127.0.0.1", arguments.metrics_port, option="--metrics-port"
            )
        logging_setup.configure_logging(as_json=arguments.json_logs)
        raise_descriptor_limit()
        sys.setswitchinterval(THREAD_SWITCH_INTERVAL_S)
        return asyncio.run(
            _ServerProcess(
                arguments, agents, requires_api_keys(serve), listener, probe_listener
            ).run()
        )


class _ServerProcess:
    """One process that serves."""

    def __init__(
        self,
        arguments: ServeArguments,
        agent_set: AgentSetSpec,
        requires_keys: bool,
        listener: socket.socket | None,
        probe_listener: socket.socket | None,
    ) -> None:
        self._wanted = arguments
        self._agents = agent_set
        self._requires_keys = requires_keys
        self._listener = listener
        self._metrics = None
        if probe_listener is not None:
            self._metrics = f"{build_listener_url(probe_listener)}/metrics"
        self._loop_health = LoopHealth()
        self._probes = ProbeServer(
            self._loop_health, listener=probe_listener, render_metrics=_load_metrics_renderer()
        )
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._signals = 0
        self._tasks: dict[asyncio.Task[None], str] = {}

    async def run(self) -> int:
        self._probes.start()
        try:
            return await self._serve()
        finally:
            self._probes.close()

    async def _serve(self) -> int:
        self._install_signal_handlers()
        self._start_task("loop health", self._loop_health.run())
        async with open_server_runtime(
            self._agents, run_turns=self._wanted.run_turns, run_channels=self._wanted.run_channels
        ) as runtime:
            offer = self._build_server_state(runtime)
            server = None
            if offer is not None and (last_use := offer.authentication.last_use) is not None:
                self._start_task("last use of keys", last_use.save_regularly())
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
                await _warn_without_keys(offer)
            reloads = asyncio.create_task(self._reload_when_asked(runtime), name="reloads")
            await self._stop.wait()
            reloads.cancel()
            return await self._shut_down(runtime, offer, server)

    async def _reload_when_asked(self, runtime: ServerRuntime) -> None:
        """Read the agents' files again at each SIGHUP. If they contain an error, log it and keep
        the last good ones."""
        while True:
            await self._reload.wait()
            self._reload.clear()
            try:
                new_agents = load_agent_set(self._wanted.agent_files)
                if runtime.served_agents is not None:
                    await runtime.served_agents.reload(
                        self._agents, new_agents, runtime.service, runtime.prepare_agent
                    )
            except Exception as error:  # noqa: BLE001 - whatever is in a file, the server goes on
                reason = " ".join(str(error).split()) or type(error).__name__
                log.error(  # noqa: TRY400 - one line; what is wrong is in a file
                    "reload failed, the agents are unchanged: %s",
                    reason,
                    extra={"event": "reload_failed"},
                )
                continue
            self._agents = new_agents
            log.info(
                "reloaded: %s",
                ", ".join(new_agents.members),
                extra={"event": "reloaded", "agents": list(new_agents.members)},
            )

    def _build_server_state(self, runtime: ServerRuntime) -> HttpServerState | None:
        if self._listener is None:
            return None
        return HttpServerState(
            service=runtime.service,
            serve_config=self._agents.serve_config,
            api_keys=runtime.api_keys if self._requires_keys else None,
            schedule_turn=runtime.schedule_turn,
            render_metrics=_load_metrics_renderer(),
            max_requests_per_tenant=self._choose_requests_per_tenant(),
            channel_routes=[route for _, channel in runtime.channels for route in channel.routes],
        )

    def _choose_requests_per_tenant(self) -> int | None:
        """Return half of the connections, so that a tenant leaves some to the others. Without keys
        there is one tenant."""
        if not self._requires_keys:
            return None
        limits = choose_connection_limits(self._agents.serve_config, get_descriptor_limit())
        return max(1, limits.total // 2)

    async def _shut_down(
        self,
        runtime: ServerRuntime,
        state: HttpServerState | None,
        server: ManagedUvicornServer | None,
    ) -> int:
        """Accept nothing new, finish or hand over running turns, then stop everything else."""
        drain = self._agents.serve_config.shutdown_timeout
        has_failure = self._has_failed_task()
        if state is not None and server is not None:
            state.drain()
            server.should_exit = True
        turns_left = 0
        if runtime.turn_runner is not None:
            log.info(
                "stopping: running turns have %g s to finish", drain, extra={"event": "draining"}
            )
            turns_left = await runtime.turn_runner.drain(drain)
        if state is not None:
            await state.close()
        await self._stop_tasks()
        handover_note = (
            f"; {format_count(turns_left, 'turn')} continue in the next process"
            if turns_left
            else ""
        )
        log.info("stopped%s", handover_note, extra={"event": "stopped", "handed_over": turns_left})
        return 1 if has_failure else 0

    async def _stop_tasks(self) -> None:
        """Cancel all tasks except HTTP, which ends by itself."""
        for task, name in self._tasks.items():
            if name != "HTTP":
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _has_failed_task(self) -> bool:
        has_failure = False
        for task, name in self._tasks.items():
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                log.error("%s failed, so the server stops: %s", name, error)
                has_failure = True
        return has_failure

    def _start_task(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = name
        # What should run until it is cancelled has failed where it ends.
        task.add_done_callback(lambda _: self._stop.set())

    async def _wait_until_ready(self, server: ManagedUvicornServer) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (server.ready, self._stop)]
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
            # A second signal means that nobody wants to wait. What is in the log is safe.
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
        banner = render_startup_banner(
            self._agents,
            url=url,
            requires_keys=self._requires_keys,
            channels=runtime.channels,
            runs_turns=runtime.turn_runner is not None,
            resumed_sessions=runtime.resumed_sessions,
            metrics_url=self._metrics,
        )
        with suppress(OSError):
            typer.echo(f"{banner}\n")
            sys.stdout.flush()


async def _warn_without_keys(state: HttpServerState | None) -> None:
    """Tell the operator how to let somebody in, if nobody has a key yet."""
    if state is not None and state.api_keys is not None and await state.api_keys.is_empty():
        log.warning(
            "no API key exists yet, so every HTTP request is refused; create a key: "
            "trimtab keys create NAME",
            extra={"event": "no_keys"},
        )


def _load_metrics_renderer():  # noqa: ANN202 - the type of `render`, which may not be there
    try:
        from trimtab_serve.metrics.prometheus import render_metrics
    except ImportError:
        return None
    return render_metrics
