"""What an update must look like to be read: of the fields that matter here, each its type.

The library takes whatever it is given. An id that is a text, or a text that is a number, would
come as far as the name of a session; so what Telegram would never send goes no further than this.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

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


def find_invalid_update_field(raw_update: Any) -> str | None:
    """The field that is not as it should be, without what stands in it; None where all are."""
    try:
        _Update.model_validate(raw_update)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'all of it'}: {first['type']}"
    except RecursionError:
        return "all of it: too deep"
    return None
