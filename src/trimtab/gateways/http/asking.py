"""One request, read and checked, with all that an operation needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab.agent.agent import Agent
from trimtab.agent.doors import Serve
from trimtab.gateways.http.bodies import Body
from trimtab.gateways.http.hubs import Hubs
from trimtab.gateways.http.keys import Caller, KeyFile, Scope
from trimtab.gateways.http.problems import no_agent, no_session
from trimtab.gateways.http.streams import Stream
from trimtab.worker.naming import Address, is_name
from trimtab.worker.service import Service


@dataclass(slots=True, kw_only=True)
class Offer:
    """What is offered over HTTP, and how."""

    service: Service
    """Agents, sessions and mail."""
    serve: Serve = field(default_factory=Serve)
    """Limits."""
    keys: KeyFile | None = None
    """Who may ask; None where only this machine can."""
    due: Callable[[str], Awaitable[None]]
    """Lets a turn of a session run although nothing new was said."""
    metrics: Callable[[], tuple[bytes, str]] | None = None
    """What `/metrics` answers, and its media type; None where nothing is measured."""
    doors: Sequence[Any] = ()
    """Starlette routes of doors, such as webhooks: they check for themselves who asks."""
    draining: bool = False
    """Whether the server is about to stop: nothing new is taken in, and followers are told."""
    closing: bool = False
    """Whether those who wait for an answer are told, too."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    """What goes on when an answer has been given."""
    hubs: Hubs = field(init=False)
    """What is being written."""

    def __post_init__(self) -> None:
        self.hubs = Hubs(self.service.store, self.service.live)

    def drain(self) -> None:
        """Take in nothing new, and send those away who only follow."""
        self.draining = True
        self.hubs.wake_all()

    async def close(self) -> None:
        """Send everybody away."""
        self.draining = self.closing = True
        self.hubs.wake_all()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def beside(self, work: Any) -> None:
        """Let something run that no answer waits for."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request."""

    offer: Offer
    """What is offered."""
    caller: Caller
    """Who asks."""
    path: Mapping[str, str]
    """The names in the address."""
    query: Mapping[str, Any]
    """The parameters behind it, typed; those that were left out at their defaults."""
    body: Any
    """What was sent, an instance of the operation's body."""
    stream: bool
    """Whether events are asked for."""
    plain: bool
    """Whether plain text is asked for."""
    headers: Mapping[str, str]
    """By lower-case name."""

    @property
    def service(self) -> Service:
        return self.offer.service

    def agent(self) -> Agent:
        """The agent in the address, if this caller may use it."""
        name = self.path["agent"]
        agent = self.service.agents.get(name) if self.caller.may_use(name) else None
        if agent is None:
            raise no_agent(name)
        return agent

    def address(self, name: str | None = None) -> Address:
        """Of the session in the address, or of one of another name, of this caller's tenant.

        Whatever is asked for, the tenant is the key's: nobody can say the id of another's session.
        """
        self.agent()
        wanted = self.path["session"] if name is None else name
        if not is_name(wanted):
            raise no_session(self.path["agent"], wanted)
        return Address(tenant=self.caller.tenant, agent=self.path["agent"], name=wanted)

    async def known(self) -> str:
        """The id of the session in the address, which must exist."""
        address = self.address()
        if not await self.service.store.position(str(address)):
            raise no_session(address.agent, address.name)
        return str(address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What is answered."""

    value: Any = None
    """Becomes JSON; None for no body."""
    status: int = 200
    """The HTTP status."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Sent besides."""
    raw: bytes | None = None
    """Sent as it is, in place of `value`."""
    media: str = "application/json"
    """What it is."""


Run = Callable[[Asked], Awaitable[Reply | Stream]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A parameter behind the address."""

    name: str
    """What it is called."""
    told: str
    """What it is for."""
    number: bool = False
    """Whether it is a whole number; else it is a text."""
    default: Any = None
    """What holds where it is left out."""
    most: int = 2**62
    """The largest number, or the most characters."""
    least: int = 0
    """The smallest number, or the fewest characters."""
    required: bool = False
    """Whether it must be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that can be asked: what dispatches it is what describes it."""

    method: str
    """`GET`, `POST` or `DELETE`."""
    path: str
    """The address, with `{names}`."""
    name: str
    """What programs call it."""
    told: str
    """What it does."""
    run: Run
    """Does it."""
    answer: Any = None
    """The type of the answer's value; None for no body."""
    status: int = 200
    """The status of success."""
    body: type[Body] | None = None
    """What may be sent."""
    query: tuple[Query, ...] = ()
    """What may stand behind the address."""
    streams: bool = False
    """Whether it answers with events where these are asked for."""
    only_streams: bool = False
    """Whether it always does."""
    text: str = ""
    """The media type of a text that it gives as well, or instead of JSON where `answer` is None."""
    public: bool = False
    """Whether no key is needed."""
    scope: Scope = "sessions"
    """Of which keys it is."""
    problems: tuple[int, ...] = ()
    """Statuses of failure besides those that all have."""
