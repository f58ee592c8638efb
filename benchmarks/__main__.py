"""Run the benchmarks and the programs of `tests/soak`, and say in the end what is broken.

    python -m benchmarks            # hours
    python -m benchmarks --quick    # a smaller sample of each
    python -m benchmarks --start    # the first moments of each, within seconds

Each program that takes `--quick` is run, so nobody keeps a list. With
`--start`, which `.ci/run` uses, every file of the two folders is imported, and each benchmark is
stopped after `START_CPU_S`, or `START_S` by the clock. Broken is then what raises or logs an
exception, not a figure: what a benchmark calls cannot move away unseen.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import multiprocessing
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from trimtab import Context

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "tests/soak")
OF_OTHERS = ("adapters", "measured_hermes", "measured_sidecar", "random_model", "worker")
"""Files that run inside a framework, an agent, a peer or an inference server."""
RUN_OPTIONS = {"benchmarks.real_model": ("--if-built",)}
START_OPTIONS = {
    "benchmarks.frameworks.__main__": ("--only", "none"),
    "benchmarks.peers.run": ("--only", "none"),
    **RUN_OPTIONS,
}
"""Options with which a program installs nothing."""
REPORTS = re.compile(r"\bfinish\(|\brun\(__doc__|\"--quick\"")
"""What a program contains that prints a report and takes `--quick`."""
START_CPU_S, START_S, KILL_S = 0.5, 5.0, 15.0
AT_ONCE = 4
TRACEBACK = "Traceback (most recent call last)"


class Stopped(KeyboardInterrupt):
    """The program has run for long enough. An event loop passes on what stops a program."""


def list_files() -> list[str]:
    """Return the names of all modules of the two folders."""
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name not in ("__init__.py", "conftest.py")
        and not path.name.startswith("test_")
        and not {path.stem, path.parent.name}.intersection(OF_OTHERS)
    ]


def list_programs() -> list[str]:
    """Return the modules that can be started with `--quick`."""
    return [
        module for module in list_files() if module != "benchmarks.__main__" and _is_program(module)
    ]


def _is_program(module: str) -> bool:
    text = (ROOT / module.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
    return "\nif __name__ ==" in text and REPORTS.search(text) is not None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smaller sample of each")
    parser.add_argument("--start", action="store_true", help="only the first moments of each")
    arguments = parser.parse_args()
    broken = start_all() if arguments.start else run_all(quick=arguments.quick)
    print(f"\nbroken: {', '.join(broken)}" if broken else "\nall hold")
    return 1 if broken else 0


def run_all(*, quick: bool) -> list[str]:
    """Run each program, and return those that failed. What a `__main__` runs is not run again."""
    programs = list_programs()
    folders = {name.removesuffix(".__main__") for name in programs if name.endswith(".__main__")}
    broken: list[str] = []
    for module in programs:
        if module.rpartition(".")[0] in folders and not module.endswith(".__main__"):
            continue
        command = [module, *RUN_OPTIONS.get(module, ()), *(["--quick"] if quick else [])]
        print(f"\n== python -m {' '.join(command)}", flush=True)
        begun = time.monotonic()
        python = [sys.executable, "-m", *command]
        status = subprocess.run(python, cwd=ROOT, check=False).returncode  # noqa: S603 - our own
        print(f"-- {time.monotonic() - begun:.0f} s", flush=True)
        if status:
            broken.append(module)
    return broken


def start_all() -> list[str]:
    """Import every file and start each benchmark. Return those that failed."""
    begun, broken = time.process_time(), import_all()
    warm_up()
    print(f"{time.process_time() - begun:5.1f} s of CPU  imports", flush=True)
    waiting = [name for name in list_programs() if not name.startswith("tests.")]
    running: list[StartedProgram] = []
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            running.append(start(waiting.pop(0)))
        time.sleep(0.01)
        for program in [one for one in running if one.has_ended()]:
            running.remove(program)
            print(f"{program.cpu_s:5.1f} s of CPU  {program.module}", flush=True)
            if program.problem:
                print(program.problem)
                broken.append(program.module)
    return broken


def warm_up() -> None:
    """Read what the first request of a process reads, once for all children."""
    context = Context(model="claude-sonnet-4-5", context_window=8_000)
    for number in range(20):
        context.add({"role": "user", "content": f"Question {number}: {'why not ' * 200}"})
        context.add({"role": "assistant", "content": "Because."})
    context.request()


def import_all() -> list[str]:
    """Import every file. Return those that cannot be."""
    broken: list[str] = []
    for module in list_files():
        try:
            importlib.import_module(module)
        except Exception:  # noqa: BLE001 - whatever it raises is printed
            print(traceback.format_exc())
            broken.append(module)
    return broken


@dataclass(slots=True)
class StartedProgram:
    """A program in a child, which has imported everything already."""

    module: str
    child: int
    output: IO[bytes]
    kill_at: float
    cpu_s: float = 0.0
    problem: str = ""
    """What it wrote, if it failed."""

    def has_ended(self) -> bool:
        """Look whether it has ended, and end it if it does not stop."""
        if time.monotonic() > self.kill_at:
            os.killpg(self.child, signal.SIGKILL)
        ended, status, usage = os.wait4(self.child, os.WNOHANG)
        if not ended:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child, signal.SIGKILL)
        self.cpu_s = usage.ru_utime + usage.ru_stime
        with self.output:
            if os.waitstatus_to_exitcode(status) == 1:
                self.output.seek(0)
                self.problem = self.output.read().decode(errors="replace")[-4_000:]
        return True


def start(module: str) -> StartedProgram:
    """Start a program, which stops by itself after its first moments."""
    output = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the program has ended
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _run_in_child(module, output.fileno())
    with contextlib.suppress(ProcessLookupError):
        os.setpgid(child, child)
    return StartedProgram(module, child, output, time.monotonic() + KILL_S)


def _run_in_child(module: str, output: int) -> None:
    """Replace the streams, run the program until it is stopped, and end this process."""
    os.setpgid(0, 0)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.chdir(ROOT)
    sys.argv = [module, *START_OPTIONS.get(module, ()), "--quick"]
    # What is written while a program is being stopped is not its fault.
    program, size = os.getpid(), 0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal size
        del number, frame
        if os.getpid() != program:  # a worker: what it waits for is stopped with it
            os.kill(program, signal.SIGALRM)
            os._exit(0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if not size:
            sys.stdout.flush()
            sys.stderr.flush()
            size = os.fstat(output).st_size
            for worker in multiprocessing.active_children():
                worker.kill()
            raise Stopped

    def limit_cpu() -> None:
        signal.setitimer(signal.ITIMER_PROF, START_CPU_S)

    signal.signal(signal.SIGPROF, stop)
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, START_S)
    limit_cpu()
    os.register_at_fork(after_in_child=limit_cpu)
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except Stopped:
        pass
    except SystemExit as error:
        code = int(error.code == 2 or isinstance(error.code, str))  # arguments that it refuses
    except BaseException:  # noqa: BLE001 - whatever it raises is printed
        if not size:
            traceback.print_exc()
            code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    written = os.pread(output, size or os.fstat(output).st_size, 0).decode(errors="replace")
    os._exit(1 if code or TRACEBACK in written else 0)


if __name__ == "__main__":
    sys.exit(main())
