"""Session: a durable context.

Each verb is drafted from the window, put into the store, and folded only then. Whoever loses the
race for a position reads what is new and decides again; whoever lost a turn's ownership stops.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from trimtab.context import Context
from trimtab.core.branching import branch
from trimtab.core.budget import Budget
from trimtab.core.edits import parse_handle
from trimtab.core.erase import Erasing, eraser
from trimtab.core.event import Attempt, Body, Edit, Erase, Event, Settings, Turn
from trimtab.core.forgetting import Forgotten
from trimtab.core.ledger import Ledger, Preview
from trimtab.core.message import Message, Text, ToolCall, ToolResult
from trimtab.core.plan import Policy, Span
from trimtab.core.policies.knobs import knobs_from
from trimtab.core.policies.results import WantedResult
from trimtab.core.policies.summaries import WantedSummary
from trimtab.core.window import Window
from trimtab.dialects import dialect, read_call, to_wire
from trimtab.dialects.dialect import Wire
from trimtab.dialects.media import Takes, takes_of
from trimtab.dialects.watching import reply_of
from trimtab.options import Options, Tokenizer, options_after
from trimtab.redaction import Redact
from trimtab.session import audit, lookup
from trimtab.session.audit import Why
from trimtab.session.opening import due, opened
from trimtab.stores.errors import (
    KeyTaken,
    NoSession,
    PositionTaken,
    SessionExists,
    StaleOwner,
    StoreError,
)
from trimtab.stores.store import Store
from trimtab.wire import at_fault, failed, remedy

T = TypeVar("T")

log = logging.getLogger("trimtab.session")

_NOT_SET = ("redact", "clock")
"""Options of `Context` that nothing in the log tells of."""
_GIVEN_AGAIN = ("policy", "tokenizer", *_NOT_SET)
"""Options that `open` takes: they are not, or not whole, in the log."""


class Session:
    """A context whose events are in a store. Made by `create`, `open` or `open_or_create`."""

    def __init__(self, store: Store, session: str, context: Context) -> None:
        self.store = store
        self.id = session
        self.epoch: int | None = None
        """Of the turn that this process has claimed; None where it owns none."""
        self._context = context
        self.turn = asyncio.Lock()
        """Held by the turn that runs in this session, in this process."""
        self.summarising = asyncio.Lock()
        """Held by whoever makes a summary of this session, in this process."""
        self._lock = asyncio.Lock()
        self._last = _last(context)
        """The event folded last: where another one stands in its place, it is another log."""
        self._unsure = False
        self._background: set[asyncio.Task[object]] = set()

    @classmethod
    async def create(cls, store: Store, session: str, **options: Any) -> Session:
        """A new session. The options are those of `Context`."""
        context = Context(**options)
        try:
            await store.append(session, context.events)
        except PositionTaken as taken:
            raise SessionExists(session, taken.position) from None
        return cls(store, session, context)

    @classmethod
    async def open_or_create(cls, store: Store, session: str, **options: Any) -> Session:
        """The session as it was left, or a new one; what is given of `Context`'s options holds
        from now on."""
        if not await store.position(session):
            with suppress(SessionExists):  # somebody else was faster
                return await cls.create(store, session, **options)
        own = {name: options[name] for name in _GIVEN_AGAIN if name in options}
        found = await cls.open(store, session, **own)
        await found.configure(**{name: options[name] for name in options if name not in _NOT_SET})
        return found

    @classmethod
    async def open(
        cls,
        store: Store,
        session: str,
        *,
        policy: str | Policy | None = None,
        tokenizer: Tokenizer | None = None,
        redact: Redact | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Session:
        """A session that is in the store; what is not in its log is given again."""
        own: dict[str, Any] = {"policy": policy, "tokenizer": tokenizer, "redact": redact}
        found = cls(store, session, await opened(store, session, clock=clock, **own))
        if found._last is None:
            await found.refresh()
        return found

    async def close(self) -> None:
        """Leave the session to others; a summary that is being made is waited for."""
        await self.settle()
        await self.store.release(self.id)

    def in_background(self, work: Coroutine[Any, Any, object]) -> None:
        """Let something run beside the turns; `settle` and `close` wait for it."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def settle(self) -> None:
        """Wait for what runs in the background; whoever cancels this cancels it."""
        while self._background:
            await asyncio.gather(*self._background)

    def __repr__(self) -> str:
        return f"<Session {self.id}: {self._context!r}>"

    @property
    def options(self) -> Options:
        """What is set now."""
        return self._context.options

    @property
    def window(self) -> Window:
        """What the model sees now; only what is in the store is in it."""
        return self._context.window

    @property
    def takes(self) -> Takes:
        """Which pictures and files its model can be given."""
        return takes_of(self.window.settings.dialect, self.window.settings.model)

    async def add(self, item: Any, *, key: str | None = None, owned: bool = True) -> str:
        """Append what was said; a key that the session knows is not added again.

        What is no part of a turn is not `owned`: it is added whoever runs the turn.
        """
        try:
            return await self._write(lambda: self._context.add(item, key=key), epoch=owned)
        except KeyTaken as known:
            if known.position > self.window.seq:
                await self.refresh()  # somebody else added it: the next request must hold it
            return f"m{known.position}"

    async def request(self, *, stream: bool = False, volatile: str | None = None) -> dict[str, Any]:
        """Keyword arguments for the model's SDK; the call is in the store when it returns."""
        async with self._lock:
            while True:
                await self._be_sure()
                new = False
                try:
                    for events in self._context.steps(stream=stream, volatile=volatile):
                        new = True
                        await self._put(events)
                except PositionTaken:
                    await self._catch_up()
                else:
                    # The last call stands for this one only where nobody has written since.
                    if new or await self.store.position(self.id) == self.window.seq:
                        return self._context.render()
                    await self._catch_up()

    async def fail(
        self,
        kind: str,
        *,
        limit: int | None = None,
        input: int | None = None,
        requested: int | None = None,
        message: str = "",
    ) -> bool:
        """Record that the last call ended in an error; whether to send the next request at once.

        It is as in a `Context`: after an `overflow` the next request is smaller, or CannotFit says
        why it cannot be; what was `rejected`, with the provider's `message`, is left out.
        """
        named, numbers = self.named(message), {"limit": limit, "input": input}
        await self.failed(kind, message=message, requested=requested, **numbers)
        knobs = knobs_from(self.options.context)
        return bool(await self.apply_policy(remedy(kind, knobs, named))) or kind == "overflow"

    async def failed(self, kind: str, *, message: str = "", **told: int | None) -> None:
        """Only record an error, for those who see to the next request themselves."""
        more: dict[str, Any] = {"message": message, "redact": self.options.redact, **told}
        await self._write(lambda: self._context.append(failed(self.window, kind, **more)))

    def named(self, words: str) -> frozenset[str]:
        """What stands where a provider's words say that the last request is at fault."""
        return at_fault(self.window, lambda: self._context.rendering, words)

    async def watch(self, stream: AsyncIterable[Any]) -> AsyncIterator[Any]:
        """Pass a stream on and add its reply, with usage, when it ends."""
        gathering = dialect(self.window.settings.dialect).gather()
        async for event in stream:
            gathering.feed(to_wire(event))
            yield event
        if (reply := reply_of(gathering)) is not None:
            await self.add(reply)

    def preview(self, *, stream: bool = False, volatile: str | None = None) -> Preview:
        """What the next call would send and cost; changes nothing."""
        return self._context.preview(stream=stream, volatile=volatile)

    def report(self) -> Ledger:
        """Where the tokens of the next call would go."""
        return self._context.report()

    def budget(self) -> Budget:
        """The terms of the next call's limit."""
        return self._context.budget()

    async def recall(self, handle: str) -> str:
        """The text behind a handle, exactly as it was said, however long ago."""
        return await lookup.recall(self.store, self.id, self.window, handle)

    async def search(self, query: str) -> str:
        """The messages that hold most of the words, with their handles."""
        return await lookup.search(self.store, self.id, self.window, query)

    async def answer(self, call: ToolCall | Wire) -> str:
        """Answer a call of a recall tool and add the result; returns its text."""
        asked = call if isinstance(call, ToolCall) else read_call(call)
        text = await lookup.answer(self.store, self.id, self.window, asked)
        result = ToolResult(call_id=asked.id, content=(Text(text=text),))
        await self.add(Message(role="tool", parts=(result,)))
        return text

    def wanted_summary(self, *, forced: bool = False) -> WantedSummary | None:
        """What should be summarised now, or what a stand-in is forced for; None for nothing."""
        return self._context.wanted_summary(forced=forced)

    async def add_summary(self, text: str, *, span: Span | None = None) -> None:
        """Replace what `wanted_summary` named; refused where that was undone or erased since."""
        await self._write(lambda: self._context.add_summary(text, span=span))

    def wanted_results(self) -> tuple[WantedResult, ...]:
        """Tool results that the next call would cut and that are to be summarised instead."""
        return self._context.wanted_results()

    async def attempted(
        self,
        attempt: Attempt,
        text: str = "",
        *,
        span: Span | None = None,
        result: WantedResult | None = None,
    ) -> None:
        """Record that a summary was asked for, and at once with it the summary, if one stands."""

        def record() -> None:
            if text and result is not None:
                self._context.add_result_summary(result, text, by=attempt.model)
            elif text:
                self._context.add_summary(text, span=span)
            self._context.append(attempt)

        await self._write(record)

    async def reveal(self, handle: str) -> None:
        """Show again what an edit hid."""
        await self._write(lambda: self._context.reveal(handle))

    async def pin(self, handle: str, *, pinned: bool = True) -> None:
        """Keep a message from being hidden, or no longer."""
        await self._write(lambda: self._context.pin(handle, pinned=pinned))

    async def why(self, handle: str) -> Why:
        """Why something is not in the context, since when, and by which edit."""
        return await audit.why(self.store, self.id, handle)

    async def rebuild(self, seq: int) -> dict[str, Any]:
        """The exact request of a past call, checked against its hash."""
        return await audit.rebuild(self.store, self.id, seq)

    async def configure(self, **changes: Any) -> None:
        """Change the model, the system prompt, the tools or any other option from now on.

        Nothing is written where all of it is set already.
        """
        await self._write(lambda: self._context.configure(**changes))

    async def apply_policy(self, policy: Policy) -> tuple[Edit, ...]:
        """Make the edits that a policy wants now, whatever the session's own policy is."""

        def edit() -> tuple[Edit, ...]:
            edits = policy(self.window, self.budget()).edits
            for body in edits:
                self._context.append(body)
            return edits

        return await self._write(edit)

    async def rewind(self, to: int | str) -> None:
        """Go back to a position, or to just behind the message that a handle names."""
        await self._write(lambda: self._context.rewind(to))

    async def fork(self, session: str, *, at: int | None = None) -> Session:
        """A new session that shares the past up to a position, and nothing after."""
        at = self.window.seq if at is None else at
        events = [event async for event in self.store.events(self.id)]
        if not 0 < at <= len(events):
            raise ValueError(f"cannot fork at {at}; positions go from 1 to {len(events)}")
        past = events[:at]
        settings = next(e.body for e in reversed(past) if isinstance(e.body, Settings))
        earlier = options_after(settings, self._context.options, earlier=self.window.counters)
        own = self._context.own(earlier)
        for body in branch(events[at:], parent=self.id, at=at):
            past.append(replace(self._context.event(body), seq=len(past) + 1))
        await self.store.append(session, past)
        context = await opened(self.store, session, **own)
        return Session(self.store, session, context)

    async def erase(
        self,
        handle: str,
        *,
        why: str = "",
        first: Callable[[Erasing], Awaitable[None]] | None = None,
        alone: bool = False,
    ) -> list[str]:
        """Destroy the payload of a message or a part, in the store and in all made from it.

        `first` is told what is to go before the log is written anew. With `alone`, an open turn in
        any process can write no more: it may hold the text in memory. Returns the sessions that
        were forked from this one, whose copies are not reached.
        """
        named = parse_handle(handle)
        async with self._lock:
            while True:
                await self._be_sure()
                erasing = Erasing(named, why)
                async for event in self.store.events(self.id):
                    erasing.hear(event)
                erases = erasing.found()
                if first is not None:
                    await first(erasing)
                claim = [self._claim()] if alone and erases and erasing.turn else []
                # Also if nothing is left to erase here: an attempt may have been cut off.
                bodies: list[Body] = [*claim, *erases]
                events = [self._context.event(body, n) for n, body in enumerate(bodies)]
                self._unsure = True
                try:
                    await self.store.rewrite(self.id, events, eraser(erases))
                except PositionTaken:
                    await self._catch_up()
                else:
                    await self._take(events)
                    self._unsure = False
                    return await self.store.forks(self.id)

    async def claim(self) -> int:
        """Begin a turn: whoever owned the last one can write no more."""
        await self._write(lambda: self._context.append(self._claim()), epoch=False)
        self.epoch = self.window.epoch
        return self.epoch

    @asynccontextmanager
    async def owned(self) -> AsyncGenerator[None]:
        """A turn for what is no conversation: a turn that was left open, and may still run in
        another process, can write no more."""
        epoch = await self.claim()
        try:
            yield
            await self.end()
        finally:
            # Where this failed, whoever else uses the session is not taken for the turn.
            if self.epoch == epoch:
                self.epoch = None

    def _claim(self) -> Turn:
        return Turn(state="claimed", epoch=self.window.epoch + 1)

    async def begin_tool(self, key: str) -> None:
        """Record that a tool was started, by its idempotency key."""
        await self._note(Turn(state="tool_started", epoch=self.epoch or 0, key=key))

    async def end(self) -> None:
        """End the turn."""
        await self._note(Turn(state="ended", epoch=self.epoch or 0))
        self.epoch = None

    async def refresh(self) -> None:
        """Fold what others have written; raises NoSession where the log was deleted meanwhile, also
        if another was begun in its place."""
        async with self._lock:
            await self._catch_up()

    async def reload(self) -> None:
        """Fold the session anew from the store."""
        async with self._lock:
            self._context = await opened(self.store, self.id, **self._context.own())
            self._last = _last(self._context)

    async def checkpoint(self) -> None:
        """Let go of what is hidden and keep a snapshot, so that the next opening is short."""
        async with self._lock:
            await self._checkpoint()

    async def _note(self, body: Body) -> None:
        await self._write(lambda: self._context.append(body))

    async def _write(self, verb: Callable[[], T], *, epoch: bool = True) -> T:
        """Draft, store, fold; again from the start where somebody else was faster."""
        async with self._lock:
            while True:
                await self._be_sure(epoch=epoch)
                with self._context.drafting() as events:
                    result = verb()
                try:
                    await self._put(events, epoch=epoch)
                except PositionTaken:
                    await self._catch_up(epoch=epoch)
                else:
                    return result

    async def _put(self, events: list[Event], *, epoch: bool = True) -> None:
        if not events:
            return
        # Until it is folded nobody knows: it may land although we are cancelled or cut off.
        self._unsure = True
        try:
            await self.store.append(self.id, events, epoch=self.epoch if epoch else None)
        except (PositionTaken, StaleOwner, KeyTaken):
            self._unsure = False
            raise
        await self._take(events)
        self._unsure = False
        if due(self.window):
            await self._checkpoint()

    async def _take(self, events: Sequence[Event]) -> None:
        """Fold what is in the store; from further back where it needs what has left memory."""
        if not events:
            return
        try:
            self._context.apply(events)
        except Forgotten as error:
            own = self._context.own()
            if own["policy"] == self.window.settings.policy:
                own["policy"] = None  # the log names it, and what follows may name another
            self._context = await opened(self.store, self.id, upto=error.position, keep=True, **own)
        if erases := [event.body for event in events if isinstance(event.body, Erase)]:
            self._context.events[:] = map(eraser(erases), self._context.events)
        self._last = _last(self._context)

    async def _be_sure(self, *, epoch: bool = True) -> None:
        if self._unsure:
            await self._catch_up(epoch=epoch)

    async def _catch_up(self, *, epoch: bool = True) -> None:
        span = (self.window.seq, None)
        found = [event async for event in self.store.events(self.id, [span])]
        if not found or (self._last is not None and found[0].at != self._last.at):
            raise NoSession(self.id)
        self._last = found[0]
        await self._take(found[1:])
        self._unsure = False
        if epoch and self.epoch is not None and self.window.epoch > self.epoch:
            raise StaleOwner(self.id, self.epoch, self.window.epoch)

    async def _checkpoint(self) -> None:
        snapshot = self._context.checkpoint()
        try:
            await self.store.checkpoint(self.id, snapshot)
        except StoreError as error:
            # The log has everything: without this snapshot the next opening only reads more.
            log.warning("session %s: no snapshot at %d: %s", self.id, snapshot.seq, error)


def _last(context: Context) -> Event | None:
    """The event folded last; None where a snapshot stands for it."""
    events = context.events
    return events[-1] if events and events[-1].seq == context.window.seq else None
