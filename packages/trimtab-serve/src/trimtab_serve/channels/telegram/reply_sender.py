"""Send replies to Telegram. If the outcome is unknown, a reply is sent again with a notice."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from telegram.error import BadRequest, Forbidden, InvalidToken, RetryAfter, TelegramError

from trimtab_serve.channels.reply_progress import ReplyProgress, ReplyProgressTracker
from trimtab_serve.channels.telegram.bot_api_client import (
    InvalidTelegramToken,
    failed_before_sending,
)
from trimtab_serve.channels.telegram.live_drafts import DraftMessage, LiveDraftSender
from trimtab_serve.channels.telegram.message_splitting import split_telegram_message
from trimtab_serve.channels.telegram.paced_sender import (
    TelegramSender,
    TelegramTarget,
    read_retry_after_seconds,
)
from trimtab_serve.channels.telegram.styled_text import (
    StyledText,
    StyleSpan,
    convert_markdown_to_styled_text,
    shift_spans,
)
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.service.delivery import RetryDelivery, Undeliverable

RESENT_NOTICE = "(sent again: it may have arrived before)"
"""Precedes a reply that may already have arrived."""
UNREACHABLE_RETRY_S = 5.0
"""Seconds before the next attempt if Telegram could not be reached."""
TOKEN_REFUSED_RETRY_S = 60.0
"""Seconds before the next attempt if the token was refused."""


class TelegramReplySender:
    """Sends replies. A draft in the chat becomes the reply."""

    def __init__(self, sender: TelegramSender, drafts: LiveDraftSender) -> None:
        self._sender = sender
        self._drafts = drafts
        self._progress_tracker = ReplyProgressTracker()

    async def send_reply(self, reply: OutboundMessage) -> None:
        """Send one reply. Raises the errors of `delivery.DeliverReply`."""
        target = parse_telegram_target(reply.route.address)
        if (wait := self._sender.rate_limit_wait_s(target)) > 0:
            raise RetryDelivery(wait, f"Telegram asks to wait {wait:.0f} s")
        async with (
            self._progress_tracker.track_attempt(reply) as progress,
            self._drafts.take_over_draft(reply.session, reply.text) as draft_messages,
        ):
            await self._send_pieces(reply, target, progress, draft_messages)

    async def _send_pieces(
        self,
        reply: OutboundMessage,
        target: TelegramTarget,
        progress: ReplyProgress,
        draft_messages: list[DraftMessage],
    ) -> None:
        pieces = split_telegram_message(convert_markdown_to_styled_text(reply.text))
        for index, piece in enumerate(pieces):
            if index < len(draft_messages):
                await self._edit_draft_message(
                    target, progress, index, draft_messages[index], piece
                )
                progress.confirm_piece(index)
            elif index >= progress.sent_pieces:
                is_marked = progress.unconfirmed_since is not None
                await self._send_piece(
                    target, progress, index, _with_resent_notice(piece) if is_marked else piece
                )
        for extra in draft_messages[len(pieces) :]:
            await self._sender.delete_message(target, extra.message_id)

    async def _edit_draft_message(
        self,
        target: TelegramTarget,
        progress: ReplyProgress,
        index: int,
        draft_message: DraftMessage,
        piece: StyledText,
    ) -> None:
        """Replace the text of a draft by the reply. It is safe to repeat."""
        if draft_message.styled_text == piece:
            return
        await self._sender.wait_for_slot(target)
        try:
            with _as_delivery_errors():
                await self._sender.edit_message(target, draft_message.message_id, piece)
        except _MessageRejected:
            draft_message.message_id = await self._send_piece(target, progress, index, piece)
        draft_message.styled_text = piece

    async def _send_piece(
        self, target: TelegramTarget, progress: ReplyProgress, index: int, piece: StyledText
    ) -> int:
        """Send a piece as a new message. Return its id."""
        is_first = progress.sent_pieces == 0
        to = target if is_first else TelegramTarget(chat=target.chat, topic=target.topic)
        await self._sender.wait_for_slot(target)
        with progress.sending_piece(index):
            try:
                with _as_delivery_errors():
                    return await self._sender.send_message(to, piece)
            except _MessageRejected as rejection:
                raise Undeliverable(str(rejection)) from None


@contextmanager
def _as_delivery_errors() -> Generator[None]:
    """Translate errors of the library to delivery errors."""
    try:
        yield
    except RetryAfter as error:
        wait = read_retry_after_seconds(error)
        raise RetryDelivery(wait, f"Telegram asks to wait {wait:.0f} s") from None
    except Forbidden as error:
        raise Undeliverable(f"Telegram rejected the message: {error.message}") from None
    except BadRequest as error:
        raise _MessageRejected(f"Telegram rejected the message: {error.message}") from None
    except InvalidToken:
        raise RetryDelivery(TOKEN_REFUSED_RETRY_S, str(InvalidTelegramToken())) from None
    except TelegramError as error:
        if failed_before_sending(error):
            raise RetryDelivery(UNREACHABLE_RETRY_S, "Telegram cannot be reached") from None
        raise


class _MessageRejected(Exception):
    """Telegram will never accept this message."""


def parse_telegram_target(route_address: Mapping[str, Any]) -> TelegramTarget:
    """Return the destination of a route. `chat` is required, the rest is optional."""
    topic = route_address.get("topic")
    reply_to = route_address.get("reply_to")
    try:
        return TelegramTarget(
            chat=int(route_address["chat"]),
            topic=None if topic is None else int(topic),
            reply_to=None if reply_to is None else int(reply_to),
        )
    except (KeyError, TypeError, ValueError):
        raise Undeliverable(
            f"invalid Telegram route: `chat` must be a chat id; it has {sorted(route_address)}"
        ) from None


def _with_resent_notice(piece: StyledText) -> StyledText:
    """Return the piece with the notice before it."""
    lead = f"{RESENT_NOTICE}\n\n"
    first = StyleSpan(kind="italic", start=0, end=len(RESENT_NOTICE))
    return StyledText(text=lead + piece.text, spans=(first, *shift_spans(piece.spans, len(lead))))
