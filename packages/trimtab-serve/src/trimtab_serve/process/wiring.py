"""Create the channels that the agents' files configure, and send replies through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab_serve.agent.config.spec import AgentSpec, ScheduleToolSpec
from trimtab_serve.agent.tools.permissions.rules import build_permission_rules
from trimtab_serve.channels.base import Channel
from trimtab_serve.process.loading import AgentSetSpec
from trimtab_serve.queue.address import parse_session_address
from trimtab_serve.queue.bounded_dict import BoundedDict
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.schedules.store import ScheduleStore
from trimtab_serve.service.delivery import (
    MAX_DELIVERY_ATTEMPTS,
    DeliverReply,
    RetryDelivery,
    Undeliverable,
    compute_delivery_retry_delay,
)
from trimtab_serve.service.service import AgentService

ALL_AGENTS = "all agents"
"""The owner of the schedule channel: all agents share it."""
MAX_MISSED_REPLIES = 10_000
"""Maximum number of replies, to channels of other processes, whose attempts are counted."""


async def create_configured_channels(
    agent_set: AgentSetSpec, service: AgentService, *, now: float
) -> list[tuple[str, Channel]]:
    """Create all channels, each with its agent."""
    channels: list[tuple[str, Channel]] = []
    for name, member in agent_set.members.items():
        if member.spec.telegram is not None:
            channels.append((name, _open_telegram(service, name, member.spec.telegram)))
        if member.spec.discord is not None:
            channels.append((name, _open_discord(service, name, member.spec.discord)))
    if scheduled_agents := [
        name
        for name, member in agent_set.members.items()
        if member.spec.schedules or _find_schedule_tool_spec(member.spec) is not None
    ]:
        channels.append(
            (ALL_AGENTS, await _open_schedule_channel(agent_set, service, scheduled_agents, now))
        )
    return channels


def map_channel_senders(
    channels: Sequence[tuple[str, Channel]], *, is_only_process: bool
) -> dict[str, DeliverReply]:
    """Return a sender for each channel name. It picks the channel of the reply's agent.

    If this is not the only process, a reply to a channel that this process lacks is left to other
    processes for a while.
    """
    by_name: dict[str, dict[str, Channel]] = {}
    for agent, channel in channels:
        by_name.setdefault(channel.name, {})[agent] = channel
    tries = 1 if is_only_process else MAX_DELIVERY_ATTEMPTS
    return {name: _make_sender(name, agents, tries) for name, agents in by_name.items()}


def _make_sender(
    channel_name: str, channels_by_agent: dict[str, Channel], tries: int
) -> DeliverReply:
    attempts = BoundedDict[str, int](MAX_MISSED_REPLIES)

    async def deliver(reply: OutboundMessage) -> None:
        address = parse_session_address(reply.session)
        agent = address.agent if address is not None else ""
        channel = channels_by_agent.get(agent) or channels_by_agent.get(ALL_AGENTS)
        if channel is None:
            raise _retry_or_give_up(
                attempts, reply, tries, f"the agent {agent} has no {channel_name} channel here"
            )
        await channel.deliver(reply)

    return deliver


def _retry_or_give_up(
    attempts: BoundedDict[str, int], reply: OutboundMessage, tries: int, reason: str
) -> RetryDelivery | Undeliverable:
    """Decide what happens to a reply whose channel is not here. Nothing was sent, so the reply is
    not marked. Only this process counts the attempts."""
    attempt_count = attempts.pop(reply.key, 0)
    if attempt_count + 1 >= tries:
        return Undeliverable(
            f"{reason}; add it to the agent's file, restart the server and retry the reply"
        )
    attempts[reply.key] = attempt_count + 1
    return RetryDelivery(
        compute_delivery_retry_delay(attempt_count), f"{reason}; another process may have it"
    )


def _open_telegram(service: AgentService, name: str, config: Any) -> Channel:
    try:
        from trimtab_serve.channels.telegram import TelegramChannel
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "telegram":
            raise
        raise ValueError(
            f"the agent {name} has a Telegram bot, which needs its library: pip install "
            "'trimtab[telegram]'"
        ) from error
    return TelegramChannel(service, name, config)


def _open_discord(service: AgentService, name: str, config: Any) -> Channel:
    from trimtab_serve.channels.discord import create_discord_channel

    try:
        return create_discord_channel(service, name, config)
    except ImportError as error:
        raise ValueError(
            f"the agent {name} has a Discord bot, which needs its library: pip install "
            "'trimtab[discord]'"
        ) from error


def _find_schedule_tool_spec(spec: AgentSpec) -> ScheduleToolSpec | None:
    return next((tool for tool in spec.tools.values() if isinstance(tool, ScheduleToolSpec)), None)


async def _open_schedule_channel(
    agent_set: AgentSetSpec, service: AgentService, agents: Sequence[str], now: float
) -> Channel:
    from trimtab_serve.schedules.config_sync import sync_schedules_from_config
    from trimtab_serve.schedules.runner import ScheduleRunner
    from trimtab_serve.schedules.tools import build_erased_call_schedules_hook, build_schedule_tools

    schedules = ScheduleStore(service.queue.transactions)
    service.schedules = schedules
    schedule_limit = None
    if (limits := service.tenant_limits) is not None:
        schedules.access.check_storage = limits.check_message
        schedule_limit = limits.schedule_limit
    service.delete_hooks.append(schedules.forget_session)
    service.erase_hooks.append(build_erased_call_schedules_hook(schedules))
    channel = ScheduleRunner(schedules, agents)
    if isinstance(service.queue, SqliteMessageQueue):
        service.queue.database.on_foreign_write.append(channel.wake)
    try:
        for name in agents:
            await sync_schedules_from_config(
                schedules, name, agent_set.members[name].spec.schedules, now=now
            )
            agent = service.agents[name]
            if (tool_spec := _find_schedule_tool_spec(agent.spec)) is not None:
                tools = build_schedule_tools(
                    schedules,
                    service.queue,
                    on_added=channel.wake,
                    tenant_limit=schedule_limit,
                    rules=build_permission_rules(tool_spec),
                    redact=agent.redact,
                )
                agent.tools = [*agent.tools, *tools]
    except BaseException:
        await channel.close()
        raise
    return channel
