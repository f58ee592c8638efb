"""The simulated Discord on a real socket, in the event loop of whoever asks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from trimtab.testing.discord.options import Options
from trimtab.testing.discord.simulator import Simulator


@asynccontextmanager
async def serve(simulator: Simulator | None = None, **options: Any) -> AsyncGenerator[Simulator]:
    """Serve it for as long as the block lasts; options are those of `Options`.

    A bot finds it at the simulator's `url`.
    """
    made = simulator or Simulator(Options(**options))
    app = web.Application(client_max_size=64 << 20)
    app.add_routes([web.get("/gateway/", made.gateway.handle), *made.rest.routes()])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        made.url = f"http://{host}:{port}/api/v10"
        made.gateway.address = f"ws://{host}:{port}/gateway/"
        yield made
    finally:
        await made.drop(1001)
        await runner.cleanup()
