"""Discord's gateway: a websocket that tells what happens, and remembers what was told."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast

from aiohttp import WSMsgType, web

from trimtab.testing.discord.options import (
    DIRECT_MESSAGES,
    GUILD_MESSAGES,
    MESSAGE_CONTENT,
    Options,
)
from trimtab.testing.discord.world import Payload, World

DISPATCH, HEARTBEAT, IDENTIFY, RESUME, RECONNECT, INVALID, HELLO, ACK = 0, 1, 2, 6, 7, 9, 10, 11
"""Operations that are answered."""
IGNORED = (3, 4, 8)
"""Operations that are right and of no consequence here: presence, voice, members."""
LARGEST = 4_096
"""Bytes that a client may send in one piece."""
OFTEN = 120
"""Pieces that a client may send in a minute."""


class Closed(Exception):
    """The connection is ended with a code."""

    def __init__(self, code: int, why: str) -> None:
        self.code = code
        """Discord's own, from 4000 on."""
        super().__init__(why)


@dataclass(slots=True, kw_only=True)
class Told:
    """A client's session: what it was told, by number, so that it can be told again."""

    id: str
    """Known to the client."""
    intents: int
    """What it wants to hear."""
    sequence: int = 0
    """The number of the last event."""
    events: deque[Payload] = field(default_factory=deque[Payload])
    """The last events."""
    connection: Connection | None = None
    """Who listens now."""


class Connection:
    """One websocket."""

    def __init__(self, socket: web.WebSocketResponse, compress: str | None) -> None:
        self.socket = socket
        self._pack = _packer(compress)
        self._gate = asyncio.Lock()
        self.is_cut = False
        """Whether this side has ended it."""

    async def cut(self, code: int, why: str = "") -> None:
        """End it with a code."""
        self.is_cut = True
        await self.socket.close(code=code, message=why.encode())

    async def send(self, payload: Payload) -> None:
        """Send one payload as the client asked for it."""
        await self.send_text(json.dumps(payload))

    async def send_text(self, text: str) -> None:
        """Send whatever it is."""
        async with self._gate:
            if self.socket.closed:
                return
            packed = self._pack(text.encode())
            try:
                if packed is None:
                    await self.socket.send_str(text)
                else:
                    await self.socket.send_bytes(packed)
            except ConnectionError:
                pass  # it is gone; what was not heard is told again


def _packer(compress: str | None) -> Callable[[bytes], bytes | None]:
    if compress == "zlib-stream":
        stream = zlib.compressobj()
        return lambda data: stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)
    if compress == "zstd-stream":
        try:
            zstandard: Any = import_module("zstandard")
        except ImportError:
            return lambda _: None
        packing = zstandard.ZstdCompressor().compressobj()
        block = zstandard.COMPRESSOBJ_FLUSH_BLOCK
        return lambda data: packing.compress(data) + packing.flush(block)
    return lambda _: None


class Gateway:
    """All sessions and connections."""

    def __init__(self, options: Options, world: World) -> None:
        self.options = options
        self.world = world
        self.address = ""
        """Where it is found, for those who resume."""
        self.received: list[Payload] = []
        """What clients have sent, heartbeats left out."""
        self.codes: list[int] = []
        """The codes with which connections were closed by this side."""
        self.sessions: dict[str, Told] = {}
        """By id."""
        self.identified: asyncio.Event = asyncio.Event()
        """Set while somebody listens."""

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        """Serve one websocket until it ends."""
        socket = web.WebSocketResponse(max_msg_size=1 << 20)
        await socket.prepare(request)
        connection = Connection(socket, request.query.get("compress"))
        session: Told | None = None
        try:
            _check_query(request)
            interval = int(self.options.heartbeat * 1_000)
            await connection.send({"op": HELLO, "d": {"heartbeat_interval": interval}})
            session = await self._talk(connection)
        except Closed as closed:
            self.codes.append(closed.code)
            await connection.cut(closed.code, str(closed))
        finally:
            self._leave(connection, session, socket.close_code)
        return socket

    async def tell(self, event: str, data: Any, *, needs: int = 0) -> None:
        """Tell an event to all whose intents allow it, now or when they come back."""
        for session in list(self.sessions.values()):
            if needs and not session.intents & needs:
                continue
            session.sequence += 1
            payload = {"op": DISPATCH, "t": event, "s": session.sequence, "d": data}
            session.events.append(payload)
            if len(session.events) > self.options.kept:
                session.events.popleft()
            if session.connection is not None:
                await session.connection.send(payload)

    async def message(self, event: str, message: Payload) -> None:
        """Tell of a message, without its text where a client may not read it."""
        heard: Payload = self.world.heard(message)
        direct = "guild_id" not in heard
        needs = DIRECT_MESSAGES if direct else GUILD_MESSAGES
        mine = self.world.bot["id"]
        open_to_all = direct or message["author"]["id"] == mine
        open_to_all = open_to_all or any(one["id"] == mine for one in message["mentions"])
        if not open_to_all and not self.options.intents & MESSAGE_CONTENT:
            heard = {**heard, "content": "", "attachments": [], "embeds": []}
        await self.tell(event, heard, needs=needs)

    async def each(self, act: Callable[[Connection], Any]) -> None:
        """Do something to every connection."""
        for session in list(self.sessions.values()):
            if session.connection is not None:
                await act(session.connection)

    async def _talk(self, connection: Connection) -> Told | None:
        """Hear a client to its end; returns its session, if it began or resumed one."""
        session: Told | None = None
        heard: deque[float] = deque(maxlen=OFTEN)
        late = self.options.heartbeat * 1.5
        while True:
            try:
                piece = await connection.socket.receive(timeout=late)
            except TimeoutError:
                raise Closed(4009, "Session timed out") from None
            if piece.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return session
            now = time.monotonic()
            if len(heard) == OFTEN and now - heard[0] < 60.0:
                raise Closed(4008, "Rate limited")
            heard.append(now)
            payload = _parsed(piece.data)
            match payload["op"]:
                case 1:
                    await self._beat(connection, session, payload)
                case 2 | 6 if session is not None:
                    raise Closed(4005, "Already authenticated")
                case 2:
                    session = await self._identify(connection, payload["d"])
                case 6:
                    session = await self._resume(connection, payload["d"])
                case op if session is None:
                    raise Closed(4003, f"Not authenticated: operation {op}")
                case op if op in IGNORED:
                    self.received.append(payload)
                case op:
                    raise Closed(4001, f"Unknown opcode: {op}")

    async def _beat(self, connection: Connection, session: Told | None, payload: Payload) -> None:
        last = session.sequence if session is not None else 0
        told = payload.get("d")
        if isinstance(told, int) and session is not None and told > last:
            raise Closed(4007, "Invalid seq")
        await connection.send({"op": ACK})

    async def _identify(self, connection: Connection, data: Any) -> Told:
        self.received.append({"op": IDENTIFY, "d": data})
        if not isinstance(data, dict) or not isinstance(data.get("properties"), dict):  # pyright: ignore[reportUnknownMemberType]
            raise Closed(4002, "Decode error")
        told = cast("Payload", data)
        self._check_token(told)
        intents = told.get("intents")
        if not isinstance(intents, int) or intents < 0 or intents >= 1 << 26:
            raise Closed(4013, "Invalid intents")
        if intents & MESSAGE_CONTENT & ~self.options.intents:
            raise Closed(4014, "Disallowed intents")
        session = Told(id=secrets.token_hex(16), intents=intents)
        self.sessions[session.id] = session
        session.connection = connection
        ready = {
            "v": 10,
            "user": self.world.bot,
            "guilds": [{"id": str(one), "unavailable": True} for one in self.world.guilds],
            "session_id": session.id,
            "resume_gateway_url": self.address,
            "application": {"id": self.world.bot["id"], "flags": 0},
        }
        await self._say(session, "READY", ready)
        for guild in self.world.guilds:
            await self._say(session, "GUILD_CREATE", self.world.guild_create(guild))
        self.identified.set()
        return session

    async def _resume(self, connection: Connection, data: Any) -> Told | None:
        self.received.append({"op": RESUME, "d": data})
        told = cast("Payload", data) if isinstance(data, dict) else {}
        self._check_token(told)
        session = self.sessions.get(str(told.get("session_id")))
        sequence = told.get("seq")
        if session is None or not isinstance(sequence, int):
            await connection.send({"op": INVALID, "d": False})
            return None
        if sequence > session.sequence:
            raise Closed(4007, "Invalid seq")
        missed = [one for one in session.events if one["s"] > sequence]
        if len(missed) < session.sequence - sequence:
            del self.sessions[session.id]
            await connection.send({"op": INVALID, "d": False})
            return None
        # What happens meanwhile comes behind what was missed.
        while missed:
            for payload in missed:
                await connection.send(payload)
            last = missed[-1]["s"]
            missed = [one for one in session.events if one["s"] > last]
        session.connection = connection
        await self._say(session, "RESUMED", {})
        self.identified.set()
        return session

    async def _say(self, session: Told, event: str, data: Any) -> None:
        session.sequence += 1
        payload = {"op": DISPATCH, "t": event, "s": session.sequence, "d": data}
        session.events.append(payload)
        if session.connection is not None:
            await session.connection.send(payload)

    def _check_token(self, data: Payload) -> None:
        if data.get("token") != self.options.token:
            raise Closed(4004, "Authentication failed")

    def _leave(self, connection: Connection, session: Told | None, code: int | None) -> None:
        for told in self.sessions.values():
            if told.connection is connection:
                told.connection = None
        # Who says goodbye does not come back.
        if session is not None and not connection.is_cut and code in (1000, 1001):
            self.sessions.pop(session.id, None)
        if all(one.connection is None for one in self.sessions.values()):
            self.identified.clear()


def _check_query(request: web.Request) -> None:
    if request.query.get("v") != "10":
        raise Closed(4012, "Invalid API version")
    if request.query.get("encoding") != "json":
        raise Closed(4002, "Decode error")


def _parsed(data: str | bytes) -> Payload:
    if len(data) > LARGEST:
        raise Closed(4002, "Payload too large")
    try:
        payload = json.loads(data)
    except ValueError:
        raise Closed(4002, "Decode error") from None
    if not isinstance(payload, dict) or not isinstance(payload.get("op"), int):  # pyright: ignore[reportUnknownMemberType]
        raise Closed(4002, "Decode error")
    return {"d": None, **cast("Payload", payload)}
