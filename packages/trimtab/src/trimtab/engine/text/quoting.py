"""Text of others inside of a text of ours, so that no line of theirs looks like one of ours.

In a message that joins the texts of several speakers, a line at the margin is ours. So what we
quote is either on one line, after a mark of ours, or its further lines are indented.
"""

from __future__ import annotations


def indent_further_lines(text: str) -> str:
    """Return a text with all lines indented by a space but the first. Nothing else changes."""
    return " ".join(text.splitlines(keepends=True))


def indent_lines(text: str) -> str:
    """Return a text with all lines indented by a space."""
    return f" {indent_further_lines(text)}"


def indent_lines_that_begin_with(text: str, beginning: str) -> str:
    """Return a text with those lines indented by a space that begin as a line of ours does."""
    lines = text.splitlines(keepends=True)
    return "".join(f" {line}" if line.startswith(beginning) else line for line in lines)


def count_further_lines(text: str) -> int:
    """Count the spaces that `indent_further_lines` adds."""
    return max(0, len(text.splitlines()) - 1)


def collapse_whitespace(text: str) -> str:
    """Return a text on one line, with single spaces between its words."""
    return " ".join(text.split())
