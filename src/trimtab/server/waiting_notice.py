"""Tells whoever waits in a chat that the provider is away and the message is kept."""

from __future__ import annotations

import logging
from contextlib import suppress

from trimtab.errors import StaleOwner, StoreError
from trimtab.server.queue.inbound_outbound import OutboundMessage
from trimtab.server.retries import TurnRetries
from trimtab.server.service import AgentService

WAITING_TEXT = (
    "The model's provider does not answer at the moment. Your message is kept, and I will answer "
    "it as soon as the provider is back."
)

log = logging.getLogger("trimtab.server")


async def send_waiting_notice(service: AgentService, session: str, retries: TurnRetries) -> None:
    """Send it once for the first message that waits, when it has waited for a while.

    Callers over HTTP see the state of the session and are sent nothing.
    """
    if not retries.is_waiting_notice_due:
        return
    try:
        pending = await service.queue.pending(session)
        told = next((queued for queued in pending if queued.route is not None), None)
        if told is None or told.route is None:
            return
        # Opened, it is there: the queue keeps no reply of a session that is not.
        async with service.open_session(session) as opened:
            epoch = opened.window.accounting.epoch
        reply = OutboundMessage(
            session=session,
            seq=0,
            text=WAITING_TEXT,
            route=told.route,
            key=f"{session}/waiting/{told.key}",
        )
        with suppress(StaleOwner):  # it is being answered
            await service.queue.finish_turn(session, epoch, [], [reply])
    except StoreError as error:
        log.warning("session %s could not be told that it waits: %s", session, error)
