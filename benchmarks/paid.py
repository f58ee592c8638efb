"""How far the costs that `trimtab replay` models are from what was really paid, and how fast it is.

Recorded conversations of Claude Code and Codex carry the usage that the provider reported. From the
first third of the calls of each, replay learns the size of the hidden system prompt and tools, and
the provider's tokens for an estimated one. It then models the input of the other two thirds as the
client sent it. Output is left out: it would be equal on both sides.

paid_error      |modelled - paid| / paid, in fresh input tokens, over the last two thirds of the
                calls of a conversation: the median, also by client
paid_error_p90  nine of ten conversations are below this
token_error     the same for the tokens of the prompts, whatever they cost
paid_error_without_pauses
                the median if nothing is known about pauses. The recordings have no times; for
                `paid_error`, whether the cache was lost before a call is taken from its usage.
                Logs on a user's disk have times and usage.

Then it writes logs of the same sizes as these clients do, with times, into a temporary folder (500,
or 20 in a quick run), and lets `trimtab replay` read them.

first_line_s    seconds until it says what it reads, the fastest of five starts
cpu_s           CPU seconds until its last line, all processes together
screen          what it printed, at 100 columns; docs/replay.md shows it

The median must be at most 0.10, in each client too; the first line must come within 2 seconds, and
500 logs must take at most 60 CPU seconds.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import corpus
from benchmarks.harness import Report, no_corpus, run, skip
from benchmarks.samples import sort_by_hash
from trimtab.cli.text_format import wrap_text
from trimtab.engine.log.event import Usage
from trimtab.models.catalog import resolve_model_info
from trimtab.replay.billing import InputBill, build_cache_rules
from trimtab.replay.calls import EVERYTHING, ReplaySetup
from trimtab.replay.prompt_scale import learn_prompt_scale, make_counter, measure_messages
from trimtab.replay.runner import replay_conversation
from trimtab.replay.selection import RecordedConversation

CLIENTS = {"Claude Code": "entire_claude_code*.jsonl.gz", "Codex": "entire_codex.jsonl.gz"}
MODELS = {"Claude Code": "claude-opus-4-5", "Codex": "gpt-5.4"}
"""For conversations that name no model."""
MIN_CALLS = 9
"""With fewer calls there is nothing to learn from a third of them."""
QUICK_CONVERSATIONS = 30
"""Conversations of each client in a quick run."""
LOGS = {"full": 500, "quick": 20}
COLUMNS = 100
STARTS = 5
"""Starts of the command, of which the fastest counts: others may use the machine."""
MAX_MEDIAN_ERROR = 0.10
MAX_FIRST_LINE_SECONDS = 2.0
MAX_CPU_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of one conversation, as shares of what was paid."""

    cost: float
    tokens: float
    cost_without_pauses: float


def main(quick: bool) -> Report:
    conversations = {client: _read(client, quick) for client in CLIENTS}
    errors = {
        client: [_measure(one, MODELS[client]) for one in conversations[client]]
        for client in CLIENTS
    }
    merged = [one for client in CLIENTS for one in errors[client]]
    report: Report = {
        "sample": {client: len(measured) for client, measured in errors.items()},
        "paid_error": _median([one.cost for one in merged]),
        "paid_error_p90": _p90([one.cost for one in merged]),
        "paid_error_by_client": {
            client: {
                "paid_error": _median([one.cost for one in measured]),
                "paid_error_p90": _p90([one.cost for one in measured]),
                "token_error": _median([one.tokens for one in measured]),
                "paid_error_without_pauses": _median([one.cost_without_pauses for one in measured]),
            }
            for client, measured in errors.items()
        },
        "token_error": _median([one.tokens for one in merged]),
        "paid_error_without_pauses": _median([one.cost_without_pauses for one in merged]),
    }
    report |= _time_replay(LOGS["quick" if quick else "full"])
    medians = {"all": report["paid_error"]} | {
        client: figures["paid_error"] for client, figures in report["paid_error_by_client"].items()
    }
    report["broken"] = [
        *(
            f"paid_error of {client} is {median}, more than {MAX_MEDIAN_ERROR}"
            for client, median in medians.items()
            if median > MAX_MEDIAN_ERROR
        ),
        *_find_slowness(report),
    ]
    return report


def _find_slowness(report: Report) -> Iterator[str]:
    if report["first_line_s"] > MAX_FIRST_LINE_SECONDS:
        yield f"the first line took {report['first_line_s']} s, more than {MAX_FIRST_LINE_SECONDS}"
    if report["cpu_s"] > MAX_CPU_SECONDS:
        yield f"{report['logs']} logs took {report['cpu_s']} CPU seconds, not {MAX_CPU_SECONDS}"


def _read(client: str, quick: bool) -> list[RecordedConversation]:
    recordings = corpus.read_recorded(CLIENTS[client])
    kept = [one for one in recordings if len(one.usage) >= MIN_CALLS]
    return sort_by_hash(kept)[: QUICK_CONVERSATIONS if quick else None]


def _measure(conversation: RecordedConversation, usual_model: str) -> Errors:
    model = conversation.model or usual_model
    setup = ReplaySetup(name=EVERYTHING, options={"policy": EVERYTHING}, model=model)
    rules = build_cache_rules(resolve_model_info(model))
    usage = conversation.usage
    indexes = sorted(usage)
    learned, tested = indexes[: len(indexes) // 3], indexes[len(indexes) // 3 :]
    sizes = measure_messages(conversation.messages, make_counter(model))
    scale = learn_prompt_scale({index: usage[index] for index in learned}, sizes)
    paid = sum(_bill(usage[index]).cost(rules) for index in tested)
    sent = sum(usage[index].input for index in tested)
    costs: list[float] = []
    tokens = 0
    for known in (conversation, replace(conversation, recorded=_forget(conversation))):
        calls = replay_conversation(known, setup, {"own": rules}, {}, scale=scale).calls
        modelled = [call for call in calls if call.index in set(tested)]
        costs.append(sum(call.bill["own"].cost(rules) for call in modelled))
        tokens = sum(call.tokens for call in modelled)
    return Errors(
        *(abs(a - b) / b for a, b in ((costs[0], paid), (tokens, sent), (costs[1], paid)))
    )


def _forget(conversation: RecordedConversation) -> dict[int, Any]:
    """The calls as if no usage had been recorded."""
    return {index: replace(call, usage=None) for index, call in conversation.recorded.items()}


def _bill(usage: Usage) -> InputBill:
    fresh = usage.input - usage.cache_read - usage.cache_write
    return InputBill(read=usage.cache_read, write=usage.cache_write, fresh=fresh)


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)


def _p90(values: Sequence[float]) -> float:
    return round(statistics.quantiles(values, n=10)[-1], 3)


def _time_replay(count: int) -> Report:
    """Write logs, let `trimtab replay` read them, and return how long it took."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = _write_logs(folder, count)
        command = [sys.executable, "-m", "trimtab", "replay", str(folder)]
        first_line_s = min(_time_first_line(command) for _ in range(STARTS))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        environment = {**os.environ, "COLUMNS": str(COLUMNS), "PYTHONIOENCODING": "utf-8"}
        process = subprocess.run(  # noqa: S603 - our own
            command, capture_output=True, check=True, env=environment, encoding="utf-8"
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "logs": count,
        "log_mb": round(size / 1_000_000),
        "first_line_s": round(first_line_s, 2),
        "cpu_s": round(cpu, 1),
        "peak_mb": round(after.ru_maxrss / 1_000),
        "screen": wrap_text(process.stdout.rstrip("\n"), COLUMNS).splitlines(),
    }


def _time_first_line(command: Sequence[str]) -> float:
    """Start the command and return the seconds until it says what it reads."""
    start = time.monotonic()
    with subprocess.Popen(  # noqa: S603 - our own
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()
        seconds = time.monotonic() - start
        process.kill()
    return seconds


def _write_logs(folder: Path, count: int) -> int:
    """Write recorded conversations as their clients log them, and return the bytes."""
    recorded = [
        one
        for one in corpus.conversations()
        if one.source.startswith(("entire_claude_code", "entire_codex"))
    ]
    size = 0
    for number in range(count):
        one = recorded[number * 7 % len(recorded)]
        is_codex = one.source == "entire_codex"
        lines = _codex_lines(one, number) if is_codex else _claude_code_lines(one, number)
        path = folder / ("rollouts" if is_codex else "projects") / f"session-{number}.jsonl"
        path.parent.mkdir(exist_ok=True)
        size += path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return size


def _list_times(one: corpus.Conversation) -> list[str]:
    """A time for each message: five seconds later, or two hours if its cache was lost."""
    now = datetime(2026, 10, 1, tzinfo=UTC).timestamp()
    before = 0
    times: list[str] = []
    for index in range(len(one.messages)):
        usage = one.meta.get("usage", {}).get(str(index))
        now += 5
        if usage is not None:
            cached = usage.get("cached_input_tokens", usage.get("cache_read_input_tokens", 0))
            now += 7_200 if cached < 0.9 * before else 0
            written = usage.get("cache_creation_input_tokens", 0)
            is_codex = "cached_input_tokens" in usage
            before = usage["input_tokens"] + (0 if is_codex else cached + written)
        times.append(datetime.fromtimestamp(now, UTC).isoformat())
    return times


def _claude_code_lines(one: corpus.Conversation, number: int) -> Iterator[dict[str, Any]]:
    model = next((name for name in one.meta["models"] if "<" not in name), MODELS["Claude Code"])
    compactions = {place["at"] for place in one.meta.get("compact", ())}
    for index, (message, at) in enumerate(zip(one.messages, _list_times(one), strict=True)):
        if index in compactions:
            yield {"type": "system", "subtype": "compact_boundary", "timestamp": at}
        line = {"uuid": f"{number}-{index}", "timestamp": at, "isSidechain": False}
        text = [{"type": "text", "text": message["content"]}] if message.get("content") else []
        if message["role"] == "assistant":
            calls = [
                {
                    "type": "tool_use",
                    "id": call["id"],
                    "name": call["function"]["name"],
                    "input": _arguments(call),
                }
                for call in message.get("tool_calls") or ()
            ]
            reply = {"id": f"msg_{number}_{index}", "model": model, "role": "assistant"}
            if usage := one.meta["usage"].get(str(index)):
                reply["usage"] = usage
            yield {**line, "type": "assistant", "message": {**reply, "content": text + calls}}
        elif message["role"] == "tool":
            result = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
            content = [{**result, "content": message["content"]}]
            yield {**line, "type": "user", "message": {"role": "user", "content": content}}
        else:
            yield {**line, "type": "user", "message": {"role": "user", "content": text}}


def _arguments(call: dict[str, Any]) -> Any:
    try:
        return json.loads(call["function"]["arguments"])
    except json.JSONDecodeError:
        return {}


def _codex_lines(one: corpus.Conversation, number: int) -> Iterator[dict[str, Any]]:
    model = next(iter(one.meta["models"]), MODELS["Codex"])
    times = _list_times(one)
    compactions = {place["at"] for place in one.meta.get("compact", ())}

    def line(kind: str, index: int, **payload: Any) -> dict[str, Any]:
        return {"timestamp": times[index], "type": kind, "payload": payload}

    yield line("session_meta", 0, id=f"thread-{number}")
    yield line("turn_context", 0, model=model)
    for index, message in enumerate(one.messages):
        if index in compactions:
            yield line("compacted", index, message="")
        role, text = message["role"], message.get("content")
        if role == "tool":
            output = {"call_id": message["tool_call_id"], "output": text}
            yield line("response_item", index, type="function_call_output", **output)
        elif text:
            kind = "output_text" if role == "assistant" else "input_text"
            content = [{"type": kind, "text": text}]
            yield line("response_item", index, type="message", role=role, content=content)
        for call in message.get("tool_calls") or ():
            item = {"call_id": call["id"], **call["function"]}
            yield line("response_item", index, type="function_call", **item)
        if usage := one.meta["usage"].get(str(index)):
            yield line("event_msg", index, type="token_count", info={"last_token_usage": usage})


if __name__ == "__main__":
    missing = no_corpus()
    sys.exit(skip(missing, as_json="--json" in sys.argv) if missing else run(__doc__, main))
