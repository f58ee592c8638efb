"""Claude Code with the hook of `trimtab hook claude`: `python -m benchmarks.doors.claude_hook`.

The real client reads files, by its own `Read` and by `cat`, until its window is full and far
beyond, against a strict simulated model. It runs without a person, in an empty home, in its default
permission mode. `bare_calls` is how many calls it makes without the hook, with its own compactions.
With the hook:

- `calls`, `refused` requests and `unpaired` ones;
- `breaks`: requests that do not begin with the whole request before them;
- `billed`: input in tokens at the price of fresh ones, on as many calls as the bare client made,
  beside `bare_billed`. A token written to the cache counts 1.25, one read from it .1;
- `read_back`: whether a whole text came back through the client's own `Read`, byte for byte, from
  the hook's file and from a file that was cut at its head;
- `small_cpu_ms` and `cut_cpu_ms`: CPU of the hook's process for a small output and for a long one.

Install the client first, outside the repository, into the folder that TRIMTAB_CLIENTS names, else
into the user's cache folder.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from operator import mul
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

from benchmarks import harness
from trimtab.testing.server.local_server import RemoteSimulator, spawn_simulated_provider

VERSION = "2.1.326"
PACKAGE = f"@anthropic-ai/claude-code@{VERSION}"
MODEL = "claude-sonnet-4-5"
WINDOW_TOKENS = 100_000
CALLS, QUICK_CALLS = 40, 24
TIME_LIMIT_S = 540
CPU_RUNS = 15
MAX_SMALL_CPU_MS = 100
WRITE_PRICE, READ_PRICE = 1.25, 0.1
_PATH_IN_HEADER = re.compile(r"the whole text is in (\S+?\.txt)\]")
_OFFSET_IN_HEADER = re.compile(r"read on with offset (\d+)\]")
_REMINDER = re.compile(r"\n\n<system-reminder>.*", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The client in a home of its own."""

    program: Path
    home: Path
    url: str

    @property
    def work(self) -> Path:
        return self.home / "work"

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "sk-ant-simulated",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def ask(self, prompt: str, *words: str) -> dict[str, Any]:
        """Run the client until it has answered."""
        command = [str(self.program), "-p", prompt, "--model", MODEL, "--output-format", "json"]
        process = subprocess.run(  # noqa: S603 - the client
            [*command, *words],
            cwd=self.work,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            check=False,
        )
        try:
            return json.loads(process.stdout)
        except ValueError:
            return {"is_error": True, "result": (process.stdout + process.stderr)[-500:]}

    def run_trimtab(self, *words: str) -> str:
        """Run our command in the client's home."""
        return subprocess.run(  # noqa: S603 - our own
            [sys.executable, "-m", "trimtab", "hook", "claude", *words],
            env=self.environ,
            capture_output=True,
            text=True,
            check=True,
        ).stdout


def find_client() -> Path | None:
    """The client's program in its version; None if it is not installed."""
    named, cache = os.environ.get("TRIMTAB_CLIENTS"), os.environ.get("XDG_CACHE_HOME")
    base = (Path(cache) if cache else Path.home() / ".cache") / "trimtab" / "clients"
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    name = f"claude-code-{sys.platform}-{machine}"
    folder = (Path(named) if named else base) / "npm" / "node_modules" / "@anthropic-ai" / name
    program = folder / "claude"
    if not program.exists():
        return None
    answer = subprocess.run(  # noqa: S603 - the client
        [program, "--version"], capture_output=True, text=True, check=False
    )
    return program if answer.stdout.startswith(f"{VERSION} ") else None


def measure(*, quick: bool) -> dict[str, Any]:
    """The figures. `broken` lists what did not hold."""
    program = find_client()
    if program is None:
        return {
            "skipped": f"Claude Code {VERSION} is not installed: npm install --ignore-scripts "
            f"--prefix ~/.cache/trimtab/clients/npm {PACKAGE}"
        }
    number = QUICK_CALLS if quick else CALLS
    bare = _live(program, number, with_hook=False)
    hooked = _live(program, number, with_hook=True)
    survived = bare["calls"]
    figures: dict[str, Any] = {
        "version": VERSION,
        "bare_calls": survived,
        "calls": hooked["calls"],
        "refused": hooked["refused"],
        "unpaired": hooked["unpaired"],
        "breaks": hooked["breaks"],
        "billed": bill(hooked["usages"][:survived]),
        "bare_billed": bill(bare["usages"][:survived]),
        "cache_read": hooked["cache_read"],
        "read_back": is_read_back(program),
        "permission_denials": hooked["permission_denials"],
        **measure_cpu(),
    }
    return {**figures, "broken": _find_faults(figures, number)}


def _find_faults(figures: Mapping[str, Any], number: int) -> list[str]:
    names = ("refused", "unpaired", "breaks", "permission_denials")
    faults = [f"{name} is {figures[name]}, not 0" for name in names if figures[name]]
    if figures["calls"] < number + 1:
        faults.append(f"the client ended after {figures['calls']} calls")
    if figures["billed"] > figures["bare_billed"]:
        faults.append(f"billed is {figures['billed']}, bare {figures['bare_billed']}")
    if not figures["read_back"]:
        faults.append("a whole text was not read back byte for byte")
    if figures["small_cpu_ms"] > MAX_SMALL_CPU_MS:
        faults.append(f"a small output takes {figures['small_cpu_ms']} ms of CPU")
    return faults


def write_file(folder: Path, number: int) -> Path:
    """A file of about 5,000 tokens, with an error in its middle."""
    lines = [f"entry {number}.{line}: value {line * number * 7919 % 9973}" for line in range(340)]
    lines[170] = f"entry {number}.170: ERROR: worker {number} has lost its lease"
    path = folder / f"file{number:02d}.txt"
    path.write_text("\n".join(lines))
    return path


@contextmanager
def _set_up(
    program: Path, number: int, *, with_hook: bool
) -> Generator[tuple[Client, RemoteSimulator, list[Path]]]:
    """A client with files to read, and its simulated model."""
    with (
        tempfile.TemporaryDirectory(prefix="claude-", ignore_cleanup_errors=True) as folder,
        spawn_simulated_provider(window=WINDOW_TOKENS) as simulator,
    ):
        client = Client(program=program, home=Path(folder), url=simulator.url)
        client.work.mkdir()
        if with_hook:
            client.run_trimtab("--files")
        yield client, simulator, [write_file(client.work, index + 1) for index in range(number)]


def _live(program: Path, number: int, *, with_hook: bool) -> dict[str, Any]:
    """One life of the client: it reads a file in each call."""
    with _set_up(program, number, with_hook=with_hook) as (client, simulator, files):
        steps = [_read(path) if index % 2 else _print(path) for index, path in enumerate(files)]
        simulator.set_replies([*steps, {"text": "All read."}], otherwise={"text": "Done."})
        reply = client.ask("Read all files.")
        denials = len(reply.get("permission_denials", ()))
        return {**study(simulator.list_requests()), "permission_denials": denials}


def _read(path: Path | str, **more: int) -> dict[str, Any]:
    return {"calls": [{"name": "Read", "arguments": {"file_path": str(path), **more}}]}


def _print(path: Path) -> dict[str, Any]:
    arguments = {"command": f"cat {path.name}", "description": "Print a file"}
    return {"calls": [{"name": "Bash", "arguments": arguments}]}


def is_read_back(program: Path) -> bool:
    """Whether the client reads whole texts by what the first lines of two results say."""
    with _set_up(program, 2, with_hook=True) as (client, simulator, files):
        steps = [_print(files[0]), _read(files[1]), {"text": "Read."}]
        simulator.set_replies(steps, otherwise={"text": "Done."})
        client.ask("Read all files.")
        printed, read = list_results(simulator.list_requests()[-1]["body"])
        path, offset = _PATH_IN_HEADER.search(printed), _OFFSET_IN_HEADER.search(read)
        if path is None or offset is None:
            return False
        steps = [_read(path[1]), _read(files[1], offset=int(offset[1])), {"text": "Read."}]
        simulator.set_replies(steps, otherwise={"text": "Done."})
        client.ask("Read the rest.", "--continue")
        whole, rest = list_results(simulator.list_requests()[-1]["body"])[-2:]
        head = strip_numbers(read).partition("\n")[2]
        return (
            strip_numbers(whole) == files[0].read_text()
            and f"{head}\n{strip_numbers(rest)}" == files[1].read_text()
        )


def list_results(body: Mapping[str, Any]) -> list[str]:
    """The texts of all results in a request, without what the client adds to them."""
    texts: list[str] = []
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_result":
                content = block["content"]
                text = content if isinstance(content, str) else content[0]["text"]
                texts.append(_REMINDER.sub("", text))
    return texts


def strip_numbers(text: str) -> str:
    """The lines of a file as the client's `Read` shows them, without their numbers."""
    return "\n".join(line.partition("\t")[2] for line in text.split("\n"))


def study(requests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the simulated provider saw."""
    answered = [request for request in requests if request["fate"] == "answered"]
    usages = [request["reply"]["usage"] for request in answered]
    sent = [list(map(write_plain, request["body"]["messages"])) for request in answered]
    total = sum(sum(count_input(usage)) for usage in usages)
    return {
        "calls": len(answered),
        "refused": len(requests) - len(answered),
        "unpaired": sum(not is_paired(request["body"]) for request in answered),
        "breaks": sum(after[: len(before)] != before for before, after in pairwise(sent)),
        "cache_read": round(sum(count_input(usage)[2] for usage in usages) / max(1, total), 3),
        "usages": usages,
    }


def count_input(usage: Mapping[str, Any]) -> tuple[int, int, int]:
    """Fresh input, input written to the cache, and input read from it."""
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    fresh, written, read = (usage.get(name) or 0 for name in names)
    return fresh, written, read


def bill(usages: Sequence[Mapping[str, Any]]) -> int:
    """What the input costs, in fresh tokens."""
    prices = (1, WRITE_PRICE, READ_PRICE)
    return round(sum(sum(map(mul, prices, count_input(usage))) for usage in usages))


def write_plain(message: Any) -> str:
    """A message as text, without its cache marks."""
    return json.dumps(without_marks(message), sort_keys=True)


def without_marks(part: Any) -> Any:
    """A part of a request without its cache marks."""
    if isinstance(part, dict):
        return {key: without_marks(each) for key, each in part.items() if key != "cache_control"}
    return [without_marks(each) for each in part] if isinstance(part, list) else part


def is_paired(body: Mapping[str, Any]) -> bool:
    """Whether each call has its result, and each result its call."""
    ids: dict[str, list[str]] = {"tool_use": [], "tool_result": []}
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] in ids:
                ids[block["type"]].append(block.get("id") or block.get("tool_use_id"))
    return sorted(ids["tool_use"]) == sorted(ids["tool_result"])


def measure_cpu() -> dict[str, float]:
    """CPU of the hook's process, in milliseconds."""
    log = "\n".join(f"line {index} of a log: value {index * 37 % 91}" for index in range(600))
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "trimtab" / "claude-code")
        return {
            "small_cpu_ms": _measure_hook(place, "4 passed\n"),
            "cut_cpu_ms": _measure_hook(place, log),
        }


def _measure_hook(folder: str, output: str) -> float:
    event = {
        "hook_event_name": "PostToolUse",
        "session_id": "s",
        "tool_name": "Bash",
        "tool_input": {"command": "make"},
        "tool_response": {"stdout": output, "stderr": "", "isImage": False},
    }
    module = "trimtab.integrations.claude_code"
    spent: list[float] = []
    for _ in range(CPU_RUNS):
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run(  # noqa: S603 - our own
            [sys.executable, "-P", "-m", module, "--folder", folder],
            input=json.dumps(event).encode(),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        after = getrusage(RUSAGE_CHILDREN)
        user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
        spent.append((user + system) * 1_000)
    return round(statistics.median(spent), 1)


if __name__ == "__main__":
    sys.exit(harness.run(__doc__, lambda quick: measure(quick=quick)))
