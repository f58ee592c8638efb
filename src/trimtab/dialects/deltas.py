"""What a stream event adds to what a reader sees: a piece of text, or of thinking."""

from __future__ import annotations

from typing import Any

from trimtab.dialects.dialect import Wire


def delta(event: Wire) -> tuple[str, str] | None:
    """`text` or `thinking`, and the piece; None for an event that adds nothing to read."""
    kind = event.get("type")
    if kind == "content_block_delta":
        return _anthropic(event.get("delta") or {})
    if kind == "response.output_text.delta":
        return "text", str(event.get("delta", ""))
    if kind == "response.reasoning_summary_text.delta":
        return "thinking", str(event.get("delta", ""))
    choices: list[dict[str, Any]] = event.get("choices") or []
    added: dict[str, Any] = (choices[0].get("delta") if choices else None) or {}
    piece: Any = added.get("content")
    return ("text", piece) if isinstance(piece, str) and piece else None


def _anthropic(piece: Wire) -> tuple[str, str] | None:
    match piece.get("type"):
        case "text_delta":
            return "text", str(piece.get("text", ""))
        case "thinking_delta":
            return "thinking", str(piece.get("thinking", ""))
        case _:
            return None
