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
    simulated_model = Simulated()
    yield simulated_model
    simulated_model.close()


@pytest.fixture
def sim(simulator: Simulated) -> Simulated:
    simulator.reset()
    simulator.options(api_keys=[])
    return simulator


@pytest.fixture
def folder(tmp_path: Path, sim: Simulated) -> Path:
    """An agent's folder."""
    agent_folder = tmp_path / "agent"
    agent_folder.mkdir()
    write_agent(agent_folder, sim.url)
    return agent_folder


def environ(folder: Path) -> dict[str, str]:
    """What the chat sees: a home of its own, a key that nobody checks."""
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    variables = {"HOME": str(home), "OPENAI_API_KEY": "k", "TERM": "xterm-256color"}
    inherited_variables = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return {**variables, "LANG": "C.UTF-8", **inherited_variables}


@pytest.fixture
def open_terminal(folder: Path, tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """A function that opens a terminal in which a chat has been started."""
    if TMUX is None:
        pytest.skip(MISSING)
    terminals: list[Terminal] = []

    def opened(
        *arguments: str, columns: int = 100, lines: int = 40, cold: bool = False, **more: str
    ) -> Terminal:
        place = tmp_path / f"terminal{len(terminals)}"
        place.mkdir()
        terminal = Terminal(place, columns=columns, lines=lines)
        terminals.append(terminal)
        variables = {**environ(folder), **more}
        terminal.start([*COMMAND, *arguments], folder, variables, cold=cold)
        return terminal

    yield opened
    for each in terminals:
        each.close()


@pytest.fixture
def chat(open_terminal: Callable[..., Terminal]) -> Terminal:
    """A chat that waits for its first line."""
    terminal = open_terminal()
    terminal.ready()
    return terminal
