"""A reply on its way out: once, or again with a mark where nobody knows whether it arrived."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from telegram.error import BadRequest, Forbidden, InvalidToken, RetryAfter, TelegramError

from trimtab.server.channels.telegram.chunking import split_telegram_message
from trimtab.server.channels.telegram.client import InvalidTelegramToken, failed_before_sending
from trimtab.server.channels.telegram.live_drafts import DraftMessage, LiveDraftSender
from trimtab.server.channels.telegram.rich_text import (
    StyledText,
    StyleSpan,
    convert_markdown_to_styled_text,
    shift_spans,
)
from trimtab.server.channels.telegram.sender import (
    TelegramSender,
    TelegramTarget,
    read_retry_after_seconds,
)
from trimtab.server.delivery import RetryDelivery, Undeliverable
from trimtab.server.queue.messages import OutboundMessage

RESENT_NOTICE = "(sent again: it may have arrived before)"
"""Stands before a reply that may be there already."""
UNREACHABLE_RETRY_S = 5.0
"""Seconds after which it is tried again where Telegram could not be reached."""
TOKEN_REFUSED_RETRY_S = 60.0
"""Seconds after which it is tried again where the token was refused."""
MAX_TRACKED_REPLIES = 1_024
"""Replies whose progress is remembered."""


class TelegramReplyInterrupted(RuntimeError):
    """A long reply was interrupted behind some of its messages."""


@dataclass(slots=True, kw_only=True)
class _SendProgress:
    """How far a reply has come in this process."""

    sent: int = 0
    """Messages of it that have arrived."""
    may_have_arrived: bool = False
    """Whether the one behind them may have."""


class TelegramReplySender:
    """Sends replies; the draft that a chat has seen becomes the reply."""

    def __init__(self, sender: TelegramSender, drafts: LiveDraftSender) -> None:
        self._sender = sender
        self._drafts = drafts
        self._progress_by_key: OrderedDict[str, _SendProgress] = OrderedDict()

    async def __call__(self, reply: OutboundMessage) -> None:
        """Send one reply; raises as `delivery.DeliverReply` says."""
        place = parse_telegram_target(reply.route.address)
        if (wait := self._sender.rate_limit_wait_s(place)) > 0:
            raise RetryDelivery(wait, f"Telegram asks to wait {wait:.0f} s")
        known = reply.key in self._progress_by_key
        progress = self._progress_by_key.setdefault(reply.key, _SendProgress())
        if not known:
            progress.may_have_arrived = reply.attempts > 0
        while len(self._progress_by_key) > MAX_TRACKED_REPLIES:
            self._progress_by_key.popitem(last=False)
        async with self._drafts.take_over_draft(reply.session, reply.text) as shown:
            await self._send_pieces(reply, place, progress, shown)
        del self._progress_by_key[reply.key]

    async def _send_pieces(
        self,
        reply: OutboundMessage,
        target: TelegramTarget,
        progress: _SendProgress,
        draft_messages: list[DraftMessage],
    ) -> None:
        pieces = split_telegram_message(convert_markdown_to_styled_text(reply.text))
        for number, piece in enumerate(pieces):
            if number < len(draft_messages):
                await self._edit_draft_message(target, progress, draft_messages[number], piece)
                progress.sent = max(progress.sent, number + 1)
            elif number >= progress.sent:
                await self._send_piece(target, progress, piece)
        for extra in draft_messages[len(pieces) :]:
            await self._sender.delete_message(target, extra.message_id)

    async def _edit_draft_message(
        self,
        target: TelegramTarget,
        progress: _SendProgress,
        draft_message: DraftMessage,
        piece: StyledText,
    ) -> None:
        """What the chat has seen becomes what was said; it may be done again without harm."""
        if draft_message.styled_text == piece:
            return
        try:
            await self._attempt(
                target,
                lambda: self._sender.edit_message(target, draft_message.message_id, piece),
                progress,
            )
        except _MessageRejected:
            draft_message.message_id = await self._send_new_message(target, progress, piece)
        draft_message.styled_text = piece

    async def _send_piece(
        self, target: TelegramTarget, progress: _SendProgress, piece: StyledText
    ) -> None:
        await self._send_new_message(
            target, progress, _with_resent_notice(piece) if progress.may_have_arrived else piece
        )
        progress.sent += 1
        progress.may_have_arrived = False

    async def _send_new_message(
        self, target: TelegramTarget, progress: _SendProgress, piece: StyledText
    ) -> int:
        found: list[int] = []

        async def send() -> None:
            first = progress.sent == 0
            to = target if first else TelegramTarget(chat=target.chat, topic=target.topic)
            found.append(await self._sender.send_message(to, piece))

        try:
            await self._attempt(target, send, progress, is_new_message=True)
        except _MessageRejected as gone:
            raise Undeliverable(str(gone)) from None
        return found[0]

    async def _attempt(
        self,
        target: TelegramTarget,
        action: Callable[[], Awaitable[None]],
        progress: _SendProgress,
        *,
        is_new_message: bool = False,
    ) -> None:
        """Do it, and say what its failure means."""
        try:
            await self._sender.wait_for_slot(target)
            await action()
        except RetryAfter as error:
            wait = read_retry_after_seconds(error)
            self._raise_retry(progress, wait, f"Telegram asks to wait {wait:.0f} s")
        except Forbidden as error:
            raise Undeliverable(f"Telegram refuses it: {error.message}") from None
        except BadRequest as error:
            raise _MessageRejected(f"Telegram refuses it: {error.message}") from None
        except InvalidToken:
            self._raise_retry(progress, TOKEN_REFUSED_RETRY_S, str(InvalidTelegramToken()))
        except TelegramError as error:
            if failed_before_sending(error):
                self._raise_retry(progress, UNREACHABLE_RETRY_S, "Telegram cannot be reached")
            progress.may_have_arrived = is_new_message
            raise
        except BaseException:  # cut off in the middle: nobody knows
            progress.may_have_arrived = is_new_message
            raise

    def _raise_retry(self, progress: _SendProgress, wait_s: float, reason: str) -> None:
        """Nothing of this message was sent; of the reply some may have been."""
        if progress.sent:
            # Should this process end, the next one must say that some of it was there before.
            raise TelegramReplyInterrupted(
                f"{progress.sent} messages of a long reply have arrived; {reason}"
            )
        raise RetryDelivery(wait_s, reason)


class _MessageRejected(Exception):
    """Telegram will not take this, however often it is sent."""


def parse_telegram_target(route_address: Mapping[str, Any]) -> TelegramTarget:
    """Where a route leads; `chat` is needed, all else may be missing."""
    topic, reply_to = route_address.get("topic"), route_address.get("reply_to")
    try:
        return TelegramTarget(
            chat=int(route_address["chat"]),
            topic=None if topic is None else int(topic),
            reply_to=None if reply_to is None else int(reply_to),
        )
    except (KeyError, TypeError, ValueError):
        raise Undeliverable(
            f"a Telegram route needs a chat's id, and has {sorted(route_address)}"
        ) from None


def _with_resent_notice(piece: StyledText) -> StyledText:
    """The same with the mark before it."""
    lead = f"{RESENT_NOTICE}\n\n"
    first = StyleSpan(kind="italic", start=0, end=len(RESENT_NOTICE))
    return StyledText(text=lead + piece.text, spans=(first, *shift_spans(piece.spans, len(lead))))
