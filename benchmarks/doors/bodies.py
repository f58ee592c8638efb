"""Bodies of model calls as no two clients write them: unknown fields, odd spacing, orders of keys,
escapes, numbers that hardly a language can hold, halves of surrogate pairs, keys twice."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

WORDS = "alpha beta gamma delta config error value request 17 0x1f path/to/file naïve 日本".split()
ODD_TEXTS = (
    "hello",
    "é\u2028 \u0000 x",
    "😀 \ud83d",
    '\\u00e9 "q" </s>',
    "a\tb\r\nc",
    "1e400",
    " ",
    "日本語" * 9,
    "[result masked — ~5 tokens removed · recall m2.0]",
)
HUGE = {"@@huge@@": "1e400", "@@digits@@": "9" * 400, "@@long@@": "1" * 5_000, "@@tiny@@": "-0.0"}
"""Numbers that Python's JSON cannot write, by what stands for them."""


class Bodies:
    """Random bodies in three dialects. `size` is about how many words a tool's result has."""

    def __init__(self, random_: random.Random, *, size: int = 0) -> None:
        self._random, self._size = random_, size

    def write(self) -> tuple[str, str, dict[str, Any]]:
        """Return a dialect, a body as a client writes it, and the body."""
        dialect = self._random.choice(("anthropic", "openai_chat", "openai_responses"))
        make: Mapping[str, Callable[[], dict[str, Any]]] = {
            "anthropic": self._anthropic,
            "openai_chat": self._chat,
            "openai_responses": self._responses,
        }
        body = make[dialect]()
        return dialect, self._dump(body), body

    def _dump(self, body: dict[str, Any]) -> str:
        pick = self._random.choice
        text = json.dumps(
            body,
            ensure_ascii=pick((True, False)),
            separators=pick(((",", ":"), (", ", ": "), (" ,\n", " :\t"))),
            indent=pick((None, None, 1)),
        )
        # What UTF-8 cannot hold has to be escaped.
        text = re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)
        for name, digits in HUGE.items():
            text = text.replace(f'"{name}"', digits)
        if self._random.random() < 0.1:
            text = text.replace('"x_1"', '"x_2"')  # often twice in an object
        return pick(("", " ", "\n")) + text + pick(("", "\n"))

    def _text(self) -> str:
        return self._random.choice(ODD_TEXTS) + str(self._random.random())

    def _output(self) -> str:
        if not self._size:
            return self._text()
        count = self._random.randint(self._size // 4, self._size)
        return self._text() + " ".join(self._random.choices(WORDS, k=count))

    def _junk(self, depth: int = 0) -> Any:
        pick, chance = self._random, self._random.random()
        if chance < 0.3:
            return pick.choice([0, -0.0, 1e308, 10**40, 1.0, 1e-7, True, False, None, *HUGE])
        if chance < 0.5 or depth >= 3:
            return self._text()
        if chance < 0.75:
            return [self._junk(depth + 1) for _ in range(pick.randint(0, 3))]
        return {self._text()[:6]: self._junk(depth + 1) for _ in range(pick.randint(0, 3))}

    def _odd(self, fields: dict[str, Any], chance: float = 0.2) -> dict[str, Any]:
        if self._random.random() < chance:
            fields["x_" + str(self._random.randint(0, 9))] = self._junk()
        items = list(fields.items())
        if self._random.random() < 0.5:
            self._random.shuffle(items)
        return dict(items)

    def _rounds(self) -> range:
        return range(self._random.randint(3, 9) if self._size else self._random.randint(0, 3))

    def _ids(self, prefix: str, number: int) -> list[str]:
        return [f"{prefix}_{number}_{at}" for at in range(self._random.randint(1, 3))]

    def _shuffled(self, ids: list[str]) -> list[str]:
        return self._random.sample(ids, len(ids)) if self._random.random() < 0.3 else ids

    def _anthropic(self) -> dict[str, Any]:
        random_, odd, text = self._random, self._odd, self._text
        blocks: Any = random_.choice([text(), [odd({"type": "text", "text": text()})]])
        messages = [odd({"role": "user", "content": blocks})]
        for number in self._rounds():
            ids = self._ids("toolu", number)
            said: list[Any] = []
            if random_.random() < 0.4:
                said.append({"type": "thinking", "thinking": text(), "signature": text()})
            if random_.random() < 0.5:
                said.append(odd({"type": "text", "text": text()}))
            for id_ in ids:
                call = {"type": "tool_use", "id": id_, "name": "f", "input": {"a": self._junk()}}
                said.append(odd(call))
            messages.append(odd({"role": "assistant", "content": said}))
            results = self._results(ids)
            messages.append(odd({"role": "user", "content": results}))
            if random_.random() < 0.5:
                messages.append({"role": "assistant", "content": text()})
                messages.append({"role": "user", "content": text()})
        last = messages[-1]["content"]
        if random_.random() < 0.3 and isinstance(last, list):
            last[-1]["cache_control"] = {"type": "ephemeral"}
        body = {"model": "claude-sonnet-4-5", "max_tokens": 1_000, "messages": messages}
        if random_.random() < 0.7:
            block = odd({"type": "text", "text": text(), "cache_control": {"type": "ephemeral"}})
            body["system"] = random_.choice([text(), [block]])
        if random_.random() < 0.5:
            tool = {"name": "f", "description": text(), "input_schema": {"type": "object"}}
            search = {"type": "web_search_20250305", "name": "web_search"}
            body["tools"] = [odd(tool), search][: random_.randint(1, 2)]
        return odd(body, 0.5)

    def _results(self, ids: list[str]) -> list[Any]:
        random_, odd, text = self._random, self._odd, self._text
        results: list[Any] = []
        for id_ in self._shuffled(ids):
            content: Any = random_.choice(
                [self._output(), [odd({"type": "text", "text": self._output()})]]
            )
            result = {"type": "tool_result", "tool_use_id": id_, "content": content}
            if random_.random() < 0.3:
                result["is_error"] = random_.random() < 0.5
            results.append(odd(result))
        if random_.random() < 0.2:
            results.append({"type": "text", "text": text()})
        if random_.random() < 0.1:
            results.insert(0, {"type": "text", "text": text()})
        return results

    def _chat(self) -> dict[str, Any]:
        random_, odd, text = self._random, self._odd, self._text
        messages: list[Any] = []
        if random_.random() < 0.6:
            messages.append({"role": "system", "content": text()})
        messages.append(odd({"role": "user", "content": text()}))
        for number in self._rounds():
            ids = self._ids("call", number)
            written = ["{}", "{bad", json.dumps({"a": text()})]
            calls = [
                {
                    "id": id_,
                    "type": "function",
                    "function": {"name": "f", "arguments": random_.choice(written)},
                }
                for id_ in ids
            ]
            spoken = random_.choice([None, text()])
            messages.append(odd({"role": "assistant", "content": spoken, "tool_calls": calls}))
            for id_ in self._shuffled(ids):
                result = {"role": "tool", "tool_call_id": id_, "content": self._output()}
                messages.append(odd(result))
            if random_.random() < 0.5:
                messages.append({"role": "assistant", "content": text()})
                messages.append({"role": "user", "content": text()})
        return odd({"model": "gpt-4o", "messages": messages, "max_tokens": 1_000}, 0.5)

    def _responses(self) -> dict[str, Any]:
        random_, odd, text = self._random, self._odd, self._text

        def said(role: str, kind: str) -> dict[str, Any]:
            part = {"type": kind, "text": text()}
            return {"type": "message", "role": role, "content": [part]}

        items = [said("developer", "input_text"), odd(said("user", "input_text"))]
        for number in self._rounds():
            ids = self._ids("call", number)
            if random_.random() < 0.5:
                reasoning = {"type": "reasoning", "id": f"rs_{number}", "summary": []}
                items.append({**reasoning, "encrypted_content": text()})
            for id_ in ids:
                call = {"type": "function_call", "call_id": id_, "name": "f", "arguments": "{}"}
                items.append(odd({**call, "id": "fc_" + id_}))
            for id_ in self._shuffled(ids):
                result = {"type": "function_call_output", "call_id": id_}
                items.append(odd({**result, "output": self._output()}))
            if random_.random() < 0.5:
                items.append(said("assistant", "output_text"))
                items.append({"role": "user", "content": text()})
        body = {"model": "gpt-5.4", "input": items, "store": False, "max_output_tokens": 1_000}
        return odd({**body, "client_metadata": {"a": "b"}}, 0.5)
