"""Notify the users in a chat that the provider does not answer and that their message is stored."""

from __future__ import annotations

import logging
from contextlib import suppress

from trimtab.errors import StaleOwner, StoreError
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.service.retries import TurnRetries
from trimtab_serve.service.service import AgentService

WAITING_TEXT = (
    "The model provider is not answering right now. I have kept your message, and I will answer "
    "it as soon as the provider is available again."
)

log = logging.getLogger("trimtab.server")


async def send_waiting_notice(service: AgentService, session: str, retries: TurnRetries) -> None:
    """Send the notice once, for the first waiting message, after some time.

    HTTP callers see the state of the session and get no notice.
    """
    if not retries.is_waiting_notice_due:
        return
    try:
        pending = await service.queue.pending(session)
        recipient = next((message for message in pending if message.route is not None), None)
        if recipient is None or recipient.route is None:
            return
        # Open the session first: the queue accepts no reply for a session that does not exist.
        async with service.open_session(session) as open_session:
            epoch = open_session.window.accounting.epoch
        reply = OutboundMessage(
            session=session,
            seq=0,
            text=WAITING_TEXT,
            route=recipient.route,
            key=f"{session}/waiting/{recipient.key}",
        )
        with suppress(StaleOwner):  # it is being answered
            await service.queue.finish_turn(session, epoch, [], [reply])
    except StoreError as error:
        log.warning("sending the waiting notice to session %s failed: %s", session, error)
