"""Read an agent's file, and report problems with their positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trimtab.errors import TrimtabError


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPosition:
    """A position in a text. Both numbers count from 1."""

    line: int
    """The line."""
    column: int
    """The column, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProblem:
    """One problem of an agent's file."""

    text: str
    """The problem: the path in the document, the value and what to write instead. Values from the
    environment are never shown."""
    position: TextPosition | None = None
    """The position. None if the problem is the file as a whole."""
    path: tuple[str | int, ...] = ()
    """The names and indexes that lead to the value."""

    def __str__(self) -> str:
        if self.position is None:
            return self.text
        return f"line {self.position.line}, column {self.position.column}: {self.text}"


class AgentFileError(TrimtabError, ValueError):
    """An agent's file cannot be used. It lists every problem, in the order of the lines.

    Attributes:
        file: The file.
        problems: The problems, at least one.
    """

    def __init__(self, file: Path, problems: Sequence[ConfigProblem]) -> None:
        self.file = file
        """The file."""
        self.problems = tuple(sorted(problems, key=_position_key))
        """At least one."""
        if len(self.problems) == 1:
            only = self.problems[0]
            text = f"{file}{', ' if only.position else ' '}{only}"
        else:
            lines = "\n".join(f"  {problem}" for problem in self.problems)
            text = f"{file} has {len(self.problems)} problems:\n{lines}"
        super().__init__(text)


def _position_key(problem: ConfigProblem) -> tuple[int, int]:
    return (problem.position.line, problem.position.column) if problem.position else (0, 0)


DEFAULT_AGENT_FILE_NAME = "agent.yaml"
"""The name of the file unless the user gives another."""
MAX_AGENT_FILE_BYTES = 1_000_000
"""Maximum size of an agent's file or of a system prompt, in bytes."""


def read_agent_file_text(path: Path) -> str:
    """Return the text of the file. Raises `AgentFileError`."""
    try:
        if path.is_dir():
            raise _file_error(
                path, f"is a folder; give the file in it: {path / DEFAULT_AGENT_FILE_NAME}"
            )
        refuse_pipe(path)
        with path.open("rb") as file:
            raw = file.read(MAX_AGENT_FILE_BYTES + 1)
    except FileNotFoundError:
        raise _file_error(path, "does not exist; `trimtab init` writes one that works") from None
    except (OSError, ValueError) as error:
        if isinstance(error, AgentFileError):
            raise
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise _file_error(path, f"cannot be read ({why}); check its name and permissions") from None
    if len(raw) > MAX_AGENT_FILE_BYTES:
        raise _file_error(
            path, f"is larger than {MAX_AGENT_FILE_BYTES:,} bytes, the limit for an agent's file"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = len(raw[raw.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8")) + 1
        place = TextPosition(line=line, column=column)
        text = f"the byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise AgentFileError(path, [ConfigProblem(text=text, position=place)]) from None


def refuse_pipe(path: Path) -> None:
    """Raise `ValueError` for a named pipe. Opening one would block until something writes to it."""
    if path.is_fifo():
        raise ValueError("it is a pipe")


def _file_error(path: Path, why: str) -> AgentFileError:
    return AgentFileError(path, [ConfigProblem(text=why)])
