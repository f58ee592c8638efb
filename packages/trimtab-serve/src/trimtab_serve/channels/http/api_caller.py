"""The caller of a request, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab_serve.api_keys.api_key import INCLUDED_ROLES, ApiKey, KeyRole
from trimtab_serve.queue.address import DEFAULT_TENANT


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCaller:
    """The caller of a request."""

    name: str
    """Name of the key. `local` without keys."""
    tenant: str = DEFAULT_TENANT
    """The tenant whose sessions it uses."""
    agents: tuple[str, ...] | None = None
    """Agents that it may use. None for all."""
    role: KeyRole | None
    """The role of the caller. None if no keys are required, so that everything is allowed."""
    key_sha256: bytes = b""
    """Stored hash of the key. Empty if no keys are required."""

    def has_role(self, required: KeyRole) -> bool:
        """Whether this caller may use an operation that needs a role."""
        return self.role is None or required in INCLUDED_ROLES[self.role]

    def may_use(self, agent: str) -> bool:
        """Whether this caller may use an agent."""
        return self.agents is None or agent in self.agents


LOCAL_CALLER = ApiCaller(name="local", role=None)
"""Every caller on this machine, if no keys are required."""


def build_caller(key: ApiKey) -> ApiCaller:
    """Return the caller who has a key."""
    return ApiCaller(
        name=key.name,
        tenant=key.tenant,
        agents=key.agents,
        role=key.role,
        key_sha256=key.sha256,
    )
