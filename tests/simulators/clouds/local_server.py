"""Serve the simulated clouds on a real socket, in a thread of this process."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.responses import Response

from tests.simulators.clouds.base import Cloud
from tests.simulators.clouds.routes import build_cloud_routes
from tests.simulators.clouds.simulator import CloudSimulator
from trimtab.testing.server.http_app import SimulatedHttpResponse, build_provider_app
from trimtab.testing.server.local_server import (
    ServedSimulator,
    build_quiet_server,
    serve_in_thread,
)
from trimtab.testing.server.options import ProviderSimulatorOptions


@contextmanager
def serve_simulated_clouds(**options: Any) -> Generator[ServedSimulator]:
    """Serve a simulated provider at the addresses of its maker and of the clouds."""
    simulator = CloudSimulator(ProviderSimulatorOptions(**options))
    with serve_in_thread(build_quiet_server(lambda: build_cloud_app(simulator)), 0) as url:
        yield ServedSimulator(url=url, simulator=simulator)


def build_cloud_app(simulator: CloudSimulator) -> Starlette:
    """Return an ASGI application for a simulator."""

    def handle_cloud(cloud: Cloud) -> Response:
        return SimulatedHttpResponse(simulator.handle_cloud_request(cloud))

    app = build_provider_app(simulator)
    app.routes.extend(build_cloud_routes(handle_cloud))
    return app
