"""Discord's gateway: a websocket that sends events and remembers what it has sent."""

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

from tests.simulators.discord.options import (
    INTENT_DIRECT_MESSAGES,
    INTENT_GUILD_MESSAGES,
    INTENT_MESSAGE_CONTENT,
    DiscordSimulatorOptions,
)
from tests.simulators.discord.world import DiscordObject, DiscordWorld

OP_DISPATCH = 0
OP_HEARTBEAT = 1
OP_IDENTIFY = 2
OP_RESUME = 6
OP_RECONNECT = 7
OP_INVALID_SESSION = 9
OP_HELLO = 10
OP_HEARTBEAT_ACK = 11
"""Operations that are answered."""
IGNORED_OPS = (3, 4, 8)
"""Valid operations without an effect here: presence, voice, members."""
MAX_PAYLOAD_BYTES = 4_096
"""Maximum size of a payload from a client, in bytes."""
MAX_PAYLOADS_PER_MINUTE = 120
"""Maximum number of payloads from a client per minute."""


class GatewayClosed(Exception):
    """The connection is closed with a code."""

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        """Discord's own code, from 4000 on."""
        super().__init__(reason)


@dataclass(slots=True, kw_only=True)
class ResumableGatewaySession:
    """The session of a client: the events that it got, by number, so that it can get them again."""

    id: str
    """The id, which the client knows."""
    intents: int
    """The events that the client wants."""
    sequence: int = 0
    """The number of the last event."""
    events: deque[DiscordObject] = field(default_factory=deque[DiscordObject])
    """The last events."""
    connection: GatewayConnection | None = None
    """The current connection."""


class GatewayConnection:
    """One websocket."""

    def __init__(self, socket: web.WebSocketResponse, compression: str | None) -> None:
        self.socket = socket
        self._pack = _make_compressor(compression)
        self._gate = asyncio.Lock()
        self.closed_by_server = False
        """Whether the server has closed it."""

    async def close_with_code(self, code: int, reason: str = "") -> None:
        """Close the connection with a code."""
        self.closed_by_server = True
        await self.socket.close(code=code, message=reason.encode())

    async def send_payload(self, payload: DiscordObject) -> None:
        """Send one payload in the encoding that the client asked for."""
        await self.send_text(json.dumps(payload))

    async def send_text(self, text: str) -> None:
        """Send any text."""
        async with self._gate:
            if self.socket.closed:
                return
            frame = self._pack(text.encode())
            try:
                if frame is None:
                    await self.socket.send_str(text)
                else:
                    await self.socket.send_bytes(frame)
            except ConnectionError:
                pass  # it is gone; what was not heard is told again


def _make_compressor(compression: str | None) -> Callable[[bytes], bytes | None]:
    if compression == "zlib-stream":
        stream = zlib.compressobj()
        return lambda data: stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)
    if compression == "zstd-stream":
        try:
            zstandard: Any = import_module("zstandard")
        except ImportError:
            return lambda _: None
        packing = zstandard.ZstdCompressor().compressobj()
        block = zstandard.COMPRESSOBJ_FLUSH_BLOCK
        return lambda data: packing.compress(data) + packing.flush(block)
    return lambda _: None


class SimulatedGateway:
    """All sessions and connections."""

    def __init__(self, options: DiscordSimulatorOptions, world: DiscordWorld) -> None:
        self.options = options
        self.world = world
        self.address = ""
        """The address for clients that resume."""
        self.received: list[DiscordObject] = []
        """The payloads that clients have sent, except heartbeats."""
        self.close_codes: list[int] = []
        """The codes with which the server closed connections."""
        self.sessions: dict[str, ResumableGatewaySession] = {}
        """Sessions by id."""
        self.identified: asyncio.Event = asyncio.Event()
        """Set while a client is connected."""

    async def serve_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """Serve one websocket until it ends."""
        socket = web.WebSocketResponse(max_msg_size=1 << 20)
        await socket.prepare(request)
        connection = GatewayConnection(socket, request.query.get("compress"))
        session: ResumableGatewaySession | None = None
        try:
            _check_query(request)
            interval = int(self.options.heartbeat * 1_000)
            await connection.send_payload({"op": OP_HELLO, "d": {"heartbeat_interval": interval}})
            session = await self._receive_payloads(connection)
        except GatewayClosed as closing:
            self.close_codes.append(closing.code)
            await connection.close_with_code(closing.code, str(closing))
        finally:
            self._disconnect(connection, session, socket.close_code)
        return socket

    async def dispatch_event(self, event: str, data: Any, *, required_intents: int = 0) -> None:
        """Send an event to all clients whose intents allow it, now or when they reconnect."""
        for session in list(self.sessions.values()):
            if required_intents and not session.intents & required_intents:
                continue
            session.sequence += 1
            payload = {"op": OP_DISPATCH, "t": event, "s": session.sequence, "d": data}
            session.events.append(payload)
            if len(session.events) > self.options.kept:
                session.events.popleft()
            if session.connection is not None:
                await session.connection.send_payload(payload)

    async def dispatch_message(self, event: str, message: DiscordObject) -> None:
        """Send a message event, without the text if a client may not read it."""
        payload: DiscordObject = self.world.to_gateway_message(message)
        direct = "guild_id" not in payload
        needs = INTENT_DIRECT_MESSAGES if direct else INTENT_GUILD_MESSAGES
        mine = self.world.bot["id"]
        open_to_all = direct or message["author"]["id"] == mine
        open_to_all = open_to_all or any(one["id"] == mine for one in message["mentions"])
        if not open_to_all and not self.options.intents & INTENT_MESSAGE_CONTENT:
            payload = {**payload, "content": "", "attachments": [], "embeds": []}
        await self.dispatch_event(event, payload, required_intents=needs)

    async def for_each_connection(self, action: Callable[[GatewayConnection], Any]) -> None:
        """Run a function for every connection."""
        for session in list(self.sessions.values()):
            if session.connection is not None:
                await action(session.connection)

    async def _receive_payloads(
        self, connection: GatewayConnection
    ) -> ResumableGatewaySession | None:
        """Receive a client's payloads until the end. Return its session, if it began or resumed
        one."""
        session: ResumableGatewaySession | None = None
        times: deque[float] = deque(maxlen=MAX_PAYLOADS_PER_MINUTE)
        late = self.options.heartbeat * 1.5
        while True:
            try:
                piece = await connection.socket.receive(timeout=late)
            except TimeoutError:
                raise GatewayClosed(4009, "Session timed out") from None
            if piece.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return session
            now = time.monotonic()
            if len(times) == MAX_PAYLOADS_PER_MINUTE and now - times[0] < 60.0:
                raise GatewayClosed(4008, "Rate limited")
            times.append(now)
            payload = _parse_payload(piece.data)
            match payload["op"]:
                case 1:
                    await self._acknowledge_heartbeat(connection, session, payload)
                case 2 | 6 if session is not None:
                    raise GatewayClosed(4005, "Already authenticated")
                case 2:
                    session = await self._identify(connection, payload["d"])
                case 6:
                    session = await self._resume(connection, payload["d"])
                case op if session is None:
                    raise GatewayClosed(4003, f"Not authenticated: operation {op}")
                case op if op in IGNORED_OPS:
                    self.received.append(payload)
                case op:
                    raise GatewayClosed(4001, f"Unknown opcode: {op}")

    async def _acknowledge_heartbeat(
        self,
        connection: GatewayConnection,
        session: ResumableGatewaySession | None,
        payload: DiscordObject,
    ) -> None:
        last = session.sequence if session is not None else 0
        last_seen = payload.get("d")
        if isinstance(last_seen, int) and session is not None and last_seen > last:
            raise GatewayClosed(4007, "Invalid seq")
        await connection.send_payload({"op": OP_HEARTBEAT_ACK})

    async def _identify(self, connection: GatewayConnection, data: Any) -> ResumableGatewaySession:
        self.received.append({"op": OP_IDENTIFY, "d": data})
        if not isinstance(data, dict) or not isinstance(data.get("properties"), dict):
            raise GatewayClosed(4002, "Decode error")
        identity = cast("DiscordObject", data)
        self._check_token(identity)
        intents = identity.get("intents")
        if not isinstance(intents, int) or intents < 0 or intents >= 1 << 26:
            raise GatewayClosed(4013, "Invalid intents")
        if intents & INTENT_MESSAGE_CONTENT & ~self.options.intents:
            raise GatewayClosed(4014, "Disallowed intents")
        session = ResumableGatewaySession(id=secrets.token_hex(16), intents=intents)
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
        await self._dispatch_to_session(session, "READY", ready)
        for guild in self.world.guilds:
            await self._dispatch_to_session(
                session, "GUILD_CREATE", self.world.build_guild_payload(guild)
            )
        self.identified.set()
        return session

    async def _resume(
        self, connection: GatewayConnection, data: Any
    ) -> ResumableGatewaySession | None:
        self.received.append({"op": OP_RESUME, "d": data})
        resume_json = cast("DiscordObject", data) if isinstance(data, dict) else {}
        self._check_token(resume_json)
        session = self.sessions.get(str(resume_json.get("session_id")))
        sequence = resume_json.get("seq")
        if session is None or not isinstance(sequence, int):
            await connection.send_payload({"op": OP_INVALID_SESSION, "d": False})
            return None
        if sequence > session.sequence:
            raise GatewayClosed(4007, "Invalid seq")
        backlog = [one for one in session.events if one["s"] > sequence]
        if len(backlog) < session.sequence - sequence:
            del self.sessions[session.id]
            await connection.send_payload({"op": OP_INVALID_SESSION, "d": False})
            return None
        # What happens meanwhile comes behind what was missed.
        while backlog:
            for payload in backlog:
                await connection.send_payload(payload)
            last = backlog[-1]["s"]
            backlog = [one for one in session.events if one["s"] > last]
        session.connection = connection
        await self._dispatch_to_session(session, "RESUMED", {})
        self.identified.set()
        return session

    async def _dispatch_to_session(
        self, session: ResumableGatewaySession, event: str, data: Any
    ) -> None:
        session.sequence += 1
        payload = {"op": OP_DISPATCH, "t": event, "s": session.sequence, "d": data}
        session.events.append(payload)
        if session.connection is not None:
            await session.connection.send_payload(payload)

    def _check_token(self, data: DiscordObject) -> None:
        if data.get("token") != self.options.token:
            raise GatewayClosed(4004, "Authentication failed")

    def _disconnect(
        self,
        connection: GatewayConnection,
        session: ResumableGatewaySession | None,
        code: int | None,
    ) -> None:
        for session_of_client in self.sessions.values():
            if session_of_client.connection is connection:
                session_of_client.connection = None
        # A client that closes normally does not resume its session.
        if session is not None and not connection.closed_by_server and code in (1000, 1001):
            self.sessions.pop(session.id, None)
        if all(one.connection is None for one in self.sessions.values()):
            self.identified.clear()


def _check_query(request: web.Request) -> None:
    if request.query.get("v") != "10":
        raise GatewayClosed(4012, "Invalid API version")
    if request.query.get("encoding") != "json":
        raise GatewayClosed(4002, "Decode error")


def _parse_payload(data: str | bytes) -> DiscordObject:
    if len(data) > MAX_PAYLOAD_BYTES:
        raise GatewayClosed(4002, "Payload too large")
    try:
        payload = json.loads(data)
    except ValueError:
        raise GatewayClosed(4002, "Decode error") from None
    if not isinstance(payload, dict) or not isinstance(payload.get("op"), int):
        raise GatewayClosed(4002, "Decode error")
    return {"d": None, **cast("DiscordObject", payload)}
