"""Load the agents that one server serves: they share a store, and each has its own name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimtab.cli.text_format import join_names
from trimtab.stores.factory import is_database_address
from trimtab_serve.agent.config.loader import load_agent_spec, locate_agent_store
from trimtab_serve.agent.config.spec import AgentSpec, ServeSpec
from trimtab_serve.agent.environment import ENVIRON
from trimtab_serve.queue.address import is_valid_name


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAgentSpec:
    """One agent."""

    file: Path
    """The file that describes it."""
    spec: AgentSpec
    """The content of the file."""

    @property
    def folder(self) -> Path:
        return self.file.resolve().parent


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSetSpec:
    """All agents that one server serves."""

    members: Mapping[str, ServedAgentSpec]
    """The agents by name."""
    store_location: str
    """Their store."""
    serve_config: ServeSpec
    """The settings of the server."""

    @property
    def uses_database(self) -> bool:
        """Whether their store is a database, which several processes may share."""
        return is_database_address(self.store_location)


def load_agent_set(files: Sequence[Path], environ: Mapping[str, str] = ENVIRON) -> AgentSetSpec:
    """Load the agents of these files. Raise `ValueError` if they cannot be served together."""
    members: dict[str, ServedAgentSpec] = {}
    for file in files:
        member = ServedAgentSpec(file=file, spec=load_agent_spec(file, environ))
        name = member.spec.name
        if not is_valid_name(name):
            raise ValueError(
                f"{file}: invalid name {name!r} for a served agent, because it is part of "
                "addresses; use letters, digits and . _ - for `name`"
            )
        if name in members:
            raise ValueError(
                f"{members[name].file} and {file} both describe an agent called {name}; give one "
                "of them another `name`"
            )
        members[name] = member
    return AgentSetSpec(
        members=members,
        store_location=_find_shared_store(list(members.values())),
        serve_config=_find_serve_config(list(members.values())),
    )


def _find_shared_store(members: Sequence[ServedAgentSpec]) -> str:
    places = {_resolve_location(locate_agent_store(m.spec, m.folder)): m for m in members}
    if len(places) > 1:
        # Which ones is not told: an address of a database may hold a password.
        files = join_names([str(member.file) for member in places.values()])
        raise ValueError(
            f"{files} use different stores; agents that are served together must share one: set "
            "`session.store` to the same folder or database in each file, or serve them in "
            "separate processes"
        )
    return next(iter(places))


def _find_serve_config(members: Sequence[ServedAgentSpec]) -> ServeSpec:
    """Return the only `serve` block. Files without one use it as well."""
    members_with_block = [member for member in members if member.spec.serve.model_fields_set]
    first = members_with_block[0] if members_with_block else members[0]
    for member in members_with_block[1:]:
        mine = first.spec.serve.model_dump()
        theirs = member.spec.serve.model_dump()
        differ = [name for name in mine if mine[name] != theirs[name]]
        if differ:
            raise ValueError(
                f"{first.file} and {member.file} differ in serve.{differ[0]}; agents that are "
                "served together share one server: keep the block `serve` in only one file"
            )
    return first.spec.serve


def _resolve_location(location: str) -> str:
    return location if is_database_address(location) else str(Path(location).resolve())
