"""The chat commands that users can send on every platform."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from trimtab.dialects.media import replace_unsupported_media
from trimtab.engine.log.message import make_text_message
from trimtab.engine.recall.visibility import STATE_DESCRIPTIONS
from trimtab.options import CONFIGURABLE_OPTIONS
from trimtab.session import Session
from trimtab_serve.channels.context_image import draw_context_png
from trimtab_serve.service.put_off import find_log_key
from trimtab_serve.service.service import AgentService

RUNNING_TURN_WAIT_S = 5.0
"""Seconds that a command waits for the running turn. The chat may wait just as long."""
TEXT_BAR_CHARS = 22
"""Width of the bar in a text, in characters. A phone shows this on one line."""
MAX_UNDO_QUOTE_CHARS = 60
"""Maximum number of characters of a text that `undo` shows."""
MAX_WHY_QUOTE_CHARS = 600
"""Maximum number of characters of a text that `why` shows."""
BUSY_TEXT = "I'm still working on the previous message. Please try again in a moment."
NO_MESSAGES_TEXT = "There are no messages here yet."
STOPPING_TEXT = "I'm stopping."
NOT_RUNNING_TEXT = (
    "I'm not working on a reply here. If another process is working on one, it stops now."
)
NOTHING_TO_COMPACT_TEXT = "There is nothing to compact: the newest messages always stay."


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCommand:
    """A command that users can send."""

    help: str
    """What it does."""
    argument: str = ""
    """What follows its name."""


CHAT_COMMANDS = {
    "help": ChatCommand(help="this list"),
    "reset": ChatCommand(help="start a new conversation; the old one stays in the log"),
    "undo": ChatCommand(help="undo your last message and all after it"),
    "context": ChatCommand(help="how full my context is, and what fills it"),
    "compact": ChatCommand(help="compact my context now"),
    "why": ChatCommand(argument="HANDLE", help="why a message such as m12 is shown or hidden"),
    "stop": ChatCommand(help="stop the running reply and its tools"),
}
"""The commands by name, without the slash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandReply:
    """The answer to a command."""

    text: str
    """The answer in words. Empty if the command was carried out before."""
    monospace: bool = False
    """Whether the text has columns and needs a monospaced font."""
    png: bytes | None = None
    """The same as a PNG, if there is one."""


class _TurnStillRunning(Exception):
    """A turn is running and does not end soon."""


async def run_chat_command(
    service: AgentService, session_id: str, command: str, argument: str, *, idempotency_key: str
) -> CommandReply:
    """Carry out a command in a session. If it is not possible, the reply says why.

    The key identifies the request, so a command that arrives twice is carried out once. Raises the
    errors of the store.
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
                raise ValueError(f"unknown command {command!r}")
    except _TurnStillRunning:
        return CommandReply(text=BUSY_TEXT)


def format_command_help(commands: Mapping[str, ChatCommand]) -> str:
    """Return a list of commands, one per line."""
    lines = (
        f"/{name}{f' {verb.argument}' if verb.argument else ''} – {verb.help}"
        for name, verb in commands.items()
    )
    return "\n".join(lines)


async def _reset_session(service: AgentService, session_id: str, idempotency_key: str) -> str:
    """Undo all messages. The log keeps them, and their keys stay known."""
    async with _change_once(service, session_id, idempotency_key) as session:
        if session is None:
            return ""
        before = len(session.window.entries)
        await service.agent_for(session_id).reset_session_budget(session)
        await _hide_all_messages(session)
        # Hide again after the key: it must be in the log only when the messages are hidden.
        await session.add(make_text_message("user", "/reset"), key=idempotency_key)
        await _hide_all_messages(session)
    count_text = f"{before} earlier message{'' if before == 1 else 's'}"
    return f"This is a new conversation: I no longer see the {count_text}. The log still has them."


async def _undo_last_message(service: AgentService, session_id: str, idempotency_key: str) -> str:
    """Undo the newest message of the user and everything after it."""
    async with _change_once(service, session_id, idempotency_key) as session:
        if session is None:
            return ""
        undone = await session.undo()
        if undone is None:
            return NO_MESSAGES_TEXT
        text = " ".join(undone.text.split())
        after = undone.messages - 1
        # Add the key after the undo, and hide the command again.
        await session.add(make_text_message("user", "/undo"), key=idempotency_key)
        await session.rewind(undone.position)
    short = text if len(text) <= MAX_UNDO_QUOTE_CHARS else f"{text[:MAX_UNDO_QUOTE_CHARS]}…"
    more = f" and {after} message{'' if after == 1 else 's'} with it" if after else ""
    return f"Undone: “{short}”{more}. Effects of tools are not undone."


@asynccontextmanager
async def _change_once(
    service: AgentService, session_id: str, idempotency_key: str
) -> AsyncGenerator[Session | None]:
    """Stop the turn and hold the session, after adding the waiting messages to its log.

    Yield None if the key is known: the command was done before, and more messages may have come
    since.
    """
    service.stop_turn(session_id)
    async with _hold_turn_lock(service, session_id) as session:
        if await service.store.find_key(session_id, idempotency_key) is not None:
            yield None
            return
        async with session.claim_turn(wait=None):
            await _append_pending_messages(service, session)
            yield session


async def _append_pending_messages(service: AgentService, session: Session) -> None:
    """Add the waiting messages to the log, because they came before the command."""
    last = 0
    while waiting := await service.queue.pending(session.id, after=last):
        for inbound in waiting:
            await session.add(
                replace_unsupported_media(inbound.message, session.media_support),
                key=await find_log_key(session, inbound.key),
            )
        last = waiting[-1].number


async def _hide_all_messages(session: Session) -> None:
    """Hide all messages. Model, prompt and tools stay as they are now."""
    options = session.options
    now = {name: getattr(options, name) for name in CONFIGURABLE_OPTIONS}
    await session.rewind(1)
    await session.configure(**now)


async def _describe_context(service: AgentService, session_id: str) -> CommandReply:
    async with service.open_session(session_id) as session:
        ledger = session.report()
    png = await asyncio.to_thread(draw_context_png, ledger)
    return CommandReply(text=ledger.draw(TEXT_BAR_CHARS), monospace=True, png=png)


async def _compact_context(service: AgentService, session_id: str) -> str:
    async with _hold_turn_lock(service, session_id) as session:
        compaction = await session.compact()
    before = compaction.tokens_before
    now = compaction.tokens_after
    if now >= before:
        return NOTHING_TO_COMPACT_TEXT
    return f"{before:,} tokens are now {now:,}, {before - now:,} less. Nothing is lost."


async def _explain_handle(service: AgentService, session_id: str, argument: str) -> str:
    if not argument.strip():
        return "Add a handle, such as /why m12 or the handle in a placeholder."
    async with service.open_session(session_id) as session:
        try:
            visibility = await session.why(argument.split(maxsplit=1)[0])
        except (LookupError, ValueError) as error:
            reason = str(error.args[0] if error.args else error)
            return f"{reason[:1].upper()}{reason[1:]}."
    lines = [f"{visibility.handle} {STATE_DESCRIPTIONS[visibility.state]}."]
    if visibility.event is not None:
        cause = f": {visibility.reason}" if visibility.reason else ""
        lines.append(f"Caused by event {visibility.event}{cause}.")
    if visibility.text:
        short = visibility.text[:MAX_WHY_QUOTE_CHARS]
        lines.append(f"Text:\n{short}{'…' if len(visibility.text) > len(short) else ''}")
    return "\n".join(lines)


@asynccontextmanager
async def _hold_turn_lock(service: AgentService, session_id: str) -> AsyncGenerator[Session]:
    """Yield the session while no turn of this process runs in it."""
    async with service.open_session(session_id) as session:
        turn_lock = session.recorder.turn_lock
        try:
            async with asyncio.timeout(RUNNING_TURN_WAIT_S):
                await turn_lock.acquire()
        except TimeoutError:
            raise _TurnStillRunning from None
        try:
            yield session
        finally:
            turn_lock.release()
