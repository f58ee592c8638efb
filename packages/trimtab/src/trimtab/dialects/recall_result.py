"""The answer to a recall: its text, and the pictures and files themselves if a result can carry
them."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.dialects.media import find_accepted_media, normalize_or_replace_media
from trimtab.engine.log.event import Settings
from trimtab.engine.log.message import Media, MediaKind, Message, Part, Text, ToolCall, ToolResult

_KINDS_IN_RESULTS: dict[str, tuple[MediaKind, ...]] = {
    "anthropic": ("image", "document", "file"),
    "openai_responses": ("image", "document", "file"),
}
"""By dialect: what a tool result may contain in addition to text. Chat Completions accepts only
text."""
SHOWN_AGAIN_TEXT = "[it is shown again in its place, until you have replied]"
NOT_CARRIED_TEXT = "[this provider takes no {kind} in a tool result]"


def build_recall_result(
    call: ToolCall,
    text: str,
    recalled: tuple[Message, tuple[Part, ...]] | None,
    settings: Settings,
    *,
    text_only: bool = False,
) -> tuple[Message, bool]:
    """Build the result of a recall call.

    Also return whether to reveal the content, because the result cannot carry it. `text_only` is
    for a caller that adds the text of the result itself.
    """
    if recalled is None:
        return _to_message(call, [Text(text=text)]), False
    message, parts = recalled
    pictures: list[Media] = []
    words = [text]
    reveals = False
    for part in parts:
        is_result = isinstance(part, ToolResult)
        for media in part.content if is_result else (part,):
            if not isinstance(media, Media):
                continue
            fits = normalize_or_replace_media(
                media, find_accepted_media(settings.dialect, settings.rules_model)
            )
            if isinstance(fits, Text):
                words.append(fits.text)
            elif not text_only and _can_be_in_result(fits, settings.dialect):
                pictures.append(fits)
            elif is_result and message.origin != settings.dialect:
                words.append(NOT_CARRIED_TEXT.format(kind=media.kind))
            else:
                words.append(SHOWN_AGAIN_TEXT)
                reveals = True
    return _to_message(call, [Text(text="\n".join(words)), *pictures]), reveals


def _can_be_in_result(media: Media, dialect: str) -> bool:
    # What is known by a file's id stays in the message that names it.
    has_source = media.data is not None or media.url is not None
    return has_source and media.kind in _KINDS_IN_RESULTS.get(dialect, ())


def _to_message(call: ToolCall, content: Sequence[Text | Media]) -> Message:
    plain = len(content) == 1
    return Message(
        role="tool", parts=(ToolResult(call_id=call.id, content=tuple(content), plain=plain),)
    )
