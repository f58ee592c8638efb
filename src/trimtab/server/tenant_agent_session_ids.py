"""How served sessions are called: the tenant, the agent, and a name of its own.

The tenant comes first in the id, so a caller of one tenant cannot even say the id of another's
session, and a list of a tenant's sessions is a range of ids.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.:@+=-]{0,127}"
"""What tenants, agents and sessions may be called: safe in an address, without a slash."""
DEFAULT_TENANT = "default"
"""Who owns what is served without keys."""

_SESSION_ID = re.compile(rf"({NAME_PATTERN})/({NAME_PATTERN})/({NAME_PATTERN})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAddress:
    """A served session."""

    tenant: str
    """Who owns it."""
    agent: str
    """Who answers in it."""
    name: str
    """What its owner calls it."""

    def __str__(self) -> str:
        return f"{self.tenant}/{self.agent}/{self.name}"


def parse_session_address(session_id: str) -> SessionAddress | None:
    """The parts of a session's id; None where it is not one that is served."""
    match = _SESSION_ID.fullmatch(session_id)
    if match is None:
        return None
    tenant, agent, name = match.groups()
    return SessionAddress(tenant=tenant, agent=agent, name=name)


def is_valid_name(text: str) -> bool:
    """Whether a tenant, an agent or a session may be called so."""
    return re.fullmatch(NAME_PATTERN, text) is not None
