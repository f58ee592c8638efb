"""Messages and their parts, independent of any provider's format.

A dialect reads a wire dict into these values and writes it back without loss. Keys of a wire block
that have no field here stay in `extra`. They are written back only to the dialect that `origin`
names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

Role = Literal["system", "user", "assistant", "tool"]
"""The sender of a message, as the APIs call it."""
MediaKind = Literal["image", "document", "audio", "video", "file"]
"""What a model perceives in a picture or a file."""
Extra = Mapping[str, Any] | None
"""Fields of a provider's message that have no place of their own here."""

MODEL_FAMILY_KEY = "trimtab_family"
"""The key in a message's extras that names the family of the model that wrote its thinking. It is
never sent and has no size."""
SENDER_KEY = "trimtab_sender"
"""The key in a message's extras that names the user who sent it (`telegram:123`), so that this
user's messages can be found. It is never sent and has no size."""
PRIVATE_CHAT_KEY = "trimtab_private"
"""The key in a message's extras that marks a message from a private chat between the sender and the
agent. It is never sent and has no size."""
SCHEDULE_KEY = "trimtab_schedule"
"""The key in a message's extras that marks a message that a schedule has sent, and no user. It is
never sent and has no size."""
UNSENT_EXTRA_KEYS = frozenset({MODEL_FAMILY_KEY, SENDER_KEY, PRIVATE_CHAT_KEY, SCHEDULE_KEY})
"""Keys of extras that trimtab adds itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text in a message."""

    text: str
    """Plain text, exactly as it was given."""
    extra: Extra = None
    """Keys of the wire block that no field here holds; private to the origin dialect."""

    @property
    def is_document(self) -> bool:
        """Whether it is the text of an attached document. Others may have written it."""
        return self.extra is not None and self.extra.get("type") == "document"


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """A picture, a file or a sound in a message."""

    kind: MediaKind
    """What kind of content it is."""
    mime: str | None = None
    """The media type, if the wire format names one."""
    data: str | None = None
    """The payload as Base64, without a `data:` prefix; None if the wire format has a URL or a file
    id."""
    url: str | None = None
    """The URL from which the provider fetches it. Trimtab never fetches it."""
    extra: Extra = None
    """Keys of the wire block that no field here holds; private to the origin dialect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueBlock:
    """A provider's own block (signed thinking, encrypted reasoning, server-side compaction).

    It is rendered only to the dialect it came from, byte for byte as it came.
    """

    data: Mapping[str, Any]
    """The wire block, whole."""
    thinking: bool = False
    """True for reasoning that its provider refuses to miss in the middle of a tool loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of a tool, as the model wrote it."""

    id: str
    """The provider's id; it may repeat in a later turn."""
    name: str
    """The tool asked for."""
    arguments: str
    """JSON text as the model wrote it; not always valid JSON."""
    extra: Extra = None
    """Keys of the wire block that no field here holds; private to the origin dialect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool returned for one call."""

    call_id: str
    """The id of the call it answers."""
    content: tuple[Text | Media | OpaqueBlock, ...]
    """What the tool returned."""
    is_error: bool = False
    """True if the wire format says that the tool failed."""
    plain: bool = True
    """True if the wire format has a bare string (one Text) instead of a list of blocks."""
    extra: Extra = None
    """Keys of the wire block that no field here holds; private to the origin dialect."""

    @property
    def text(self) -> str:
        """All text of the result, joined by line breaks."""
        content = self.content
        if len(content) == 1 and isinstance(content[0], Text):
            return content[0].text
        return "\n".join(part.text for part in content if isinstance(part, Text))


Part = Text | Media | OpaqueBlock | ToolCall | ToolResult
"""One part of a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a conversation: its role and its parts."""

    role: Role
    """The speaker. Tool results come as `tool` or, in some dialects, inside a `user` message."""
    parts: tuple[Part, ...]
    """The content in order; empty if the wire format had none."""
    plain: bool = True
    """True if the wire content is a bare string (one Text) or absent, not a list of blocks."""
    origin: str = ""
    """The dialect it was read in; empty if it was created in code."""
    extra: Extra = None
    """Keys of the wire message that no field here holds; private to the origin dialect."""

    @property
    def text(self) -> str:
        """All text parts, joined by line breaks. Tool results are not included."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def speaker(self) -> Role | Literal["schedule"]:
        """Who has written it: its role, or a schedule, whose messages have the user's role."""
        return "schedule" if self.extra and self.extra.get(SCHEDULE_KEY) else self.role

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolResult))


def make_text_message(role: Role, text: str) -> Message:
    """Return a message that consists of one text."""
    return Message(role=role, parts=(Text(text=text),))


def extract_text_or_arguments(part: Part) -> str | None:
    """Return the words of a part: its text, or the arguments of a tool call; None for other
    parts."""
    match part:
        case Text() | ToolResult():
            return part.text
        case ToolCall():
            return part.arguments
        case Media() | OpaqueBlock():
            return None


def message_to_json(message: Message) -> dict[str, Any]:
    """Return the message as plain JSON values, without fields that have their default."""
    out: dict[str, Any] = {"role": message.role, "parts": [_part_to_json(p) for p in message.parts]}
    if not message.plain:
        out["plain"] = False
    if message.origin:
        out["origin"] = message.origin
    if message.extra is not None:
        out["extra"] = message.extra
    return out


def message_from_json(message_json: Mapping[str, Any]) -> Message:
    """Return the message of `message_to_json`'s output."""
    return Message(
        role=message_json["role"],
        parts=tuple(_part_from_json(p) for p in message_json["parts"]),
        plain=message_json.get("plain", True),
        origin=message_json.get("origin", ""),
        extra=message_json.get("extra"),
    )


def _part_to_json(part: Part) -> dict[str, Any]:
    match part:
        case Text():
            out: dict[str, Any] = {"text": part.text}
        case ToolCall():
            out = {"call": part.id, "name": part.name, "arguments": part.arguments}
        case ToolResult():
            out = {"result": part.call_id, "content": [_part_to_json(p) for p in part.content]}
            if part.is_error:
                out["is_error"] = True
            if not part.plain:
                out["plain"] = False
        case Media():
            out = {"media": part.kind}
            for key in ("mime", "data", "url"):
                if (value := getattr(part, key)) is not None:
                    out[key] = value
        case OpaqueBlock():
            out = {"opaque": part.data}
            if part.thinking:
                out["thinking"] = True
            return out
    if part.extra is not None:
        out["extra"] = part.extra
    return out


def _part_from_json(data: Mapping[str, Any]) -> Part:
    extra = data.get("extra")
    if "text" in data:
        return Text(text=data["text"], extra=extra)
    if "call" in data:
        return ToolCall(
            id=data["call"], name=data["name"], arguments=data["arguments"], extra=extra
        )
    if "result" in data:
        content = tuple(
            cast("Text | Media | OpaqueBlock", _part_from_json(p)) for p in data["content"]
        )
        return ToolResult(
            call_id=data["result"],
            content=content,
            is_error=data.get("is_error", False),
            plain=data.get("plain", True),
            extra=extra,
        )
    if "media" in data:
        return Media(
            kind=data["media"],
            mime=data.get("mime"),
            data=data.get("data"),
            url=data.get("url"),
            extra=extra,
        )
    return OpaqueBlock(data=data["opaque"], thinking=data.get("thinking", False))
