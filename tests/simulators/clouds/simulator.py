"""The simulated provider as clouds serve it, without sockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.simulators.clouds.base import Cloud
from trimtab.testing.server.request_log import RecordedRequest
from trimtab.testing.server.responses import SimulatedResponse
from trimtab.testing.server.simulator import ProviderSimulator

MAX_BODY_BYTES = {
    "bedrock": 20_000_000,
    "bedrock_converse": 20_000_000,
    "vertex": 30_000_000,
}
"""Maximum size of a body in bytes, by cloud. The others have that of the API which they serve."""


class CloudSimulator(ProviderSimulator):
    """A simulated provider that also has requests at the addresses of clouds."""

    _cloud: Cloud | None = None

    def handle_cloud_request(self, cloud: Cloud) -> SimulatedResponse:
        """Return the response to a request at a cloud's address."""
        self._cloud = cloud
        try:
            response = self.handle_request(cloud.dialect, cloud.http.headers, cloud.http.body)
        finally:
            self._cloud = None
        return cloud.wrap_response(response)

    def _read_request(
        self, dialect: str, headers: Mapping[str, str], raw_body: bytes, record: RecordedRequest
    ) -> dict[str, Any]:
        cloud = self._cloud
        if cloud is None:
            return super()._read_request(dialect, headers, raw_body, record)
        record.dialect = cloud.name
        record.key = cloud.check_credentials(self.options)
        body = self._parse_body(raw_body, dialect, MAX_BODY_BYTES.get(cloud.name))
        return cloud.unwrap_request(body)
