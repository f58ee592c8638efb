"""`RedactionCheck`: whether a client's own text still has what a redaction takes out.

A patch keeps what no edit names: members that come twice, keys, and fields that a dialect does not
send. Some of them have the text that the edit has removed elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.dialects.base import WireObject
from trimtab.engine.log.redaction import Redact
from trimtab.sidecar.json_text import dump_json, list_words

MAX_CLEAN_TEXTS = 20_000
"""Digests of messages that are remembered for a conversation."""


@dataclass(frozen=True, slots=True)
class RedactionCheck:
    """Compares texts with what Trimtab itself would send.

    Args:
        redact: The redaction.
        clean: The digests of texts in which it finds nothing.
    """

    redact: Redact
    clean: set[bytes]

    def fails(self, texts: Sequence[str], items: Sequence[WireObject]) -> bool:
        """Whether texts have a match that the messages for which they stand do not have."""
        matches = {word for text in texts for word in self._find_matches(text)}
        return bool(matches) and not matches <= {*list_words(dump_json(items))}

    def _find_matches(self, text: str) -> Sequence[str]:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        if digest in self.clean:
            return ()
        matches = [word for word in list_words(text) if self.redact(word) != word]
        if not matches:
            if len(self.clean) >= MAX_CLEAN_TEXTS:
                self.clean.clear()
            self.clean.add(digest)
        return matches
