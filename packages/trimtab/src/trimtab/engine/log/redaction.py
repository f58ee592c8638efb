"""Redaction: removes what must not be stored, before the event exists.

The model also sees only the redacted text: what is not in the log cannot be in a request. A signed
block of a provider stays as it is, and so do the bytes and the address of a picture or a file.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, cast

from trimtab.engine.log.message import (
    UNSENT_EXTRA_KEYS,
    Extra,
    Media,
    Message,
    OpaqueBlock,
    Part,
    Text,
    ToolCall,
    ToolResult,
)
from trimtab.engine.text.arguments import describe_wrong_value

Redact = Callable[[str], str]
"""A function that takes a text and returns it without what must not be stored."""

RedactionName = Literal["email", "iban", "card", "secret"]
_WORD_START = r"(?<![^\W_])"
_WORD_END = r"(?![^\W_])"
"""Where letters and digits begin and end. A fill-in line of underscores is not a part of a word."""
_SPACE = r"[ \u00a0\u202f-]"
"""What separates groups of digits."""
REDACTION_PATTERNS: dict[RedactionName, str] = {
    # A run of characters is read once, from its beginning: dots or dashes before an address are a
    # part of the run, however many they are. `%40` is an @ in the address of a page.
    "email": r"(?<![\w.+-])[\w.+-]++(?:@|%40)[\w-]++(?:\.[\w-]++)++",
    "iban": (
        rf"{_WORD_START}[A-Z]{{2}}\d{{2}}(?:{_SPACE}?[A-Z0-9]{{4}}){{3,7}}"
        rf"(?:{_SPACE}?[A-Z0-9]{{1,3}})?{_WORD_END}"
    ),
    "card": rf"{_WORD_START}\d(?:{_SPACE}?\d){{12,}}{_WORD_END}",
    "secret": (
        rf"{_WORD_START}(?:sk|pk|rk|gh[opsur]|github_pat|glpat|xox[abeprs]|xapp|whsec|hf|npm)"
        r"[-_][\w-]{16,}"
        rf"|{_WORD_START}A(?:KIA|SIA)[0-9A-Z]{{16}}{_WORD_END}|{_WORD_START}AIza[\w-]{{35}}"
        # A run of characters is read once, to the end, before anything after it is looked at.
        r"|(?<![\w-])(?=[\w-]*eyJ[\w-]{10})[\w-]++\.[\w-]{10,}+\.[\w-]{10,}+"
        # Only up to the next beginning, so that a text of many beginnings is read once.
        r"|-----BEGIN [A-Z ]*PRIVATE KEY-----(?>[^-]|-(?!----(?:BEGIN|END) ))*+"
        r"-----END [A-Z ]*PRIVATE KEY-----"
    ),
}
"""The built-in patterns by name. Each misses some cases and also matches some harmless texts."""
_MARK = re.compile(r"\[redacted(?:: \w+)?\]")
MIN_STREAM_CHARS_HELD = 256
"""Characters of a streamed text that are held back: a longer match is found only if it has no white
space."""
MAX_STREAM_CHARS_HELD = 16_384
"""If a streamed text has no place in this many characters at which it can be divided, the stream of
this text ends."""
MAX_STREAM_CUTS_TRIED = 8
"""Places at which to try to divide a held text, for each piece."""
_PRIVATE_KEY_START = "-----BEGIN "
_PRIVATE_KEY_END = "-----END "
_SIGNED_KEYS = ("encrypted_content", "encrypted_index", "signature", "thought_signature")
_ENCRYPTED_TYPES = ("redacted_thinking", "reasoning.encrypted")
"""Keys and types of objects that a provider signed or encrypted. It takes them back unchanged."""


def redactor(*patterns: str | re.Pattern[str], hook: Redact | None = None) -> Redact:
    r"""Return a function that replaces every match of the patterns.

    Args:
        *patterns: Names of built-in patterns (`email`, `iban`, `card`, `secret`), and your own
            patterns as `re.compile` returns them.
        hook: A function that gets the text after the patterns were applied, and returns it.

    Returns:
        The function, for the option `redact`.

    Raises:
        TypeError: If a pattern is neither a name nor a compiled expression for texts.
        ValueError: If there is no built-in pattern of this name.

    Example:
        Replace addresses by `[redacted: email]`, and account numbers by `[redacted]`::

            redact = redactor("email", re.compile(r"ACC-\d+"))
            context = Context("gpt-4o", redact=redact)
    """
    rules = [_find_pattern_and_mark(pattern_or_name) for pattern_or_name in patterns]

    def redact(text: str) -> str:
        for pattern, sign in rules:
            text = _replace_matches(pattern, sign, text)
        return hook(text) if hook is not None else text

    return redact


def redacted_message(message: Message, redact: Redact | None) -> Message:
    """Return the message as it may be stored."""
    if redact is None:
        return message
    redact_text = partial(redacted_text, redact=redact)
    parts = tuple(_redact_part(part, redact_text) for part in message.parts)
    clean = replace(message, parts=parts, extra=_redact_extra(message.extra, redact_text))
    return message if clean == message else clean


def redacted_text(text: str, redact: Redact | None) -> str:
    """Return a text as it may be stored.

    Raises:
        TypeError: If the caller's function returns something else, such as None.
    """
    if redact is None:
        return text
    clean_text = redact(text)
    if not isinstance(clean_text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's
        right = "the text that may be stored, also if it is unchanged"
        raise TypeError(describe_wrong_value("the result of redact", clean_text, right))
    return clean_text


def _replace_matches(pattern: re.Pattern[str], sign: str, text: str) -> str:
    """Replace the matches, except within a mark: a text that is redacted twice stays the same."""
    mark_starts = [mark.start() for mark in _MARK.finditer(text)] if "[redacted" in text else []
    if not mark_starts:
        return pattern.sub(lambda _: sign, text)

    def replace_match(match: re.Match[str]) -> str:
        index = bisect_right(mark_starts, match.start()) - 1
        mark = _MARK.match(text, mark_starts[index]) if index >= 0 else None
        return match[0] if mark is not None and match.end() <= mark.end() else sign

    return pattern.sub(replace_match, text)


class StreamRedactor:
    """Redacts a text that arrives in pieces.

    A match may span pieces, so the newest characters are held back, and a run without white space
    is never divided. If too much would be held, nothing more comes out: the whole text follows
    anyway.
    """

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._held = ""
        self._is_stopped = False

    def feed(self, piece: str) -> str:
        """Take the next piece, and return what can be shown by now."""
        self._held = "" if self._is_stopped else self._held + piece
        if len(self._held) > MAX_STREAM_CHARS_HELD:
            self._is_stopped = True
            self._held = ""
        end = len(self._held) - MIN_STREAM_CHARS_HELD
        key_start = self._held.find(_PRIVATE_KEY_START)
        if key_start >= 0 and _PRIVATE_KEY_END not in self._held[key_start:]:
            end = min(end, key_start)
        for _ in range(MAX_STREAM_CUTS_TRIED):
            end = _find_last_white_space(self._held, end)
            if end <= 0:
                return ""
            start, rest = self._held[:end], self._held[end:]
            shown = self._redact(start)
            if shown + self._redact(rest) == self._redact(self._held):
                self._held = rest
                return shown
            end -= 1
        return ""

    def finish(self) -> str:
        """Return what was held back, because the text is complete."""
        rest = self._redact(self._held)
        self._held = ""
        return rest


def _find_last_white_space(text: str, end: int) -> int:
    """Return the position of the last white space before `end`; 0 if there is none."""
    while end > 0 and not text[end].isspace():
        end -= 1
    return max(0, end)


def _find_pattern_and_mark(given: str | re.Pattern[str]) -> tuple[re.Pattern[str], str]:
    if isinstance(given, re.Pattern) and isinstance(given.pattern, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's
        return given, "[redacted]"
    if not isinstance(given, str):
        right = "the name of a built-in pattern, or a pattern for texts from re.compile"
        raise TypeError(describe_wrong_value("a pattern", given, right))
    if given not in REDACTION_PATTERNS:
        # Not read as a pattern: a misspelt name would match nothing, and nobody would notice.
        raise ValueError(
            f"unknown pattern {given!r}; choose one of {', '.join(REDACTION_PATTERNS)}, or pass "
            f"your own pattern as re.compile({given!r})"
        )
    return re.compile(REDACTION_PATTERNS[given]), f"[redacted: {given}]"


def _redact_part(part: Part, redact: Redact) -> Part:
    match part:
        case Text():
            return replace(part, text=redact(part.text), extra=_redact_extra(part.extra, redact))
        case ToolResult():
            content = tuple(_redact_part(inner, redact) for inner in part.content)
            extra = _redact_extra(part.extra, redact)
            return replace(part, content=cast("Any", content), extra=extra)
        case ToolCall():
            arguments = _redact_arguments(part.arguments, redact)
            return replace(part, arguments=arguments, extra=_redact_extra(part.extra, redact))
        case Media():
            return replace(part, extra=_redact_extra(part.extra, redact))
        case OpaqueBlock():
            return replace(part, data=_redact_block(part.data, redact))


def _redact_arguments(text: str, redact: Redact) -> str:
    """Redact the arguments of a call string by string, so that they stay valid JSON."""
    try:
        arguments = json.loads(text)
        clean = _redact_json_value(arguments, redact)
        if clean == arguments and redact(text) == text:
            return text
        # What only the text has is a number, or a member whose key comes again after it.
        clean = _redact_json_value(arguments, redact, numbers=True)
    except (ValueError, RecursionError):
        return redact(text)
    return json.dumps(clean, ensure_ascii=False)


def _redact_extra(extra: Extra, redact: Redact) -> Extra:
    """Redact further wire fields, because some (citations) quote the text. Keys are the provider's.

    A sender's id stays as it is, because a part of it could not be found again.
    """
    if extra is None:
        return None
    return {
        key: value if key in UNSENT_EXTRA_KEYS else _redact_json_value(value, redact, keys=False)
        for key, value in extra.items()
    }


def _redact_block(value: Any, redact: Redact) -> Any:
    """Redact a provider's block, except what is signed and the ids that name other blocks."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        if any(fields.get(key) for key in _SIGNED_KEYS) or fields.get("type") in _ENCRYPTED_TYPES:
            return fields
        return {
            key: item
            if key in ("type", "id") or key.endswith("_id")
            else _redact_block(item, redact)
            for key, item in fields.items()
        }
    if isinstance(value, list):
        return [_redact_block(item, redact) for item in cast("list[Any]", value)]
    return redact(value) if isinstance(value, str) else value


def _redact_json_value(
    value: Any, redact: Redact, *, keys: bool = True, numbers: bool = False
) -> Any:
    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return redact(value)
        if isinstance(value, Mapping):
            pairs = cast("Mapping[str, Any]", value).items()
            return {redact(key) if keys else key: clean(item) for key, item in pairs}
        if isinstance(value, Sequence):
            return [clean(item) for item in cast("Sequence[Any]", value)]
        if numbers and isinstance(value, int | float):
            digits = json.dumps(value)
            return value if redact(digits) == digits else redact(digits)
        return value

    return clean(value)
