"""Agents that are described in a file, and the server that answers for them.

The names listed here are public, and so are the names that `trimtab_serve.client` and
`trimtab_serve.metrics` list. Everything else may change in any release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.lazy_names import export_on_demand

if TYPE_CHECKING:
    from trimtab_serve.agent.agent import Agent as Agent
    from trimtab_serve.agent.agent import open_agent as open_agent
    from trimtab_serve.agent.config.loader import load_agent_spec as load_agent_spec
    from trimtab_serve.agent.config.problems import AgentFileError as AgentFileError
    from trimtab_serve.agent.config.problems import ConfigProblem as ConfigProblem
    from trimtab_serve.agent.config.problems import TextPosition as TextPosition
    from trimtab_serve.agent.config.spec import AgentSpec as AgentSpec
    from trimtab_serve.agent.config.spec import ModelSpec as ModelSpec
    from trimtab_serve.agent.environment import ENVIRON as ENVIRON
    from trimtab_serve.agent.environment import (
        withhold_secrets_from_tools as withhold_secrets_from_tools,
    )
    from trimtab_serve.agent.tools.permissions.rules import ApprovalAnswer as ApprovalAnswer
    from trimtab_serve.agent.tools.permissions.rules import ApprovalCallback as ApprovalCallback
    from trimtab_serve.agent.tools.permissions.rules import ApprovalRequest as ApprovalRequest

__version__ = "0.1.0"

_HOMES = {
    "AgentSpec": "agent.config.spec",
    "ModelSpec": "agent.config.spec",
    "ConfigProblem": "agent.config.problems",
    "TextPosition": "agent.config.problems",
    "ApprovalCallback": "agent.tools.permissions.rules",
    "ApprovalAnswer": "agent.tools.permissions.rules",
    "ApprovalRequest": "agent.tools.permissions.rules",
    "Agent": "agent.agent",
    "AgentFileError": "agent.config.problems",
    "ENVIRON": "agent.environment",
    "load_agent_spec": "agent.config.loader",
    "open_agent": "agent.agent",
    "withhold_secrets_from_tools": "agent.environment",
}

__all__, __getattr__ = export_on_demand(__name__, _HOMES)
