"""What a request says, read from the wire alone: the laws trust nothing that rendered it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from trimtab.engine.log.event import Settings

Wire = Mapping[str, Any]
START = "(conversation start)"
NOTHING = "(no content)"
_MARKS = ("cache_control", "prompt_cache_breakpoint")
_OPENAI = re.compile(r"gpt-(?!oss)|chatgpt|o\d")
"""Models whose API takes several messages of one role in a row."""
_SYSTEM = "[System message]\n"
_OMITTED = re.compile(r"\n?\[\w+ omitted: not supported here\]")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One thing said, in the order of the wire."""

    kind: Literal["text", "call", "result", "media", "opaque"]
    role: str
    text: str = ""
    id: str = ""


def pieces(
    request: Wire, settings: Settings, volatile: str | None = None, front: Sequence[str] = ()
) -> list[Piece]:
    """All that stands behind the head, and where neighbours share a text, all that each of them may
    have said in it."""
    all_pieces = said(request, settings, volatile, front)
    if settings.dialect == "openai_chat" and not _OPENAI.match(settings.model):
        all_pieces = [each for piece in all_pieces for each in _readings(piece)]
    return all_pieces


def said(
    request: Wire, settings: Settings, volatile: str | None = None, front: Sequence[str] = ()
) -> list[Piece]:
    """All that stands behind the head, without the volatile tail and the opening filler.

    Summary and notice, which are `front`, are pieces of their own where a wire says them in one
    text with each other or with what the user said.
    """
    if "input" in request:
        skip = 0 if "instructions" in request else len(settings.system)
        all_pieces = [piece for item in request["input"][skip:] for piece in _item(item)]
    elif settings.dialect == "anthropic":
        all_pieces = [piece for message in request["messages"] for piece in _anthropic(message)]
        if all_pieces and all_pieces[0].text == START:
            all_pieces = all_pieces[1:]
    else:
        messages = request["messages"][len(settings.system) :]
        all_pieces = [piece for message in messages for piece in _chat(message)]
        all_pieces = _parted(all_pieces, "\n\n".join(front), front)
    if volatile is not None:
        assert all_pieces, "the volatile tail is not in the request"
        last, tail = all_pieces.pop(), f"\n\n{volatile}"
        if settings.dialect == "openai_chat" and last.text.endswith(tail):
            all_pieces.append(replace(last, text=last.text.removesuffix(tail)))
        else:
            assert last.text == volatile, "the volatile tail is not the last thing said"
            if settings.dialect == "openai_chat":
                # A message without a word may be one with the tail.
                all_pieces.append(replace(last, text=""))
    return all_pieces


def _readings(piece: Piece) -> Iterator[Piece]:
    """What neighbours of one role may have said in a text that they share: all that stands between
    two empty lines, or between one and an end."""
    yield piece
    if piece.kind != "text" or "\n\n" not in piece.text or piece.role == "system":
        return
    gaps = [at.start() for at in re.finditer(r"(?=\n\n)", piece.text)]
    starts, ends = [0, *(gap + 2 for gap in gaps)], [*gaps, len(piece.text)]
    for start in starts:
        for end in ends:
            if start < end and (start, end) != (0, len(piece.text)):
                yield replace(piece, text=piece.text[start:end])


def _parted(found: list[Piece], joined: str, front: Sequence[str]) -> list[Piece]:
    if not front or not found or not found[0].text.startswith(joined):
        return found
    first = found[0]
    apart = [replace(first, text=text) for text in front]
    rest = first.text.removeprefix(joined)
    if rest.startswith("\n\n"):
        apart.append(replace(first, text=rest.removeprefix("\n\n")))
    else:
        assert not rest, f"{rest[:40]!r} is not parted from summary and notice"
        # A message without a word says nothing behind them.
        apart.append(replace(first, text=""))
    return [*apart, *found[1:]]


def texts_of(content: Any) -> str:
    """The texts in a content, one a line; blank ones and fillers are nothing."""
    if content is None:
        return ""
    parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    return plain(parts)


def plain(texts: Sequence[str]) -> str:
    """The texts in one, without blank ones and what stands for media that a wire cannot carry."""
    return _OMITTED.sub("", "\n".join(text for text in texts if text.strip()))


def _anthropic(message: Wire) -> Iterator[Piece]:
    role = message["role"]
    for block in message["content"]:
        match block["type"]:
            case "text":
                yield Piece(kind="text", role=role, text=block["text"].removeprefix(_SYSTEM))
            case "tool_use":
                arguments = json.dumps(block["input"], ensure_ascii=False)
                yield Piece(kind="call", role=role, id=block["id"], text=arguments)
            case "tool_result":
                text = texts_of(block.get("content"))
                yield Piece(kind="result", role=role, id=block["tool_use_id"], text=text)
            case "image" | "document":
                yield Piece(kind="media", role=role)
            case _:
                yield Piece(kind="opaque", role=role, text=json.dumps(block))


def _chat(message: Wire) -> Iterator[Piece]:
    role, content = message["role"], message.get("content")
    if role == "tool":
        yield Piece(kind="result", role=role, id=message["tool_call_id"], text=texts_of(content))
        return
    if "reasoning_content" in message:
        yield Piece(kind="opaque", role=role, text=message["reasoning_content"])
    yield from _content(role, content)
    for call in message.get("tool_calls", ()):
        arguments = call["function"]["arguments"]
        yield Piece(kind="call", role=role, id=call["id"], text=arguments)


def _item(item: Wire) -> Iterator[Piece]:
    match item.get("type", "message"):
        case "message":
            yield from _content(item["role"], item.get("content"))
        case "function_call":
            yield Piece(kind="call", role="assistant", id=item["call_id"], text=item["arguments"])
        case "function_call_output":
            text = texts_of(item["output"])
            yield Piece(kind="result", role="tool", id=item["call_id"], text=text)
        case _:
            yield Piece(kind="opaque", role="assistant", text=json.dumps(item))


def _content(role: str, content: Any) -> Iterator[Piece]:
    if content is None:
        return
    parts = [{"text": content}] if isinstance(content, str) else content
    for part in parts:
        if "text" in part:
            yield Piece(kind="text", role=role, text=part["text"])
        else:
            yield Piece(kind="media", role=role)


def unmarked(value: Any) -> Any:
    """The value without cache marks; a text that was made a list to carry one is a text again."""
    if isinstance(value, Mapping):
        return {key: unmarked(inner) for key, inner in value.items() if key not in _MARKS}
    if isinstance(value, list | tuple):
        out = [unmarked(inner) for inner in value]
        if len(out) == 1 and isinstance(out[0], dict) and set(out[0]) == {"type", "text"}:
            return out[0]["text"]
        return out
    return value


def blocks(request: Wire, settings: Settings, volatile: str | None) -> list[Any]:
    """The wire cut into the pieces that a provider's cache compares."""
    if settings.dialect == "anthropic":
        flat = [
            (message["role"], unmarked(block))
            for message in request["messages"]
            for block in message["content"]
        ]
    else:
        flat = [unmarked(each) for each in request.get("input", request.get("messages", ()))]
    return flat if volatile is None else flat[:-1]


def paired(found: Sequence[Piece]) -> list[tuple[Piece, Piece]]:
    """Each call with its result; fails where one of them is alone, or where others stand between.

    Calls come in a row, then as many results with the same ids in the same order.
    """
    pairs: list[tuple[Piece, Piece]] = []
    waiting: list[Piece] = []
    ids: set[str] = set()
    answering = False
    for piece in found:
        if piece.kind == "call":
            assert piece.id not in ids, f"two calls have the id {piece.id!r}"
            assert not answering, f"the call {piece.id!r} stands among results"
            ids.add(piece.id)
            waiting.append(piece)
        elif piece.kind == "result":
            assert waiting, f"the result of {piece.id!r} has no call before it"
            assert waiting[0].id == piece.id, f"{piece.id!r} stands where {waiting[0].id!r} is due"
            pairs.append((waiting.pop(0), piece))
            answering = bool(waiting)
        else:
            alone = [call.id for call in waiting]
            assert not alone or (piece.role == "assistant" and not answering), (
                f"{piece.text[:40]!r} stands before the results of {alone}"
            )
    assert not waiting, f"calls without results: {[call.id for call in waiting]}"
    return pairs
