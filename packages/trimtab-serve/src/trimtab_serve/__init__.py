"""Agents that are described in a file, and the server that answers for them.

The names listed here are public, and so are the names that `trimtab_serve.client`,
`trimtab_serve.metrics` and `trimtab_serve.testing` list. Everything else may change in any
release.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab_serve.agent.agent import Agent as Agent
    from trimtab_serve.agent.agent import open_agent as open_agent
    from trimtab_serve.agent.config.loader import load_agent_spec as load_agent_spec
    from trimtab_serve.agent.config.problems import AgentFileError as AgentFileError
    from trimtab_serve.agent.environment import ENVIRON as ENVIRON
    from trimtab_serve.agent.environment import (
        withhold_secrets_from_tools as withhold_secrets_from_tools,
    )

__version__ = "0.1.0"

__all__ = [
    "ENVIRON",
    "Agent",
    "AgentFileError",
    "load_agent_spec",
    "open_agent",
    "withhold_secrets_from_tools",
]

_HOMES = {
    "Agent": "agent.agent",
    "AgentFileError": "agent.config.problems",
    "ENVIRON": "agent.environment",
    "load_agent_spec": "agent.config.loader",
    "open_agent": "agent.agent",
    "withhold_secrets_from_tools": "agent.environment",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use, so that `import trimtab_serve` is fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'trimtab_serve' has no attribute {name!r}")
    return getattr(import_module(f"trimtab_serve.{_HOMES[name]}"), name)
