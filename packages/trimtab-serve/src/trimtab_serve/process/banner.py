"""The text that an operator sees when the server is ready."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from trimtab.cli.text_format import escape_control_characters, format_count, join_names
from trimtab_serve.agent.config.loader import describe_keep_results_without_policy
from trimtab_serve.agent.tools.permissions.rules import build_permission_rules
from trimtab_serve.channels.base import Channel
from trimtab_serve.process.loading import AgentSetSpec
from trimtab_serve.process.local_turns import compute_tenant_share
from trimtab_serve.process.wiring import ALL_AGENTS


def render_startup_banner(
    agent_set: AgentSetSpec,
    *,
    url: str | None,
    requires_keys: bool,
    channels: Sequence[tuple[str, Channel]],
    runs_turns: bool,
    resumed_sessions: int,
    metrics_url: str | None = None,
) -> str:
    """Return the banner: addresses, agents, store, keys, channels, and a command to try."""
    rows = [("agents", _agents(agent_set)), ("store", _store(agent_set))]
    if url is not None:
        rows.insert(0, ("HTTP", f"{url}   (API description: {url}/docs)"))
        rows.append(("keys", _keys(requires_keys)))
    if metrics_url is not None:
        rows.append(("metrics", metrics_url))
    if channels:
        rows.append(("channels", _channels(channels)))
    turns = agent_set.serve_config.max_concurrent_turns
    tenant_turns = agent_set.serve_config.max_concurrent_turns_per_tenant or compute_tenant_share(
        turns
    )
    rows.append(
        (
            "turns",
            f"{turns} at the same time, {tenant_turns} of them for one tenant"
            if runs_turns
            else "none in this process; other processes run them",
        )
    )
    if runs_turns and (line := list_tools_needing_approval(agent_set)):
        rows.append(("denied", f"{'; '.join(line)}: nobody can approve calls while serving"))
    if runs_turns:
        rows += [("note", line) for line in list_config_notes(agent_set)]
    if resumed_sessions:
        rows.append(
            (
                "resumed",
                f"{format_count(resumed_sessions, 'session')} with messages from a previous run",
            )
        )
    wide = max(len(name) for name, _ in rows) + 2
    lines = ["Trimtab is serving. Ctrl-C stops it after running turns have finished.", ""]
    lines += [f"  {name:<{wide}}{line}" for name, line in rows]
    if url is not None:
        lines += ["", "Try:", *_example(agent_set, url, requires_keys=requires_keys)]
    return escape_control_characters("\n".join(lines))


def list_tools_needing_approval(agent_set: AgentSetSpec) -> list[str]:
    """List the tools that need approval, and say which of their calls are denied."""
    lines: list[str] = []
    for name, member in agent_set.members.items():
        whose = f" of {name}" if len(agent_set.members) > 1 else ""
        for tool, spec in member.spec.tools.items():
            rules = build_permission_rules(spec)
            if rules.default == "ask":
                lines.append(f"{tool}{whose}, unless `allow` matches")
            elif rules.ask:
                lines.append(f"{tool}{whose}, if `ask` matches")
    return lines


def list_config_notes(agent_set: AgentSetSpec) -> list[str]:
    """List settings that may not do what the operator expects."""
    notes = [
        (name, describe_keep_results_without_policy(member.spec))
        for name, member in agent_set.members.items()
    ]
    return [f"{name}: {note}" for name, note in notes if note]


def _agents(agent_set: AgentSetSpec) -> str:
    names = [f"{name} ({member.spec.model.name})" for name, member in agent_set.members.items()]
    return ", ".join(names)


def _store(agent_set: AgentSetSpec) -> str:
    # A database's address may hold a password.
    return (
        "PostgreSQL, shared with other processes"
        if agent_set.uses_database
        else agent_set.store_location
    )


def _keys(requires_keys: bool) -> str:
    if requires_keys:
        return "required; `trimtab keys create NAME` creates one"
    return "not required: only this machine has access; for others, set `serve.host`"


def _channels(channels: Sequence[tuple[str, Channel]]) -> str:
    names = [
        "schedules" if agent == ALL_AGENTS else f"{channel.name} ({agent})"
        for agent, channel in channels
    ]
    return join_names(names)


def _example(agent_set: AgentSetSpec, url: str, *, requires_keys: bool) -> list[str]:
    agent = next(iter(agent_set.members))
    where = shlex.quote(f"{url}/v1/agents/{agent}/sessions/first/messages")
    lines = [f"  curl -N {where} \\", "    -H 'Accept: text/event-stream' \\"]
    if requires_keys:
        lines.append('    -H "Authorization: Bearer $TRIMTAB_KEY" \\')
    return [*lines, '    --json \'{"text": "Good morning!"}\'']
