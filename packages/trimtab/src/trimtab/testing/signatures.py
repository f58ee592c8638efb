"""Signatures of thinking. They prove who wrote it, that it is unchanged, and what preceded it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

_SECRET = b"trimtab.testing"
_NO_PREVIOUS = bytes(8)


def sign_thinking(text: str, previous_signature: str) -> str:
    """Return the signature of a thought that follows the thought with `previous_signature`, if
    any."""
    before = _digest(previous_signature)
    return base64.b64encode(before + _proof(text, before)).decode()


def find_signature_fault(text: str, signature: str, previous_signature: str) -> str | None:
    """Return what is wrong with a signature that follows another: `forged`, `cut`, or None."""
    try:
        raw = base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return "forged"
    before = raw[:8]
    proof = raw[8:]
    if not hmac.compare_digest(proof, _proof(text, before)):
        return "forged"
    # A loop's first thought goes on from none, wherever it now stands.
    return None if before in (_NO_PREVIOUS, _digest(previous_signature)) else "cut"


def _proof(text: str, before: bytes) -> bytes:
    message = before + text.encode("utf-8", "surrogatepass")
    return hmac.new(_SECRET, message, hashlib.sha256).digest()[:16]


def _digest(previous: str) -> bytes:
    return hashlib.sha256(previous.encode()).digest()[:8] if previous else _NO_PREVIOUS
