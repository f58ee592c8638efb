"""The channel for Telegram: private chats, groups and topics, with long polling or a webhook.

Needs the extra `telegram`: `pip install 'trimtab[telegram]'`.
"""

from trimtab_serve.channels.telegram.channel import TelegramChannel as TelegramChannel

__all__ = ["TelegramChannel"]
