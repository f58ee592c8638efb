"""The agents that are served together: one store, one server, names of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimtab.agent.config.loader import load_agent_spec, locate_agent_store
from trimtab.agent.config.spec import AgentSpec, ServeSpec
from trimtab.agent.environment import ENVIRON
from trimtab.cli.terminal_text_format import join_names
from trimtab.server.tenant_agent_session_ids import is_valid_name
from trimtab.stores.factory import is_database_address


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAgentSpec:
    """One agent."""

    file: Path
    """Where it is described."""
    spec: AgentSpec
    """What it says."""

    @property
    def folder(self) -> Path:
        return self.file.resolve().parent


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSetSpec:
    """All of them."""

    members: Mapping[str, ServedAgentSpec]
    """By name."""
    store_location: str
    """Their store."""
    serve_config: ServeSpec
    """How they are served."""
    key_file: Path | None
    """The file of API keys."""

    @property
    def uses_database(self) -> bool:
        """Whether their store is a database, which many processes may share."""
        return is_database_address(self.store_location)


def load_agent_set(files: Sequence[Path], environ: Mapping[str, str] = ENVIRON) -> AgentSetSpec:
    """The agents of these files; raises `ValueError` where they cannot be served together."""
    members: dict[str, ServedAgentSpec] = {}
    for file in files:
        member = ServedAgentSpec(file=file, spec=load_agent_spec(file, environ))
        name = member.spec.name
        if not is_valid_name(name):
            raise ValueError(
                f"{file}: an agent that is served is part of addresses, so it cannot be called "
                f"{name!r}; use letters, digits and . _ - for `name`"
            )
        if name in members:
            raise ValueError(
                f"{members[name].file} and {file} both describe an agent called {name}; give one "
                "of them another `name`"
            )
        members[name] = member
    serve, owner = _find_serve_config(list(members.values()))
    keys = owner.folder / Path(serve.keys).expanduser() if serve.keys is not None else None
    return AgentSetSpec(
        members=members,
        store_location=_find_shared_store(list(members.values())),
        serve_config=serve,
        key_file=keys,
    )


def _find_shared_store(members: Sequence[ServedAgentSpec]) -> str:
    places = {_resolve_location(locate_agent_store(m.spec, m.folder)): m for m in members}
    if len(places) > 1:
        # Which ones is not told: an address of a database may hold a password.
        files = join_names([str(member.file) for member in places.values()])
        raise ValueError(
            f"{files} keep their sessions in different stores; agents that are served together "
            "share one: let `session.store` name the same folder or database in each, or serve "
            "them by processes of their own"
        )
    return next(iter(places))


def _find_serve_config(members: Sequence[ServedAgentSpec]) -> tuple[ServeSpec, ServedAgentSpec]:
    """The one block that says how; a file without one goes along."""
    given = [member for member in members if member.spec.serve.model_fields_set]
    first = given[0] if given else members[0]
    for member in given[1:]:
        mine, theirs = first.spec.serve.model_dump(), member.spec.serve.model_dump()
        differ = [name for name in mine if mine[name] != theirs[name]]
        if differ:
            raise ValueError(
                f"{first.file} and {member.file} differ in serve.{differ[0]}; agents that are "
                "served together have one server: keep the block `serve` in one file"
            )
    return first.spec.serve, first


def _resolve_location(location: str) -> str:
    return location if is_database_address(location) else str(Path(location).resolve())
