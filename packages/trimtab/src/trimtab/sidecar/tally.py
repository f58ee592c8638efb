"""What happened in one conversation since the process began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.engine.log.event import Usage
from trimtab.engine.log.redaction import Redact
from trimtab.sidecar.redaction_check import RedactionCheck
from trimtab.sidecar.wire_body import Patches


@dataclass(slots=True)
class Tally:
    """What the last line about a conversation says, and what its answers need."""

    calls: int = 0
    """Bodies that were fitted, or that passed."""
    refused: int = 0
    """Refusals for length."""
    usage: Usage = field(default_factory=lambda: Usage(input=0, output=0))
    """What the provider reported for these bodies."""
    handles: dict[str, None] = field(default_factory=dict[str, None])
    """The handles of what was hidden, without their tag."""
    handle_tag: str = ""
    """The tag of these handles."""
    store_fault: str = ""
    """Why the conversation is kept in memory and no longer in the store."""
    patches: Patches = field(default_factory=Patches)
    """The texts of its edited messages."""
    clean: dict[Redact, set[bytes]] = field(default_factory=dict[Redact, set[bytes]])
    """By redaction: the digests of its messages in which it finds nothing."""

    def check_redaction(self, redact: Redact | None) -> RedactionCheck | None:
        """Return the check of a redaction; None if there is none."""
        return redact and RedactionCheck(redact, self.clean.setdefault(redact, set()))


def format_totals(totals: Mapping[str, Any]) -> str:
    """Return the line that a client prints when its agent ends."""
    tokens, unreadable = totals["hidden_tokens"], totals["unreadable"]
    size = f"{tokens / 1_000:.0f}k" if tokens >= 1_000 else f"{tokens}"
    readable = f"{unreadable} not readable" if unreadable else "all readable"
    calls, refused = totals["calls"], totals["refused"]
    calls = "1 call" if calls == 1 else f"{calls:,} calls"
    return f"trimtab: {calls}, {refused:,} refused, {size} tokens hidden, {readable}"
