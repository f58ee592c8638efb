"""What is wrong with an agent's file, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where something stands in a text; both count from 1."""

    line: int
    """The line."""
    column: int
    """The column, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong."""

    text: str
    """What it is, by its path in the document, with what was found and what to write instead. What
    came from the environment is never told."""
    place: Place | None = None
    """Where; None for the file as a whole."""
    path: tuple[str | int, ...] = ()
    """The names and numbers that lead there."""

    def __str__(self) -> str:
        if self.place is None:
            return self.text
        return f"line {self.place.line}, column {self.place.column}: {self.text}"


class AgentFileError(ValueError):
    """An agent's file that cannot be used: every problem of it, in the order of its lines."""

    def __init__(self, file: Path, problems: Sequence[Problem]) -> None:
        self.file = file
        """The file."""
        self.problems = tuple(sorted(problems, key=_order))
        """At least one."""
        if len(self.problems) == 1:
            only = self.problems[0]
            told = f"{file}{', ' if only.place else ' '}{only}"
        else:
            lines = "\n".join(f"  {problem}" for problem in self.problems)
            told = f"{file} has {len(self.problems)} problems:\n{lines}"
        super().__init__(told)


def _order(problem: Problem) -> tuple[int, int]:
    return (problem.place.line, problem.place.column) if problem.place else (0, 0)
