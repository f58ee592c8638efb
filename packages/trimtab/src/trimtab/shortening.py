"""`shorten`: cut one text to a number of tokens.

Importing this module costs almost nothing. What cuts and counts is imported by the first call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from trimtab.engine.log.text_cuts import TruncateStrategy

KeptEnd = Literal["auto", "head", "tail", "both"]
"""What stays of a text. `auto` keeps both ends and the lines between them that look like errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortenedText:
    """A text that was cut to a number of tokens, or that was short enough."""

    text: str
    """What is left, with an indicator that says what is missing."""
    kept: int
    """Estimated tokens of `text`, including the indicator."""
    total: int
    """Estimated tokens of the whole text."""


def shorten(
    text: str, *, max_tokens: int, model: str = "", keep: KeptEnd = "auto"
) -> ShortenedText:
    """Cut a text to at most `max_tokens` tokens, as a context does with a long tool result.

    Args:
        text: The whole text. Escape codes for a terminal are left out if it is cut in lines.
        max_tokens: The maximum, including the indicator. If not even the indicator fits, the result
            is the indicator alone.
        model: The model's name, for a closer estimate. Without a name the estimate is the highest
            of all tokenizers.
        keep: `head`, `tail` or `both` ends. `auto` keeps both ends and the lines between them that
            look like errors.

    Returns:
        The text, and its tokens before and after. A text that fits is returned unchanged.

    Raises:
        TypeError: If the text is not a string, or `max_tokens` is not a whole number.
        ValueError: If `max_tokens` or `keep` is invalid.

    Example:
        Put a short form of a log file into a message::

            short = shorten(log, max_tokens=2_000)
            print(short.text, short.kept, short.total)
    """
    from trimtab.engine.text.arguments import check_token_count
    from trimtab.engine.tokens.piecewise import make_piecewise_count

    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's
        raise TypeError(f"text is {type(text).__name__}; pass a string")
    if max_tokens is None:  # pyright: ignore[reportUnnecessaryComparison] - a caller's
        raise TypeError("max_tokens is None; pass a number of tokens")
    check_token_count("max_tokens", max_tokens)
    if keep not in get_args(KeptEnd):
        raise ValueError(f"keep is {keep!r}; choose one of {', '.join(get_args(KeptEnd))}")
    family: str | None = None
    if model:
        from trimtab.models.catalog import resolve_model_info

        family = resolve_model_info(model).tokenizer
    return shorten_by_count(text, max_tokens, make_piecewise_count(family), keep=keep)


def shorten_by_count(
    text: str,
    max_tokens: int,
    count_tokens: Callable[[str], int],
    *,
    keep: KeptEnd = "auto",
    hint: str = "",
) -> ShortenedText:
    """Cut a text by a function that counts tokens. A hint in the indicator says where the whole
    text is."""
    total = count_tokens(text)
    if total <= max_tokens:
        return ShortenedText(text=text, kept=total, total=total)
    from trimtab.engine.log.text_cuts import (
        TextCap,
        TextCutter,
        add_recall_handle,
        render_text_cut,
    )

    strategy: TruncateStrategy | Literal["lines"] = "lines" if keep == "auto" else keep
    cutter = TextCutter(
        cap=TextCap(amount=max_tokens, strategy=strategy),
        count_tokens=count_tokens,
        add_handle=lambda words: add_recall_handle(words, "", hint),
    )
    cut = cutter.cut(text, total)
    shown = render_text_cut(text, cut.words, cut.head, cut.tail, cut.pieces)
    kept = count_tokens(shown)
    if kept >= total:
        return ShortenedText(text=text, kept=total, total=total)
    return ShortenedText(text=shown, kept=kept, total=total)
