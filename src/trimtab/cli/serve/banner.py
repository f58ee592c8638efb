"""What an operator sees when all is running."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from trimtab.agent.config.loader import describe_keep_results_without_policy
from trimtab.agent.tools.permissions.rules import build_permission_rules
from trimtab.cli.serve.agent_set_loading import AgentSetSpec
from trimtab.cli.serve.channel_creation_and_reply_routing import ALL_AGENTS
from trimtab.cli.terminal_text_format import escape_control_characters, format_count, join_names
from trimtab.server.channels.base import Channel
from trimtab.server.channels.http.api_keys import ApiKeyFile


def render_startup_banner(
    agent_set: AgentSetSpec,
    *,
    url: str | None,
    keys: ApiKeyFile | None,
    channels: Sequence[tuple[str, Channel]],
    runs_turns: bool,
    resumed_sessions: int,
    metrics_url: str | None = None,
) -> str:
    """Where it is, who answers, what is open, and what to try."""
    rows = [("agents", _agents(agent_set)), ("store", _store(agent_set))]
    if url is not None:
        rows.insert(0, ("HTTP", f"{url}   (described at {url}/docs)"))
        rows.append(("keys", _keys(agent_set, keys)))
    if metrics_url is not None:
        rows.append(("metrics", metrics_url))
    if channels:
        rows.append(("channels", _channels(channels)))
    turns = agent_set.serve_config.max_concurrent_turns
    rows.append(
        (
            "turns",
            f"{turns} at the same time" if runs_turns else "none in this process; others run them",
        )
    )
    if runs_turns and (told := list_tools_needing_approval(agent_set)):
        rows.append(("refused", f"{'; '.join(told)}: nobody can approve a call here"))
    if runs_turns:
        rows += [("note", told) for told in list_config_notes(agent_set)]
    if resumed_sessions:
        rows.append(
            ("resumed", f"{format_count(resumed_sessions, 'session')} with messages from before")
        )
    wide = max(len(name) for name, _ in rows) + 2
    lines = ["Trimtab is serving. Ctrl-C stops it; running turns are finished first.", ""]
    lines += [f"  {name:<{wide}}{told}" for name, told in rows]
    if url is not None:
        lines += ["", "Try:", *_example(agent_set, url, keys)]
    return escape_control_characters("\n".join(lines))


def list_tools_needing_approval(agent_set: AgentSetSpec) -> list[str]:
    """Tools that ask before they run, and which of their calls are refused for it."""
    found: list[str] = []
    for name, member in agent_set.members.items():
        whose = f" of {name}" if len(agent_set.members) > 1 else ""
        for tool, spec in member.spec.tools.items():
            rules = build_permission_rules(spec)
            if rules.default == "ask":
                found.append(f"{tool}{whose}, unless its `allow` matches")
            elif rules.ask:
                found.append(f"{tool}{whose}, where its `ask` matches")
    return found


def list_config_notes(agent_set: AgentSetSpec) -> list[str]:
    """What an operator may have meant otherwise."""
    found = [
        (name, describe_keep_results_without_policy(member.spec))
        for name, member in agent_set.members.items()
    ]
    return [f"{name}: {note}" for name, note in found if note]


def _agents(agent_set: AgentSetSpec) -> str:
    told = [f"{name} ({member.spec.model.name})" for name, member in agent_set.members.items()]
    return ", ".join(told)


def _store(agent_set: AgentSetSpec) -> str:
    # A database's address may hold a password.
    return (
        "PostgreSQL, shared with other processes"
        if agent_set.uses_database
        else agent_set.store_location
    )


def _keys(agent_set: AgentSetSpec, keys: ApiKeyFile | None) -> str:
    if keys is None:
        return "none: only this machine has access; `trimtab keys create NAME` makes one for others"
    known = keys.current_keys()
    if not known:
        return (
            f"no key in {agent_set.key_file} yet: trimtab keys create NAME --file "
            f"{agent_set.key_file}"
        )
    tenants = {key.tenant for key in known if key.role != "metrics"}
    opening = sum(key.role != "metrics" for key in known)
    told = (
        [f"{format_count(opening, 'key')} of {format_count(len(tenants), 'tenant')}"]
        if opening
        else []
    )
    if figures := len(known) - opening:
        told.append(f"{figures} for metrics only")
    return f"{' and '.join(told)} in {agent_set.key_file}"


def _channels(channels: Sequence[tuple[str, Channel]]) -> str:
    told = [
        "schedules" if agent == ALL_AGENTS else f"{channel.name} ({agent})"
        for agent, channel in channels
    ]
    return join_names(told)


def _example(agent_set: AgentSetSpec, url: str, keys: ApiKeyFile | None) -> list[str]:
    agent = next(iter(agent_set.members))
    where = shlex.quote(f"{url}/v1/agents/{agent}/sessions/first/messages")
    lines = [f"  curl -N {where} \\", "    -H 'Accept: text/event-stream' \\"]
    if keys is not None:
        lines.append('    -H "Authorization: Bearer $TRIMTAB_KEY" \\')
    return [*lines, '    --json \'{"text": "Good morning!"}\'']
