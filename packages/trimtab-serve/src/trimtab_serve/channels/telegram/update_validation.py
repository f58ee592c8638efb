"""Validate updates: each field that is used here must have its type.

The library accepts anything. An id that is a text, or a text that is a number, could become part of
a session name. So an update that Telegram would never send is stopped here.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from telegram import Bot, Update

from trimtab.engine.text.utf8 import replace_lone_surrogates_in_json

log = logging.getLogger("trimtab.telegram")

TelegramId = Annotated[int, Field(ge=-(2**52), le=2**52)]
"""Telegram's ids have at most 52 bits."""
TelegramNonNegativeInt = Annotated[int, Field(ge=0, le=2**52)]


class _StrictModel(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Chat(_StrictModel):
    id: TelegramId
    type: str
    title: str | None = None
    username: str | None = None


class _User(_StrictModel):
    id: TelegramId
    is_bot: bool
    first_name: str
    last_name: str | None = None
    username: str | None = None


class _Entity(_StrictModel):
    type: str
    offset: TelegramNonNegativeInt
    length: TelegramNonNegativeInt
    user: _User | None = None


class _File(_StrictModel):
    file_id: str
    mime_type: str | None = None
    file_name: str | None = None
    file_size: TelegramNonNegativeInt | None = None


class _PhotoSize(_File):
    width: TelegramNonNegativeInt
    height: TelegramNonNegativeInt


class _Location(_StrictModel):
    latitude: float
    longitude: float


class _Venue(_StrictModel):
    location: _Location
    title: str
    address: str


class _Contact(_StrictModel):
    first_name: str
    last_name: str | None = None
    phone_number: str


class _Dice(_StrictModel):
    emoji: str
    value: TelegramNonNegativeInt


class _PollOption(_StrictModel):
    text: str


class _Poll(_StrictModel):
    question: str
    options: list[_PollOption]


class _Sticker(_StrictModel):
    emoji: str | None = None


class _Quote(_StrictModel):
    text: str


class _Message(_StrictModel):
    message_id: TelegramId
    chat: _Chat
    sender: _User | None = Field(None, alias="from")
    sender_chat: _Chat | None = None
    message_thread_id: TelegramId | None = None
    is_topic_message: bool | None = None
    media_group_id: str | None = None
    text: str | None = None
    caption: str | None = None
    entities: list[_Entity] = []
    caption_entities: list[_Entity] = []
    reply_to_message: _Message | None = None
    quote: _Quote | None = None
    photo: list[_PhotoSize] = []
    animation: _File | None = None
    audio: _File | None = None
    document: _File | None = None
    voice: _File | None = None
    video: _File | None = None
    video_note: _File | None = None
    sticker: _Sticker | None = None
    location: _Location | None = None
    venue: _Venue | None = None
    contact: _Contact | None = None
    poll: _Poll | None = None
    dice: _Dice | None = None
    migrate_to_chat_id: TelegramId | None = None
    migrate_from_chat_id: TelegramId | None = None


class _Update(_StrictModel):
    update_id: TelegramNonNegativeInt
    message: _Message | None = None
    edited_message: _Message | None = None


def reduce_unreadable_update_to_id(raw_update: Any) -> dict[str, Any] | None:
    """Return an update that the library can read: the update itself, or only its id.

    Return None if it has no id.
    """
    number: Any = (
        cast("dict[str, Any]", raw_update).get("update_id")
        if isinstance(raw_update, dict)
        else None
    )
    if not isinstance(number, int) or isinstance(number, bool):
        log.warning("ignored data that is not an update")
        return None
    update = cast("dict[str, Any]", raw_update)
    if parse_telegram_update(update) is not None:
        return _without_lone_surrogates(update)
    return {"update_id": number}


def parse_telegram_update(raw_update: dict[str, Any], bot: Bot | None = None) -> Update | None:
    """Parse an update with the library. Return None if it is invalid."""
    if (wrong := _find_invalid_update_field(raw_update)) is not None:
        log.warning("ignored invalid update %s: %s", raw_update.get("update_id"), wrong)
        return None
    try:
        # The library removes parts of its argument.
        return Update.de_json(_without_lone_surrogates(raw_update), bot)
    except Exception as error:  # noqa: BLE001 - the library checks little and fails anyhow
        reason = type(error).__name__
        log.warning("ignored invalid update %s: %s", raw_update.get("update_id"), reason)
        return None


def _without_lone_surrogates(raw_update: dict[str, Any]) -> dict[str, Any]:
    """Return the update without lone surrogates, which cannot be encoded later."""
    return replace_lone_surrogates_in_json(raw_update)


def _find_invalid_update_field(raw_update: Any) -> str | None:
    """Return the invalid field and the kind of error, without its value. None if all are valid."""
    try:
        _Update.model_validate(raw_update)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'update'}: {first['type']}"
    except RecursionError:
        return "update: nested too deeply"
    return None
