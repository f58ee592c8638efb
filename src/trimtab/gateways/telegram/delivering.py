"""A reply on its way out: once, or again with a mark where nobody knows whether it arrived."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from telegram.error import BadRequest, Forbidden, InvalidToken, RetryAfter, TelegramError

from trimtab.gateways.telegram.chunks import chunks
from trimtab.gateways.telegram.client import BadToken, never_left
from trimtab.gateways.telegram.markdown import from_markdown
from trimtab.gateways.telegram.sending import Place, Sending, seconds_of
from trimtab.gateways.telegram.streaming import Shown, Streaming
from trimtab.gateways.telegram.styled import Mark, Styled, moved
from trimtab.worker.delivery import Later, Never
from trimtab.worker.letters import Outbound

AGAIN = "(sent again: it may have arrived before)"
"""Stands before a reply that may be there already."""
UNREACHED = 5.0
"""Seconds after which it is tried again where Telegram could not be reached."""
REFUSED = 60.0
"""Seconds after which it is tried again where the token was refused."""
REMEMBERED = 1_024
"""Replies whose progress is remembered."""


class PartlySent(RuntimeError):
    """A long reply was interrupted behind some of its messages."""


@dataclass(slots=True, kw_only=True)
class _Progress:
    """How far a reply has come in this process."""

    sent: int = 0
    """Messages of it that have arrived."""
    unsure: bool = False
    """Whether the one behind them may have."""


class Delivering:
    """Sends replies; the draft that a chat has seen becomes the reply."""

    def __init__(self, sending: Sending, streaming: Streaming) -> None:
        self._sending = sending
        self._streaming = streaming
        self._progress: OrderedDict[str, _Progress] = OrderedDict()

    async def __call__(self, reply: Outbound) -> None:
        """Send one reply; raises as `delivery.Deliver` says."""
        place = place_of(reply.route.address)
        if (wait := self._sending.wait(place)) > 0:
            raise Later(wait, f"Telegram asks to wait {wait:.0f} s")
        known = reply.key in self._progress
        progress = self._progress.setdefault(reply.key, _Progress())
        if not known:
            progress.unsure = reply.attempts > 0
        while len(self._progress) > REMEMBERED:
            self._progress.popitem(last=False)
        async with self._streaming.finished(reply.session, reply.text) as shown:
            await self._all(reply, place, progress, shown)
        del self._progress[reply.key]

    async def _all(
        self, reply: Outbound, place: Place, progress: _Progress, shown: list[Shown]
    ) -> None:
        pieces = chunks(from_markdown(reply.text))
        for number, piece in enumerate(pieces):
            if number < len(shown):
                await self._edited(place, progress, shown[number], piece)
                progress.sent = max(progress.sent, number + 1)
            elif number >= progress.sent:
                await self._sent(place, progress, piece)
        for extra in shown[len(pieces) :]:
            await self._sending.delete(place, extra.message)

    async def _edited(self, place: Place, progress: _Progress, shown: Shown, piece: Styled) -> None:
        """What the chat has seen becomes what was said; it may be done again without harm."""
        if shown.what == piece:
            return
        try:
            await self._tried(
                place, lambda: self._sending.edit(place, shown.message, piece), progress
            )
        except _Gone:
            shown.message = await self._new(place, progress, piece)
        shown.what = piece

    async def _sent(self, place: Place, progress: _Progress, piece: Styled) -> None:
        await self._new(place, progress, _marked(piece) if progress.unsure else piece)
        progress.sent += 1
        progress.unsure = False

    async def _new(self, place: Place, progress: _Progress, piece: Styled) -> int:
        found: list[int] = []

        async def send() -> None:
            first = progress.sent == 0
            to = place if first else Place(chat=place.chat, topic=place.topic)
            found.append(await self._sending.send(to, piece))

        try:
            await self._tried(place, send, progress, new=True)
        except _Gone as gone:
            raise Never(str(gone)) from None
        return found[0]

    async def _tried(
        self,
        place: Place,
        act: Callable[[], Awaitable[None]],
        progress: _Progress,
        *,
        new: bool = False,
    ) -> None:
        """Do it, and say what its failure means."""
        try:
            await self._sending.slot(place)
            await act()
        except RetryAfter as error:
            wait = seconds_of(error)
            self._not_now(progress, wait, f"Telegram asks to wait {wait:.0f} s")
        except Forbidden as error:
            raise Never(f"Telegram refuses it: {error.message}") from None
        except BadRequest as error:
            raise _Gone(f"Telegram refuses it: {error.message}") from None
        except InvalidToken:
            self._not_now(progress, REFUSED, str(BadToken()))
        except TelegramError as error:
            if never_left(error):
                self._not_now(progress, UNREACHED, "Telegram cannot be reached")
            progress.unsure = new
            raise
        except BaseException:  # cut off in the middle: nobody knows
            progress.unsure = new
            raise

    def _not_now(self, progress: _Progress, wait: float, why: str) -> None:
        """Nothing of this message was sent; of the reply some may have been."""
        if progress.sent:
            # Should this process end, the next one must say that some of it was there before.
            raise PartlySent(f"{progress.sent} messages of a long reply have arrived; {why}")
        raise Later(wait, why)


class _Gone(Exception):
    """Telegram will not take this, however often it is sent."""


def place_of(address: Mapping[str, Any]) -> Place:
    """Where a route leads; `chat` is needed, all else may be missing."""
    topic, reply_to = address.get("topic"), address.get("reply_to")
    try:
        return Place(
            chat=int(address["chat"]),
            topic=None if topic is None else int(topic),
            reply_to=None if reply_to is None else int(reply_to),
        )
    except (KeyError, TypeError, ValueError):
        raise Never(f"a Telegram route needs a chat's id, and has {sorted(address)}") from None


def _marked(piece: Styled) -> Styled:
    """The same with the mark before it."""
    lead = f"{AGAIN}\n\n"
    first = Mark(kind="italic", start=0, end=len(AGAIN))
    return Styled(text=lead + piece.text, marks=(first, *moved(piece.marks, len(lead))))
