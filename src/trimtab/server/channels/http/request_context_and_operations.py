"""One request, read and checked, with all that an operation needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab.agent.agent import Agent
from trimtab.agent.config.spec import ServeSpec
from trimtab.server.channels.http.api_keys import ApiCaller, ApiKeyFile, KeyRole
from trimtab.server.channels.http.hub import SessionHubs
from trimtab.server.channels.http.problems import (
    build_agent_not_found_problem,
    build_session_not_found_problem,
)
from trimtab.server.channels.http.request_bodies import RequestBody
from trimtab.server.channels.http.sse import EventStreamResponse
from trimtab.server.service import AgentService
from trimtab.server.tenant_agent_session_ids import SessionAddress, is_valid_name


@dataclass(slots=True, kw_only=True)
class HttpServerState:
    """What is offered over HTTP, and how."""

    service: AgentService
    """Agents, sessions and queue."""
    serve_config: ServeSpec = field(default_factory=ServeSpec)
    """Limits."""
    key_file: ApiKeyFile | None = None
    """Who may ask; None where only this machine can."""
    schedule_turn: Callable[[str], Awaitable[None]]
    """Lets a turn of a session run although nothing new was said."""
    render_metrics: Callable[[], tuple[bytes, str]] | None = None
    """What `/metrics` answers, and its media type; None where nothing is measured."""
    channel_routes: Sequence[Any] = ()
    """Starlette routes of channels, such as webhooks: they check for themselves who asks."""
    draining: bool = False
    """Whether the server is about to stop: nothing new is taken in, and followers are told."""
    closing: bool = False
    """Whether those who wait for an answer are told, too."""
    background_tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    """What goes on when an answer has been given."""
    hubs: SessionHubs = field(init=False)
    """What is being written."""

    def __post_init__(self) -> None:
        self.hubs = SessionHubs(self.service.store, self.service.event_bus)

    def drain(self) -> None:
        """Take in nothing new, and send those away who only follow."""
        self.draining = True
        self.hubs.notify_all()

    async def close(self) -> None:
        """Send everybody away."""
        self.draining = self.closing = True
        self.hubs.notify_all()
        for task in self.background_tasks:
            task.cancel()
        await asyncio.gather(*self.background_tasks, return_exceptions=True)

    def run_in_background(self, coroutine: Any) -> None:
        """Let something run that no answer waits for."""
        task = asyncio.ensure_future(coroutine)
        self.background_tasks.add(task)
        task.add_done_callback(self.background_tasks.discard)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """One request."""

    server_state: HttpServerState
    """What is offered."""
    caller: ApiCaller
    """Who asks."""
    path_params: Mapping[str, str]
    """The names in the address."""
    query_params: Mapping[str, Any]
    """The parameters behind it, typed; those that were left out at their defaults."""
    body: Any
    """What was sent, an instance of the operation's body."""
    wants_stream: bool
    """Whether events are asked for."""
    wants_plain_text: bool
    """Whether plain text is asked for."""
    headers: Mapping[str, str]
    """By lower-case name."""

    @property
    def service(self) -> AgentService:
        return self.server_state.service

    def require_agent(self) -> Agent:
        """The agent in the address, if this caller may use it."""
        name = self.path_params["agent"]
        agent = self.service.agents.get(name) if self.caller.may_use(name) else None
        if agent is None:
            raise build_agent_not_found_problem(name)
        return agent

    def session_address(self, session_name: str | None = None) -> SessionAddress:
        """Of the session in the address, or of one of another name, of this caller's tenant.

        Whatever is asked for, the tenant is the key's: nobody can say the id of another's session.
        """
        self.require_agent()
        wanted = self.path_params["session"] if session_name is None else session_name
        if not is_valid_name(wanted):
            raise build_session_not_found_problem(self.path_params["agent"], wanted)
        return SessionAddress(
            tenant=self.caller.tenant, agent=self.path_params["agent"], name=wanted
        )

    async def require_session_id(self) -> str:
        """The id of the session in the address, which must exist."""
        address = self.session_address()
        if not await self.service.store.position(str(address)):
            raise build_session_not_found_problem(address.agent, address.name)
        return str(address)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointResponse:
    """What is answered."""

    value: Any = None
    """Becomes JSON; None for no body."""
    status: int = 200
    """The HTTP status."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Sent besides."""
    raw_body: bytes | None = None
    """Sent as it is, in place of `value`."""
    media_type: str = "application/json"
    """What it is."""
    chunks: AsyncIterator[bytes] | None = None
    """Sent one after the other, in place of `value`. What raises within cuts the answer off."""


EndpointHandler = Callable[[RequestContext], Awaitable[EndpointResponse | EventStreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParameter:
    """A parameter behind the address."""

    name: str
    """What it is called."""
    description: str
    """What it is for."""
    is_integer: bool = False
    """Whether it is a whole number; else it is a text."""
    default: Any = None
    """What holds where it is left out."""
    maximum: int = 2**62
    """The largest number, or the most characters."""
    minimum: int = 0
    """The smallest number, or the fewest characters."""
    required: bool = False
    """Whether it must be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOperation:
    """One thing that can be asked: what dispatches it is what describes it."""

    method: str
    """`GET`, `POST` or `DELETE`."""
    path: str
    """The address, with `{names}`."""
    name: str
    """What programs call it."""
    description: str
    """What it does."""
    handler: EndpointHandler
    """Does it."""
    response_type: Any = None
    """The type of the answer's value; None for no body."""
    status: int = 200
    """The status of success."""
    body_model: type[RequestBody] | None = None
    """What may be sent."""
    query_parameters: tuple[QueryParameter, ...] = ()
    """What may stand behind the address."""
    can_stream: bool = False
    """Whether it answers with events where these are asked for."""
    always_streams: bool = False
    """Whether it always does."""
    text_media_type: str = ""
    """The media type of a text that it gives as well, or instead of JSON where `answer` is None."""
    is_public: bool = False
    """Whether no key is needed."""
    required_role: KeyRole = "admin"
    """Which keys open it: those of this role, and of those that include it."""
    error_statuses: tuple[int, ...] = ()
    """Statuses of failure besides those that all have."""
