"""A small real model writes summaries: for us, and for LangChain's `SummarizationMiddleware`.

SmolLM2-135M-Instruct by llama-cpp-python's server, greedy, the same server and the same cap on
output for both. A model of this size shows that the plumbing holds, not how good a summary is.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import llama_server
from benchmarks.harness import progress
from benchmarks.peers import envs
from benchmarks.probes import Case, told
from trimtab.engine.log.message import Message, ToolResult
from trimtab.engine.summaries.format import compute_list_cap
from trimtab.engine.tokens.counter import TokenCounter
from trimtab.providers.openai import OpenAIChatProvider
from trimtab.session.summariser import Summariser, SummaryResult, make_summary

MODEL = "SmolLM2-135M-Instruct"
WINDOW = 8_192
OUTPUT = 200
"""Tokens that either may ask for."""
LANGCHAIN = envs.PEERS[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One conversation, summarised by both."""

    ours: SummaryResult
    """As the session would get it."""
    theirs: str
    """The middleware's message; empty where it failed."""
    error: str = ""
    """Why it failed."""


def missing() -> str | None:
    """Why there can be no such run here; None where there can."""
    if not llama_server.there():
        return "no server: python -m benchmarks.real_model makes one"
    try:
        envs.interpreter(LANGCHAIN)
    except envs.Absent as absent:
        return f"no LangChain: {absent}"
    return None


def pairs(cases: Sequence[Case], counter: TokenCounter) -> list[Pair]:
    """Both summaries of each conversation."""
    with llama_server.serve(MODEL, window=WINDOW) as served:
        ours = asyncio.run(_ours(served.url, cases, counter))
        theirs = _theirs(served.url, cases)
    return [
        Pair(ours=own, theirs=told.get("summary", ""), error=told.get("error", ""))
        for own, told in zip(ours, theirs, strict=True)
    ]


async def _ours(url: str, cases: Sequence[Case], counter: TokenCounter) -> list[SummaryResult]:
    provider = OpenAIChatProvider(api_key="none", base_url=url)
    summariser = Summariser(
        provider=provider,
        model=MODEL,
        context_window=WINDOW,
        timeout=3_600.0,
        max_output=OUTPUT,
        params={"temperature": 0},
    )
    made: list[SummaryResult] = []
    for number, case in enumerate(cases, 1):
        progress(f"ours: {number} of {len(cases)}")
        cap = compute_list_cap(counter.count(told(case.covered)))
        made.append(
            await make_summary(
                summariser,
                case.covered,
                counter=counter,
                list_tokens=cap,
                visible_text=told(case.kept),
            )
        )
    await provider.close()
    return made


def _theirs(url: str, cases: Sequence[Case]) -> list[dict[str, str]]:
    asked = {
        "url": url,
        "model": MODEL,
        "max_tokens": OUTPUT,
        "conversations": [
            {"covered": _wires(case.covered), "kept": _wires(case.kept)} for case in cases
        ],
    }
    script = Path(__file__).parent / "peers" / "langchain_summary.py"
    command = [str(envs.interpreter(LANGCHAIN)), str(script)]
    progress(f"LangChain: {len(cases)} conversations")
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True)  # noqa: S603, PLW1510 - our own; looked at below
    if done.returncode:
        raise envs.Absent((done.stderr.strip().splitlines() or ["no message"])[-1])
    return [json.loads(line) for line in done.stdout.splitlines()]


def _wires(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """As Chat Completions dicts."""
    made: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            made += [
                {"role": "tool", "tool_call_id": part.call_id, "content": part.text}
                for part in message.parts
                if isinstance(part, ToolResult)
            ]
            continue
        wire: dict[str, Any] = {"role": message.role, "content": message.text}
        if message.calls:
            wire["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in message.calls
            ]
        made.append(wire)
    return made
