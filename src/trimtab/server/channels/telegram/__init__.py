"""Agents in Telegram: private chats, groups and topics, by long polling or webhook.

Needs the extra `telegram`: `pip install 'trimtab[telegram]'`.
"""

from trimtab.server.channels.telegram.channel import TelegramChannel as TelegramChannel
from trimtab.server.channels.telegram.channel import (
    create_telegram_channel as create_telegram_channel,
)

__all__ = ["TelegramChannel", "create_telegram_channel"]
