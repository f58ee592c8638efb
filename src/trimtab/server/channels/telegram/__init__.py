"""Agents in Telegram: private chats, groups and topics, by long polling or webhook.

Needs the extra `telegram`: `pip install 'trimtab[telegram]'`.
"""

from trimtab.server.channels.telegram.channel import TelegramChannel as TelegramChannel

__all__ = ["TelegramChannel"]
