"""What a line that begins with a slash does."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from rich.box import SIMPLE_HEAD
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trimtab.cli.chat.display import bar_width, hidden_words, level_of
from trimtab.cli.chat.naming import new_id
from trimtab.cli.chat.talk import Talk
from trimtab.cli.session_show import LEVELS, show_messages
from trimtab.cli.session_view import lines_of
from trimtab.cli.session_why import reasons, show_reason
from trimtab.cli.words import brief, counted, plain
from trimtab.core.policies.asked import asked
from trimtab.core.policies.knobs import knobs_from
from trimtab.core.recall import NOTHING
from trimtab.core.rejected import undoing
from trimtab.providers.choose import MissingKey
from trimtab.session.hiding import hidden_since
from trimtab.stores.choose import is_database

RECALLED = 60
"""Rows of a recalled text that are shown from its beginning."""
ENDING = 5
"""Rows of it that are shown from its end."""
SURE = "yes"
"""What must stand behind a handle that is to be erased."""
_COMMAND = re.compile(r"/([a-zA-Z?]+)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    run: Callable[[Talk, str], Awaitable[None]]
    """What it does, with what is typed behind its name."""
    takes: str = ""
    """What is typed behind its name."""
    help: str
    """What it is for."""


def command_in(line: str) -> tuple[str, str] | None:
    """The name and the rest of a line that is a command; a path such as /etc/hosts is none."""
    found = _COMMAND.fullmatch(line.strip())
    return None if found is None else (found[1].lower(), (found[2] or "").strip())


async def obey(talk: Talk, name: str, rest: str) -> None:
    """Do what a command says; what it cannot, it says."""
    command = COMMANDS.get(name)
    if command is None:
        near = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.4)
        hint = f"did you mean /{near[0]}?" if near else "/help lists all"
        _say(talk, f"There is no /{name}; {hint}", "red")
        return
    if command.takes and not command.takes.startswith("[") and not rest:
        _say(talk, f"/{name} needs to know what: /{name} {command.takes}", "red")
        return
    try:
        await command.run(talk, rest)
    except (LookupError, ValueError) as error:
        _say(talk, f"{_sentence(str(error))}", "red")


async def _context(talk: Talk, rest: str) -> None:
    match rest:
        case "":
            ledger = talk.session.report()
            style = LEVELS[level_of(ledger, talk.agent.spec.session.thresholds)]
            drawn = ledger.breakdown(bar_width(talk.console))
            talk.console.print(Text(drawn, style), no_wrap=True, overflow="ellipsis")
            _hint(talk, "/context tools and /context messages tell more.")
        case "tools":
            _show_tools(talk)
        case "messages":
            window = talk.session.window
            lines = [line for entry in window.entries.values() for line in lines_of(entry)]
            show_messages(lines, talk.console)
            if gone := window.said - len(window.entries):
                _hint(talk, f"{counted(gone, 'older message')} hidden; /search finds them.")
            if not lines:
                _hint(talk, "Nothing was said yet.")
        case _:
            raise ValueError(f"/context knows tools and messages, not {rest!r}")


def _show_tools(talk: Talk) -> None:
    """What each tool takes: its definition, its calls and its results."""
    rows: dict[str, Counter[str]] = {}
    for section in talk.session.report().sections:
        kind, found, name = section.name.partition(": ")
        if found:
            rows.setdefault(name, Counter())[kind] += section.tokens
    if not rows:
        _hint(talk, "There are no tools.")
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("tool", overflow="fold")
    kinds = {"definition": "tool definition", "calls": "tool call", "results": "tool result"}
    for title in (*kinds, "all"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, tokens in sorted(rows.items(), key=lambda row: -row[1].total()):
        cells = [tokens[kind] for kind in kinds.values()]
        figures = [*cells, sum(cells)]
        table.add_row(Text(plain(name)), *(f"{figure:,}" if figure else "–" for figure in figures))
    talk.console.print(table)
    _hint(talk, "Tokens, estimated, as the next call would send them.")


async def _why(talk: Talk, rest: str) -> None:
    try:
        found = await reasons(talk.session.store, talk.session.id, rest)
    except LookupError as error:
        raise LookupError(
            f"no message is called {rest}; /context messages lists those that there are"
        ) from error
    for reason in found:
        show_reason(reason, talk.console, f"/recall {reason.handle}")


async def _recall(talk: Talk, rest: str) -> None:
    text = plain(await talk.session.recall(rest))
    rows = [row for line in text.split("\n") for row in _rows(line, talk.console.width)]
    left = rows[RECALLED:-ENDING]
    if not left:
        talk.console.out(text, highlight=False)
        return
    talk.console.out("\n".join(rows[:RECALLED]), highlight=False)
    place = talk.agent.spec.session.store
    # A database's address holds a password, and comes from the environment as a rule.
    store = "" if is_database(place) else f" --store {place}"
    command = f"trimtab session recall {talk.session.id} {rest}{store} | less"
    _hint(talk, f"… {counted(len(left), 'line')} not shown; all of it: {command}")
    talk.console.out("\n".join(rows[-ENDING:]), highlight=False)


def _rows(line: str, width: int) -> list[str]:
    """A line as a terminal breaks it."""
    wide = max(20, width)
    return [line[at : at + wide] for at in range(0, len(line), wide)] or [""]


async def _search(talk: Talk, rest: str) -> None:
    found = await talk.session.search(rest)
    if found == NOTHING:
        _say(talk, f"Nothing holds {rest!r}; words match by how they begin.")
    else:
        talk.console.out(plain(found), highlight=False)


async def _compact(talk: Talk, rest: str) -> None:
    del rest
    session = talk.session
    before, position = session.report().used, session.window.seq
    covered = session.window.summary.last if session.window.summary is not None else 0
    knobs = knobs_from(session.options.context)
    await session.apply_policy(partial(asked, knobs=knobs))
    now = session.report().used
    hidden = await hidden_since(
        session.store, session.id, session.window, position, covered=covered
    )
    if not hidden:
        _say(talk, "There is nothing to make smaller: the newest messages always stay.")
        return
    talk.hidden = hidden
    _say(talk, f"{before:,} tokens are now {now:,}, {before - now:,} less.")
    _hint(talk, f"{hidden_words(hidden)}. Nothing is lost: /recall HANDLE, /search WORDS.")


async def _undo(talk: Talk, rest: str) -> None:
    del rest
    window = talk.session.window
    user, first = window.newest_user, undoing(window)
    if user is None or first is None:
        _say(talk, "There is nothing to undo: you have said nothing yet.")
        return
    after = [entry for seq, entry in window.entries.items() if seq > user.seq]
    ran = sum(len(entry.message.results) for entry in after)
    text = user.message.text
    await talk.session.rewind(first.seq - 1)
    talk.draft, talk.hidden = text, ()
    told = f"Undone: {brief(text, 60)!r}"
    if after:
        told += f" and {counted(len(after), 'message')} behind it"
    _say(talk, f"{told}. It is in the input line again.")
    if ran:
        _hint(talk, f"What {counted(ran, 'tool call')} did outside of the session is not undone.")


async def _erase(talk: Talk, rest: str) -> None:
    # Who never erases anything does not wait for what serves.
    from trimtab.worker.desk import kept
    from trimtab.worker.erasing import erase
    from trimtab.worker.files_log import MailBusy

    handle, _, word = rest.partition(" ")
    session = talk.session
    if word.strip() != SURE:
        _say(talk, brief(await session.recall(handle), 200))
        _hint(
            talk, f"Once erased it cannot be brought back. To do it, type: /erase {handle} {SURE}"
        )
        return
    try:
        async with kept(talk.agent.spec.session.store, session.store, session.id) as found:
            done = await erase(session, handle, why="asked for in a chat", beside=found.beside)
    except MailBusy as busy:
        command = f"trimtab session erase {session.id} {handle}"
        raise ValueError(
            f"process {busy.holder} serves from this folder and may hold the message as well; "
            f"leave with Ctrl-D, then: {command}"
        ) from busy
    talk.forget(done.said)
    talk.hidden = ()
    more = len(done.handles) - 1
    told = f" and {counted(more, 'message')} more" if more else ""
    _say(talk, f"Erased {done.handles[0]}{told}, also from the lines that you have typed.")
    if done.forks:
        _hint(talk, f"Forks keep copies of their own: {', '.join(done.forks)}.")


async def _fork(talk: Talk, rest: str) -> None:
    old = talk.session
    if rest and await old.store.position(rest):
        raise ValueError(f"there is a session {rest!r} already; choose another name")
    talk.session = await old.fork(rest or new_id())
    back = talk.again(old.id)
    await old.close()
    _say(talk, f"This is session {talk.session.id} now; {old.id} stays as it is.")
    _hint(talk, f"Back to it: {back}")


async def _model(talk: Talk, rest: str) -> None:
    session = talk.session
    if rest:
        try:
            await talk.agent.use(session, rest)
        except MissingKey as error:
            raise ValueError(str(error)) from error
    ledger = session.report()
    known = "" if ledger.source != "default" else ", assumed: nobody knows this model"
    _say(talk, f"{ledger.model}, window {ledger.limit:,} tokens{known}; {ledger.used:,} in use.")
    if rest and ledger.free < 0:
        _hint(talk, f"{-ledger.free:,} tokens too many: they are hidden before the next call.")
    if rest:
        _hint(talk, "It holds until you leave; agent.yaml says what the next chat begins with.")


async def _cost(talk: Talk, rest: str) -> None:
    del rest
    ledger = talk.session.report()
    used = ledger.total_usage
    rows = [
        ("calls", f"{ledger.calls:,}"),
        ("input", f"{used.input:,} tokens"),
        ("  read from the cache", f"{used.cache_read:,} ({ledger.cache_hit or 0:.0%})"),
        ("  written to it", f"{used.cache_write:,}"),
        ("output", f"{used.output:,} tokens"),
    ]
    if ledger.cost is not None:
        rows.append(("cost", f"${ledger.cost:.4f} at list prices"))
    else:
        rows.append(("cost", f"not known: the catalog has no price for {ledger.model}"))
    for name, value in rows:
        line = Text(f"  {name:<23}", "dim")
        line.append(plain(value), "default")
        talk.console.print(line, soft_wrap=True)


async def _help(talk: Talk, rest: str) -> None:
    del rest
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(style="dim")
    for name, command in COMMANDS.items():
        if command.help:
            table.add_row(Text(f"/{name} {command.takes}"), Text(command.help))
    for key, told in KEYS.items():
        table.add_row(Text(key), Text(told))
    talk.console.print(Padding(table, (0, 0, 0, 2)))


async def _quit(talk: Talk, rest: str) -> None:
    del rest
    talk.leaving = True


def _say(talk: Talk, text: str, style: str = "default") -> None:
    talk.console.print(Text(plain(text), style))


def _hint(talk: Talk, text: str) -> None:
    talk.console.print(Text(plain(text), "dim"))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


COMMANDS: dict[str, Command] = {
    "context": Command(
        run=_context,
        takes="[tools | messages]",
        help="where the tokens of the next call go; per tool, or per message",
    ),
    "why": Command(run=_why, takes="HANDLE", help="why something is hidden, and what it says"),
    "recall": Command(run=_recall, takes="HANDLE", help="a text as it was said, hidden or not"),
    "search": Command(run=_search, takes="WORDS", help="find messages, hidden ones too"),
    "compact": Command(run=_compact, help="make the context smaller now"),
    "undo": Command(run=_undo, help="take back your last message and all behind it"),
    "erase": Command(
        run=_erase, takes="HANDLE", help="destroy a message, also in what is made from it"
    ),
    "fork": Command(run=_fork, takes="[NAME]", help="go on in a copy of this session"),
    "model": Command(run=_model, takes="[NAME]", help="say or change who answers"),
    "cost": Command(run=_cost, help="tokens and dollars of this session"),
    "help": Command(run=_help, help="this list"),
    "quit": Command(run=_quit, help="leave; the session stays"),
    "exit": Command(run=_quit, help=""),
}
KEYS = {
    "Alt-Enter, Ctrl-J": "a new line in your message",
    "Ctrl-C": "stop the turn; clear the line; twice, leave",
    "Ctrl-D": "leave",
}
