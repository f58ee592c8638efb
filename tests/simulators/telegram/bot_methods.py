"""The methods of the Bot API that a chat bot needs, as strict as the real ones."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from tests.simulators.telegram.api_errors import (
    NOT_MODIFIED_REASON,
    make_bad_request_refusal,
    make_forbidden_refusal,
)
from tests.simulators.telegram.chats import TelegramChat
from tests.simulators.telegram.message_text_validation import validate_message_text

if TYPE_CHECKING:
    from tests.simulators.telegram.simulator import TelegramSimulator

MethodParams = Mapping[str, Any]
_UPLOAD_KINDS = ("photo", "video", "voice", "document", "video_note")
CHAT_ACTIONS = frozenset(
    {
        "typing",
        "choose_sticker",
        "find_location",
        *(f"upload_{one}" for one in _UPLOAD_KINDS),
        *(f"record_{one}" for one in ("video", "voice", "video_note")),
    }
)
MAX_FILE_BYTES = 20 * 1024 * 1024
"""Maximum size of a file that bots may download, in bytes."""
IMAGE_SIGNATURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
"""The first bytes of images."""


def get_me(simulator: TelegramSimulator, params: MethodParams) -> Any:
    del params
    return {
        **simulator.make_bot_user(),
        "can_join_groups": True,
        "can_read_all_group_messages": False,
        "supports_inline_queries": False,
    }


def send_message(simulator: TelegramSimulator, params: MethodParams) -> Any:
    chat = _require_chat(simulator, params)
    text, entities = validate_message_text(params, "text")
    return _add_bot_message(simulator, chat, params, {"text": text, "entities": entities})


def send_photo(simulator: TelegramSimulator, params: MethodParams) -> Any:
    chat = _require_chat(simulator, params)
    caption, entities = validate_message_text(params, "caption")
    photo = params.get("photo")
    if not isinstance(photo, bytes) or not photo.startswith(IMAGE_SIGNATURES):
        raise make_bad_request_refusal("IMAGE_PROCESS_FAILED")
    file_id = f"photo-{len(simulator.files)}"
    simulator.files[file_id] = photo
    size = {"file_id": file_id, "file_unique_id": file_id, "width": 1, "height": 1}
    content = {"photo": [size], "caption": caption, "caption_entities": entities}
    return _add_bot_message(simulator, chat, params, content)


def edit_message_text(simulator: TelegramSimulator, params: MethodParams) -> Any:
    chat = _require_chat(simulator, params)
    message = chat.messages.get(int(params.get("message_id") or 0))
    if message is None:
        raise make_bad_request_refusal("message to edit not found")
    if message["from"]["id"] != simulator.id or "text" not in message:
        raise make_bad_request_refusal("message can't be edited")
    text, entities = validate_message_text(params, "text")
    if message["text"] == text and message.get("entities", []) == entities:
        raise make_bad_request_refusal(NOT_MODIFIED_REASON)
    simulator.limits.count_message(chat.id)
    message |= {"text": text, "entities": entities, "edit_date": int(time.time())}
    return dict(message)


def delete_message(simulator: TelegramSimulator, params: MethodParams) -> Any:
    chat = _require_chat(simulator, params)
    if chat.messages.pop(int(params.get("message_id") or 0), None) is None:
        raise make_bad_request_refusal("message to delete not found")
    return True


def send_chat_action(simulator: TelegramSimulator, params: MethodParams) -> Any:
    _require_chat(simulator, params)
    if params.get("action") not in CHAT_ACTIONS:
        raise make_bad_request_refusal("wrong parameter action in request")
    return True


def get_file(simulator: TelegramSimulator, params: MethodParams) -> Any:
    file_id = str(params.get("file_id") or "")
    data = simulator.files.get(file_id)
    if data is None:
        raise make_bad_request_refusal("invalid file_id")
    if len(data) > MAX_FILE_BYTES:
        raise make_bad_request_refusal("file is too big")
    file_ids = {"file_id": file_id, "file_unique_id": file_id}
    return {**file_ids, "file_size": len(data), "file_path": f"files/{file_id}"}


def set_webhook(simulator: TelegramSimulator, params: MethodParams) -> Any:
    from tests.simulators.telegram.simulator import WebhookTarget

    url = str(params.get("url") or "")
    secret = params.get("secret_token")
    if not url:
        simulator.webhook = None
        return True
    if not url.startswith("https://") and not (simulator.local and url.startswith("http://")):
        raise make_bad_request_refusal("bad webhook: An HTTPS URL must be provided for webhook")
    if secret is not None and not re.fullmatch(r"[A-Za-z0-9_-]{1,256}", str(secret)):
        raise make_bad_request_refusal("secret token contains unallowed characters")
    simulator.webhook = WebhookTarget(url=url, secret=None if secret is None else str(secret))
    return True


def delete_webhook(simulator: TelegramSimulator, params: MethodParams) -> Any:
    del params
    simulator.webhook = None
    return True


def get_webhook_info(simulator: TelegramSimulator, params: MethodParams) -> Any:
    del params
    url = "" if simulator.webhook is None else simulator.webhook.url
    webhook = {"url": url, "has_custom_certificate": False}
    return {**webhook, "pending_update_count": len(simulator.list_pending_updates())}


def set_my_commands(simulator: TelegramSimulator, params: MethodParams) -> Any:
    commands = _parse_json(params.get("commands"))
    if not isinstance(commands, list) or len(cast("list[Any]", commands)) > 100:
        raise make_bad_request_refusal("can't parse commands: expected an Array")
    for one in cast("list[dict[str, Any]]", commands):
        if not re.fullmatch(r"[a-z0-9_]{1,32}", str(one.get("command"))):
            raise make_bad_request_refusal("BOT_COMMAND_INVALID")
        if not 1 <= len(str(one.get("description") or "")) <= 256:
            raise make_bad_request_refusal("BOT_COMMAND_DESCRIPTION_INVALID")
    simulator.commands = list(cast("list[Any]", commands))
    return True


def _require_chat(simulator: TelegramSimulator, params: MethodParams) -> TelegramChat:
    raw = str(params.get("chat_id") or "")
    if not raw:
        raise make_bad_request_refusal("chat_id is empty")
    number = int(raw) if re.fullmatch(r"-?\d+", raw) else 0
    chat = simulator.chats.get(number)
    if chat is None:
        raise make_bad_request_refusal("chat not found")
    if chat.moved_to is not None:
        raise make_bad_request_refusal(
            "group chat was upgraded to a supergroup chat", migrate_to_chat_id=chat.moved_to
        )
    if chat.blocked and chat.type == "private":
        raise make_forbidden_refusal("bot was blocked by the user")
    if chat.blocked:
        raise make_forbidden_refusal(f"bot was kicked from the {chat.type} chat")
    return chat


def _add_bot_message(
    simulator: TelegramSimulator,
    chat: TelegramChat,
    params: MethodParams,
    content: Mapping[str, Any],
) -> dict[str, Any]:
    topic = int(params.get("message_thread_id") or 0)
    if topic and topic not in chat.topics:
        raise make_bad_request_refusal("message thread not found")
    reply: dict[str, Any] = _parse_json(params.get("reply_parameters")) or {}
    to = chat.messages.get(int(reply.get("message_id") or 0))
    if reply and to is None and not reply.get("allow_sending_without_reply"):
        raise make_bad_request_refusal("message to be replied not found")
    simulator.limits.count_message(chat.id)
    message: dict[str, Any] = {
        "message_id": chat.next_message_id(),
        "date": int(time.time()),
        "chat": chat.to_json(),
        "from": simulator.make_bot_user(),
        **content,
    }
    if topic:
        message |= {"message_thread_id": topic, "is_topic_message": True}
    if to is not None:
        message["reply_to_message"] = {k: v for k, v in to.items() if k != "reply_to_message"}
    chat.messages[message["message_id"]] = message
    return dict(message)


def _parse_json(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise make_bad_request_refusal("can't parse JSON object") from None


BOT_METHODS: dict[str, Callable[[TelegramSimulator, MethodParams], Any]] = {
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
