"""`--json`: every happening as one line, for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from typing import Any, cast

import typer

from trimtab.agent.permissions import Answer, Question
from trimtab.cli.chat.piped import piped_lines
from trimtab.cli.chat.talk import Talk
from trimtab.cli.chat.turning import Interrupts, taken
from trimtab.session.happenings import Ended, Happening, to_json
from trimtab.session.stopping import close_calls
from trimtab.stores.errors import StoreError

FAILED = 1
STOPPED = 130


def write(told: dict[str, Any]) -> None:
    """One line, at once."""
    sys.stdout.write(f"{json.dumps(told)}\n")
    sys.stdout.flush()


def error(kind: str, text: str, what_next: str = "") -> None:
    """What went wrong, as a line as well."""
    write({"type": "error", "kind": kind, "text": text, "next": what_next})


@contextmanager
def friendly() -> Generator[None]:
    """What `cli.storing.friendly` does, as a line of JSON."""
    try:
        yield
    except (BrokenPipeError, KeyError, IndexError):
        raise
    except (LookupError, OSError, StoreError, ValueError) as cause:
        error("cannot", str(cause))
        raise typer.Exit(2) from cause


async def refuse(question: Question) -> Answer:
    """Nobody is asked; the question is told."""
    asked = {"tool": question.tool, "text": question.text, "arguments": dict(question.arguments)}
    write({"type": "question", **asked, "why": question.why, "answer": "no"})
    return "nobody"


async def answer_lines(talk: Talk, says: str | None, interrupts: Interrupts) -> int:
    """One turn for the argument, or one for each line of standard input."""
    write({"type": "session", "id": talk.session.id})
    if says is not None:
        return await _answer(talk, says, interrupts)
    status = 0
    async for line in _prompts():
        status = await _answer(talk, line, interrupts) or status
        if status == STOPPED:
            break
    return status


async def _answer(talk: Talk, says: str, interrupts: Interrupts) -> int:
    def tell(happening: Happening) -> None:
        write(to_json(happening))

    async def turn() -> Ended:
        return await talk.agent.turn(talk.session, {"role": "user", "content": says}, tell=tell)

    outcome = await taken(interrupts, turn, talk.agent.spec.model)
    if outcome.stopped:
        await close_calls(talk.session)
        error("stopped", "stopped by a signal")
        return STOPPED
    if outcome.trouble is not None:
        error(outcome.trouble.kind, outcome.trouble.text, outcome.trouble.later)
        return FAILED
    return 0


async def _prompts() -> AsyncIterator[str]:
    """Lines of standard input: a text each, or an object with one, for texts of several lines."""
    async for line in piped_lines():
        if text := said_in(line):
            yield text


def said_in(line: str) -> str:
    """What a line says."""
    line = line.strip()
    if line.startswith("{"):
        try:
            given: Any = json.loads(line)
        except ValueError:
            return line
        text: Any = cast("dict[str, Any]", given).get("text")
        return text.strip() if isinstance(text, str) else line
    return line
