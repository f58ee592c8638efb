"""A real terminal: tmux on a socket of its own, with bounded waits instead of sleeps."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

TMUX = shutil.which("tmux")
MISSING = "tmux is not installed"
PATIENCE = 60.0
"""Seconds after which what was waited for counts as missing."""


class Terminal:
    """One window of a fixed size, with one program in it."""

    def __init__(self, folder: Path, *, columns: int = 100, lines: int = 40) -> None:
        self._socket = str(folder / "tmux")
        self._size = ["-x", str(columns), "-y", str(lines)]
        self._log = folder / "terminal.log"
        self._pid = folder / "pid"
        self._status = folder / "status"

    def start(self, command: list[str], cwd: Path, environ: Mapping[str, str]) -> None:
        """Run it as a terminal's shell would; the window stays when it has ended."""
        told = [f"{name}={value}" for name, value in environ.items()]
        line = shlex.join(["env", *told, *command])
        new = ["new-session", "-d", "-s", "t", *self._size, "-c", str(cwd), "cat"]
        self._tmux("-f", "/dev/null", *new)
        self._tmux("set-option", "-g", "remain-on-exit", "on")
        self._tmux("set-option", "-g", "history-limit", "50000")
        self.again(line)

    def again(self, command: str | list[str]) -> None:
        """Another program in the same window, whose screen is cleared."""
        line = command if isinstance(command, str) else shlex.join(command)
        self._pid.unlink(missing_ok=True)
        self._status.unlink(missing_ok=True)
        # tmux itself sometimes misses the end of a program: a shell writes down how it ended, and
        # does not end with it of the same Ctrl-C.
        pid, status = shlex.quote(str(self._pid)), shlex.quote(str(self._status))
        inner = shlex.quote(f'echo $$ > {pid}; exec "$@"')
        told = f"echo $? > {status}.new; mv {status}.new {status}"
        whole = f"trap : INT HUP TERM; sh -c {inner} sh {line}; {told}"
        self._tmux("respawn-pane", "-k", "-t", "t", shlex.join(["sh", "-c", whole]))
        self._tmux("clear-history", "-t", "t")
        self._tmux("pipe-pane", "-t", "t", f"cat >> {shlex.quote(str(self._log))}")

    def type(self, text: str) -> None:
        """Letters, as they are."""
        self._tmux("send-keys", "-t", "t", "-l", text)

    def press(self, *keys: str) -> None:
        """Keys by their names: Enter, C-c, M-Enter."""
        self._tmux("send-keys", "-t", "t", *keys)

    def paste(self, text: str) -> None:
        """Text as a mouse pastes it."""
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p", "-t", "t")

    def enter(self, text: str) -> None:
        """A line, once all of it can be seen."""
        self.type(text)
        whole = "".join(text.split())
        self.until(lambda seen: "".join(seen.split()).endswith(whole), f"the line {text!r}")
        self.press("Enter")

    def screen(self, *, colours: bool = False, all_of_it: bool = True) -> str:
        """What can be seen, with what has scrolled away."""
        shown = ["capture-pane", "-p", "-t", "t", *(["-e"] if colours else [])]
        return self._tmux(*shown, *(["-S", "-"] if all_of_it else []))

    def raw(self) -> bytes:
        """All bytes that were written to the terminal."""
        return self._log.read_bytes() if self._log.exists() else b""

    def wait(self, text: str, *, times: int = 1, seconds: float = PATIENCE) -> str:
        """Until the text can be seen so many times; returns the screen."""
        return self.until(lambda seen: seen.count(text) >= times, repr(text), seconds)

    def until(
        self, holds: Callable[[str], bool], what: str = "it", seconds: float = PATIENCE
    ) -> str:
        """Until something holds of the screen; returns it."""
        end = time.monotonic() + seconds
        while True:
            seen = self.screen()
            if holds(seen):
                return seen
            if time.monotonic() > end:
                raise AssertionError(f"{what} did not come within {seconds:g} s:\n{seen}")
            _pause()

    def ready(self, seconds: float = PATIENCE) -> str:
        """Until the last line is an empty prompt; returns the screen."""
        return self.until(lambda seen: last_line(seen) == ">", "a prompt", seconds)

    def pid(self) -> int:
        """Of the program."""
        return int(self._pid.read_text(encoding="ascii"))

    def resize(self, columns: int, lines: int) -> None:
        self._tmux("resize-window", "-t", "t", "-x", str(columns), "-y", str(lines))

    def ended(self, seconds: float = PATIENCE) -> int:
        """The program's exit status, once it has one; what a signal has ended has 128 and more."""
        end = time.monotonic() + seconds
        while not self._status.exists():
            if time.monotonic() > end:
                raise AssertionError(f"it still runs after {seconds:g} s:\n{self.screen()}")
            _pause()
        return int(self._status.read_text(encoding="ascii"))

    def close(self) -> None:
        subprocess.run(
            [str(TMUX), "-S", self._socket, "kill-server"], capture_output=True, check=False
        )

    def _tmux(self, *arguments: str) -> str:
        # Whoever runs the tests in parallel says how wide its own paper is.
        own = ("TMUX", "COLUMNS", "LINES")
        environ = {name: value for name, value in os.environ.items() if name not in own}
        done = subprocess.run(
            [str(TMUX), "-u", "-S", self._socket, *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            env={**environ, "TERM": "xterm-256color"},
        )
        if done.returncode:
            raise AssertionError(f"tmux {' '.join(arguments)}: {done.stderr}")
        return done.stdout


def last_line(seen: str) -> str:
    lines = [line.rstrip() for line in seen.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _pause() -> None:
    """A moment between two looks; what is waited for is a condition, not the time."""
    time.sleep(0.02)
