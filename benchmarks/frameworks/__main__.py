"""Trimtab's modules in LangChain, Pydantic AI and OpenAI Agents, each in an environment of its own.

    python -m benchmarks.frameworks            # 200 turns a life
    python -m benchmarks.frameworks --quick    # fewer lives of 18 turns, within a minute

A life is an agent with a tool and a window of 16,000 tokens: in each turn two parallel calls, one
more call, an answer. In the middle its process is killed, and another one goes on from what the
framework and our store kept. The strict simulator runs in a process of its own. In a life that
begins "not told", the module is told nothing, believes the model's usual window and must learn from
the first refusal.

refused_after_first  requests that the simulator refused. The first in a life that is not told is
                     not counted
history_changed      lives after which the framework's own history is not what was said
unpaired             requests in which a call had no result, or a result no call
not_recalled         lives in which the tool `recall` did not give back a whole hidden report
cache_read_ratio     input that was read from the provider's cache, against the same life of a plain
                     `Context`; the lowest of all lives that are told the window
cpu_ms_100, _1000    median CPU of our module a model call, with 100 and 1,000 messages of history
framework_cpu_ms_…   CPU of the framework alone a model call

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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import harness
from benchmarks.frameworks import environments, life
from benchmarks.frameworks.environments import ROOT, Absent, Framework
from benchmarks.frameworks.life import Api, Setup
from benchmarks.pair_check import unpaired
from trimtab.testing.server import RemoteSimulator, spawn_simulated_provider

WINDOW = 16_000
TURNS, QUICK_TURNS = 200, 18
CPU_WINDOW = 64_000
"""At 1,000 messages much is hidden, and most messages are still shown."""
CPU_LINES, CPU_TURNS = 40, 10
MESSAGES_A_TURN = 7
AT_ONCE = 2
"""Lives at the same time: half of each is spent in the simulator's process."""
LEAST_CACHE_READ_RATIO = 0.95
MOST_CPU_MS = {"cpu_ms_100": 4.0, "cpu_ms_1000": 8.0}
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
    is_quick: bool = False
    """Whether a quick run has it."""


def lives_of(framework: Framework) -> list[Life]:
    # The Agents SDK speaks Responses if nobody says otherwise, and streams only in an event loop.
    is_agents = framework.name == "openai-agents"
    first: Api = "openai_responses" if is_agents else "openai_chat"
    other: Api = "openai_chat" if is_agents else "openai_responses"
    return [
        Life(name="not streaming", api=first),
        Life(name="streaming, async", api=first, stream=True, is_async=True, is_quick=True),
        Life(name="async", api=other, is_async=True),
        Life(name="Claude, async", api="anthropic", is_async=True, is_quick=True),
        Life(name="Claude, streaming", api="anthropic", stream=True, is_async=is_agents),
        Life(name="not told", api=first, is_told=False),
        Life(
            name="not told, streaming, async",
            api=first,
            stream=True,
            is_async=True,
            is_told=False,
            is_quick=True,
        ),
        Life(name="not told, Claude", api="anthropic", is_told=False),
    ]


class LifeFailed(Exception):
    """An agent stopped with an error."""


class Worker:
    """A process of `worker.py`."""

    def __init__(self, python: str, adapter: str, setup: Setup) -> None:
        path = os.pathsep.join([str(ROOT / "packages" / "trimtab" / "src"), str(ROOT)])
        self._process = subprocess.Popen(  # noqa: S603 - our own
            [python, "-m", "benchmarks.frameworks.worker", adapter],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if not os.environ.get("TRIMTAB_SHOW_ERRORS") else None,
            text=True,
        )
        self._write(asdict(setup))

    def ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdout is not None
        self._write(command)
        line = self._process.stdout.readline()
        if not line:
            raise LifeFailed("its process ended")
        answer = json.loads(line)
        if "error" in answer:
            raise LifeFailed(answer["error"])
        return answer

    def _write(self, value: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Without any chance to close files or to say goodbye."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def run_life(framework: Framework, python: str, one: Life, turns: int) -> dict[str, Any]:
    """The figures of one life, with a restart in the middle."""
    row: dict[str, Any] = {"framework": framework.name, "life": one.name, "failed": ""}
    with (
        tempfile.TemporaryDirectory() as folder,
        spawn_simulated_provider(window=WINDOW) as simulator,
    ):
        setup = Setup(
            url=simulator.url,
            api=one.api,
            stream=one.stream,
            is_async=one.is_async,
            context_window=WINDOW if one.is_told else None,
            folder=folder,
        )
        simulator.set_replies(life.script(0, turns))
        adapter = adapter_of(framework)
        try:
            with Worker(python, adapter, setup) as worker:
                spent = worker.ask(turns=[0, turns // 2])["cpu_ms"]
            with Worker(python, adapter, setup) as worker:
                spent += worker.ask(turns=[turns // 2, turns])["cpu_ms"]
                records = simulator.list_requests()
                history = worker.ask(history=True)["history"]
                row["usage"] = worker.ask(usage=True)["usage"]
                row["not_recalled"] = int(not _recalls(simulator, worker, records[-1]["body"]))
        except LifeFailed as error:
            return {**row, "failed": str(error), **study(simulator.list_requests(), one)}
    expected = json.loads(json.dumps(life.expected_history(turns, setup.lines)))
    row |= {
        "history_changed": int(history != expected),
        "first_change": _first_difference(history, expected),
        "cpu_ms": round(statistics.median(spent), 2) if spent else None,
        **study(records, one),
    }
    return row


def adapter_of(framework: Framework) -> str:
    return f"with_{framework.name.replace('-', '_')}"


def plain_cache_read(api: Api, turns: int) -> float:
    """The share of the input that is read from the cache in the same life of a `Context`."""
    with spawn_simulated_provider(window=WINDOW) as simulator:
        setup = Setup(url=simulator.url, api=api, context_window=WINDOW)
        simulator.set_replies(life.script(0, turns))
        with Worker(sys.executable, "with_context", setup) as worker:
            worker.ask(turns=[0, turns])
        return _cache_read(simulator.list_requests())


def measure_cpu(framework: Framework, python: str, messages: int, *, has_module: bool) -> float:
    """Milliseconds of CPU a model call: of our module, or of the framework alone."""
    api: Api = "openai_responses" if framework.name == "openai-agents" else "openai_chat"
    before = messages // MESSAGES_A_TURN
    # The framework alone sends everything.
    window = CPU_WINDOW if has_module else 10_000_000
    with spawn_simulated_provider(window=window) as simulator:
        setup = Setup(
            url=simulator.url,
            api=api,
            is_async=True,
            has_module=has_module,
            context_window=CPU_WINDOW,
            lines=CPU_LINES,
        )
        simulator.set_replies(life.script(before, before + CPU_TURNS))
        with Worker(python, adapter_of(framework), setup) as worker:
            worker.ask(preload=life.expected_history(before, CPU_LINES))
            spent = worker.ask(turns=[before, before + CPU_TURNS])
            history = worker.ask(history=True)["history"]
    expected = json.loads(json.dumps(life.expected_history(before + CPU_TURNS, CPU_LINES)))
    if change := _first_difference(history, expected):
        raise LifeFailed(f"the history of {messages} messages is not what was said: {change}")
    return statistics.median(spent["cpu_ms"]) if has_module else spent["all_cpu_ms"]


def study(records: Sequence[Mapping[str, Any]], one: Life) -> dict[str, Any]:
    """What the simulator saw."""
    refused = [record for record in records if record["fate"] in ("violation", "overflow", "auth")]
    answered = [record for record in records if record["fate"] == "answered"]
    wrong = [unpaired(_in_blocks(record["body"]), one.api) for record in answered]
    return {
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


def _whole_reports(texts: Iterator[str] | list[str]) -> set[int]:
    found: set[int] = set()
    for text in texts:
        for number in map(int, re.findall(r"report (\d+): ", text)):
            if life.report(number, life.REPORT_LINES) in text:
                found.add(number)
    return found


def _texts(value: Any) -> Iterator[str]:
    """Every text in a request."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _first_difference(history: Sequence[Any], expected: Sequence[Any]) -> str:
    for index, (found, said) in enumerate(zip(history, expected, strict=False)):
        if found != said:
            return f"{index}: {str(found)[:120]} instead of {str(said)[:120]}"
    if len(history) != len(expected):
        return f"{len(history)} instead of {len(expected)}"
    return ""


def main() -> int:
    arguments = harness.parser(__doc__)
    arguments.add_argument("--only", action="append", metavar="NAME", help="this framework alone")
    arguments.add_argument("--life", metavar="TEXT", help="lives whose name contains this text")
    arguments.add_argument("--newest", action="store_true", help="make the environments again")
    arguments.add_argument("--turns", type=int, help=f"turns a life; {TURNS} if not said")
    arguments.add_argument(
        "--python-of",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="use this interpreter for a framework",
    )
    arguments.add_argument("--pages", action="store_true", help="draw the contexts in docs")
    asked = arguments.parse_args()
    named = dict(pair.split("=", 1) for pair in asked.python_of)
    chosen = [one for one in environments.MODULES if not asked.only or one.name in asked.only]
    try:
        pythons = {
            one.name: named.get(one.name) or environments.interpreter(one, newest=asked.newest)
            for one in chosen
        }
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
    jobs = [
        (framework, one)
        for framework in chosen
        for one in lives_of(framework)
        if (one.is_quick or not asked.quick) and (asked.life is None or asked.life in one.name)
    ]
    apis = sorted({one.api for _, one in jobs if one.is_told})
    with ThreadPoolExecutor(AT_ONCE) as pool:
        plain = dict(
            zip(apis, pool.map(lambda api: plain_cache_read(api, turns), apis), strict=True)
        )
        rows = list(pool.map(lambda job: _live(job[0], job[1], pythons[job[0].name], turns), jobs))
    for row, (_, one) in zip(rows, jobs, strict=True):
        if one.is_told:
            row["cache_read_ratio"] = round(row["cache_read"] / plain[one.api], 3)
    own = {one.name: _of_framework(one, pythons[one.name], rows, asked) for one in chosen}
    worst = _worst(list(own.values()))
    return {
        **worst,
        **{f"{n.replace('-', '_')}_{key}": v for n, each in own.items() for key, v in each.items()},
        "plain_cache_read": {api: round(share, 3) for api, share in plain.items()},
        "lives": rows,
        "broken": _broken(rows, worst),
        "not_reached": [
            f"{name} is {worst[name]}, above {most}"
            for name, most in MOST_CPU_MS.items()
            if worst.get(name, 0) > most
        ],
    }


def _live(framework: Framework, one: Life, python: str, turns: int) -> dict[str, Any]:
    row = run_life(framework, python, one, turns)
    # A full run takes long: say how far it is.
    outcome = row["failed"] or f"{row['calls']} calls, {row['refused']} refused"
    print(f"{framework.name}, {one.name}: {outcome}", file=sys.stderr, flush=True)
    return row


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


SUMS = ("refused_after_first", "history_changed", "unpaired", "not_recalled")


def _of_framework(
    framework: Framework, python: str, rows: Sequence[Mapping[str, Any]], asked: Any
) -> dict[str, Any]:
    own = [row for row in rows if row["framework"] == framework.name]
    ratios = [row["cache_read_ratio"] for row in own if "cache_read_ratio" in row]
    found: dict[str, Any] = {name: sum(row.get(name, 0) for row in own) for name in SUMS}
    found["cache_read_ratio"] = min(ratios, default=None)
    if asked.life is None:
        for messages in (100, 1_000):
            for name, has_module in (("cpu_ms", True), ("framework_cpu_ms", False)):
                try:
                    spent = measure_cpu(framework, python, messages, has_module=has_module)
                except LifeFailed as error:
                    print(f"{framework.name}: {error}", file=sys.stderr)
                    continue
                found[f"{name}_{messages}"] = round(spent, 2)
    return found


def _worst(own: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    worst: dict[str, Any] = {name: sum(each[name] for each in own) for name in SUMS}
    ratios = [each["cache_read_ratio"] for each in own if each["cache_read_ratio"] is not None]
    worst["cache_read_ratio"] = min(ratios, default=None)
    for messages in (100, 1_000):
        for name in (f"cpu_ms_{messages}", f"framework_cpu_ms_{messages}"):
            if values := [each[name] for each in own if name in each]:
                worst[name] = max(values)
    return worst


def _broken(rows: Sequence[Mapping[str, Any]], worst: Mapping[str, Any]) -> list[str]:
    broken = [
        f"{row['framework']}, {row['life']}: {row['failed']}" for row in rows if row["failed"]
    ]
    broken += [f"{name} is {worst[name]}, not 0" for name in SUMS if worst[name]]
    ratio = worst["cache_read_ratio"]
    if ratio is not None and ratio < LEAST_CACHE_READ_RATIO:
        broken.append(f"cache_read_ratio is {ratio}, below {LEAST_CACHE_READ_RATIO}")
    return broken


if __name__ == "__main__":
    sys.exit(main())
