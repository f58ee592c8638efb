"""What goes to Amazon Bedrock for a recorded conversation, as its two APIs receive it.

The log is golden like the others: its requests are fixed for its renderer. How the providers and
the SDKs under them put these requests to Bedrock has no version of its own. Whoever changes it on
purpose writes `sent_*.json` again with `python -m tests.golden.record`; the difference says what
Bedrock will see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conversations import ticking
from tests.pictures import PDF_TEXT, PNG_TEXT
from tests.providers.clouds import HAIKU, NOVA, make
from tests.simulators.clouds.local_server import serve_simulated_clouds
from trimtab import Context

HERE = Path(__file__).parent
MODELS = {
    "bedrock": HAIKU,
    "bedrock_converse": NOVA,
    "bedrock_llama": "us.meta.llama3-3-70b-instruct-v1:0",
}
"""By file: Claude by InvokeModel, a model with cache points and one without them by Converse."""
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
LONG = "A line of a file that is read.\n" * 60
SOURCES = {"image": ("image/png", PNG_TEXT), "document": ("application/pdf", PDF_TEXT)}


def log_file(name: str) -> Path:
    return HERE / f"log_{name}.jsonl"


def sent_file(name: str) -> Path:
    return HERE / f"sent_{name}.json"


def conversation(name: str) -> Context:
    """A small one of all that has a form of its own at Bedrock."""
    context = Context(
        MODELS[name],
        dialect="anthropic",
        policy="layered",
        system="You are a careful assistant.",
        tools=[
            {
                "name": "read",
                "description": "Read a file.",
                "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
            }
        ],
        params={"stop_sequences": ["STOP"], **(THINKING if name == "bedrock" else {"top_k": 40})},
        limits={"max_tool_result_tokens": 100, "tool_result_keep_last": 1},
        max_output_tokens=2_000,
        recall=True,
        clock=ticking(1_700_000_000.0),
    )
    context.add(_user(_media("image"), _media("document"), _text("Grüße! What is in a.py?")))
    context.request()
    context.add(_reply(1, _call("call_1"), _call("i" * 80)))
    context.add(_user(_result("call_1", "no such file", is_error=True), _result("i" * 80, "")))
    context.add(_user(_text("Only the first lines, please.")))
    context.request(stream=True)
    context.add(_reply(2, _call("call_2"), _call("call_3")))
    context.add(_user(_result("call_2", LONG)))
    context.add(_user(_result("call_3", [_media("document"), _media("image")])))
    context.request()
    context.add(_reply(3, _text("It has sixty lines.")))
    context.add({"role": "system", "content": "Answer in German."})
    context.add(_user(_media("document")))
    context.request(volatile="It is noon.")
    context.configure(tools=[], recall=False)
    context.add(_reply(4, _text("Gern.")))
    context.add(_user(_text("Go on.")))
    context.request()
    return context


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def _media(kind: str) -> dict[str, Any]:
    mime, data = SOURCES[kind]
    return {"type": kind, "source": {"type": "base64", "media_type": mime, "data": data}}


def _call(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "read", "input": {"path": f"{call_id}.py"}}


def _result(call_id: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def _user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def _reply(number: int, *blocks: dict[str, Any]) -> dict[str, Any]:
    thinking = {"type": "thinking", "thinking": f"Hm, {number}.", "signature": "c2ln"}
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "a",
        "content": [thinking, _text("Let me look."), *blocks],
        "stop_reason": "tool_use" if blocks[0]["type"] == "tool_use" else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 900, "output_tokens": 20},
    }


def sent(name: str, requests: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The bodies that a strict Bedrock receives through the real SDKs, and takes."""
    with serve_simulated_clouds(signatures=False, tokenizer="estimate") as simulator:
        asyncio.run(_send(name, simulator.url, requests))
        records = simulator.simulator.records.requests
        assert [record.status for record in records] == [200] * len(requests), records
        return [record.body for record in records]


async def _send(name: str, url: str, requests: Sequence[Mapping[str, Any]]) -> None:
    provider = make("bedrock", url, MODELS[name])
    for request in requests:
        # What streams is told by the address alone.
        plain = {key: value for key, value in request.items() if key != "stream"}
        async for _ in provider.send(plain):
            pass
    await provider.close()
