"""Replies as each API sends them, whole and as the events of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from trimtab.testing.replies import ReplyMetadata, ScriptedReply


class ReplyWireFormat(Protocol):
    """How one API replies. The implementations are modules of functions."""

    def build_reply_body(
        self, scripted_reply: ScriptedReply, metadata: ReplyMetadata
    ) -> dict[str, Any]:
        """Return the whole body of a reply without a stream."""
        ...

    def stream_reply_events(
        self, body: Mapping[str, Any], request: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Yield the events that stream the same reply."""
        ...


def get_wire_format(dialect: str) -> ReplyWireFormat:
    """Return the wire format of a dialect."""
    match dialect:
        case "anthropic":
            from trimtab.testing.wire_formats import anthropic

            return anthropic
        case "openai_chat":
            from trimtab.testing.wire_formats import openai_chat

            return openai_chat
        case "openai_responses":
            from trimtab.testing.wire_formats import openai_responses

            return openai_responses
        case _:
            raise ValueError(
                f"unknown dialect {dialect!r}; choose anthropic, openai_chat or openai_responses"
            )
