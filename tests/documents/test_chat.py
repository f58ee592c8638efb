"""Documents 1, 3 and 4 at the command line: `trimtab chat` and what looks into its sessions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.documents.product import (
    CHAT_COMMAND,
    ROLLING,
    SUMMARY,
    TOLD,
    Done,
    Life,
    agent_file,
    command,
    folder_store,
    served_model,
    session_block,
)
from tests.documents.reading import dumped, texts
from tests.serve.cli.terminal.tmux import MISSING, TMUX, Terminal

QUESTION = ("And what of the last offer? " * 8).strip()


def long_ago(folder: Path, exchanges: int) -> list[str]:
    """Let a session have a past; returns what was said in it."""
    said: list[str] = []

    async def talk() -> None:
        life = await Life.begin(ROLLING, store=folder_store(folder / "sessions"), name="s")
        for number in range(exchanges):
            said.append(f"Question {number}: " + f"what of offer {number}, in detail? " * 8)
            await life.user(said[-1])
            said.append(f"Answer {number}: " + f"offer {number} has its points, so far. " * 8)
            await life.reply(said[-1])
        await life.close()

    asyncio.run(talk())
    return said


def ask(folder: Path, question: str) -> None:
    done = command("chat", "--json", "--session", "s", question, folder=folder)
    assert done.code == 0, done.told


@dataclass
class Chat:
    """A conversation of 14 messages, two questions more, and what was seen of it."""

    folder: Path
    said: list[str]
    asked: list[dict[str, Any]]
    """What the provider got: the first question, the summary, the second question."""
    shown: Done
    last_call: Done


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Chat:
    folder = tmp_path_factory.mktemp("chat")
    said = long_ago(folder, 7)
    with served_model() as model:
        model.script("It is the best.", SUMMARY, otherwise="As you wish.")
        agent_file(folder, model.url, session=session_block(ROLLING))
        ask(folder, QUESTION)
        ask(folder, "And now?")
        shown = command("session", "show", "s", folder=folder)
        last = command("session", "show", "s", "--call", "last", "--json", folder=folder)
        return Chat(folder, said, model.requests(), shown, last)


@contextmanager
def terminal_above(chat: Chat, place: Path, share: float) -> Generator[Terminal]:
    """A real terminal whose chat shows the display above a share of the window."""
    if TMUX is None:
        pytest.skip(MISSING)
    # Nobody is asked: what is shown is what the store holds.
    nowhere = "http://127.0.0.1:9"
    agent_file(chat.folder, nowhere, session=session_block(ROLLING, display=share))
    terminal = Terminal(place)
    environ = {"HOME": str(place), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    try:
        terminal.start([*CHAT_COMMAND, "--session", "s"], chat.folder, environ)
        yield terminal
    finally:
        terminal.close()


@pytest.fixture(scope="module")
def screens(chat: Chat, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What is on the terminal when the chat has begun, and after `/context`."""
    with terminal_above(chat, tmp_path_factory.mktemp("terminal"), 0.01) as terminal:
        begun = terminal.ready()
        terminal.enter("/context")
        terminal.wait("output reserve")
        return begun, terminal.ready()


def test_the_request_of_the_last_call_is_shown_as_the_provider_got_it(chat):
    shown = json.loads(chat.last_call.out)
    assert shown == chat.asked[-1]


def test_claudes_summaries_are_asked_of_a_haiku_without_any_setting(chat):
    asked, summarised, again = (request["model"] for request in chat.asked)
    assert "haiku" in summarised
    assert "haiku" not in asked
    assert again == asked
    assert "Question 0:" in dumped(chat.asked[1]["messages"])


def test_a_later_command_sends_the_summary_and_the_recent_messages_from_the_store(chat):
    front, *recent = texts(chat.asked[-1])
    assert TOLD in front
    assert recent == [*chat.said[6:], QUESTION, "It is the best.", "And now?"]


def test_the_window_that_the_file_sets_binds(tmp_path):
    said = long_ago(tmp_path, 2)
    with served_model() as model:
        model.script("It is the best.", SUMMARY, otherwise="As you wish.")
        agent_file(tmp_path, model.url, session=session_block(ROLLING, window=5, keep=2))
        ask(tmp_path, QUESTION)
        ask(tmp_path, "And now?")
        before, _, after = model.requests()
    assert texts(before) == [*said, QUESTION]
    front, *recent = texts(after)
    assert TOLD in front
    assert recent == [QUESTION, "It is the best.", "And now?"]


def test_a_session_is_shown_with_the_display(chat):
    assert chat.shown.code == 0
    lines = chat.shown.out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.strip() == "Context Usage")
    told = [line.split(":")[0].strip(" ├└─") for line in lines[at + 2 : at + 7]]
    assert told == ["System", "Context summary", "Tool output", "Messages", "Free space"]


@pytest.mark.process
def test_the_display_stands_before_the_users_input_above_the_threshold_of_the_file(screens):
    begun, _ = screens
    before_input = begun[: begun.rindex("\n>")]
    assert "Context Usage" in before_input
    # Another process has read from the store what this one has written.
    assert "Context summary:" in before_input


@pytest.mark.process
@pytest.mark.soak
def test_the_display_does_not_stand_before_the_users_input_below_the_threshold(chat, tmp_path):
    with terminal_above(chat, tmp_path, 0.99) as terminal:
        begun = terminal.ready()
    assert "18 messages so far" in begun
    assert "Context" not in begun


@pytest.mark.process
def test_the_display_is_drawn_on_demand(screens):
    _, asked = screens
    drawn = asked[asked.index("> /context") :]
    for line in ("Context Usage", "System:", "Tool output:", "Messages:", "Free space:"):
        assert line in drawn
