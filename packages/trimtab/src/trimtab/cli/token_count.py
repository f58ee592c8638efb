"""Parse a number of tokens as people type it."""

from __future__ import annotations


def parse_token_count(text: str) -> int:
    """Parse `200k`, `1m`, `200_000` or `200000` as a number."""
    lower_text = text.strip().lower().replace(",", "").replace("_", "")
    factor = {"k": 1_000, "m": 1_000_000}.get(lower_text[-1:], 1)
    digits = lower_text.rstrip("km") if factor > 1 else lower_text
    try:
        tokens = int(float(digits) * factor)
    except (OverflowError, ValueError) as error:
        raise ValueError(f"invalid number of tokens {text!r}: write 200k or 200000") from error
    if tokens <= 0:
        raise ValueError(f"invalid number of tokens {text!r}: it must be above 0")
    return tokens
