"""The methods of the Bot API that a chat bot needs, as strict as the real ones."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from trimtab.testing.telegram.chats import Chat
from trimtab.testing.telegram.refusals import SAME, bad, forbidden
from trimtab.testing.telegram.texts import checked

if TYPE_CHECKING:
    from trimtab.testing.telegram.api import BotApi

Given = Mapping[str, Any]
_SENDS = ("photo", "video", "voice", "document", "video_note")
ACTIONS = frozenset(
    {
        "typing",
        "choose_sticker",
        "find_location",
        *(f"upload_{one}" for one in _SENDS),
        *(f"record_{one}" for one in ("video", "voice", "video_note")),
    }
)
LARGEST = 20 * 1024 * 1024
"""Bytes of a file that bots may fetch."""
PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
"""How pictures begin."""


def get_me(api: BotApi, given: Given) -> Any:
    del given
    return {
        **api.me(),
        "can_join_groups": True,
        "can_read_all_group_messages": False,
        "supports_inline_queries": False,
    }


def send_message(api: BotApi, given: Given) -> Any:
    chat = _chat(api, given)
    text, entities = checked(given, "text")
    return _new(api, chat, given, {"text": text, "entities": entities})


def send_photo(api: BotApi, given: Given) -> Any:
    chat = _chat(api, given)
    caption, entities = checked(given, "caption")
    photo = given.get("photo")
    if not isinstance(photo, bytes) or not photo.startswith(PICTURES):
        raise bad("IMAGE_PROCESS_FAILED")
    file_id = f"photo-{len(api.files)}"
    api.files[file_id] = photo
    size = {"file_id": file_id, "file_unique_id": file_id, "width": 1, "height": 1}
    said = {"photo": [size], "caption": caption, "caption_entities": entities}
    return _new(api, chat, given, said)


def edit_message_text(api: BotApi, given: Given) -> Any:
    chat = _chat(api, given)
    message = chat.messages.get(int(given.get("message_id") or 0))
    if message is None:
        raise bad("message to edit not found")
    if message["from"]["id"] != api.id or "text" not in message:
        raise bad("message can't be edited")
    text, entities = checked(given, "text")
    if message["text"] == text and message.get("entities", []) == entities:
        raise bad(SAME)
    api.limits.check(chat.id)
    message |= {"text": text, "entities": entities, "edit_date": int(time.time())}
    return dict(message)


def delete_message(api: BotApi, given: Given) -> Any:
    chat = _chat(api, given)
    if chat.messages.pop(int(given.get("message_id") or 0), None) is None:
        raise bad("message to delete not found")
    return True


def send_chat_action(api: BotApi, given: Given) -> Any:
    _chat(api, given)
    if given.get("action") not in ACTIONS:
        raise bad("wrong parameter action in request")
    return True


def get_file(api: BotApi, given: Given) -> Any:
    file_id = str(given.get("file_id") or "")
    data = api.files.get(file_id)
    if data is None:
        raise bad("invalid file_id")
    if len(data) > LARGEST:
        raise bad("file is too big")
    told = {"file_id": file_id, "file_unique_id": file_id}
    return {**told, "file_size": len(data), "file_path": f"files/{file_id}"}


def set_webhook(api: BotApi, given: Given) -> Any:
    from trimtab.testing.telegram.api import Hook

    url, secret = str(given.get("url") or ""), given.get("secret_token")
    if not url:
        api.hook = None
        return True
    if not url.startswith("https://") and not (api.local and url.startswith("http://")):
        raise bad("bad webhook: An HTTPS URL must be provided for webhook")
    if secret is not None and not re.fullmatch(r"[A-Za-z0-9_-]{1,256}", str(secret)):
        raise bad("secret token contains unallowed characters")
    api.hook = Hook(url=url, secret=None if secret is None else str(secret))
    return True


def delete_webhook(api: BotApi, given: Given) -> Any:
    del given
    api.hook = None
    return True


def get_webhook_info(api: BotApi, given: Given) -> Any:
    del given
    url = "" if api.hook is None else api.hook.url
    told = {"url": url, "has_custom_certificate": False}
    return {**told, "pending_update_count": len(api.waiting())}


def set_my_commands(api: BotApi, given: Given) -> Any:
    commands = _json(given.get("commands"))
    if not isinstance(commands, list) or len(cast("list[Any]", commands)) > 100:
        raise bad("can't parse commands: expected an Array")
    for one in cast("list[dict[str, Any]]", commands):
        if not re.fullmatch(r"[a-z0-9_]{1,32}", str(one.get("command"))):
            raise bad("BOT_COMMAND_INVALID")
        if not 1 <= len(str(one.get("description") or "")) <= 256:
            raise bad("BOT_COMMAND_DESCRIPTION_INVALID")
    api.commands = list(cast("list[Any]", commands))
    return True


def _chat(api: BotApi, given: Given) -> Chat:
    raw = str(given.get("chat_id") or "")
    if not raw:
        raise bad("chat_id is empty")
    number = int(raw) if re.fullmatch(r"-?\d+", raw) else 0
    chat = api.chats.get(number)
    if chat is None:
        raise bad("chat not found")
    if chat.moved_to is not None:
        raise bad("group chat was upgraded to a supergroup chat", migrate_to_chat_id=chat.moved_to)
    if chat.blocked and chat.type == "private":
        raise forbidden("bot was blocked by the user")
    if chat.blocked:
        raise forbidden(f"bot was kicked from the {chat.type} chat")
    return chat


def _new(api: BotApi, chat: Chat, given: Given, said: Mapping[str, Any]) -> dict[str, Any]:
    topic = int(given.get("message_thread_id") or 0)
    if topic and topic not in chat.topics:
        raise bad("message thread not found")
    reply: dict[str, Any] = _json(given.get("reply_parameters")) or {}
    to = chat.messages.get(int(reply.get("message_id") or 0))
    if reply and to is None and not reply.get("allow_sending_without_reply"):
        raise bad("message to be replied not found")
    api.limits.check(chat.id)
    message: dict[str, Any] = {
        "message_id": chat.next(),
        "date": int(time.time()),
        "chat": chat.json(),
        "from": api.me(),
        **said,
    }
    if topic:
        message |= {"message_thread_id": topic, "is_topic_message": True}
    if to is not None:
        message["reply_to_message"] = {k: v for k, v in to.items() if k != "reply_to_message"}
    chat.messages[message["message_id"]] = message
    return dict(message)


def _json(given: Any) -> Any:
    try:
        return json.loads(given) if isinstance(given, str) else given
    except ValueError:
        raise bad("can't parse JSON object") from None


METHODS: dict[str, Callable[[BotApi, Given], Any]] = {
    "getMe": get_me,
    "sendMessage": send_message,
    "sendPhoto": send_photo,
    "editMessageText": edit_message_text,
    "deleteMessage": delete_message,
    "sendChatAction": send_chat_action,
    "getFile": get_file,
    "setWebhook": set_webhook,
    "deleteWebhook": delete_webhook,
    "getWebhookInfo": get_webhook_info,
    "setMyCommands": set_my_commands,
}
