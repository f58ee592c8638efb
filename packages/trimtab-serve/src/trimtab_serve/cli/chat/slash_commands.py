"""Lines that begin with a slash, such as /context and /undo."""

from __future__ import annotations

import difflib
import re
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trimtab.cli.session.display import BAR_LEVEL_COLOURS, print_message_lines
from trimtab.cli.session.explanation import print_visibility_explanation
from trimtab.cli.session.view_data import build_message_lines
from trimtab.cli.text_format import escape_control_characters, format_count, shorten_to_line
from trimtab.engine.recall.tools import NOTHING_FOUND_TEXT
from trimtab.errors import MissingApiKeyError, SessionExists
from trimtab.stores.factory import is_database_address
from trimtab_serve.cli.chat.context_display import (
    classify_fill_level,
    compute_bar_width,
    describe_newly_hidden,
)
from trimtab_serve.cli.chat.state import ChatState, generate_session_id

RECALL_HEAD_ROWS = 60
"""Rows to show from the beginning of a recalled text."""
RECALL_TAIL_ROWS = 5
"""Rows to show from the end of a recalled text."""
ERASE_CONFIRMATION_WORD = "yes"
"""The word that the user types after a handle to confirm that it is to be erased."""
_COMMAND = re.compile(r"/([a-zA-Z?]+)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand:
    run: Callable[[ChatState, str], Awaitable[None]]
    """Runs the command with the text after its name."""
    argument_hint: str = ""
    """Shows what to type after the name."""
    help: str
    """What the command is for."""


def parse_slash_command(line: str) -> tuple[str, str] | None:
    """Return the name and the rest of a command line. A path such as /etc/hosts is not one."""
    match = _COMMAND.fullmatch(line.strip())
    return None if match is None else (match[1].lower(), (match[2] or "").strip())


async def run_slash_command(chat: ChatState, name: str, argument: str) -> None:
    """Run a command, and print an error if it fails."""
    command = SLASH_COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, SLASH_COMMANDS, n=1, cutoff=0.4)
        hint = f"did you mean /{near[0]}?" if near else "/help lists all commands"
        _print_text(chat, f"Unknown command /{name}; {hint}", "red")
        return
    if command.argument_hint and not command.argument_hint.startswith("[") and not argument:
        _print_text(chat, f"/{name} needs an argument: /{name} {command.argument_hint}", "red")
        return
    try:
        await command.run(chat, argument)
    except (LookupError, ValueError) as error:
        _print_text(chat, f"{_capitalise(str(error))}", "red")


async def _context(chat: ChatState, argument: str) -> None:
    match argument:
        case "":
            ledger = chat.session.report()
            style = BAR_LEVEL_COLOURS[
                classify_fill_level(ledger, chat.agent.spec.session.thresholds)
            ]
            breakdown = ledger.breakdown(compute_bar_width(chat.console))
            chat.console.print(Text(breakdown, style), no_wrap=True, overflow="ellipsis")
            _hint(chat, "/context tools and /context messages show more.")
        case "tools":
            _show_tools(chat)
        case "messages":
            window = chat.session.window
            lines = [
                line for entry in window.entries.values() for line in build_message_lines(entry)
            ]
            print_message_lines(lines, chat.console)
            if hidden_count := window.conversation.total_messages - len(window.entries):
                _hint(
                    chat,
                    f"{format_count(hidden_count, 'older message')} hidden; /search finds them.",
                )
            if not lines:
                _hint(chat, "There are no messages yet.")
        case _:
            raise ValueError(f"/context accepts tools or messages, not {argument!r}")


def _show_tools(chat: ChatState) -> None:
    """Show the tokens of each tool: its definition, its calls and its results."""
    rows: dict[str, Counter[str]] = {}
    for section in chat.session.report().sections:
        kind, separator, name = section.name.partition(": ")
        if separator:
            rows.setdefault(name, Counter())[kind] += section.tokens
    if not rows:
        _hint(chat, "There are no tools.")
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("tool", overflow="fold")
    kinds = {"definition": "tool definition", "calls": "tool call", "results": "tool result"}
    for title in (*kinds, "all"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, tokens in sorted(rows.items(), key=lambda row: -row[1].total()):
        cells = [tokens[kind] for kind in kinds.values()]
        figures = [*cells, sum(cells)]
        table.add_row(
            Text(escape_control_characters(name)),
            *(f"{figure:,}" if figure else "–" for figure in figures),
        )
    chat.console.print(table)
    _hint(chat, "Estimated tokens of the next call.")


async def _why(chat: ChatState, argument: str) -> None:
    try:
        reasons = await chat.session.why_by_part(argument)
    except LookupError as error:
        raise LookupError(f"{error}; /context messages lists all handles") from error
    for reason in reasons:
        print_visibility_explanation(reason, chat.console, f"/recall {reason.handle}")


async def _recall(chat: ChatState, argument: str) -> None:
    text = escape_control_characters(await chat.session.recall(argument))
    rows = [row for line in text.split("\n") for row in _wrap_rows(line, chat.console.width)]
    other_rows = rows[RECALL_HEAD_ROWS:-RECALL_TAIL_ROWS]
    if not other_rows:
        chat.console.out(text, highlight=False)
        return
    chat.console.out("\n".join(rows[:RECALL_HEAD_ROWS]), highlight=False)
    place = chat.agent.spec.session.store
    # A database's address holds a password, and comes from the environment as a rule.
    store = "" if is_database_address(place) else f" --store {shlex.quote(place)}"
    names = shlex.join([chat.session.id, argument])
    command = f"trimtab session recall {names}{store} | less"
    _hint(
        chat, f"… {format_count(len(other_rows), 'line')} not shown; to see all of them: {command}"
    )
    chat.console.out("\n".join(rows[-RECALL_TAIL_ROWS:]), highlight=False)


def _wrap_rows(line: str, width: int) -> list[str]:
    """Break a line as a terminal does."""
    wide = max(20, width)
    return [line[at : at + wide] for at in range(0, len(line), wide)] or [""]


async def _search(chat: ChatState, argument: str) -> None:
    snippets = await chat.session.search(argument)
    if snippets == NOTHING_FOUND_TEXT:
        _print_text(chat, f"Nothing matches {argument!r}; words match by their beginning.")
    else:
        chat.console.out(escape_control_characters(snippets), highlight=False)


async def _compact(chat: ChatState, argument: str) -> None:
    del argument
    compaction, totals = await chat.session.recorder.compact()
    before = compaction.tokens_before
    now = compaction.tokens_after
    if not totals:
        _print_text(chat, "Nothing can be compacted: the newest messages always stay.")
        return
    chat.hidden = totals
    _print_text(chat, f"{before:,} tokens are now {now:,}, which is {before - now:,} fewer.")
    _hint(
        chat,
        f"{describe_newly_hidden(totals)}. Nothing is lost: /recall HANDLE, /search WORDS.",
    )


async def _undo(chat: ChatState, argument: str) -> None:
    del argument
    undone = await chat.session.undo()
    if undone is None:
        _print_text(chat, "There is nothing to undo: you have not sent a message yet.")
        return
    text = undone.text
    after = undone.messages - 1
    ran = undone.tool_results
    chat.draft = text
    chat.hidden = ()
    notice = f"Undone: {shorten_to_line(text, 60)!r}"
    if after:
        notice += f" and {format_count(after, 'message')} after it"
    _print_text(chat, f"{notice}. It is in the input line again.")
    if ran:
        _hint(
            chat,
            f"Effects of {format_count(ran, 'tool call')} outside the session are not undone.",
        )


async def _erase(chat: ChatState, argument: str) -> None:
    # Imported here, so that a chat without /erase does not wait for the server's modules.
    from trimtab_serve.forgetting.stored_sessions import open_queue_and_schedules
    from trimtab_serve.queue.sqlite.database import QueueInUse
    from trimtab_serve.service.message_erasure import erase_message_and_copies

    handle, _, word = argument.partition(" ")
    session = chat.session
    if word.strip() != ERASE_CONFIRMATION_WORD:
        _print_text(chat, shorten_to_line(await session.recall(handle), 200))
        _hint(
            chat,
            (
                f"An erased message cannot be restored. To erase it, type: /erase {handle} "
                f"{ERASE_CONFIRMATION_WORD}"
            ),
        )
        return
    try:
        async with open_queue_and_schedules(
            chat.agent.spec.session.store, session.store, session.id
        ) as stores:
            erasure = await erase_message_and_copies(
                session, handle, why="asked for in a chat", hooks=stores.erase_hooks
            )
    except QueueInUse as busy:
        command = f"trimtab session erase {shlex.quote(session.id)} {handle}"
        raise ValueError(
            f"process {busy.holder} serves from this folder and may also hold the message; "
            f"leave with Ctrl-D, then run: {command}"
        ) from busy
    chat.forget_lines(erasure.user_texts)
    chat.hidden = ()
    more = len(erasure.handles) - 1
    more_text = f" and {format_count(more, 'message')} more" if more else ""
    _print_text(
        chat, f"Erased {erasure.handles[0]}{more_text}, also from the history of typed lines."
    )
    if erasure.forks:
        _hint(chat, f"Forks keep their own copies: {', '.join(erasure.forks)}.")


async def _fork(chat: ChatState, argument: str) -> None:
    old = chat.session
    try:
        chat.session = await old.fork(argument or generate_session_id())
    except SessionExists:
        raise ValueError(f"session {argument!r} already exists; choose another name") from None
    back = chat.format_resume_command(old.id)
    await old.close()
    _print_text(chat, f"You are now in session {chat.session.id}; {old.id} stays as it is.")
    _hint(chat, f"To go back: {back}")


async def _model(chat: ChatState, argument: str) -> None:
    session = chat.session
    if argument:
        try:
            await chat.agent.switch_model(session, argument)
        except MissingApiKeyError as error:
            raise ValueError(str(error)) from error
    ledger = session.report()
    doubt = "" if ledger.source != "default" else ", assumed because this model is unknown"
    _print_text(
        chat, f"{ledger.model}, window {ledger.limit:,} tokens{doubt}; {ledger.used:,} in use."
    )
    if argument and ledger.free < 0:
        _hint(
            chat,
            f"{-ledger.free:,} tokens do not fit and will be hidden before the next call.",
        )
    if argument:
        _hint(
            chat, "This lasts until you leave; the next chat starts with the model in agent.yaml."
        )


async def _cost(chat: ChatState, argument: str) -> None:
    del argument
    ledger = chat.session.report()
    usage = ledger.total_usage
    rows = [
        ("calls", f"{ledger.calls:,}"),
        ("input", f"{usage.input:,} tokens"),
        ("  read from the cache", f"{usage.cache_read:,} ({ledger.cache_hit or 0:.0%})"),
        ("  written to the cache", f"{usage.cache_write:,}"),
        ("output", f"{usage.output:,} tokens"),
    ]
    cost = ledger.describe_cost()
    if ledger.cost is not None:
        cost += " at list prices"
    if ledger.calls_without_cost:
        cost += (
            f": {ledger.calls_without_cost:,} calls without reported usage, or without a price of "
            f"{ledger.model}"
        )
    rows.append(("cost", cost))
    for name, value in rows:
        line = Text(f"  {name:<23}", "dim")
        line.append(escape_control_characters(value), "default")
        chat.console.print(line, soft_wrap=True)


async def _help(chat: ChatState, argument: str) -> None:
    del argument
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(style="dim")
    for name, command in SLASH_COMMANDS.items():
        if command.help:
            table.add_row(Text(f"/{name} {command.argument_hint}"), Text(command.help))
    for key, help_text in KEY_HELP.items():
        table.add_row(Text(key), Text(help_text))
    chat.console.print(Padding(table, (0, 0, 0, 2)))


async def _quit(chat: ChatState, argument: str) -> None:
    del argument
    chat.leaving = True


def _print_text(chat: ChatState, text: str, style: str = "default") -> None:
    chat.console.print(Text(escape_control_characters(text), style))


def _hint(chat: ChatState, text: str) -> None:
    chat.console.print(Text(escape_control_characters(text), "dim"))


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


SLASH_COMMANDS: dict[str, SlashCommand] = {
    "context": SlashCommand(
        run=_context,
        argument_hint="[tools | messages]",
        help="show how the next call would use its tokens, also per tool or message",
    ),
    "why": SlashCommand(
        run=_why, argument_hint="HANDLE", help="why something is hidden, and its text"
    ),
    "recall": SlashCommand(
        run=_recall, argument_hint="HANDLE", help="the exact text, hidden or not"
    ),
    "search": SlashCommand(
        run=_search, argument_hint="WORDS", help="find messages, including hidden ones"
    ),
    "compact": SlashCommand(run=_compact, help="compact the context now"),
    "undo": SlashCommand(run=_undo, help="undo your last message and everything after it"),
    "erase": SlashCommand(
        run=_erase,
        argument_hint="HANDLE",
        help="erase a message and everything derived from it",
    ),
    "fork": SlashCommand(
        run=_fork, argument_hint="[NAME]", help="continue in a copy of this session"
    ),
    "model": SlashCommand(run=_model, argument_hint="[NAME]", help="show or change the model"),
    "cost": SlashCommand(run=_cost, help="tokens and cost of this session"),
    "help": SlashCommand(run=_help, help="this list"),
    "quit": SlashCommand(run=_quit, help="leave; the session is kept"),
    "exit": SlashCommand(run=_quit, help=""),
}
KEY_HELP = {
    "Alt-Enter, Ctrl-J": "start a new line in your message",
    "Ctrl-C": "stop the turn or clear the line; press it twice to leave",
    "Ctrl-D": "leave",
}
