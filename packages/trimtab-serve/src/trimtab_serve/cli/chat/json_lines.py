"""`--json`: print every event as one line of JSON, for programs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from typing import Any, cast

import typer

from trimtab.errors import StoreError
from trimtab.session.events import TurnEvent, TurnFinished, turn_event_to_json
from trimtab_serve.agent.tools.permissions.rules import ApprovalAnswer, ApprovalRequest
from trimtab_serve.cli.chat.interruptible_turn import ChatSignalHandler, run_interruptible_turn
from trimtab_serve.cli.chat.state import ChatState
from trimtab_serve.cli.chat.stdin import read_stdin_lines

EXIT_FAILED = 1
EXIT_STOPPED = 130


def write_json_line(record: dict[str, Any]) -> None:
    """Write one line and flush it."""
    sys.stdout.write(f"{json.dumps(record)}\n")
    sys.stdout.flush()


def write_error_line(kind: str, text: str, next_step: str = "") -> None:
    """Write an error as one line of JSON."""
    write_json_line({"type": "error", "kind": kind, "text": text, "next": next_step})


@contextmanager
def report_errors_as_json() -> Generator[None]:
    """Do what `cli.store_command.report_known_errors` does, but print a line of JSON."""
    try:
        yield
    except (BrokenPipeError, KeyError, IndexError):
        raise
    except (LookupError, OSError, StoreError, ValueError) as cause:
        write_error_line("failed", str(cause))
        raise typer.Exit(2) from cause


async def refuse_with_json_line(question: ApprovalRequest) -> ApprovalAnswer:
    """Refuse a call that needs approval, and write the question that nobody could answer."""
    write_json_line(
        {
            "type": "approval.requested",
            "tool": question.tool,
            "text": question.text,
            "arguments": dict(question.arguments),
            "reason": question.why,
            "answer": "no",
        }
    )
    return "nobody"


async def answer_questions_as_json_lines(
    chat: ChatState, only_question: str | None, interrupts: ChatSignalHandler
) -> int:
    """Run one turn for the argument, or one for each line of standard input."""
    write_json_line({"type": "session", "id": chat.session.id})
    if only_question is not None:
        return await _answer_one(chat, only_question, interrupts)
    status = 0
    async for line in _read_prompts():
        status = await _answer_one(chat, line, interrupts) or status
        if status == EXIT_STOPPED:
            break
    return status


async def _answer_one(chat: ChatState, question: str, interrupts: ChatSignalHandler) -> int:
    def write_event(event: TurnEvent) -> None:
        write_json_line(turn_event_to_json(event))

    async def turn(stop: asyncio.Event) -> TurnFinished:
        return await chat.agent.run_turn(
            chat.session,
            {"role": "user", "content": question},
            on_event=write_event,
            stop=stop,
            wait=None,
        )

    outcome = await run_interruptible_turn(interrupts, turn, chat.agent.spec.model)
    if outcome.stopped:
        write_error_line("stopped", "stopped by a signal")
        return EXIT_STOPPED
    if outcome.problem is not None:
        write_error_line(
            outcome.problem.kind, outcome.problem.text, outcome.problem.unattended_hint
        )
        return EXIT_FAILED
    return 0


async def _read_prompts() -> AsyncIterator[str]:
    """Yield prompts from standard input: plain lines, or JSON objects for longer texts."""
    async for line in read_stdin_lines():
        if text := extract_plain_or_json_prompt(line):
            yield text


def extract_plain_or_json_prompt(line: str) -> str:
    """Return the text of a line of input."""
    line = line.strip()
    if line.startswith("{"):
        try:
            json_line: Any = json.loads(line)
        except ValueError:
            return line
        text: Any = cast("dict[str, Any]", json_line).get("text")
        return text.strip() if isinstance(text, str) else line
    return line
