"""Agents that are served, with a scripted provider and all else real or in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.agent.agent import Agent
from trimtab.agent.spec import Spec
from trimtab.core.event import Said
from trimtab.core.message import Text, text_message
from trimtab.session.tools import Tool
from trimtab.stores.store import Store
from trimtab.testing import MemoryStore, ScriptedProvider
from trimtab.testing.mail import MemoryMail
from trimtab.worker.files import FileMail
from trimtab.worker.letters import Inbound, Outbound, Route
from trimtab.worker.live import LocalLive
from trimtab.worker.local import LocalTurns
from trimtab.worker.mail import Mail
from trimtab.worker.service import Service

MODEL = "claude-sonnet-4-5"
SESSION = "default/helper/one"
PHONE = Route(door="phone", address={"number": 7})


def agent(provider: Any, store: Store, *, tools: Sequence[Tool] = (), **session: Any) -> Agent:
    spec = Spec.model_validate({"name": "helper", "model": {"name": MODEL}, "session": session})
    return Agent(spec=spec, system="Help.", store=store, provider=provider, tools=tools, environ={})


@dataclass
class Served:
    """A service with one agent, `helper`, and turns in this process."""

    service: Service
    turns: LocalTurns
    provider: ScriptedProvider

    async def say(self, text: str, *, key: str, session: str = SESSION, route: Any = PHONE) -> bool:
        return await self.service.post(letter(text, key=key, session=session, route=route))

    async def texts(self, session: str = SESSION) -> list[tuple[str, str]]:
        """Who said what, in the order of the log."""
        return [
            (event.body.message.role, part.text)
            async for event in self.service.store.events(session)
            if isinstance(event.body, Said)
            for part in event.body.message.parts
            if isinstance(part, Text)
        ]

    async def sent(self) -> list[Outbound]:
        """The replies that are to leave, all of them, as if each had arrived."""
        found: list[Outbound] = []
        while replies := await self.service.mail.outgoing(["phone"], limit=10, lease=60):
            for reply in replies:
                found.append(reply)
                await self.service.mail.delivered(reply.number)
        return found


def served(
    *script: Any,
    mail: Mail | None = None,
    store: Store | None = None,
    provider: Any = None,
    runs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Served:
    """The script is the provider's, unless one is given; `runs` are options of `LocalTurns`."""
    provider = provider or ScriptedProvider("anthropic", script)
    store = store or MemoryStore()
    mail = mail or MemoryMail(store)
    service = Service(
        agents={"helper": agent(provider, store, **options)},
        store=store,
        mail=mail,
        live=LocalLive(),
    )
    turns = LocalTurns(service, **(runs or {}))
    if isinstance(mail, MemoryMail | FileMail):
        mail.due = turns.due
    return Served(service=service, turns=turns, provider=provider)


class Gated:
    """A provider whose replies wait until they are let through; says who waits."""

    dialect = "anthropic"

    def __init__(self, *script: Any) -> None:
        self.inner = ScriptedProvider("anthropic", script)
        self.open = asyncio.Event()
        self.waiting: list[str] = []
        """Of each request that waits now, what was said last."""
        self.begun: list[str] = []
        """Of each request that ever came, in order."""

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        last = str(request["messages"][-1]["content"][-1].get("text", ""))
        self.begun.append(last)
        self.waiting.append(last)
        try:
            await self.open.wait()
        finally:
            self.waiting.remove(last)
        async for event in self.inner.send(request):
            yield event

    async def close(self) -> None:
        """Nothing is held."""


async def until(holds: Callable[[], Any], *, seconds: float = 10.0) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - whatever it is, nobody signals it
            await asyncio.sleep(0.001)


def letter(text: str, *, key: str, session: str = SESSION, route: Any = PHONE) -> Inbound:
    return Inbound(
        session=session, message=text_message("user", text), key=key, at=1.0, route=route
    )
