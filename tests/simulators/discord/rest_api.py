"""The part of Discord's REST API that a bot needs, and its errors."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import web

from tests.simulators.discord.api_errors import (
    DiscordRefusal,
    make_invalid_field_refusal,
    make_missing_access_refusal,
    make_missing_permissions_refusal,
    make_unauthorised_refusal,
    make_unknown_refusal,
)
from tests.simulators.discord.gateway import SimulatedGateway
from tests.simulators.discord.interactions import InteractionRegistry
from tests.simulators.discord.options import DiscordSimulatorOptions
from tests.simulators.discord.rate_limits import DiscordRateLimits
from tests.simulators.discord.requests import (
    DiscordFault,
    RecordedDiscordRequest,
    list_pinged_targets,
    make_json_response,
    raise_discord_fault,
    read_json_and_files,
    validate_message_body,
)
from tests.simulators.discord.world import CHANNEL_THREAD, DiscordObject, DiscordWorld

Handler = Callable[[web.Request, Any], Awaitable[Any]]


class DiscordRestApi:
    """All routes below `/api/v10`."""

    def __init__(
        self, options: DiscordSimulatorOptions, world: DiscordWorld, gateway: SimulatedGateway
    ) -> None:
        self.options = options
        self.world = world
        self.gateway = gateway
        self.interactions = InteractionRegistry(options, world)
        self.limits = DiscordRateLimits(clock=world.clock)
        self.requests: list[RecordedDiscordRequest] = []
        """All requests."""
        self.faults: list[DiscordFault] = []
        """The faults to simulate. The first that matches applies."""
        self.commands: list[DiscordObject] = []
        """The registered slash commands."""
        self.address = ""
        """The address of this server: `http://127.0.0.1:1`."""
        self._nonces: dict[tuple[int, str], tuple[float, DiscordObject]] = {}

    def build_routes(self) -> list[web.RouteDef]:
        """Return the routes for aiohttp."""
        app = "/applications/{app:\\d+}"
        hook = "/webhooks/{app:\\d+}/{token}"
        place = "/channels/{channel:\\d+}"
        table: list[tuple[str, str, Handler]] = [
            ("GET", "/users/@me", self._me),
            ("GET", "/oauth2/applications/@me", self._application),
            ("GET", "/gateway", self._gateway),
            ("GET", "/gateway/bot", self._gateway),
            ("POST", "/users/@me/channels", self._open_direct),
            ("GET", f"{app}/commands", self._get_commands),
            ("PUT", f"{app}/commands", self._put_commands),
            ("GET", place, self._channel),
            ("GET", f"{place}/messages", self._history),
            ("POST", f"{place}/messages", self._post_message),
            ("PATCH", f"{place}/messages/{{message:\\d+}}", self._edit_message),
            ("POST", f"{place}/messages/{{message:\\d+}}/threads", self._create_thread),
            ("POST", f"{place}/typing", self._typing),
            ("POST", "/interactions/{interaction:\\d+}/{token}/callback", self._callback),
            ("PATCH", f"{hook}/messages/@original", self._edit_answer),
            ("POST", hook, self._follow),
        ]
        routes = [
            web.route(method, f"/api/v10{path}", self._make_endpoint(handler))
            for method, path, handler in table
        ]
        routes.append(web.get("/attachments/{name:.+}", self._file))
        routes.append(web.route("*", "/{rest:.*}", self._make_endpoint(self._not_found)))
        return routes

    def _make_endpoint(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            body: Any = None
            files: tuple[bytes, ...] = ()
            path = request.path.removeprefix("/api/v10")
            try:
                body, files = await read_json_and_files(request)
                fault = self._take_fault(request.method, path)
                if fault is not None and not fault.carries_out_first:
                    raise_discord_fault(request, fault)
                self._admit(request)
                result = await handler(request, body)
                if fault is not None:
                    raise_discord_fault(request, fault)
            except DiscordRefusal as refusal:
                self._record(request.method, path, body, refusal.status, files)
                headers = {**self._headers(request), **refusal.headers}
                return make_json_response(refusal.body, refusal.status, headers)
            except ConnectionError:
                self._record(request.method, path, body, 0, files)
                raise
            status = 204 if result is None else 200
            self._record(request.method, path, body, status, files)
            headers = self._headers(request)
            if result is None:
                return web.Response(status=204, headers=headers)
            return make_json_response(result, 200, headers)

        return answer

    def _admit(self, request: web.Request) -> None:
        """Check the token and the rate limits of a request."""
        self.limits.count_request("everything", self.options.everything, is_global=True)
        if name := self._bucket(request):
            self.limits.count_request(name, self.options.messages)
        path = request.path
        open_to_all = path.endswith("/callback") or "/webhooks/" in path
        if not open_to_all and request.headers.get("Authorization") != f"Bot {self.options.token}":
            raise make_unauthorised_refusal()
        agent = request.headers.get("User-Agent", "")
        if not open_to_all and not agent.startswith("DiscordBot ("):
            raise DiscordRefusal(403, 40333, "internal network error")

    def _bucket(self, request: web.Request) -> str:
        if request.method == "POST" and request.path.endswith("/messages"):
            return f"messages:{request.match_info.get('channel')}"
        return ""

    def _headers(self, request: web.Request) -> dict[str, str]:
        name = self._bucket(request)
        headers = {"Via": "1.1 simulated"}
        try:
            return {**headers, **self.limits.build_headers(name)} if name else headers
        except KeyError:
            return headers

    def _record(
        self, method: str, path: str, body: Any, status: int, files: tuple[bytes, ...]
    ) -> None:
        pings: tuple[str, ...] = ()
        if isinstance(body, dict) and "content" in body:
            pings = tuple(
                list_pinged_targets(
                    cast("DiscordObject", body),
                    self._find_replied_user(cast("DiscordObject", body)),
                )
            )
        self.requests.append(
            RecordedDiscordRequest(
                method=method, path=path, body=body, files=files, status=status, pings=pings
            )
        )

    def _find_replied_user(self, body: DiscordObject) -> str | None:
        reference: DiscordObject = body.get("message_reference") or {}
        for messages in self.world.messages.values():
            message = messages.get(int(reference.get("message_id", 0)))
            if message is not None:
                return str(message["author"]["id"])
        return None

    def _take_fault(self, method: str, path: str) -> DiscordFault | None:
        for fault in self.faults:
            if not fault.times_left or fault.method != method or not fault.path.search(path):
                continue
            if fault.requests_before:
                fault.requests_before -= 1
                return None
            fault.times_left -= 1
            return fault
        return None

    async def _not_found(self, request: web.Request, body: Any) -> Any:
        del request, body
        raise DiscordRefusal(404, 0, "404: Not Found")

    async def _me(self, request: web.Request, body: Any) -> Any:
        del request, body
        return self.world.bot

    async def _application(self, request: web.Request, body: Any) -> Any:
        del request, body
        application = {
            "id": self.world.bot["id"],
            "name": "trimtab",
            "description": "",
            "icon": None,
        }
        application |= {"bot_public": False, "bot_require_code_grant": False, "verify_key": "0"}
        return {**application, "owner": self.world.bot, "flags": 0}

    async def _gateway(self, request: web.Request, body: Any) -> Any:
        del request, body
        limit = {"total": 1_000, "remaining": 1_000, "reset_after": 0, "max_concurrency": 1}
        return {"url": self.gateway.address, "shards": 1, "session_start_limit": limit}

    async def _open_direct(self, request: web.Request, body: Any) -> Any:
        del request
        recipient = str(cast("DiscordObject", body or {}).get("recipient_id"))
        for channel in self.world.channels.values():
            if channel.get("recipients", [{"id": None}])[0]["id"] == recipient:
                return channel
        raise DiscordRefusal(400, 50033, "Invalid Recipient(s)")

    async def _get_commands(self, request: web.Request, body: Any) -> Any:
        del request, body
        return self.commands

    async def _put_commands(self, request: web.Request, body: Any) -> Any:
        del request
        if not isinstance(body, list):
            raise make_invalid_field_refusal(
                "_", "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType"
            )
        commands: list[DiscordObject] = []
        for one in cast("list[DiscordObject]", body):
            if not re.fullmatch(r"[-_\w]{1,32}", str(one.get("name", ""))):
                raise make_invalid_field_refusal(
                    "name", "APPLICATION_COMMAND_INVALID_NAME", "Command name is invalid"
                )
            if not 0 < len(str(one.get("description", ""))) <= 100:
                why = "Must be between 1 and 100 in length."
                raise make_invalid_field_refusal("description", "BASE_TYPE_BAD_LENGTH", why)
            ids = {"id": str(self.world.next_snowflake()), "application_id": self.world.bot["id"]}
            commands.append({"options": [], "type": 1, **one, **ids, "version": "1"})
        self.commands = commands
        return commands

    async def _channel(self, request: web.Request, body: Any) -> Any:
        del body
        return self._require_visible_channel(request)[1]

    async def _history(self, request: web.Request, body: Any) -> Any:
        del body
        number, _ = self._require_visible_channel(request)
        if "history" in self.world.forbidden.get(number, ()):
            raise make_missing_permissions_refusal()
        limit = int(request.query.get("limit", "50"))
        if not 0 < limit <= 100:
            raise make_invalid_field_refusal(
                "limit", "NUMBER_TYPE_MAX", "int value should be between 1 and 100."
            )
        numbered_messages = list(self.world.messages[number].items())
        after = request.query.get("after")
        before = request.query.get("before")
        if after is not None:
            numbered_messages = [one for one in numbered_messages if one[0] > int(after)][:limit]
        elif before is not None:
            numbered_messages = [one for one in numbered_messages if one[0] < int(before)][-limit:]
        # The newest comes first, always.
        return [message for _, message in reversed(numbered_messages[-limit:])]

    async def _post_message(self, request: web.Request, body: Any) -> Any:
        number, place = self._require_visible_channel(request)
        if "send" in self.world.forbidden.get(number, ()):
            if "recipients" in place:
                raise DiscordRefusal(403, 50007, "Cannot send messages to this user")
            raise make_missing_permissions_refusal()
        message_json = validate_message_body(body, self.options.longest)
        reply_to = self._resolve_reference(number, message_json)
        nonce = str(message_json.get("nonce") or "")
        now = self.world.clock()
        earlier = self._nonces.get((number, nonce))
        if (
            nonce
            and message_json.get("enforce_nonce")
            and earlier
            and now - earlier[0] < self.options.nonces
        ):
            return earlier[1]
        more: DiscordObject = {"nonce": nonce} if nonce else {}
        message = self.world.add_message(
            number, self.world.bot, message_json.get("content") or "", reply_to=reply_to, **more
        )
        if nonce:
            self._nonces[(number, nonce)] = (now, message)
        await self.gateway.dispatch_message("MESSAGE_CREATE", message)
        return message

    def _resolve_reference(self, channel: int, body: DiscordObject) -> int | None:
        reference = body.get("message_reference")
        if reference is None:
            return None
        number = int(reference.get("message_id", 0))
        if number in self.world.messages[channel]:
            return number
        if reference.get("fail_if_not_exists", True):
            why = "Unknown message"
            raise make_invalid_field_refusal(
                "message_reference", "MESSAGE_REFERENCE_UNKNOWN_MESSAGE", why
            )
        return None

    async def _edit_message(self, request: web.Request, body: Any) -> Any:
        number, _ = self._require_visible_channel(request)
        message = self.world.messages[number].get(int(request.match_info["message"]))
        if message is None:
            raise make_unknown_refusal("Message")
        if message["author"]["id"] != self.world.bot["id"]:
            raise DiscordRefusal(403, 50005, "Cannot edit a message authored by another user")
        message_json = validate_message_body(body, self.options.longest)
        message |= {
            "content": message_json.get("content"),
            "edited_timestamp": self.world.format_now(),
        }
        await self.gateway.dispatch_message("MESSAGE_UPDATE", message)
        return message

    async def _create_thread(self, request: web.Request, body: Any) -> Any:
        number, place = self._require_visible_channel(request)
        if place["type"] == CHANNEL_THREAD or "recipients" in place:
            raise DiscordRefusal(400, 50024, "Cannot execute action on this channel type")
        if "threads" in self.world.forbidden.get(number, ()):
            raise make_missing_permissions_refusal()
        message = int(request.match_info["message"])
        if message not in self.world.messages[number]:
            raise make_unknown_refusal("Message")
        if message in self.world.channels:
            raise DiscordRefusal(400, 160004, "A thread has already been created for this message")
        name = cast("DiscordObject", body or {}).get("name")
        if not isinstance(name, str) or not 0 < len(name) <= 100:
            why = "Must be between 1 and 100 in length."
            raise make_invalid_field_refusal("name", "BASE_TYPE_BAD_LENGTH", why)
        thread = self.world.add_thread(number, name, self.world.bot, message)
        await self.gateway.dispatch_event(
            "THREAD_CREATE", {**thread, "newly_created": True}, required_intents=1
        )
        return thread

    async def _typing(self, request: web.Request, body: Any) -> Any:
        del body
        self._require_visible_channel(request)

    async def _callback(self, request: web.Request, body: Any) -> Any:
        number = int(request.match_info["interaction"])
        return self.interactions.acknowledge(number, request.match_info["token"], body)

    async def _edit_answer(self, request: web.Request, body: Any) -> Any:
        return self.interactions.edit_answer(request.match_info["token"], body)

    async def _follow(self, request: web.Request, body: Any) -> Any:
        return self.interactions.add_followup(request.match_info["token"], body)

    async def _file(self, request: web.Request) -> web.Response:
        data, kind = self.world.files.get(request.match_info["name"], (b"", ""))
        if not kind:
            return web.Response(status=404)
        return web.Response(body=data, headers={"Content-Type": kind})

    def _require_visible_channel(self, request: web.Request) -> tuple[int, DiscordObject]:
        number = int(request.match_info["channel"])
        place = self.world.require_channel(number)
        if "view" in self.world.forbidden.get(number, ()):
            raise make_missing_access_refusal()
        return number, place
