"""A simulated Discord: what users do in it, its faults, and what a bot did.

It is served on a real socket, in the event loop of the caller.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.simulators.discord.api_errors import DiscordRefusal
from tests.simulators.discord.gateway import (
    OP_INVALID_SESSION,
    OP_RECONNECT,
    GatewayConnection,
    SimulatedGateway,
)
from tests.simulators.discord.interactions import SlashInteraction
from tests.simulators.discord.options import DiscordSimulatorOptions
from tests.simulators.discord.requests import DiscordFault, RecordedDiscordRequest
from tests.simulators.discord.rest_api import DiscordRestApi
from tests.simulators.discord.world import CHANNEL_THREAD, DiscordObject, DiscordWorld


class DiscordSimulator:
    """A simulated Discord with one bot, for tests: servers, users, a gateway and a REST API.

    Serve it with `serve_simulated_discord`.
    """

    def __init__(self, options: DiscordSimulatorOptions | None = None) -> None:
        self.options = options or DiscordSimulatorOptions()
        self._ahead = 0.0
        self.world = DiscordWorld(clock=self.now)
        self.gateway = SimulatedGateway(self.options, self.world)
        self.rest = DiscordRestApi(self.options, self.world, self.gateway)
        self.url = ""
        """The address of the API for a bot. It is set when the simulator is served."""

    def now(self) -> float:
        """Return the simulated time in seconds since the epoch."""
        return time.time() + self._ahead

    def advance_clock(self, seconds: float) -> None:
        """Move the simulated time forward."""
        self._ahead += seconds

    @property
    def bot(self) -> DiscordObject:
        """The bot's user."""
        return self.world.bot

    @property
    def requests(self) -> list[RecordedDiscordRequest]:
        """All REST requests."""
        return self.rest.requests

    def add_user(self, name: str, *, bot: bool = False) -> DiscordObject:
        """Add a user."""
        return self.world.make_user(name, bot=bot)

    def add_guild(self, name: str = "a server") -> int:
        """Add a server with the bot in it. Call it before a bot connects."""
        return self.world.add_guild(name)

    def add_channel(self, guild: int, name: str = "general") -> int:
        """Add a channel to a server. Call it before a bot connects."""
        return self.world.add_channel(guild, name)

    def open_direct_channel(self, user: DiscordObject) -> int:
        """Return the direct channel between the bot and a user."""
        return self.world.open_direct_channel(user)

    def add_thread(self, parent: int, name: str, owner: DiscordObject) -> int:
        """Add a thread of a user. Call it before a bot connects."""
        return int(self.world.add_thread(parent, name, owner)["id"])

    def add_attachment(
        self, name: str, data: bytes, media_type: str, *, size: int | None = None
    ) -> DiscordObject:
        """Add a file that can be attached to a message. `size` makes it report a wrong size."""
        number = self.world.next_snowflake()
        path = f"{number}/{name}"
        self.world.files[path] = (data, media_type)
        url = f"{self.url.removesuffix('/api/v10')}/attachments/{path}"
        attachment = {
            "id": str(number),
            "filename": name,
            "size": len(data) if size is None else size,
        }
        return {**attachment, "url": url, "proxy_url": url, "content_type": media_type}

    async def post_user_message(
        self,
        channel: int,
        user: DiscordObject,
        text: str,
        *,
        mention: bool = False,
        reply_to: int | None = None,
        attachments: Sequence[DiscordObject] = (),
        **more: Any,
    ) -> int:
        """Post a message of a user and return its id. `mention` puts a mention of the bot first."""
        mentions = [self.bot] if mention else []
        text = f"<@{self.bot['id']}> {text}" if mention else text
        message = self.world.add_message(
            channel,
            user,
            text,
            mentions=mentions,
            reply_to=reply_to,
            attachments=attachments,
            **more,
        )
        await self.gateway.dispatch_message("MESSAGE_CREATE", message)
        return int(message["id"])

    async def edit_user_message(self, channel: int, message: int, text: str, **more: Any) -> None:
        """Change the text of a user's message."""
        message_json = self.world.messages[channel][message]
        message_json |= {"content": text, "edited_timestamp": self.world.format_now(), **more}
        await self.gateway.dispatch_message("MESSAGE_UPDATE", message_json)

    async def redeliver_message(self, channel: int, message: int) -> None:
        """Send a message event again, with another number."""
        await self.gateway.dispatch_message("MESSAGE_CREATE", self.world.messages[channel][message])

    async def use_slash_command(
        self, channel: int, user: DiscordObject, name: str, **options: str
    ) -> SlashInteraction:
        """Use a slash command as a user."""
        commands = [one for one in self.rest.commands if one["name"] == name]
        if not commands:
            raise ValueError(f"the command {name} is not registered")
        begin = self.rest.interactions.start_interaction
        interaction = begin(channel, user, name, options, str(commands[0]["id"]))
        await self.dispatch_event("INTERACTION_CREATE", interaction.payload)
        return interaction

    async def dispatch_event(self, event: str, data: Any) -> None:
        """Dispatch any event with any payload."""
        await self.gateway.dispatch_event(event, data)

    async def send_text(self, text: str) -> None:
        """Send any text over every connection, outside of all sequences."""

        async def send(connection: GatewayConnection) -> None:
            await connection.send_text(text)

        await self.gateway.for_each_connection(send)

    async def drop_connections(self, code: int = 4000) -> None:
        """Close every connection with a code. The sessions can be resumed."""

        async def close(connection: GatewayConnection) -> None:
            await connection.close_with_code(code)

        await self.gateway.for_each_connection(close)

    async def request_reconnect(self) -> None:
        """Ask every client to reconnect and resume."""

        async def ask(connection: GatewayConnection) -> None:
            await connection.send_payload({"op": OP_RECONNECT, "d": None})

        await self.gateway.for_each_connection(ask)

    async def invalidate_sessions(self, *, resumable: bool = False) -> None:
        """Send every client that its session is invalid."""

        async def tell(connection: GatewayConnection) -> None:
            await connection.send_payload({"op": OP_INVALID_SESSION, "d": resumable})

        sessions = list(self.gateway.sessions.values())
        await self.gateway.for_each_connection(tell)
        if not resumable:
            for session in sessions:
                self.gateway.sessions.pop(session.id, None)

    def forbid_permissions(self, channel: int, *permissions: str) -> None:
        """Remove the bot's permissions in a channel: `view`, `send`, `threads`, `history`."""
        self.world.forbidden[channel] = set(permissions)

    def fail_requests(
        self,
        method: str,
        path: str,
        *,
        status: int = 0,
        code: int = 0,
        message: str = "",
        carries_out_first: bool = False,
        times: int = 1,
        requests_before: int = 0,
        headers: dict[str, str] | None = None,
        body: dict[str, Any] | None = None,
    ) -> None:
        """Let requests fail whose path contains this pattern.

        Args:
            path: A regular expression that is searched in their paths.
            status: The status of the answer. 0 cuts the connection.
            carries_out_first: Whether the request is carried out nevertheless.
            times: How many requests fail.
            requests_before: How many requests pass first.
        """
        refusal = DiscordRefusal(status, code, message) if status else None
        if refusal is not None:
            refusal.headers = headers or {}
            refusal.body = body or refusal.body
        self.rest.faults.append(
            DiscordFault(
                method=method,
                path=re.compile(path),
                refusal=refusal,
                carries_out_first=carries_out_first,
                times_left=times,
                requests_before=requests_before,
            )
        )

    def list_posted_texts(self, channel: int) -> list[str]:
        """Return the texts that the bot has posted in a channel, in order."""
        mine = self.bot["id"]
        messages = self.world.messages.get(channel, {}).values()
        return [one["content"] for one in messages if one["author"]["id"] == mine]

    def posted_texts_by_channel(self) -> dict[int, list[str]]:
        """Return the texts that the bot has posted, by channel, without channels that have none."""
        return {one: texts for one in self.world.messages if (texts := self.list_posted_texts(one))}

    def list_threads(self, parent: int) -> list[int]:
        """Return the threads of a channel."""
        channels = self.world.channels.values()
        mine = [
            one
            for one in channels
            if one["type"] == CHANNEL_THREAD and one["parent_id"] == str(parent)
        ]
        return [int(one["id"]) for one in mine]

    def list_pings(self) -> list[str]:
        """Return everyone whom the bot has pinged in its messages."""
        return [one for request in self.requests for one in request.pings]


@asynccontextmanager
async def serve_simulated_discord(
    simulator: DiscordSimulator | None = None, **options: Any
) -> AsyncGenerator[DiscordSimulator]:
    """Serve a simulated Discord while the `async with` block lasts.

    Args:
        simulator: The simulator to serve. By default a new one.
        **options: Fields of `DiscordSimulatorOptions` for a new simulator.

    Yields:
        The simulator. A bot finds it at the simulator's `url`.
    """
    discord = simulator or DiscordSimulator(DiscordSimulatorOptions(**options))
    app = web.Application(client_max_size=64 << 20)
    app.add_routes(
        [web.get("/gateway/", discord.gateway.serve_websocket), *discord.rest.build_routes()]
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        discord.url = f"http://{host}:{port}/api/v10"
        discord.gateway.address = f"ws://{host}:{port}/gateway/"
        yield discord
    finally:
        await discord.drop_connections(1001)
        await runner.cleanup()
