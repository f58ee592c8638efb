"""One life of an agent: it reads many files, one after the other, and reads a hidden one back.

The model is simulated and strict: it refuses what a provider refuses. What it received is the
evidence, and it is studied here by rules of this file, not of Trimtab.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.testing.replies import ScriptedCall
from trimtab.testing.server import ServedSimulator, serve_simulated_provider
from trimtab.testing.server.request_log import RecordedRequest
from trimtab.testing.server.script import ScriptStep, SimulatorScript

LINES = 200
"""Lines of a file: about 2,800 tokens, and less than one answer of `recall`."""
SPOKEN_EACH = 3
"""The model says something before each third call."""
_HANDLE = re.compile(r"recall (m\d+\.\d+(?:~\w+)?)")
ReadFile = Callable[[str], Mapping[str, Any]]
"""An agent's own call that reads a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What the agent does."""

    files: int
    """How many files it reads."""
    window: int
    """Tokens of the model's window."""
    believed: int | None = None
    """Tokens of the window as the agent believes; None if it knows."""
    recalls: bool = False
    """Whether the model reads a hidden result back, after all files."""


class LifeScript(SimulatorScript):
    """Reads file after file, then recalls what a placeholder names, then answers."""

    def __init__(self, steps: Sequence[ScriptStep], requests: Sequence[RecordedRequest]) -> None:
        super().__init__()
        self.left = [*steps]
        self.requests = requests
        self.handle = ""

    def next_step_calls(self, key: str, user_text: str) -> bool:
        """Return whether the next step calls a tool."""
        del key, user_text
        return bool(self.left) and bool(self.left[0].calls)

    def take_step(self, key: str, header: str | None, user_text: str) -> ScriptStep:
        """Return the next step; a call of a tool that the request does not offer is left out."""
        del key, header, user_text
        body = self.requests[-1].body
        if not body.get("tools"):
            return ScriptStep(text="A title")
        if not self.left:
            return ScriptStep(text="Done.")
        step = self.left.pop(0)
        if isinstance(step.calls, tuple) and step.calls[0].name == "recall":
            handles = _HANDLE.findall(json.dumps(body))
            if not handles:
                return self.take_step("", None, "")
            self.handle = handles[0]
            return ScriptStep(
                calls=(ScriptedCall(name="recall", arguments={"handle": self.handle}),)
            )
        return step


@dataclass(slots=True)
class Recorded:
    """What the provider received in one life."""

    requests: list[RecordedRequest]
    """The requests of the conversation. Requests for a title are not among them."""
    handle: str
    """What the model read back; empty for nothing."""
    figures: dict[str, Any] = field(default_factory=dict[str, Any])


@contextmanager
def simulate(
    life: Life, folder: Path, read_file: ReadFile
) -> Generator[tuple[ServedSimulator, Callable[[], Recorded]]]:
    """Serve the model of a life. The function that comes with it tells what was received."""
    paths = [folder / f"file{number:03d}.txt" for number in range(life.files)]
    for number, path in enumerate(paths):
        path.write_text(_write_file(number))
    steps = [_call(read_file(str(path)), number) for number, path in enumerate(paths)]
    if life.recalls:
        steps.append(ScriptStep(calls=(ScriptedCall(name="recall"),)))
    with serve_simulated_provider() as served:
        served.simulator.configure(window=life.window)
        requests = served.simulator.records.requests
        script = LifeScript([*steps, ScriptStep(text="All read.")], requests)
        served.simulator.script = script

        def tell() -> Recorded:
            mine = [each for each in requests if (each.body or {}).get("tools")]
            return Recorded(mine, script.handle)

        yield served, tell


def _call(call: Mapping[str, Any], number: int) -> ScriptStep:
    """Call the agent's tool. A model says something before some of its calls."""
    text = None if number % SPOKEN_EACH else f"I read file {number} now."
    calls = (ScriptedCall(name=call["name"], arguments=call["arguments"]),)
    return ScriptStep(text=text, calls=calls)


def _write_file(number: int) -> str:
    lines = (
        f"line {number}.{at} value={at * number % 977} name_{number}_{at}" for at in range(LINES)
    )
    return "\n".join(lines)


def list_messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages, or items, of a body."""
    return body.get("messages", body.get("input")) or []


def study(requests: Sequence[RecordedRequest]) -> dict[str, Any]:
    """The figures that a provider sees."""
    answered = [each for each in requests if each.fate == "answered"]
    usages = [read_usage(each) for each in answered]
    total, read = sum(each[0] for each in usages), sum(each[1] for each in usages)
    refused = [each for each in requests if each.fate in ("violation", "overflow", "auth")]
    return {
        "calls": len(answered),
        "refused": len(refused),
        "unpaired": sum(not is_paired(each.body) for each in answered),
        "input": total,
        "cache_read": round(read / total, 4) if total else 0.0,
        **({"refusal": refused[0].message[:160]} if refused else {}),
    }


def read_usage(request: RecordedRequest) -> tuple[int, int]:
    """Tokens of input, and those of them that were read from the cache."""
    usage: Mapping[str, Any] = (request.reply or {}).get("usage") or {}
    if "prompt_tokens" in usage:
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
    read = usage.get("cache_read_input_tokens")
    if read is None:
        return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
    return usage["input_tokens"] + read + usage["cache_creation_input_tokens"], read


def is_paired(body: Mapping[str, Any]) -> bool:
    """Whether each call has its result, and each result its call."""
    calls: list[str] = []
    results: list[str] = []
    for message in list_messages(body):
        calls += [call["id"] for call in message.get("tool_calls") or ()]
        if message.get("role") == "tool":
            results.append(message["tool_call_id"])
        for block in _list_blocks(message):
            if block.get("type") == "tool_use":
                calls.append(block["id"])
            if block.get("type") == "tool_result":
                results.append(block["tool_use_id"])
    return sorted(calls) == sorted(results)


def list_results(body: Mapping[str, Any]) -> dict[str, str]:
    """The texts of all results, by the id of their call."""
    texts: dict[str, str] = {}
    for message in list_messages(body):
        if message.get("role") == "tool":
            texts[message["tool_call_id"]] = _read_text(message["content"])
        for block in _list_blocks(message):
            if block.get("type") == "tool_result":
                texts[block["tool_use_id"]] = _read_text(block.get("content"))
    return texts


def is_read_back(requests: Sequence[RecordedRequest]) -> bool:
    """Whether a result is, byte for byte, one that was sent before for another call."""
    seen: dict[str, str] = {}
    for request in requests:  # an agent may review the conversation after its last answer
        for call_id, text in list_results(request.body).items():
            if call_id not in seen and text in seen.values():
                return True
            seen.setdefault(call_id, text)
    return False


def _list_blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _read_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(block.get("text", "")) for block in content or ())
