"""Texts of known sizes."""

from __future__ import annotations

SENTENCE = "A small rudder moves the great one, and the great one turns the whole ship. "


def prose(size: int, tag: str = "") -> str:
    """Return plain English of exactly so many bytes; it begins with the tag and a space."""
    lead = f"{tag} " if tag else ""
    return (lead + SENTENCE * (size // len(SENTENCE) + 1))[:size]


def source(size: int) -> str:
    """Return so many bytes of Python, which take more tokens than English does."""
    lines = (
        f"    if self._{n % 97}[{n}] != other.values['k{n}']: raise ValueError(f'{{x!r}} {n:#x}')\n"
        for n in range(size // 60 + 1)
    )
    return "".join(lines)[:size]


def viewed(number: int, size: int = 3_900) -> str:
    """Return a file as a tool shows it: the path on the first line, then so many bytes of code."""
    return f"File: src/f{number}.rs\n" + ("let mut total = 1; " * (size // 19 + 1))[:size]


def quarter(text: str) -> float:
    """Return the tokens of a text by the documents' rule, four bytes to one."""
    return len(text.encode()) / 4
