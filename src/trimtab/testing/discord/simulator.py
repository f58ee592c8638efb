"""A Discord of one's own: what users do in it, what goes wrong in it, and what a bot did."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from trimtab.testing.discord.gateway import INVALID, RECONNECT, Connection, Gateway
from trimtab.testing.discord.interactions import Interaction
from trimtab.testing.discord.options import Options
from trimtab.testing.discord.refusals import Refused
from trimtab.testing.discord.requests import Fault, Request
from trimtab.testing.discord.rest import Rest
from trimtab.testing.discord.world import THREAD, Payload, World


class Simulator:
    """Users, servers and channels, a gateway and a REST API with one bot."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self._ahead = 0.0
        self.world = World(clock=self.now)
        self.gateway = Gateway(self.options, self.world)
        self.rest = Rest(self.options, self.world, self.gateway)
        self.url = ""
        """What a bot is told as the API's address; set when it is served."""

    def now(self) -> float:
        """The time in here, in seconds since the epoch."""
        return time.time() + self._ahead

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._ahead += seconds

    @property
    def bot(self) -> Payload:
        """The bot's user."""
        return self.world.bot

    @property
    def requests(self) -> list[Request]:
        """All that came by REST."""
        return self.rest.requests

    def user(self, name: str, *, bot: bool = False) -> Payload:
        """Somebody new."""
        return self.world.user(name, bot=bot)

    def guild(self, name: str = "a server") -> int:
        """A new server with the bot in it; before a bot connects."""
        return self.world.guild(name)

    def channel(self, guild: int, name: str = "general") -> int:
        """A new channel of a server; before a bot connects."""
        return self.world.channel(guild, name)

    def direct(self, user: Payload) -> int:
        """The channel between the bot and somebody."""
        return self.world.direct(user)

    def thread(self, parent: int, name: str, owner: Payload) -> int:
        """A thread that somebody has opened; before a bot connects."""
        return int(self.world.thread(parent, name, owner)["id"])

    def attach(self, name: str, data: bytes, kind: str, *, size: int | None = None) -> Payload:
        """A file that can be attached to a message; `size` where it lies about its own."""
        number = self.world.snowflake()
        path = f"{number}/{name}"
        self.world.files[path] = (data, kind)
        url = f"{self.url.removesuffix('/api/v10')}/attachments/{path}"
        told = {"id": str(number), "filename": name, "size": len(data) if size is None else size}
        return {**told, "url": url, "proxy_url": url, "content_type": kind}

    async def say(
        self,
        channel: int,
        user: Payload,
        text: str,
        *,
        mention: bool = False,
        reply_to: int | None = None,
        attachments: Sequence[Payload] = (),
        **more: Any,
    ) -> int:
        """Somebody writes; with `mention` they name the bot first. Returns the message's id."""
        mentions = [self.bot] if mention else []
        text = f"<@{self.bot['id']}> {text}" if mention else text
        message = self.world.post(
            channel,
            user,
            text,
            mentions=mentions,
            reply_to=reply_to,
            attachments=attachments,
            **more,
        )
        await self.gateway.message("MESSAGE_CREATE", message)
        return int(message["id"])

    async def edit(self, channel: int, message: int, text: str, **more: Any) -> None:
        """Somebody writes it otherwise."""
        found = self.world.messages[channel][message]
        found |= {"content": text, "edited_timestamp": self.world.moment(), **more}
        await self.gateway.message("MESSAGE_UPDATE", found)

    async def again(self, channel: int, message: int) -> None:
        """Tell of a message once more, under another number."""
        await self.gateway.message("MESSAGE_CREATE", self.world.messages[channel][message])

    async def use(self, channel: int, user: Payload, name: str, **options: str) -> Interaction:
        """Somebody uses a slash command."""
        known = [one for one in self.rest.commands if one["name"] == name]
        if not known:
            raise ValueError(f"no command {name} is registered")
        begin = self.rest.interactions.begin
        begun = begin(channel, user, name, options, str(known[0]["id"]))
        await self.tell("INTERACTION_CREATE", begun.told)
        return begun

    async def tell(self, event: str, data: Any) -> None:
        """Dispatch any event with any payload."""
        await self.gateway.tell(event, data)

    async def send_text(self, text: str) -> None:
        """Send any text over every connection, outside of all sequences."""

        async def send(connection: Connection) -> None:
            await connection.send_text(text)

        await self.gateway.each(send)

    async def drop(self, code: int = 4000) -> None:
        """Cut every connection with a code; sessions stay for a resume."""

        async def close(connection: Connection) -> None:
            await connection.cut(code)

        await self.gateway.each(close)

    async def reconnect(self) -> None:
        """Ask every client to connect anew and resume."""

        async def ask(connection: Connection) -> None:
            await connection.send({"op": RECONNECT, "d": None})

        await self.gateway.each(ask)

    async def invalidate(self, *, resumable: bool = False) -> None:
        """Tell every client that its session is invalid."""

        async def tell(connection: Connection) -> None:
            await connection.send({"op": INVALID, "d": resumable})

        sessions = list(self.gateway.sessions.values())
        await self.gateway.each(tell)
        if not resumable:
            for session in sessions:
                self.gateway.sessions.pop(session.id, None)

    def forbid(self, channel: int, *what: str) -> None:
        """Take rights in a channel from the bot: `view`, `send`, `threads`, `history`."""
        self.world.forbidden[channel] = set(what)

    def fail(
        self,
        method: str,
        path: str,
        *,
        status: int = 0,
        code: int = 0,
        message: str = "",
        behind: bool = False,
        times: int = 1,
        after: int = 0,
        headers: dict[str, str] | None = None,
        body: dict[str, Any] | None = None,
    ) -> None:
        """Let requests fail whose path has this pattern; without a status the line is cut.

        With `behind` they are carried out first; `after` so many that pass.
        """
        refusal = Refused(status, code, message) if status else None
        if refusal is not None:
            refusal.headers = headers or {}
            refusal.body = body or refusal.body
        self.rest.faults.append(
            Fault(
                method=method,
                path=re.compile(path),
                refusal=refusal,
                behind=behind,
                left=times,
                after=after,
            )
        )

    def posted(self, channel: int) -> list[str]:
        """What the bot has said in a channel, in order."""
        mine = self.bot["id"]
        messages = self.world.messages.get(channel, {}).values()
        return [one["content"] for one in messages if one["author"]["id"] == mine]

    def all_posted(self) -> dict[int, list[str]]:
        """What the bot has said, by channel; channels without a word are left out."""
        return {one: said for one in self.world.messages if (said := self.posted(one))}

    def threads(self, parent: int) -> list[int]:
        """The threads of a channel."""
        found = self.world.channels.values()
        mine = [one for one in found if one["type"] == THREAD and one["parent_id"] == str(parent)]
        return [int(one["id"]) for one in mine]

    def pings(self) -> list[str]:
        """Whom the bot has called, in all that it posted."""
        return [one for request in self.requests for one in request.pings]
