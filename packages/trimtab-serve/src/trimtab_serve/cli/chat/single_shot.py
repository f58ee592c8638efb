"""One question and its answer, for pipes and scripts."""

from __future__ import annotations

import asyncio
import sys

from rich.console import Console

from trimtab.cli.store_command import print_exact_text
from trimtab.cli.text_format import shorten_to_line
from trimtab.engine.log.event import Edit, MessageAdded
from trimtab.session.events import AssistantReplied, TextDelta, TurnEvent, TurnFinished
from trimtab_serve.agent.tools.permissions.rules import (
    ApprovalAnswer,
    ApprovalCallback,
    ApprovalRequest,
)
from trimtab_serve.cli.chat.approval import ApprovalPrompt
from trimtab_serve.cli.chat.interruptible_turn import ChatSignalHandler, run_interruptible_turn
from trimtab_serve.cli.chat.state import ChatState
from trimtab_serve.cli.chat.turn_errors import describe_chat_cost_ceiling
from trimtab_serve.cli.chat.turn_screen import TurnScreen

EXIT_FAILED = 1
EXIT_STOPPED = 130


class SingleShotScreen:
    """Draws a turn on the terminal, and keeps the final reply for standard output."""

    def __init__(self, screen: TurnScreen, *, streams_reply: bool) -> None:
        self._screen = screen
        self._streams = streams_reply
        self.reply = ""

    def on_event(self, event: TurnEvent) -> None:
        """Draw an event. A reply that may still be discarded does not go to standard output."""
        match event:
            case AssistantReplied(message=message):
                if not self._streams and message.calls and message.text:
                    self._screen.print_message(message.text)
                self.reply = "" if message.calls else message.text
            case TextDelta() if not self._streams:
                return
            case _:
                pass
        self._screen.on_event(event)


async def answer_once(
    chat: ChatState,
    question: str | None,
    interrupts: ChatSignalHandler,
    approval: ApprovalPrompt | None,
) -> int:
    """Answer one question, and return the exit status."""
    streams = sys.stdout.isatty()
    screen = TurnScreen(chat.console, live=streams or sys.stderr.isatty())
    reply_screen = SingleShotScreen(screen, streams_reply=streams)
    message = None if question is None else {"role": "user", "content": question}
    before = chat.session.window.seq

    async def turn(stop: asyncio.Event) -> TurnFinished:
        ask = None if approval is None else approval.confirm_rerun
        return await chat.agent.run_turn(
            chat.session,
            message,
            on_event=reply_screen.on_event,
            confirm_rerun=ask,
            stop=stop,
            wait=None,
        )

    screen.waiting_for = f"waiting for {chat.agent.spec.model.name}"
    async with screen.show_status_while_waiting():
        outcome = await run_interruptible_turn(interrupts, turn, chat.agent.spec.model)
    screen.end_line()
    if outcome.stopped:
        screen.print_message("Stopped.", "note")
        return EXIT_STOPPED
    if outcome.problem is not None:
        screen.print_message(f"{outcome.problem.text} {outcome.problem.unattended_hint}", "error")
        return EXIT_FAILED
    if cut := await _describe_cut_question(chat, before):
        screen.print_message(cut, "note")
    if reply_screen.reply and not streams:
        print_exact_text(
            reply_screen.reply if reply_screen.reply.endswith("\n") else f"{reply_screen.reply}\n"
        )
    if outcome.ended is not None and outcome.ended.reason == "iterations":
        most = chat.agent.spec.session.max_tool_iterations
        notice = f"Stopped after {most} rounds of tool calls"
        more = "set a larger `max_tool_iterations` under `session` in agent.yaml, or continue"
        screen.print_message(f"{notice}; {more}.", "error")
        return EXIT_FAILED
    if outcome.ended is not None and outcome.ended.cost_ceiling is not None:
        screen.print_message(describe_chat_cost_ceiling(outcome.ended.cost_ceiling), "error")
        return EXIT_FAILED
    return 0


async def _describe_cut_question(chat: ChatState, before: int) -> str | None:
    """Return a note if the question itself was cut after position `before` of the log."""
    session = chat.session
    question_seq = 0
    size = 0
    async for event in session.store.events(session.id, [(before + 1, None)]):
        match event.body:
            case MessageAdded(message=message, sizes=sizes) if (
                not question_seq and message.role == "user"
            ):
                question_seq = event.seq
                size = sum(part.tokens for part in sizes)
            case Edit(op="truncate", first=first) as edit if first == question_seq:
                return (
                    f"The question has {size:,} tokens, but the window has "
                    f"{session.budget().limit:,}: the model saw {edit.size.tokens:,} of them. Put "
                    "long text into a file that a tool can read, or choose a model with a larger "
                    "window in agent.yaml."
                )
            case _:
                pass
    return None


def make_refusing_approver(console: Console) -> ApprovalCallback:
    """Return an approver for runs without a user: it refuses, and shows what it refused."""

    async def refuse(question: ApprovalRequest) -> ApprovalAnswer:
        why = f"{shorten_to_line(question.why, 300)}; " if question.why else ""
        console.print(
            f"{question.tool} was not run because nobody can approve it here: "
            f"{shorten_to_line(question.text, 200)} "
            f"({why}add it to `allow` of this tool in agent.yaml)",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return "nobody"

    return refuse
