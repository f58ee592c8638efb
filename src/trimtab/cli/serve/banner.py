"""What an operator sees when all is running."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from trimtab.agent.permissions import rules_of
from trimtab.agent.reading import note_on_masks
from trimtab.cli.serve.crew import Crew
from trimtab.cli.serve.doors import EVERYBODY
from trimtab.cli.words import counted, listed, plain
from trimtab.gateways.http.keys import KeyFile
from trimtab.worker.door import Door


def banner(
    crew: Crew,
    *,
    url: str | None,
    keys: KeyFile | None,
    doors: Sequence[tuple[str, Door]],
    turns: bool,
    waiting: int,
    metrics: str | None = None,
) -> str:
    """Where it is, who answers, what is open, and what to try."""
    rows = [("agents", _agents(crew)), ("store", _store(crew))]
    if url is not None:
        rows.insert(0, ("HTTP", f"{url}   (described at {url}/openapi.json)"))
        rows.append(("keys", _keys(crew, keys)))
    if metrics is not None:
        rows.append(("metrics", metrics))
    if doors:
        rows.append(("doors", _doors(doors)))
    at_once = crew.serve.at_once
    rows.append(("turns", f"{at_once} at once" if turns else "none here; other processes answer"))
    if turns and (told := refused(crew)):
        rows.append(("refused", f"{'; '.join(told)}: nobody can be asked here"))
    if turns:
        rows += [("note", told) for told in notes(crew)]
    if waiting:
        rows.append(("left over", f"{counted(waiting, 'session')} go on where they were"))
    wide = max(len(name) for name, _ in rows) + 2
    lines = ["Trimtab is serving. Ctrl-C stops it; running turns are finished first.", ""]
    lines += [f"  {name:<{wide}}{told}" for name, told in rows]
    if url is not None:
        lines += ["", "Try:", *_example(crew, url, keys)]
    return plain("\n".join(lines))


def refused(crew: Crew) -> list[str]:
    """Tools that ask before they run, and which of their calls are refused for it."""
    found: list[str] = []
    for name, member in crew.members.items():
        whose = f" of {name}" if len(crew.members) > 1 else ""
        for tool, spec in member.spec.tools.items():
            rules = rules_of(spec)
            if rules.default == "ask":
                found.append(f"{tool}{whose}, unless its `allow` matches")
            elif rules.ask:
                found.append(f"{tool}{whose}, where its `ask` matches")
    return found


def notes(crew: Crew) -> list[str]:
    """What an operator may have meant otherwise."""
    found = [(name, note_on_masks(member.spec)) for name, member in crew.members.items()]
    return [f"{name}: {note}" for name, note in found if note]


def _agents(crew: Crew) -> str:
    told = [f"{name} ({member.spec.model.name})" for name, member in crew.members.items()]
    return ", ".join(told)


def _store(crew: Crew) -> str:
    # A database's address may hold a password.
    return "PostgreSQL, shared with other processes" if crew.database else crew.place


def _keys(crew: Crew, keys: KeyFile | None) -> str:
    if keys is None:
        return "none: only this machine may ask; `trimtab keys create NAME` makes one for others"
    known = keys.keys()
    if not known:
        return f"no key in {crew.keys} yet: trimtab keys create NAME --file {crew.keys}"
    tenants = {key.tenant for key in known if not key.metrics}
    opening = sum(not key.metrics for key in known)
    told = [f"{counted(opening, 'key')} of {counted(len(tenants), 'tenant')}"] if opening else []
    if figures := len(known) - opening:
        told.append(f"{figures} for metrics alone")
    return f"{' and '.join(told)} in {crew.keys}"


def _doors(doors: Sequence[tuple[str, Door]]) -> str:
    told = [
        "the clock" if agent == EVERYBODY else f"{door.name} ({agent})" for agent, door in doors
    ]
    return listed(told)


def _example(crew: Crew, url: str, keys: KeyFile | None) -> list[str]:
    agent = next(iter(crew.members))
    where = shlex.quote(f"{url}/v1/agents/{agent}/sessions/first/messages")
    lines = [f"  curl -N {where} \\", "    -H 'Accept: text/event-stream' \\"]
    if keys is not None:
        lines.append('    -H "Authorization: Bearer $TRIMTAB_KEY" \\')
    return [*lines, '    --json \'{"text": "Good morning!"}\'']
