"""Ids of served sessions: the tenant, the agent and a name.

The tenant comes first in the id, so a caller of one tenant cannot name a session of another tenant.
The sessions of a tenant are a range of ids.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.:@+=-]{0,127}"
"""Valid names of tenants, agents and sessions. They are safe in a URL and contain no slash."""
NAME_DESCRIPTION = (
    "1 to 128 letters, digits and `_ . : @ + = -`; the first is a letter, a digit or `_`"
)
"""The pattern in words."""
DEFAULT_TENANT = "default"
"""The tenant of everything that is served without API keys."""

_SESSION_ID = re.compile(rf"({NAME_PATTERN})/({NAME_PATTERN})/({NAME_PATTERN})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAddress:
    """The parts of a session id."""

    tenant: str
    """The owner."""
    agent: str
    """The agent that answers."""
    name: str
    """The name that its owner chose."""

    def __str__(self) -> str:
        return f"{self.tenant}/{self.agent}/{self.name}"


def parse_session_address(session_id: str) -> SessionAddress | None:
    """Return the parts of a session id. None if it is not the id of a served session."""
    match = _SESSION_ID.fullmatch(session_id)
    if match is None:
        return None
    tenant, agent, name = match.groups()
    return SessionAddress(tenant=tenant, agent=agent, name=name)


def tenant_of_session(session_id: str) -> str:
    """Return the first part of a session id: its tenant."""
    return session_id.partition("/")[0]


def is_valid_name(text: str) -> bool:
    """Whether a tenant, an agent or a session may have this name."""
    return re.fullmatch(NAME_PATTERN, text) is not None
