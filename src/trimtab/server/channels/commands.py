"""What a person may ask of a session in a chat, whatever the platform: in words and a picture."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields

from trimtab.dialects.media_validation import replace_unsupported_media
from trimtab.log.message import make_text_message
from trimtab.server.channels.context_image import draw_context_png
from trimtab.server.service import AgentService
from trimtab.session import Session
from trimtab.session.audit import STATE_DESCRIPTIONS

RUNNING_TURN_WAIT_S = 5.0
"""Seconds that a verb waits for the turn that runs; meanwhile the chat may wait as well."""
TEXT_BAR_CHARS = 22
"""Characters of the bar in a text: what a phone shows on one line."""
MAX_UNDO_QUOTE_CHARS = 60
"""Characters of a text that `undo` shows."""
MAX_WHY_QUOTE_CHARS = 600
"""Characters of a text that `why` shows."""
BUSY_TEXT = "I am still at work here, and stop after this step. Say it again in a moment."
NO_MESSAGES_TEXT = "Nothing was said here yet."
STOPPING_TEXT = "I stop after this step."
NOT_RUNNING_TEXT = "Nothing is running that I know of; if it is, it stops after its step."
NOTHING_TO_COMPACT_TEXT = "There is nothing to make smaller: the newest messages always stay."


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCommand:
    """Something that can be asked."""

    help: str
    """What it is for."""
    argument: str = ""
    """What stands behind its name."""


CHAT_COMMANDS = {
    "help": ChatCommand(help="this list"),
    "reset": ChatCommand(help="begin anew; what was said stays in the log"),
    "undo": ChatCommand(help="take back your last message and all that followed it"),
    "context": ChatCommand(help="how full my context is, and of what"),
    "compact": ChatCommand(help="make my context smaller now"),
    "why": ChatCommand(argument="HANDLE", help="why I see something as I do, such as m12"),
    "stop": ChatCommand(help="end what I am doing after this step"),
}
"""By name, without the slash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandReply:
    """What is answered."""

    text: str
    """In words; empty where it was told before."""
    monospace: bool = False
    """Whether the words stand in columns, and want letters of one width."""
    png: bytes | None = None
    """The same as a PNG, where there is one."""


class _TurnStillRunning(Exception):
    """A turn runs and does not end soon."""


async def run_chat_command(
    service: AgentService, session_id: str, command: str, argument: str, *, idempotency_key: str
) -> CommandReply:
    """Do what somebody asks for in a session; what cannot be done is told in words.

    The key is the request's own: one that is told twice is not done twice. Raises what the store
    does.
    """
    if command == "help":
        return CommandReply(text=format_command_help(CHAT_COMMANDS))
    if command == "stop":
        runs = service.stop_turn(session_id)
        return CommandReply(text=STOPPING_TEXT if runs else NOT_RUNNING_TEXT)
    if not await service.store.position(session_id):
        return CommandReply(
            text=NOTHING_TO_COMPACT_TEXT if command == "compact" else NO_MESSAGES_TEXT
        )
    try:
        match command:
            case "reset":
                return CommandReply(text=await _reset_session(service, session_id, idempotency_key))
            case "undo":
                return CommandReply(
                    text=await _undo_last_message(service, session_id, idempotency_key)
                )
            case "context":
                return await _describe_context(service, session_id)
            case "compact":
                return CommandReply(text=await _compact_context(service, session_id))
            case "why":
                return CommandReply(text=await _explain_handle(service, session_id, argument))
            case _:
                raise ValueError(f"no command is called {command!r}")
    except _TurnStillRunning:
        return CommandReply(text=BUSY_TEXT)


def format_command_help(commands: Mapping[str, ChatCommand]) -> str:
    """What can be asked, a line each."""
    lines = (
        f"/{name}{f' {verb.argument}' if verb.argument else ''} – {verb.help}"
        for name, verb in commands.items()
    )
    return "\n".join(lines)


async def _reset_session(service: AgentService, session_id: str, idempotency_key: str) -> str:
    """Undo all: the log keeps it, and keys in it stay known."""
    service.stop_turn(session_id)
    async with _hold_turn_lock(service, session_id) as opened:
        if await service.store.find_key(session_id, idempotency_key) is not None:
            return ""  # done before, and something may have been said since
        async with opened.hold_turn():
            await _append_pending_messages(service, opened)
            before = len(opened.window.entries)
            await _hide_all_messages(opened)
            # Twice, so that its key is in the log only when it is done.
            await opened.add(make_text_message("user", "/reset"), key=idempotency_key)
            await _hide_all_messages(opened)
    hidden = f"{before} message{'' if before == 1 else 's'}"
    return f"We begin anew: I see none of the {hidden} before. They stay in the log."


async def _undo_last_message(service: AgentService, session_id: str, idempotency_key: str) -> str:
    """Take back the newest message of the user and all behind it."""
    service.stop_turn(session_id)
    async with _hold_turn_lock(service, session_id) as opened:
        if await service.store.find_key(session_id, idempotency_key) is not None:
            return ""  # done before, and something may have been said since
        async with opened.hold_turn():
            await _append_pending_messages(service, opened)
            undone = await opened.undo()
            if undone is None:
                return NO_MESSAGES_TEXT
            text, after = " ".join(undone.text.split()), undone.messages - 1
            # Twice, so that its key is in the log only when it is done.
            await opened.add(make_text_message("user", "/undo"), key=idempotency_key)
            await opened.rewind(undone.position)
    short = text if len(text) <= MAX_UNDO_QUOTE_CHARS else f"{text[:MAX_UNDO_QUOTE_CHARS]}…"
    more = f" and {after} message{'' if after == 1 else 's'} with it" if after else ""
    return f"Taken back: “{short}”{more}. What tools did outside is not undone."


async def _append_pending_messages(service: AgentService, session: Session) -> None:
    """Put into the log what still waits: it was said before, too."""
    last = 0
    while letters := await service.queue.pending(session.id, after=last):
        for letter in letters:
            await session.add(
                replace_unsupported_media(letter.message, session.media_support), key=letter.key
            )
        last = letters[-1].number


async def _hide_all_messages(session: Session) -> None:
    """Nothing that was said is seen any more; model, prompt and tools stay as they are now."""
    options = session.options
    now = {one.name: getattr(options, one.name) for one in fields(options)}
    await session.rewind(1)
    await session.configure(**now)


async def _describe_context(service: AgentService, session_id: str) -> CommandReply:
    async with service.open_session(session_id) as opened:
        ledger = opened.report()
    drawn = await asyncio.to_thread(draw_context_png, ledger)
    return CommandReply(text=ledger.draw(TEXT_BAR_CHARS), monospace=True, png=drawn)


async def _compact_context(service: AgentService, session_id: str) -> str:
    async with _hold_turn_lock(service, session_id) as opened:
        done = await opened.compact()
    before, now = done.tokens_before, done.tokens_after
    if now >= before:
        return NOTHING_TO_COMPACT_TEXT
    return f"{before:,} tokens are now {now:,}, {before - now:,} less. Nothing is lost."


async def _explain_handle(service: AgentService, session_id: str, argument: str) -> str:
    if not argument.strip():
        return "Say which: /why m12, or a handle that stands in a placeholder."
    async with service.open_session(session_id) as opened:
        try:
            found = await opened.why(argument.split(maxsplit=1)[0])
        except (LookupError, ValueError) as error:
            told = str(error.args[0] if error.args else error)
            return f"{told[:1].upper()}{told[1:]}."
    lines = [f"{found.handle} {STATE_DESCRIPTIONS[found.state]}."]
    if found.event is not None:
        lines.append(f"By event {found.event}{f': {found.why}' if found.why else ''}.")
    if found.text:
        short = found.text[:MAX_WHY_QUOTE_CHARS]
        lines.append(f"It says:\n{short}{'…' if len(found.text) > len(short) else ''}")
    return "\n".join(lines)


@asynccontextmanager
async def _hold_turn_lock(service: AgentService, session_id: str) -> AsyncGenerator[Session]:
    """The session while no turn of this process runs in it."""
    async with service.open_session(session_id) as opened:
        try:
            async with asyncio.timeout(RUNNING_TURN_WAIT_S):
                await opened.turn_lock.acquire()
        except TimeoutError:
            raise _TurnStillRunning from None
        try:
            yield opened
        finally:
            opened.turn_lock.release()
