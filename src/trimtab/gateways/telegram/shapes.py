"""What an update must look like to be read: of the fields that matter here, each its type.

The library takes whatever it is given. An id that is a text, or a text that is a number, would
come as far as the name of a session; so what Telegram would never send goes no further than this.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Id = Annotated[int, Field(ge=-(2**52), le=2**52)]
"""Telegram's ids have at most 52 bits."""
Number = Annotated[int, Field(ge=0, le=2**52)]


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Chat(_Shape):
    id: Id
    type: str
    title: str | None = None
    username: str | None = None


class _User(_Shape):
    id: Id
    is_bot: bool
    first_name: str
    last_name: str | None = None
    username: str | None = None


class _Entity(_Shape):
    type: str
    offset: Number
    length: Number
    user: _User | None = None


class _File(_Shape):
    file_id: str
    mime_type: str | None = None
    file_name: str | None = None
    file_size: Number | None = None


class _Size(_File):
    width: Number
    height: Number


class _Place(_Shape):
    latitude: float
    longitude: float


class _Venue(_Shape):
    location: _Place
    title: str
    address: str


class _Contact(_Shape):
    first_name: str
    last_name: str | None = None
    phone_number: str


class _Dice(_Shape):
    emoji: str
    value: Number


class _Option(_Shape):
    text: str


class _Poll(_Shape):
    question: str
    options: list[_Option]


class _Sticker(_Shape):
    emoji: str | None = None


class _Quote(_Shape):
    text: str


class _Message(_Shape):
    message_id: Id
    chat: _Chat
    sender: _User | None = Field(None, alias="from")
    sender_chat: _Chat | None = None
    message_thread_id: Id | None = None
    is_topic_message: bool | None = None
    media_group_id: str | None = None
    text: str | None = None
    caption: str | None = None
    entities: list[_Entity] = []
    caption_entities: list[_Entity] = []
    reply_to_message: _Message | None = None
    quote: _Quote | None = None
    photo: list[_Size] = []
    animation: _File | None = None
    audio: _File | None = None
    document: _File | None = None
    voice: _File | None = None
    video: _File | None = None
    video_note: _File | None = None
    sticker: _Sticker | None = None
    location: _Place | None = None
    venue: _Venue | None = None
    contact: _Contact | None = None
    poll: _Poll | None = None
    dice: _Dice | None = None
    migrate_to_chat_id: Id | None = None
    migrate_from_chat_id: Id | None = None


class _Update(_Shape):
    update_id: Number
    message: _Message | None = None
    edited_message: _Message | None = None


def wrong_in(raw: Any) -> str | None:
    """The field that is not as it should be, without what stands in it; None where all are."""
    try:
        _Update.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'all of it'}: {first['type']}"
    except RecursionError:
        return "all of it: too deep"
    return None
