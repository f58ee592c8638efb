"""Start a chat: choose the agent, the session and the mode."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from trimtab.cli.extension import DEFAULT_AGENT_PATH
from trimtab.cli.store_command import PIPED_WIDTH_CHARS, report_known_errors
from trimtab.cli.text_format import escape_control_characters
from trimtab.stores.base import Store
from trimtab_serve.agent.agent import Agent, build_redactor, open_agent
from trimtab_serve.agent.config.loader import load_agent_spec
from trimtab_serve.agent.config.spec import AgentSpec
from trimtab_serve.agent.tools.permissions.rules import ApprovalCallback
from trimtab_serve.cli.chat import json_lines
from trimtab_serve.cli.chat.approval import ApprovalPrompt
from trimtab_serve.cli.chat.interruptible_turn import ChatSignalHandler
from trimtab_serve.cli.chat.single_shot import answer_once, make_refusing_approver
from trimtab_serve.cli.chat.state import (
    ChatState,
    close_chat_session,
    find_newest_chat_session,
    generate_session_id,
)
from trimtab_serve.cli.chat.stdin import read_stdin_text
from trimtab_serve.cli.chat.turn_screen import TurnScreen


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatArguments:
    """The arguments that the user typed."""

    question: str | None
    """The only question. None for a conversation."""
    agent_file: Path
    """The path of the agent's file."""
    continue_newest: bool
    """Whether to continue the newest session."""
    session_id: str | None
    """The session's id. None for a new or the newest session."""
    as_json: bool
    """Whether to print JSON for a program."""

    @property
    def agent_option(self) -> str:
        """Return the option that finds the same agent again."""
        return (
            ""
            if self.agent_file == DEFAULT_AGENT_PATH
            else f" --agent {shlex.quote(str(self.agent_file))}"
        )


def run_chat(arguments: ChatArguments) -> int:
    """Run the chat to its end, and return the exit status."""
    interrupts = ChatSignalHandler()
    try:
        with json_lines.report_errors_as_json() if arguments.as_json else report_known_errors():
            if arguments.continue_newest and arguments.session_id is not None:
                raise ValueError("--continue and --session cannot be combined: use one of them")
            spec = load_agent_spec(arguments.agent_file)
            return asyncio.run(_run_mode(arguments, spec, interrupts))
    except asyncio.CancelledError:
        return 128 + (interrupts.ended_by_signal or 0)


async def _run_mode(
    arguments: ChatArguments, spec: AgentSpec, interrupts: ChatSignalHandler
) -> int:
    with interrupts.handle_signals():
        if arguments.as_json:
            return await _run_json_lines(arguments, spec, interrupts)
        if arguments.question is None and sys.stdin.isatty() and sys.stdout.isatty():
            return await _run_conversation(arguments, spec, interrupts)
        return await _run_single_shot(arguments, spec, interrupts)


async def _run_conversation(
    arguments: ChatArguments, spec: AgentSpec, interrupts: ChatSignalHandler
) -> int:
    # A pipe does not wait for what only a terminal needs.
    from trimtab_serve.cli.chat.line_input import (
        KeyboardInput,
        open_input_history,
        suppress_terminal_echo,
    )
    from trimtab_serve.cli.chat.repl import ChatLoop
    from trimtab_serve.cli.chat.slash_commands import SLASH_COMMANDS

    screen = TurnScreen(Console())
    history = open_input_history(os.environ, build_redactor(spec))
    keyboard = KeyboardInput([f"/{name}" for name in SLASH_COMMANDS], history)
    asking = ApprovalPrompt(screen, keyboard.read_choice, interrupts.stop_turn)

    async def converse(talk: ChatState, made: bool) -> int:
        talk.forget_lines = keyboard.forget_lines
        chatting = ChatLoop(talk, screen, keyboard, asking, interrupts)
        await chatting.show_greeting(is_resumed=not made)
        interrupts.ignore_when_idle = True
        await chatting.run_until_left()
        return 0

    # From the first moment on: an Enter that is typed before the first prompt is one.
    with suppress_terminal_echo():
        keyboard.feed_typeahead()
        return await _with_chat(arguments, spec, asking.approve, screen.console, converse)


async def _run_single_shot(
    arguments: ChatArguments, spec: AgentSpec, interrupts: ChatSignalHandler
) -> int:
    console = Console() if sys.stdout.isatty() else _stderr()
    says = await _read_question(arguments, console)
    asking: ApprovalPrompt | None = None
    approve = make_refusing_approver(console)
    if sys.stdin.isatty() and console.is_terminal:
        from trimtab_serve.cli.chat.line_input import KeyboardInput

        asking = ApprovalPrompt(
            TurnScreen(console), KeyboardInput(()).read_choice, interrupts.stop_turn
        )
        approve = asking.approve

    async def ask(talk: ChatState, made: bool) -> int:
        if says is None and (made or not talk.session.window.conversation.total_messages):
            raise ValueError("no question: type one as an argument, or pipe one into the command")
        return await answer_once(talk, says, interrupts, asking)

    return await _with_chat(arguments, spec, approve, console, ask)


async def _run_json_lines(
    arguments: ChatArguments, spec: AgentSpec, interrupts: ChatSignalHandler
) -> int:
    async def answer(talk: ChatState, made: bool) -> int:
        del made
        return await json_lines.answer_questions_as_json_lines(talk, arguments.question, interrupts)

    return await _with_chat(arguments, spec, json_lines.refuse_with_json_line, _stderr(), answer)


async def _with_chat(
    arguments: ChatArguments,
    spec: AgentSpec,
    approve: ApprovalCallback,
    console: Console,
    run: Callable[[ChatState, bool], Awaitable[int]],
) -> int:
    folder = arguments.agent_file.resolve().parent
    async with open_agent(spec, folder, approve=approve) as agent:
        talk, is_new = await _open_chat(agent, arguments, console)
        try:
            return await run(talk, is_new)
        finally:
            has_messages = bool(talk.session.window.conversation.total_messages)
            await close_chat_session(talk, created_here=is_new)
            if has_messages and not arguments.as_json:
                _show_resume_command(talk)


async def _open_chat(
    agent: Agent, arguments: ChatArguments, console: Console
) -> tuple[ChatState, bool]:
    session = arguments.session_id or await _choose_session(agent.store, arguments)
    is_new = not await agent.store.position(session)
    talk = ChatState(
        agent=agent,
        session=await agent.open_session(session),
        console=console,
        agent_option=arguments.agent_option,
    )
    return talk, is_new


async def _choose_session(store: Store, arguments: ChatArguments) -> str:
    if not arguments.continue_newest:
        return generate_session_id()
    newest = await find_newest_chat_session(store)
    if newest is None:
        raise LookupError("there is no session to continue yet; start one: trimtab chat")
    return newest.session


def _show_resume_command(chat: ChatState) -> None:
    # The terminal may be gone: that is how a chat ends, too.
    with suppress(OSError):
        line = Text("To continue: ", "dim")
        line.append(escape_control_characters(chat.format_resume_command()), "bold")
        _stderr_or(chat.console).print(line, soft_wrap=True)


def _stderr_or(console: Console) -> Console:
    return console if console.is_terminal else _stderr()


def _stderr() -> Console:
    """Return the console for everything except the answer."""
    if sys.stderr.isatty():
        return Console(stderr=True)
    return Console(stderr=True, color_system=None, force_terminal=False, width=PIPED_WIDTH_CHARS)


async def _read_question(arguments: ChatArguments, console: Console) -> str | None:
    """Return the argument, the piped text, or both, separated by an empty line."""
    piped_text = ""
    if sys.stdin.isatty() and arguments.question is None:
        console.print("Type the question, then press Ctrl-D.", style="dim")
    if not sys.stdin.isatty() or arguments.question is None:
        piped_text = (await read_stdin_text()).strip()
    return "\n\n".join(part for part in (arguments.question, piped_text) if part) or None
