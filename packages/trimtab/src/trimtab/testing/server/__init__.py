"""A strict provider on a local port: Anthropic Messages, OpenAI Chat Completions and Responses.

It counts with a real tokenizer and refuses what the real providers refuse, with the same messages.
It keeps a prompt cache, follows a script and records the requests. Needs the extra `testing`.
"""

from trimtab.testing.server.local_server import RemoteSimulator as RemoteSimulator
from trimtab.testing.server.local_server import ServedSimulator as ServedSimulator
from trimtab.testing.server.local_server import serve_simulated_provider as serve_simulated_provider
from trimtab.testing.server.local_server import spawn_simulated_provider as spawn_simulated_provider
from trimtab.testing.server.options import ProviderSimulatorOptions as ProviderSimulatorOptions
from trimtab.testing.server.provider_error_catalog import OTHER_FAULTS as OTHER_FAULTS
from trimtab.testing.server.provider_error_catalog import OVERFLOW_FAULTS as OVERFLOW_FAULTS
from trimtab.testing.server.provider_error_catalog import PROVIDER_FAULTS as PROVIDER_FAULTS
from trimtab.testing.server.provider_error_catalog import (
    ProviderErrorTemplate as ProviderErrorTemplate,
)
from trimtab.testing.server.request_log import RecordedRequest as RecordedRequest
from trimtab.testing.server.simulator import ProviderSimulator as ProviderSimulator

__all__ = [
    "OTHER_FAULTS",
    "OVERFLOW_FAULTS",
    "PROVIDER_FAULTS",
    "ProviderErrorTemplate",
    "ProviderSimulator",
    "ProviderSimulatorOptions",
    "RecordedRequest",
    "RemoteSimulator",
    "ServedSimulator",
    "serve_simulated_provider",
    "spawn_simulated_provider",
]
