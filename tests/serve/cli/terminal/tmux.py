"""A real terminal: tmux on a socket of its own, with bounded waits instead of sleeps."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests import warm

TMUX = shutil.which("tmux")
MISSING = "tmux is not installed"
PATIENCE = 60.0
"""Seconds after which what was waited for counts as missing."""

KEEPER = str(Path(__file__).with_name("keeper.py"))
GIVE_UP_TERMINAL = """
import fcntl, signal, termios
signal.signal(signal.SIGHUP, signal.SIG_IGN)
fcntl.ioctl(0, termios.TIOCNOTTY)
signal.pause()
"""
"""A terminal belongs to one session: tmux gives it to the process that it starts, which gives it to
the one that was forked."""


class Terminal:
    """One window of a fixed size, with one program in it."""

    def __init__(self, folder: Path, *, columns: int = 100, lines: int = 40) -> None:
        self._socket = str(folder / "tmux")
        self._size = ["-x", str(columns), "-y", str(lines)]
        self._log = folder / "terminal.log"
        self._pid = folder / "pid"
        self._status = folder / "status"
        self._keeper: warm.Popen[bytes] | None = None

    def start(
        self, command: list[str], cwd: Path, environ: Mapping[str, str], *, cold: bool = False
    ) -> None:
        """Run it as a terminal's shell would; the window stays when it has ended. `python -m` is
        forked unless it is to start from nothing."""
        variables = [f"{name}={value}" for name, value in environ.items()]
        line = shlex.join(["env", *variables, *command])
        new = ["new-session", "-d", "-s", "t", *self._size, "-c", str(cwd), "cat"]
        self._tmux("-f", "/dev/null", *new)
        self._tmux("set-option", "-g", "remain-on-exit", "on")
        self._tmux("set-option", "-g", "history-limit", "50000")
        if cold or sys.platform != "linux" or command[:2] != [sys.executable, "-m"]:
            self.again(line)
        else:
            self._fork(command[2:], cwd, environ)

    def again(self, command: str | list[str]) -> None:
        """Another program in the same window, whose screen is cleared."""
        line = command if isinstance(command, str) else shlex.join(command)
        # tmux itself sometimes misses the end of a program: a shell writes down how it ended, and
        # does not end with it of the same Ctrl-C.
        pid, status = shlex.quote(str(self._pid)), shlex.quote(str(self._status))
        inner = shlex.quote(f'echo $$ > {pid}; exec "$@"')
        report_line = f"echo $? > {status}.new; mv {status}.new {status}"
        whole = f"trap : INT HUP TERM; sh -c {inner} sh {line}; {report_line}"
        self._respawn(["sh", "-c", whole])

    def _fork(self, program: list[str], cwd: Path, environ: Mapping[str, str]) -> None:
        """A program in the window whose terminal the window's own process does not want."""
        self._respawn([sys.executable, "-I", "-S", "-c", GIVE_UP_TERMINAL])
        name = self._tmux("display-message", "-p", "-t", "t", "#{pane_tty}").strip()
        terminal = os.open(name, os.O_RDWR | os.O_NOCTTY)
        try:
            self._keeper = warm.Popen(
                [sys.executable, KEEPER, str(self._pid), str(self._status), *program],
                cwd=cwd,
                env={**self._environ(), **environ},
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                start_new_session=True,
            )
        finally:
            os.close(terminal)

    def _respawn(self, command: list[str]) -> None:
        self._pid.unlink(missing_ok=True)
        self._status.unlink(missing_ok=True)
        self._tmux("respawn-pane", "-k", "-t", "t", shlex.join(command))
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
        arguments = ["capture-pane", "-p", "-t", "t", *(["-e"] if colours else [])]
        return self._tmux(*arguments, *(["-S", "-"] if all_of_it else []))

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
            screen_text = self.screen()
            if holds(screen_text):
                return screen_text
            if time.monotonic() > end:
                raise AssertionError(f"{what} did not come within {seconds:g} s:\n{screen_text}")
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
        if self._keeper is not None:
            self._keeper.kill()
            self._keeper.wait(PATIENCE)

    def _tmux(self, *arguments: str) -> str:
        process = subprocess.run(
            [str(TMUX), "-u", "-S", self._socket, *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            env=self._environ(),
        )
        if process.returncode:
            raise AssertionError(f"tmux {' '.join(arguments)}: {process.stderr}")
        return process.stdout

    def _environ(self) -> dict[str, str]:
        # Whoever runs the tests in parallel says how wide its own paper is.
        own_names = ("TMUX", "COLUMNS", "LINES")
        environ = {name: value for name, value in os.environ.items() if name not in own_names}
        return {**environ, "TERM": "xterm-256color"}


def last_line(seen: str) -> str:
    lines = [line.rstrip() for line in seen.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _pause() -> None:
    """A moment between two looks; what is waited for is a condition, not the time."""
    time.sleep(0.02)
