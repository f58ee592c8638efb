"""Trimtab's modules in LangChain, Pydantic AI and OpenAI Agents, each in an environment of its own.

    python -m benchmarks.frameworks            # 200 turns a life
    python -m benchmarks.frameworks --quick    # 10 turns a life, within a minute

A life is an agent with a tool and a window of 16,000 tokens: in each turn two parallel calls, one
more call, an answer. The strict simulator runs in a process of its own. Each framework has four
lives, which together have every kind:

- with Claude and its cache marks, in an event loop. In the middle its process is killed, and
  another one goes on from what the framework and our store kept
- with Chat Completions, in a stream and an event loop
- with Responses, from code without an event loop. The module is told no window, believes the
  model's usual one and must learn from the first refusal
- with summaries by the framework's own model, under `rolling`

refused_after_first  requests that the simulator refused. The first in the life that is told no
                     window is not counted
history_changed      lives after which the framework's own history is not what was said
unpaired             requests in which a call had no result, or a result no call
not_recalled         lives in which the tool `recall` did not give back a whole hidden report
not_summarised       lives with summaries by the model in which no request had one
cache_read_ratio     input that was read from the provider's cache, against the same life of a plain
                     `Context`; the lowest of all lives that are told the window
cpu_ms, _1000        CPU of our module a model call, with 100 and 1,000 messages of history: the
                     lowest of several repetitions, each the median of its calls
framework_cpu_ms, …  CPU of the framework alone a model call, the lowest of the repetitions

At the top level are the worst figures; each framework's own begin with its name.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import harness
from benchmarks.frameworks import environments, life
from benchmarks.frameworks.environments import ROOT, Absent, Framework
from benchmarks.frameworks.life import Api, Setup
from benchmarks.pair_check import unpaired
from trimtab.testing.server import RemoteSimulator, spawn_simulated_provider

WINDOW = 16_000
TURNS, QUICK_TURNS = 200, 10
CPU_WINDOW = 64_000
"""At 1,000 messages much is hidden, and most messages are still shown."""
CPU_LINES = 40
CPU_REPETITIONS = {100: 10, 1_000: 4}
QUICK_CPU_REPETITIONS = {100: 3, 1_000: 2}
"""Turns of three model calls each, by the messages in the history. More than one, because the first
folds the whole history, and then often compacts it."""
CPU_KEYS = {100: "cpu_ms", 1_000: "cpu_ms_1000"}
"""The name of a figure by the messages in the history."""
MESSAGES_A_TURN = 7
AT_ONCE = 2
"""Frameworks at the same time: half of each life is spent in the simulator's process."""
LEAST_CACHE_READ_RATIO = 0.95
MOST_CPU_MS = {"cpu_ms": 4.0, "cpu_ms_1000": 8.0}
PICTURE = re.compile(
    r"<!-- picture: the context after 200 turns[^>]*-->\n(?:\n```text\n.*?```\n)?", re.DOTALL
)
"""The place of the report in a framework's page, with the report if it is there."""
HANDLE = re.compile(r"recall (m\d+\.\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    name: str
    api: Api
    stream: bool = False
    is_async: bool = False
    is_told: bool = True
    """Whether the module is told the window."""
    has_restart: bool = False
    has_model_summaries: bool = False


LIVES = (
    Life(name="Claude, async, restart", api="anthropic", is_async=True, has_restart=True),
    Life(name="Chat Completions, stream, async", api="openai_chat", stream=True, is_async=True),
    Life(name="Responses, window not told", api="openai_responses", is_told=False),
    Life(name="summaries, async", api="openai_chat", is_async=True, has_model_summaries=True),
)


class LifeFailed(Exception):
    """An agent stopped with an error."""


class Worker:
    """A process of `worker.py`, with one agent at a time."""

    def __init__(self, python: str, adapter: str) -> None:
        self._command = [python, "-m", "benchmarks.frameworks.worker", adapter]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(ROOT / "packages" / "trimtab" / "src"), str(ROOT)])
        return subprocess.Popen(  # noqa: S603 - our own
            self._command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if not os.environ.get("TRIMTAB_SHOW_ERRORS") else None,
            text=True,
        )

    def begin(self, setup: Setup) -> None:
        """Make an agent."""
        self.ask(setup=asdict(setup))

    def ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise LifeFailed("its process ended")
        answer = json.loads(line)
        if "error" in answer:
            raise LifeFailed(answer["error"])
        return answer

    def kill(self) -> None:
        """Without any chance to close files or to say goodbye."""
        self._process.kill()
        self._process.communicate()

    def restart(self) -> None:
        self.kill()
        self._process = self._start()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@dataclass(frozen=True, slots=True)
class Stage:
    """A framework with what all its lives use."""

    framework: Framework
    worker: Worker
    simulator: RemoteSimulator


@contextmanager
def set_stage(framework: Framework, python: str) -> Generator[Stage]:
    adapter = f"with_{framework.name.replace('-', '_')}"
    with spawn_simulated_provider() as simulator, Worker(python, adapter) as worker:
        yield Stage(framework, worker, simulator)


def run_life(stage: Stage, one: Life, turns: int) -> dict[str, Any]:
    """The figures of one life."""
    row: dict[str, Any] = {"framework": stage.framework.name, "life": one.name, "failed": ""}
    worker, simulator = stage.worker, stage.simulator
    simulator.reset()
    simulator.configure(window=WINDOW)
    simulator.set_replies(life.script(0, turns), summary=life.SUMMARY)
    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(
            url=simulator.url,
            api=one.api,
            stream=one.stream,
            is_async=one.is_async,
            context_window=WINDOW if one.is_told else None,
            folder=folder,
            has_model_summaries=one.has_model_summaries,
        )
        try:
            worker.begin(setup)
            worker.ask(turns=[0, turns // 2])
            if one.has_restart:
                worker.restart()
                worker.begin(setup)
            worker.ask(turns=[turns // 2, turns])
            records = simulator.list_requests()
            history = worker.ask(history=True)["history"]
            row["usage"] = worker.ask(usage=True)["usage"]
            if one.has_model_summaries:
                answered = [record["body"] for record in records if record["fate"] == "answered"]
                row["not_summarised"] = int(not _shows_summary(answered[-1]))
            else:
                row["not_recalled"] = int(not _recalls(simulator, worker, records[-1]["body"]))
        except LifeFailed as error:
            worker.restart()
            row["failed"] = str(error)
            return row | study(simulator.list_requests(), one)
    expected = json.loads(json.dumps(life.expected_history(turns, setup.lines)))
    row["history_changed"] = int(history != expected)
    row["first_change"] = _first_difference(history, expected)
    return row | study(records, one)


def plain_cache_read(api: Api, turns: int) -> float:
    """The share of the input that is read from the cache in the same life of a `Context`."""
    with (
        spawn_simulated_provider(window=WINDOW) as simulator,
        Worker(sys.executable, "with_context") as worker,
    ):
        simulator.set_replies(life.script(0, turns))
        worker.begin(Setup(url=simulator.url, api=api, context_window=WINDOW))
        worker.ask(turns=[0, turns])
        return _cache_read(simulator.list_requests())


def measure_cpu(stage: Stage, messages: int, repetitions: int, *, has_module: bool) -> float:
    """Milliseconds of CPU a model call: of our module, or of the framework alone.

    The lowest of the repetitions counts: whatever else runs on the machine only adds to it.
    """
    worker, simulator = stage.worker, stage.simulator
    first = messages // MESSAGES_A_TURN
    last = first + repetitions
    simulator.reset()
    # The framework alone sends everything.
    simulator.configure(window=CPU_WINDOW if has_module else 10_000_000)
    simulator.set_replies(life.script(first, last))
    is_agents = stage.framework.name == "openai-agents"
    setup = Setup(
        url=simulator.url,
        api="openai_responses" if is_agents else "openai_chat",  # each framework's own default
        is_async=True,
        has_module=has_module,
        context_window=CPU_WINDOW,
        lines=CPU_LINES,
    )
    worker.begin(setup)
    worker.ask(preload=life.expected_history(first, CPU_LINES))
    spent = [worker.ask(turns=[turn, turn + 1]) for turn in range(first, last)]
    history = worker.ask(history=True)["history"]
    expected = json.loads(json.dumps(life.expected_history(last, CPU_LINES)))
    if change := _first_difference(history, expected):
        raise LifeFailed(f"the history of {messages} messages is not what was said: {change}")
    if has_module:
        return min(statistics.median(each["cpu_ms"]) for each in spent)
    return min(each["all_cpu_ms"] for each in spent)


def study(records: Sequence[Mapping[str, Any]], one: Life) -> dict[str, Any]:
    """What the simulator saw."""
    refused = [record for record in records if record["fate"] in ("violation", "overflow", "auth")]
    answered = [record for record in records if record["fate"] == "answered"]
    wrong = [unpaired(_in_blocks(record["body"]), one.api) for record in answered]
    return {
        "api": one.api,
        "calls": len(records),
        "refused": len(refused),
        "refused_after_first": max(0, len(refused) - (not one.is_told)),
        "why_refused": refused[-1]["message"][:200] if refused else "",
        "unpaired": sum(each is not None for each in wrong),
        "cache_read": round(_cache_read(answered), 3),
        "largest": max((record["tokens"] for record in answered), default=0),
    }


def _in_blocks(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Anthropic's API takes a text instead of a list of blocks."""
    if "messages" not in body:
        return body
    messages = [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        if isinstance(message.get("content"), str)
        else message
        for message in body["messages"]
    ]
    return {**body, "messages": messages}


def _cache_read(records: Sequence[Mapping[str, Any]]) -> float:
    total = read = 0
    for record in records:
        usage = (record["reply"] or {}).get("usage") or {}
        if "cache_read_input_tokens" in usage:
            cached = usage["cache_read_input_tokens"] or 0
            total += usage["input_tokens"] + cached + (usage["cache_creation_input_tokens"] or 0)
        else:
            details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
            cached = details.get("cached_tokens") or 0
            total += usage.get("prompt_tokens") or usage.get("input_tokens") or 0
        read += cached
    return read / total if total else 0.0


def _recalls(simulator: RemoteSimulator, worker: Worker, body: Any) -> bool:
    """Whether the model gets a hidden report back, word for word, when it calls `recall`."""
    texts = list(_texts(body))
    handles = [handle for text in texts for handle in HANDLE.findall(text)]
    if not handles:
        return False
    call = {"name": "recall", "arguments": {"handle": handles[-1]}}
    simulator.set_replies([{"calls": [call]}, {"text": "Thank you."}])
    worker.ask(say="What was in it?")
    after = _texts(simulator.list_requests()[-1]["body"])
    return bool(_whole_reports(after) - _whole_reports(texts))


def _shows_summary(body: Any) -> bool:
    return any(life.SUMMARY_FACT in text for text in _texts(body))


def _whole_reports(texts: Iterator[str] | list[str]) -> set[int]:
    numbers: set[int] = set()
    for text in texts:
        for number in map(int, re.findall(r"report (\d+): ", text)):
            if life.report(number, life.REPORT_LINES) in text:
                numbers.add(number)
    return numbers


def _texts(value: Any) -> Iterator[str]:
    """Every text in a request."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _first_difference(history: Sequence[Any], expected: Sequence[Any]) -> str:
    for index, (item, right) in enumerate(zip(history, expected, strict=False)):
        if item != right:
            return f"{index}: {str(item)[:120]} instead of {str(right)[:120]}"
    if len(history) != len(expected):
        return f"{len(history)} instead of {len(expected)}"
    return ""


def main() -> int:
    arguments = harness.parser(__doc__)
    arguments.add_argument("--only", action="append", metavar="NAME", help="this framework alone")
    arguments.add_argument("--newest", action="store_true", help="make the environments again")
    arguments.add_argument("--turns", type=int, help=f"turns a life; {TURNS} if not said")
    arguments.add_argument("--pages", action="store_true", help="draw the contexts in docs")
    asked = arguments.parse_args()
    chosen = [one for one in environments.MODULES if not asked.only or one.name in asked.only]
    try:
        pythons = {one.name: environments.interpreter(one, newest=asked.newest) for one in chosen}
    except Absent as absent:
        return harness.skip(f"an environment could not be made: {absent}", as_json=asked.json)
    turns = asked.turns or (QUICK_TURNS if asked.quick else TURNS)
    report: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.frameworks", *sys.argv[1:]]),
        "versions": {
            **harness.head()["versions"],
            **{
                one.package: environments.versions(pythons[one.name])[one.package] for one in chosen
            },
        },
        "sample": {"turns": turns, "window": WINDOW},
        **figures(chosen, pythons, turns, asked),
    }
    if asked.pages:
        write_pages(report["lives"])
    return harness.finish(report, as_json=asked.json)


def figures(
    chosen: Sequence[Framework], pythons: Mapping[str, str], turns: int, asked: Any
) -> dict[str, Any]:
    apis = [one.api for one in LIVES if one.is_told]
    repetitions = QUICK_CPU_REPETITIONS if asked.quick else CPU_REPETITIONS
    with ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as pool:
        shares = pool.map(lambda api: plain_cache_read(api, turns), apis)
        stages = [stack.enter_context(set_stage(one, pythons[one.name])) for one in chosen]
        lives = list(pool.map(lambda stage: _live(stage, turns), stages))
        plain = dict(zip(apis, shares, strict=True))
        # One after the other: what runs at the same time takes CPU from the caches.
        cpu = {stage.framework.name: _list_cpu(stage, repetitions) for stage in stages}
    rows = [row for each in lives for row in each]
    for row in rows:
        if row["api"] in plain and "not_summarised" not in row:
            row["cache_read_ratio"] = round(row["cache_read"] / plain[row["api"]], 3)
    figures_by_name = {one.name: _of_framework(one, rows) | cpu[one.name] for one in chosen}
    worst = _worst(list(figures_by_name.values()))
    return {
        **worst,
        **{
            f"{n.replace('-', '_')}_{key}": v
            for n, each in figures_by_name.items()
            for key, v in each.items()
        },
        "plain_cache_read": {api: round(share, 3) for api, share in plain.items()},
        "lives": rows,
        "broken": _broken(rows, worst, turns),
        "not_reached": [
            f"{name} is {worst[name]}, above {most}"
            for name, most in MOST_CPU_MS.items()
            if worst.get(name, 0) > most
        ],
    }


def _live(stage: Stage, turns: int) -> list[dict[str, Any]]:
    """All lives of a framework."""
    rows: list[dict[str, Any]] = []
    for one in LIVES:
        row = run_life(stage, one, turns)
        # A full run takes long: say how far it is.
        outcome = row["failed"] or f"{row['calls']} calls, {row['refused']} refused"
        print(f"{stage.framework.name}, {one.name}: {outcome}", file=sys.stderr, flush=True)
        rows.append(row)
    return rows


def _list_cpu(stage: Stage, repetitions_by_length: Mapping[int, int]) -> dict[str, float]:
    spent: dict[str, float] = {}
    for messages, key in CPU_KEYS.items():
        repetitions = repetitions_by_length[messages]
        for start, has_module in (("", True), ("framework_", False)):
            try:
                ms = measure_cpu(stage, messages, repetitions, has_module=has_module)
            except LifeFailed as error:
                print(f"{stage.framework.name}: {error}", file=sys.stderr)
                continue
            spent[start + key] = round(ms, 2)
    return spent


def write_pages(rows: Sequence[Mapping[str, Any]]) -> None:
    """Put the report's own drawing of the first life into each framework's page."""
    drawings: dict[str, str] = {}
    for row in rows:
        if row.get("usage"):
            drawings.setdefault(row["framework"], row["usage"])
    for name, drawing in drawings.items():
        page = ROOT / "docs" / f"{name}.md"
        marker = "<!-- picture: the context after 200 turns, by benchmarks.frameworks --pages -->"
        lines = f"{marker}\n\n```text\n{drawing.rstrip()}\n```\n"
        text = page.read_text(encoding="utf-8")
        page.write_text(PICTURE.sub(lambda _, new=lines: new, text), encoding="utf-8")


SUMS = ("refused_after_first", "history_changed", "unpaired", "not_recalled", "not_summarised")


def _of_framework(framework: Framework, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    lives = [row for row in rows if row["framework"] == framework.name]
    ratios = [row["cache_read_ratio"] for row in lives if "cache_read_ratio" in row]
    sums = {name: sum(row.get(name, 0) for row in lives) for name in SUMS}
    return {**sums, "cache_read_ratio": min(ratios, default=None)}


def _worst(own: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    worst: dict[str, Any] = {name: sum(each[name] for each in own) for name in SUMS}
    ratios = [each["cache_read_ratio"] for each in own if each["cache_read_ratio"] is not None]
    worst["cache_read_ratio"] = min(ratios, default=None)
    for key in CPU_KEYS.values():
        for name in (key, f"framework_{key}"):
            if values := [each[name] for each in own if name in each]:
                worst[name] = max(values)
    return worst


def _broken(rows: Sequence[Mapping[str, Any]], worst: Mapping[str, Any], turns: int) -> list[str]:
    broken = [
        f"{row['framework']}, {row['life']}: {row['failed']}" for row in rows if row["failed"]
    ]
    broken += [f"{name} is {worst[name]}, not 0" for name in SUMS if worst[name]]
    ratio = worst["cache_read_ratio"]
    # A short life has few edits: one that comes a call earlier counts for several percent.
    if ratio is not None and turns >= TURNS and ratio < LEAST_CACHE_READ_RATIO:
        broken.append(f"cache_read_ratio is {ratio}, below {LEAST_CACHE_READ_RATIO}")
    return broken


if __name__ == "__main__":
    sys.exit(main())
