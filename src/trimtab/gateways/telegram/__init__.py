"""Agents in Telegram: private chats, groups and topics, by long polling or webhook.

Needs the extra `telegram`: `pip install 'trimtab[telegram]'`.
"""

from trimtab.gateways.telegram.door import TelegramDoor as TelegramDoor
from trimtab.gateways.telegram.door import door as door

__all__ = ["TelegramDoor", "door"]
