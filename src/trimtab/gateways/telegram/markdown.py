"""What a model writes as Markdown, as a text with marks.

Nothing is left for Telegram to parse, so nothing that a model writes can be refused as malformed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from trimtab.core.utf8 import whole_pairs
from trimtab.gateways.telegram.styled import Mark, Styled, styled
from trimtab.gateways.utf16 import units

RULE = "———"
BULLETS = ("•", "◦", "▪")
_MARKED = {"strong": "bold", "em": "italic", "s": "strikethrough"}
_LINK = re.compile(r"(?:https?|tg|mailto|tel):\S+", re.IGNORECASE)
_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,32}")


def from_markdown(text: str) -> Styled:
    """The text as it is shown; where Markdown leaves nothing of it, the text as it is."""
    writing = _Writing()
    writing.blocks(SyntaxTreeNode(_parser().parse(whole_pairs(text))).children, "\n\n")
    made = styled("".join(writing.pieces), writing.marks)
    return made if made.text else plain(text)


def plain(text: str) -> Styled:
    """The text as it is, without any marks."""
    return Styled(text=whole_pairs(text).strip())


@cache
def _parser() -> MarkdownIt:
    # HTML is shown as it stands: a model that writes about <b> means the letters.
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


class _Writing:
    """The plain text so far, and its marks."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.marks: list[Mark] = []
        self._at = 0
        self._depth = 0
        self._quoted = False

    def blocks(self, nodes: Sequence[SyntaxTreeNode], between: str) -> None:
        for number, node in enumerate(nodes):
            if number:
                self._say(between)
            self._block(node)

    def _block(self, node: SyntaxTreeNode) -> None:
        match node.type:
            case "heading":
                self._marked("bold", lambda: self.inlines(node))
            case "fence" | "code_block":
                self._code(node)
            case "bullet_list" | "ordered_list":
                self._list(node)
            case "blockquote":
                self._quote(node)
            case "hr":
                self._say(RULE)
            case "table":
                self._marked("pre", lambda: self._say(_table(node)))
            case _:
                self.inlines(node)

    def _list(self, node: SyntaxTreeNode) -> None:
        first = int(node.attrs.get("start") or 1) if node.type == "ordered_list" else None
        if node.type == "ordered_list" and node.attrs.get("start") == 0:
            first = 0
        indent = "   " * self._depth
        bullet = BULLETS[min(self._depth, len(BULLETS) - 1)]
        self._depth += 1
        for number, item in enumerate(node.children):
            sign = bullet if first is None else f"{first + number}."
            self._say("\n" if number else "")
            self._say(f"{indent}{sign} ")
            self.blocks(item.children, "\n")
        self._depth -= 1

    def _quote(self, node: SyntaxTreeNode) -> None:
        if self._quoted:  # one within another is not possible
            self.blocks(node.children, "\n")
            return
        self._quoted = True
        self._marked("blockquote", lambda: self.blocks(node.children, "\n\n"))
        self._quoted = False

    def _code(self, node: SyntaxTreeNode) -> None:
        named = node.info.split()[0] if node.type == "fence" and node.info.strip() else ""
        language = named if _LANGUAGE.fullmatch(named) else None
        self._marked("pre", lambda: self._say(node.content.rstrip("\n")), language=language)

    def inlines(self, node: SyntaxTreeNode) -> None:
        for child in node.children:
            self._inline(child)

    def _inline(self, node: SyntaxTreeNode) -> None:
        match node.type:
            case "text":
                self._say(node.content)
            case "softbreak" | "hardbreak":
                self._say("\n")
            case "code_inline":
                self._marked("code", lambda: self._say(node.content))
            case "strong" | "em" | "s":
                self._marked(_MARKED[node.type], lambda: self.inlines(node))
            case "link":
                self._link(str(node.attrs.get("href", "")), lambda: self.inlines(node))
            case "image":
                text = node.content or "image"
                self._link(str(node.attrs.get("src", "")), lambda: self._say(text))
            case _:
                if node.children:
                    self.inlines(node)
                else:
                    self._say(node.content)

    def _link(self, url: str, inside: Callable[[], None]) -> None:
        if _LINK.fullmatch(url):
            self._marked("text_link", inside, url=url)
            return
        inside()
        if url:
            self._say(f" ({url})")

    def _marked(
        self,
        kind: str,
        inside: Callable[[], None],
        *,
        url: str | None = None,
        language: str | None = None,
    ) -> None:
        start = self._at
        inside()
        if self._at > start:
            mark = Mark(kind=kind, start=start, end=self._at, url=url, language=language)
            self.marks.append(mark)

    def _say(self, text: str) -> None:
        self.pieces.append(text)
        self._at += len(text)


def _table(node: SyntaxTreeNode) -> str:
    """Columns as wide as they need to be, for letters of one width."""
    rows = [
        [_text_of(cell) for cell in row.children] for part in node.children for row in part.children
    ]
    columns = max((len(row) for row in rows), default=0)
    filled = [row + [""] * (columns - len(row)) for row in rows]
    wide = [max(units(row[column]) for row in filled) for column in range(columns)]
    lines = [
        "  ".join(
            cell + " " * (width - units(cell)) for cell, width in zip(row, wide, strict=True)
        ).rstrip()
        for row in filled
    ]
    lines.insert(1, "  ".join("─" * width for width in wide))
    return "\n".join(lines)


def _text_of(node: SyntaxTreeNode) -> str:
    inner = _Writing()
    inner.inlines(node)
    return "".join(inner.pieces).replace("\n", " ")
