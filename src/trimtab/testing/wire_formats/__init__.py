"""Answers as each API puts them on the wire, whole and as a stream's events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from trimtab.testing.replies import ReplyMetadata, ScriptedReply


class ReplyWireFormat(Protocol):
    """How one API replies; implementations are modules of functions."""

    def build_reply_body(
        self, scripted_reply: ScriptedReply, metadata: ReplyMetadata
    ) -> dict[str, Any]:
        """The whole body of an unstreamed reply."""
        ...

    def stream_reply_events(
        self, body: Mapping[str, Any], request: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """The events that stream the same reply to a request."""
        ...


def get_wire_format(dialect: str) -> ReplyWireFormat:
    """The wire of that dialect."""
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
                f"no dialect is called {dialect!r}; choose anthropic, openai_chat or "
                "openai_responses"
            )
