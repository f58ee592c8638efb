"""The agents that are served together: one store, one server, names of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimtab.agent.doors import Serve
from trimtab.agent.reading import place_of_store, read_agent
from trimtab.agent.secrets import ENVIRON
from trimtab.agent.spec import Spec
from trimtab.cli.words import listed
from trimtab.stores.choose import is_database
from trimtab.worker.naming import is_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One agent."""

    file: Path
    """Where it is described."""
    spec: Spec
    """What it says."""

    @property
    def folder(self) -> Path:
        return self.file.resolve().parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """All of them."""

    members: Mapping[str, Member]
    """By name."""
    place: str
    """Their store."""
    serve: Serve
    """How they are served."""
    keys: Path | None
    """The file of API keys."""

    @property
    def database(self) -> bool:
        """Whether their store is a database, which many processes may share."""
        return is_database(self.place)


def crew_of(files: Sequence[Path], environ: Mapping[str, str] = ENVIRON) -> Crew:
    """The agents of these files; raises `ValueError` where they cannot be served together."""
    members: dict[str, Member] = {}
    for file in files:
        member = Member(file=file, spec=read_agent(file, environ))
        name = member.spec.name
        if not is_name(name):
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
    serve, owner = _serve(list(members.values()))
    keys = owner.folder / Path(serve.keys).expanduser() if serve.keys is not None else None
    return Crew(members=members, place=_place(list(members.values())), serve=serve, keys=keys)


def _place(members: Sequence[Member]) -> str:
    places = {_resolved(place_of_store(m.spec, m.folder)): m for m in members}
    if len(places) > 1:
        # Which ones is not told: an address of a database may hold a password.
        files = listed([str(member.file) for member in places.values()])
        raise ValueError(
            f"{files} keep their sessions in different stores; agents that are served together "
            "share one: let `session.store` name the same folder or database in each, or serve "
            "them by processes of their own"
        )
    return next(iter(places))


def _serve(members: Sequence[Member]) -> tuple[Serve, Member]:
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


def _resolved(place: str) -> str:
    return place if is_database(place) else str(Path(place).resolve())
