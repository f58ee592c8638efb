"""Convert Markdown to a text with style spans, independent of any platform's format.

Telegram does not have to parse anything, so it cannot reject what a model writes as malformed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from trimtab.engine.text.utf8 import replace_lone_surrogates
from trimtab_serve.channels.utf16 import count_utf16_units

EXCLUSIVE_STYLES = ("code", "pre")
"""Styles that share no character with another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StyleSpan:
    """The style of a part of a text."""

    kind: str
    """Telegram's name: `bold`, `italic`, `strikethrough`, `code`, `pre`, `text_link`,
    `blockquote`."""
    start: int
    """Its first code point."""
    end: int
    """The code point after its last."""
    url: str | None = None
    """The target of a link."""
    language: str | None = None
    """The language of a block of code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StyledText:
    """The text and style of one message."""

    text: str
    """Plain text without markup."""
    spans: tuple[StyleSpan, ...] = ()
    """The styles, ordered by their start, longer ones first."""

    def slice_trimmed(self, start: int, end: int) -> StyledText:
        """Return a part of it without white space at its ends. Spans that reach out are cut."""
        while (
            start < end and self.text[start].isspace() and not _is_in_code_block(self.spans, start)
        ):
            start += 1
        while end > start and self.text[end - 1].isspace():
            end -= 1
        inside = [
            replace(mark, start=max(mark.start, start) - start, end=min(mark.end, end) - start)
            for mark in self.spans
            if max(mark.start, start) < min(mark.end, end)
        ]
        return StyledText(text=self.text[start:end], spans=tuple(inside))


def build_valid_styled_text(text: str, spans: Iterable[StyleSpan]) -> StyledText:
    """Return a text with spans that Telegram accepts: trimmed, ordered and validly nested."""
    allowed_spans: list[StyleSpan] = []
    links = [mark for mark in spans if mark.kind == "text_link"]
    alone = [
        mark
        for mark in spans
        if mark.kind in EXCLUSIVE_STYLES and not any(_spans_overlap(mark, link) for link in links)
    ]
    for mark in spans:
        if mark.kind in EXCLUSIVE_STYLES:
            allowed_spans += [mark] if mark in alone else []
        elif mark.kind in ("text_link", "blockquote"):
            allowed_spans.append(mark)
        else:
            allowed_spans += _subtract_spans(mark, alone)
    trimmed_spans = [
        trimmed_span
        for mark in allowed_spans
        if (trimmed_span := _trim_span(text, mark)) is not None
    ]
    sorted_spans = sorted(trimmed_spans, key=lambda mark: (mark.start, -mark.end))
    return StyledText(text=text, spans=tuple(sorted_spans)).slice_trimmed(0, len(text))


def shift_spans(spans: Iterable[StyleSpan], offset: int) -> tuple[StyleSpan, ...]:
    """Return the spans shifted by this number of code points."""
    return tuple(replace(mark, start=mark.start + offset, end=mark.end + offset) for mark in spans)


def _subtract_spans(span: StyleSpan, others: Iterable[StyleSpan]) -> list[StyleSpan]:
    """Return the parts of a span outside the others."""
    remaining = [span]
    for other in others:
        remaining = [
            part
            for one in remaining
            for part in (
                [one]
                if not _spans_overlap(one, other)
                else [
                    replace(one, end=min(one.end, other.start)),
                    replace(one, start=max(one.start, other.end)),
                ]
            )
            if part.start < part.end
        ]
    return remaining


def _spans_overlap(span: StyleSpan, other: StyleSpan) -> bool:
    return span.start < other.end and other.start < span.end


def _trim_span(text: str, span: StyleSpan) -> StyleSpan | None:
    start = span.start
    end = span.end
    while end > start and text[end - 1].isspace():
        end -= 1
    while span.kind != "pre" and start < end and text[start].isspace():
        start += 1
    return replace(span, start=start, end=end) if start < end else None


def _is_in_code_block(spans: Iterable[StyleSpan], position: int) -> bool:
    """Whether a position is in a block of code, in which white space matters."""
    return any(mark.kind == "pre" and mark.start <= position < mark.end for mark in spans)


HORIZONTAL_RULE_TEXT = "———"
LIST_BULLETS = ("•", "◦", "▪")
_STYLE_BY_NODE_TYPE = {"strong": "bold", "em": "italic", "s": "strikethrough"}
_LINK_URL = re.compile(r"(?:https?|tg|mailto|tel):\S+", re.IGNORECASE)
_LANGUAGE_NAME = re.compile(r"[A-Za-z0-9_+#.-]{1,32}")


def convert_markdown_to_styled_text(markdown: str) -> StyledText:
    """Return the text as it is shown. If Markdown leaves nothing of it, return the source text."""
    writing = _StyledTextBuilder()
    writing.write_blocks(
        SyntaxTreeNode(_markdown_parser().parse(replace_lone_surrogates(markdown))).children, "\n\n"
    )
    styled_text = build_valid_styled_text("".join(writing.pieces), writing.spans)
    return styled_text if styled_text.text else build_unstyled_text(markdown)


def build_unstyled_text(text: str) -> StyledText:
    """Return the text without any styles."""
    return StyledText(text=replace_lone_surrogates(text).strip())


@cache
def _markdown_parser() -> MarkdownIt:
    # HTML is shown as text, because a model that writes about <b> means the characters.
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


class _StyledTextBuilder:
    """Collects the plain text and its spans."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.spans: list[StyleSpan] = []
        self._length = 0
        self._depth = 0
        self._quoted = False

    def write_blocks(self, nodes: Sequence[SyntaxTreeNode], separator: str) -> None:
        for number, node in enumerate(nodes):
            if number:
                self._write(separator)
            self._write_block(node)

    def _write_block(self, node: SyntaxTreeNode) -> None:
        match node.type:
            case "heading":
                self._write_styled("bold", lambda: self.write_inlines(node))
            case "fence" | "code_block":
                self._write_code(node)
            case "bullet_list" | "ordered_list":
                self._write_list(node)
            case "blockquote":
                self._write_quote(node)
            case "hr":
                self._write(HORIZONTAL_RULE_TEXT)
            case "table":
                self._write_styled("pre", lambda: self._write(_format_table(node)))
            case _:
                self.write_inlines(node)

    def _write_list(self, node: SyntaxTreeNode) -> None:
        first = int(node.attrs.get("start") or 1) if node.type == "ordered_list" else None
        if node.type == "ordered_list" and node.attrs.get("start") == 0:
            first = 0
        indent = "   " * self._depth
        bullet = LIST_BULLETS[min(self._depth, len(LIST_BULLETS) - 1)]
        self._depth += 1
        for number, item in enumerate(node.children):
            sign = bullet if first is None else f"{first + number}."
            self._write("\n" if number else "")
            self._write(f"{indent}{sign} ")
            self.write_blocks(item.children, "\n")
        self._depth -= 1

    def _write_quote(self, node: SyntaxTreeNode) -> None:
        if self._quoted:  # Telegram does not allow nested quotes
            self.write_blocks(node.children, "\n")
            return
        self._quoted = True
        self._write_styled("blockquote", lambda: self.write_blocks(node.children, "\n\n"))
        self._quoted = False

    def _write_code(self, node: SyntaxTreeNode) -> None:
        info_word = node.info.split()[0] if node.type == "fence" and node.info.strip() else ""
        language = info_word if _LANGUAGE_NAME.fullmatch(info_word) else None
        self._write_styled("pre", lambda: self._write(node.content.rstrip("\n")), language=language)

    def write_inlines(self, node: SyntaxTreeNode) -> None:
        for child in node.children:
            self._write_inline(child)

    def _write_inline(self, node: SyntaxTreeNode) -> None:
        match node.type:
            case "text":
                self._write(node.content)
            case "softbreak" | "hardbreak":
                self._write("\n")
            case "code_inline":
                self._write_styled("code", lambda: self._write(node.content))
            case "strong" | "em" | "s":
                self._write_styled(_STYLE_BY_NODE_TYPE[node.type], lambda: self.write_inlines(node))
            case "link":
                self._write_link(str(node.attrs.get("href", "")), lambda: self.write_inlines(node))
            case "image":
                text = node.content or "image"
                self._write_link(str(node.attrs.get("src", "")), lambda: self._write(text))
            case _:
                if node.children:
                    self.write_inlines(node)
                else:
                    self._write(node.content)

    def _write_link(self, url: str, write_label: Callable[[], None]) -> None:
        if _LINK_URL.fullmatch(url):
            self._write_styled("text_link", write_label, url=url)
            return
        write_label()
        if url:
            self._write(f" ({url})")

    def _write_styled(
        self,
        style: str,
        write_content: Callable[[], None],
        *,
        url: str | None = None,
        language: str | None = None,
    ) -> None:
        start = self._length
        write_content()
        if self._length > start:
            mark = StyleSpan(kind=style, start=start, end=self._length, url=url, language=language)
            self.spans.append(mark)

    def _write(self, text: str) -> None:
        self.pieces.append(text)
        self._length += len(text)


def _format_table(node: SyntaxTreeNode) -> str:
    """Format a table with columns of equal width, for a monospaced font."""
    rows = [
        [_inline_text(cell) for cell in row.children]
        for part in node.children
        for row in part.children
    ]
    columns = max((len(row) for row in rows), default=0)
    full_rows = [row + [""] * (columns - len(row)) for row in rows]
    wide = [max(count_utf16_units(row[column]) for row in full_rows) for column in range(columns)]
    lines = [
        "  ".join(
            cell + " " * (width - count_utf16_units(cell))
            for cell, width in zip(row, wide, strict=True)
        ).rstrip()
        for row in full_rows
    ]
    lines.insert(1, "  ".join("─" * width for width in wide))
    return "\n".join(lines)


def _inline_text(node: SyntaxTreeNode) -> str:
    inner = _StyledTextBuilder()
    inner.write_inlines(node)
    return "".join(inner.pieces).replace("\n", " ")
