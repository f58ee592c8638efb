"""What stands between a terminal and a program in it that was forked.

As a shell does, it writes down which process the program is and how it has ended, and does not end
with it of the same Ctrl-C. Its arguments are two files, the module of the program, and the
program's arguments.
"""

from __future__ import annotations

import fcntl
import os
import runpy
import signal
import sys
import termios
import time
from pathlib import Path

PATIENCE = 60.0
"""Seconds until the terminal must have been given up by who had it before."""


def main() -> None:
    pid_file, status_file, module, *arguments = sys.argv[1:]
    signals = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
    }
    for number in signals:
        signal.signal(number, lambda *_: None)
    take_terminal()
    pid = os.fork()
    if pid:
        Path(pid_file).write_text(str(pid), encoding="ascii")
        exit_code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        new_file = Path(f"{status_file}.new")
        new_file.write_text(str(exit_code if exit_code >= 0 else 128 - exit_code), encoding="ascii")
        new_file.rename(status_file)
        while True:  # What is on the screen goes with its terminal.
            signal.pause()
    for number, action in signals.items():
        signal.signal(number, action)
    sys.argv[1:] = arguments
    sys.path[0] = str(Path.cwd())
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def take_terminal() -> None:
    """Make standard input the terminal of this session."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        except PermissionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.005)
        else:
            return


if __name__ == "__main__":
    main()
