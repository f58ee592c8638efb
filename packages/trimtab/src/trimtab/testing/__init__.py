"""Tools for your own tests: a store in memory, a scripted provider, and a strict simulator.

The simulated provider needs the extra `testing`. Everything else needs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.lazy_names import export_on_demand

if TYPE_CHECKING:
    from trimtab.stores.memory import MemoryStore as MemoryStore
    from trimtab.testing.replies import ScriptedCall as ScriptedCall
    from trimtab.testing.replies import ScriptedReply as ScriptedReply
    from trimtab.testing.scripted_provider import BrokenReply as BrokenReply
    from trimtab.testing.scripted_provider import InvalidRequestSent as InvalidRequestSent
    from trimtab.testing.scripted_provider import ReplyLike as ReplyLike
    from trimtab.testing.scripted_provider import ReplySource as ReplySource
    from trimtab.testing.scripted_provider import ScriptedFailure as ScriptedFailure
    from trimtab.testing.scripted_provider import ScriptedProvider as ScriptedProvider
    from trimtab.testing.scripted_provider import ScriptExhausted as ScriptExhausted
    from trimtab.testing.server.local_server import ServedSimulator as ServedSimulator
    from trimtab.testing.server.local_server import (
        serve_simulated_provider as serve_simulated_provider,
    )
    from trimtab.testing.server.options import ChatTemplateMode as ChatTemplateMode
    from trimtab.testing.server.options import ProviderSimulatorOptions as ProviderSimulatorOptions
    from trimtab.testing.server.request_log import RecordedRequest as RecordedRequest
    from trimtab.testing.server.request_log import RequestFate as RequestFate
    from trimtab.testing.server.responses import SimulatedResponse as SimulatedResponse
    from trimtab.testing.server.simulator import ProviderSimulator as ProviderSimulator

_HOMES = {
    "ReplySource": "testing.scripted_provider",
    "ReplyLike": "testing.scripted_provider",
    "ScriptedFailure": "testing.scripted_provider",
    "ChatTemplateMode": "testing.server.options",
    "RequestFate": "testing.server.request_log",
    "SimulatedResponse": "testing.server.responses",
    "BrokenReply": "testing.scripted_provider",
    "MemoryStore": "stores.memory",
    "ProviderSimulator": "testing.server.simulator",
    "ProviderSimulatorOptions": "testing.server.options",
    "RecordedRequest": "testing.server.request_log",
    "InvalidRequestSent": "testing.scripted_provider",
    "ScriptExhausted": "testing.scripted_provider",
    "ScriptedCall": "testing.replies",
    "ScriptedProvider": "testing.scripted_provider",
    "ScriptedReply": "testing.replies",
    "ServedSimulator": "testing.server.local_server",
    "serve_simulated_provider": "testing.server.local_server",
}

__all__, __getattr__ = export_on_demand(__name__, _HOMES)
