"""What `Context.sync`, `request` and `view` cost as a caller's own list grows, against
langchain-core's `trim_messages` in the same run.

warm    the same list of the same objects with two new messages, then the request
fresh   the same with equal objects that are new, as after parsing a body
fold    the first `sync` and `request` of a whole list
fit     one `fit` of 300 messages, 100 of them results of 40 kB
view    `view` after each warm request
configure  `configure` with the same model, system prompt and 60 tools as before
auto    `request` in a conversation whose results are 40 kB of log, JSON, code, CJK and base64 text

Times are CPU times of one process.
"""

from __future__ import annotations

import base64
import gc
import json
import random
import statistics
import sys
import time
import tracemalloc
from typing import Any

from benchmarks.fit import WORDS
from benchmarks.harness import finish, head, parser

MODEL = "gpt-4.1"
WINDOW: dict[str, Any] = {"context_window": 200_000, "max_output_tokens": 4_000}
RESULT_CHARS = 40_000
CHINESE = (
    (
        "服务器",
        "用户",
        "数据库管理员",
        "这个请求",
        "测试程序",
        "我们的系统",
        "配置文件",
        "任务队列",
    ),
    ("已经处理了", "没有找到", "正在等待", "成功保存了", "无法读取", "重新启动了", "应该检查"),
    (
        "所有的订单记录",
        "上一次的错误日志",
        "新的连接",
        "缓存中的数据",
        "三个月以前的报告",
        "网络设置",
    ),
)
"""Who, what they do, and to what."""
LIMITS = {
    "warm_growth": 2.0,
    "warm_ms_101": 2.0,
    "fresh_us_per_message": 1.0,
    "first_fold_s_10001": 3.0,
    "fold_growth": 1.5,
    "fit_300_s": 0.5,
    "view_growth": 2.0,
    "configure_ms": 0.2,
    "auto_40kb_p95_ms": 10.0,
}
"""The most that each figure is meant to be. `warm_growth` is against 1,001 messages, because the
window is as full there; at 101 messages it is almost empty, and there is nothing to decide."""


def conversation(count: int) -> list[dict[str, Any]]:
    """A user's request, then calls of a tool and their results, 750 characters each."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go through all of it."}]
    for number in range(count // 2):
        arguments = json.dumps({"path": f"/src/part_{number}.py"})
        function = {"name": "read", "arguments": arguments}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = f"part_{number} " + "word " * 150
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
    return messages[:count]


def result_texts() -> list[str]:
    """Ten results of 40 kB: log lines, JSON, code, Chinese text, base64."""
    pick, words = random.Random(40), WORDS  # noqa: S311 - not for secrets

    def log_line() -> str:
        level = pick.choice(("INFO", "WARN", "DEBUG", "ERROR"))
        at, said = f"2026-11-17T04:00:{pick.randrange(60):02}", " ".join(pick.choices(words, k=8))
        return f"{at} {level} api.worker-{pick.randrange(9)} {said}"

    def record() -> str:
        return json.dumps(
            {
                "id": pick.randrange(10**6),
                "name": pick.choice(words),
                "tags": pick.choices(words, k=4),
                "price": pick.random(),
            }
        )

    def code() -> str:
        name = "_".join(pick.choices(words, k=2))
        given, other, found = pick.choices(words, k=3)
        return f'def {name}({given}, {other}):\n    return {found}.{given}("{other}")\n'

    def chinese() -> str:
        who, does, what = (pick.choice(phrases) for phrases in CHINESE)
        return f"{who}{does}{what}。"

    def encoded() -> str:
        return base64.b64encode(pick.randbytes(57)).decode()

    texts: list[str] = []
    for make in (log_line, record, code, chinese, encoded) * 2:
        lines: list[str] = []
        while sum(map(len, lines)) < RESULT_CHARS:
            lines.append(make())
        texts.append("\n".join(lines)[:RESULT_CHARS])
    return texts


def long_results(count: int) -> list[dict[str, Any]]:
    """Turns of a user, a call and its result of 40 kB."""
    texts, messages = result_texts(), list[dict[str, Any]]()
    for number in range(count):
        function = {"name": "read", "arguments": json.dumps({"path": f"/var/log/{number}.log"})}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        messages += [
            {"role": "user", "content": f"What is in file {number}?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": texts[number % len(texts)]},
        ]
    return messages


def measure_warm(
    count: int, rounds: int, *, fresh: bool = False
) -> tuple[list[float], list[float]]:
    """CPU seconds of `sync` and of `request`, call by call, at a length."""
    from trimtab import Context

    messages = conversation(count + 2 * rounds)
    context = Context(MODEL, **WINDOW)
    context.sync(messages[:count])
    context.request()
    syncs: list[float] = []
    requests: list[float] = []
    for turn in range(1, rounds + 1):
        listed = messages[: count + 2 * turn]
        listed = json.loads(json.dumps(listed)) if fresh else listed
        gc.collect()
        start = time.process_time()
        context.sync(listed)
        middle = time.process_time()
        context.request()
        requests.append(time.process_time() - middle)
        syncs.append(middle - start)
    return syncs, requests


def measure_view(count: int, rounds: int) -> list[float]:
    """CPU seconds of `view` after a request with two new messages, call by call, at a length."""
    from trimtab import Context

    messages = conversation(count + 2 * rounds)
    context = Context(MODEL, **WINDOW)
    context.sync(messages[:count])
    context.request()
    context.view()
    times: list[float] = []
    for turn in range(1, rounds + 1):
        context.sync(messages[: count + 2 * turn])
        context.request()
        gc.collect()
        start = time.process_time()
        context.view()
        times.append(time.process_time() - start)
    return times


def tool_definitions(count: int) -> list[dict[str, Any]]:
    """Definitions as large as those of a coding agent: 2 kB each."""
    pick = random.Random(60)  # noqa: S311 - not for secrets
    properties = {
        name: {"type": "string", "description": " ".join(pick.choices(WORDS, k=40))}
        for name in ("path", "pattern", "content", "mode")
    }
    return [
        {
            "type": "function",
            "function": {
                "name": f"tool_{number}",
                "description": " ".join(pick.choices(WORDS, k=100)),
                "parameters": {"type": "object", "properties": properties},
            },
        }
        for number in range(count)
    ]


def measure_configure(rounds: int) -> list[float]:
    """CPU seconds of `configure` with equal values in new objects, as after parsing a body."""
    from trimtab import Context

    system, tools = "You are careful. " * 500, tool_definitions(60)
    context = Context(MODEL, system=system, tools=tools, **WINDOW)
    context.sync(conversation(101))
    context.request()
    times: list[float] = []
    for _ in range(rounds):
        gc.collect()
        same = json.loads(json.dumps({"system": system, "tools": tools}))
        start = time.process_time()
        context.configure(model=MODEL, system=same["system"], tools=same["tools"])
        times.append(time.process_time() - start)
    return times


def measure_fold(count: int) -> float:
    """CPU seconds of the first `sync` and `request` of a list."""
    from trimtab import Context

    messages = conversation(count)
    gc.collect()
    start = time.process_time()
    context = Context(MODEL, **WINDOW)
    context.sync(messages)
    context.request()
    return time.process_time() - start


def measure_auto(turns: int) -> list[float]:
    """CPU seconds of each request under `auto`, with results of 40 kB."""
    from trimtab import Context

    context, times = Context(MODEL, **WINDOW), list[float]()
    usage = {"prompt_tokens": 1_000, "completion_tokens": 10, "total_tokens": 1_010}
    for message in long_results(turns):
        if message["role"] == "assistant":
            start = time.process_time()
            context.request()
            times.append(time.process_time() - start)
            choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
            body = {"id": f"r{len(times)}", "object": "chat.completion", "model": MODEL}
            context.add({**body, "created": 1, "choices": [choice], "usage": usage})
        else:
            context.add(message)
    return times


def measure_memory(count: int) -> float:
    """Bytes a message that a context holds beside the caller's list and its texts."""
    from trimtab import Context

    messages = conversation(count)
    tracemalloc.start()
    context = Context(MODEL, **WINDOW)
    context.sync(messages)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del context
    return round(held / count)


def trim_ms(count: int) -> float:
    from langchain_core.messages import trim_messages
    from langchain_core.messages.utils import count_tokens_approximately

    messages = conversation(count)
    times: list[float] = []
    for _ in range(3):
        start = time.process_time()
        trim_messages(
            messages,
            max_tokens=60_000,
            token_counter=count_tokens_approximately,
            strategy="last",
            start_on="human",
        )
        times.append(time.process_time() - start)
    return round(1e3 * statistics.median(times), 2)


def figures(*, quick: bool) -> dict[str, Any]:
    """All that is measured."""
    from trimtab import fit

    rounds = 10 if quick else 30
    longest = 20_001 if quick else 100_001
    out: dict[str, Any] = {"longest": longest}
    warm: dict[int, float] = {}
    for count in (101, 1_001, longest):
        syncs, requests = measure_warm(count, rounds)
        warm[count] = statistics.median(map(sum, zip(syncs, requests, strict=True)))
        out[f"warm_ms_{count}"] = round(1e3 * warm[count], 3)
        out[f"warm_sync_ms_{count}"] = round(1e3 * statistics.median(syncs), 3)
    out["warm_growth"] = round(warm[longest] / warm[1_001], 2)
    same = statistics.median(measure_warm(10_001, rounds)[0])
    fresh = statistics.median(measure_warm(10_001, rounds, fresh=True)[0])
    out["fresh_us_per_message"] = round(1e6 * (fresh - same) / 10_001, 3)
    views = {count: statistics.median(measure_view(count, rounds)) for count in (101, 10_001)}
    for count, seconds in views.items():
        out[f"view_ms_{count}"] = round(1e3 * seconds, 3)
    out["view_growth"] = round(views[10_001] / views[101], 2)
    out["configure_ms"] = round(1e3 * statistics.median(measure_configure(rounds)), 3)
    folds = {count: measure_fold(count) for count in (1_001, 10_001)}
    out["first_fold_s_10001"] = round(folds[10_001], 2)
    out["fold_growth"] = round(folds[10_001] / 10_001 / (folds[1_001] / 1_001), 2)
    messages = long_results(100)
    start = time.process_time()
    fit(messages, model="gpt-4o", context_window=32_000)
    out["fit_300_s"] = round(time.process_time() - start, 3)
    times = sorted(measure_auto(60 if quick else 150))
    out["auto_40kb_p50_ms"] = round(1e3 * statistics.median(times), 2)
    out["auto_40kb_p95_ms"] = round(1e3 * times[int(0.95 * len(times))], 2)
    out["memory_bytes_per_message"] = measure_memory(1_001)
    return out


def main() -> int:
    asked = parser(__doc__).parse_args()
    report = {**head(("langchain-core",)), **figures(quick=asked.quick)}
    report["trim_messages_ms_10001"] = trim_ms(10_001)
    missed = [
        f"{name} is {report[name]}, above {most}"
        for name, most in LIMITS.items()
        if report[name] > most
    ]
    return finish({**report, "not_reached": missed}, as_json=asked.json)


if __name__ == "__main__":
    sys.exit(main())
