"""A terminal with a chat in it, against the simulator."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.serve.cli.terminal.simulated import Simulated, write_agent
from tests.serve.cli.terminal.tmux import MISSING, TMUX, Terminal

COMMAND = [sys.executable, "-m", "trimtab.cli", "chat"]


@pytest.fixture(scope="session")
def simulator() -> Iterator[Simulated]:
    made = Simulated()
    yield made
    made.close()


@pytest.fixture
def sim(simulator: Simulated) -> Simulated:
    simulator.reset()
    simulator.options(api_keys=[])
    return simulator


@pytest.fixture
def folder(tmp_path: Path, sim: Simulated) -> Path:
    """An agent's folder."""
    made = tmp_path / "agent"
    made.mkdir()
    write_agent(made, sim.url)
    return made


def environ(folder: Path) -> dict[str, str]:
    """What the chat sees: a home of its own, a key that nobody checks."""
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    own = {"HOME": str(home), "OPENAI_API_KEY": "k", "TERM": "xterm-256color"}
    passed = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return {**own, "LANG": "C.UTF-8", **passed}


@pytest.fixture
def open_terminal(folder: Path, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """A function that opens a terminal in which a chat has been started."""
    if TMUX is None:
        pytest.skip(MISSING)
    made: list[Terminal] = []

    def opened(
        *arguments: str, columns: int = 100, lines: int = 40, cold: bool = False, **more: str
    ) -> Terminal:
        place = tmp_path / f"terminal{len(made)}"
        place.mkdir()
        terminal = Terminal(place, columns=columns, lines=lines)
        made.append(terminal)
        own = {**environ(folder), **more}
        terminal.start([*COMMAND, *arguments], folder, own, cold=cold)
        return terminal

    yield opened
    for each in made:
        each.close()


@pytest.fixture
def chat(open_terminal: Callable[..., Terminal]) -> Terminal:
    """A chat that waits for its first line."""
    terminal = open_terminal()
    terminal.ready()
    return terminal
