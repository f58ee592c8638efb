"""A long conversation with Claude, and what of its words a request still says.

Tokens are counted by a rule that a test can apply as well: four characters each.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.conversations import ticking
from trimtab import Context

Wire = dict[str, Any]

MODEL = "claude-sonnet-4-5"
SUMMARY = "[Summary of the earlier conversation"
"""How a summary begins."""
USER_WORDS = "[The user's earlier messages, word for word]"
"""How a block of the list of the user's words begins."""
READ = {"name": "read", "description": "Read a file.", "input_schema": {"type": "object"}}
ALLOWANCE = {"cost": 20_000, "balanced": 40_000, "quality": 40_000}
"""Tokens of user words that stay, by goal; never more than a quarter of the room."""
_NUMBER = re.compile(r"(?<![\w.,])(?:[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d*|0)(?!\w)")
_FRAME = ("role", "type", "id", "tool_use_id", "call_id", "tool_call_id", "cache_control", "source")
_PLAIN = "the log of a replica that lags behind says little when many ask for it at once so we wait"


def tokens(text: str) -> int:
    return (len(text) + 3) // 4


def talking(window: int, **options: Any) -> Context:
    """A context with so large a window, whose tokens are counted as here."""
    settings: Wire = {"tools": [READ], "clock": ticking(), "tokenizer": tokens, **options}
    return Context(settings.pop("model", MODEL), context_window=window, **settings)


def allowance(context: Context, goal: str = "balanced") -> int:
    """Tokens of user words before the newest message that stay."""
    return min(ALLOWANCE[goal], context.budget().room // 4)


def filler(size: int, seed: object) -> str:
    """Lines of plain words, of so many tokens; another text for another seed."""
    pick, words = random.Random(str(seed)), _PLAIN.split()  # noqa: S311 - not for secrets
    lines: list[str] = []
    chars = size * 4
    while chars > 0:
        line = f"{pick.randrange(10**6):06} {' '.join(pick.choices(words, k=12))}"[:chars]
        lines.append(line)
        chars -= len(line) + 1
    return "\n".join(lines)


def person(text: str) -> Wire:
    return {"role": "user", "content": text}


def reply(text: str) -> Wire:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def call(name: str, *before: Wire, **arguments: Any) -> Wire:
    block = {"type": "tool_use", "id": name, "name": "read", "input": arguments}
    return {"role": "assistant", "content": [*before, block]}


def result(name: str, text: str, *beside: Wire) -> Wire:
    block = {"type": "tool_result", "tool_use_id": name, "content": text}
    return {"role": "user", "content": [block, *beside]}


def block(text: str) -> Wire:
    return {"type": "text", "text": text}


def work(context: Context, name: str, size: int, *beside: Wire, thought: int = 0) -> Wire:
    """One round: a call, after so many tokens of text, and its result, asked for and sent; the
    request that sent it."""
    context.request()
    before = [block(filler(thought, f"thought {name}"))] if thought else []
    context.add(call(f"toolu_{name}", *before, path=f"src/{name}.py"))
    context.add(result(f"toolu_{name}", filler(size, name), *beside))
    return context.request()


def turn(context: Context, text: str, name: str, *, size: int = 400, answer: int = 150) -> str:
    """The user says something, a tool is asked, the model replies; the handle of what was said."""
    handle = context.add(person(text))
    work(context, name, size)
    context.add(reply(filler(answer, f"answer {name}")))
    return handle


def turns(context: Context, texts: Iterable[str], name: str = "t", **sizes: int) -> list[str]:
    return [turn(context, text, f"{name}{at}", **sizes) for at, text in enumerate(texts)]


def rules(count: int, name: str = "legacy") -> list[str]:
    return [f"From now on never modify billing/{name}_{n:03}.sql unasked." for n in range(count)]


def texts_of(value: Any) -> Iterator[str]:
    """Every text in it, wherever it stands, but for roles, types, ids and what files hold. The
    list of the user's words is without its indentation."""
    if isinstance(value, str):
        yield value.replace("\n ", "\n") if value.startswith(USER_WORDS) else value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if key not in _FRAME:
                yield from texts_of(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts_of(each)


def told(request: Mapping[str, Any]) -> str:
    """All that the messages of a request say, in their order."""
    return "\n".join(texts_of(request.get("messages", request.get("input"))))


def listed(request: Mapping[str, Any]) -> str:
    """What stands before the summary; empty where there is none."""
    before, summary, _ = told(request).partition(SUMMARY)
    return before if summary else ""


def numbers(text: str) -> set[int]:
    """Those that a text counts with: 1,234 and 1234, no codes such as 0042 or a12."""
    return {int(number.replace(",", "")) for number in _NUMBER.findall(text)}


def common(one: str, other: str) -> int:
    """How many characters two texts begin with together."""
    most = min(len(one), len(other))
    return next((n for n in range(most) if one[n] != other[n]), most)


def outside(request: Mapping[str, Any]) -> str:
    """The same without the summary."""
    texts = texts_of(request.get("messages", request.get("input")))
    return "\n".join(text for text in texts if not text.startswith(SUMMARY))


def size_of(request: Mapping[str, Any]) -> int:
    """Tokens of its texts alone, by our count: what any provider counts at least."""
    return sum(map(tokens, texts_of([request.get(k) for k in ("tools", "system", "messages")])))


def fits(request: Mapping[str, Any], window: int) -> bool:
    return size_of(request) + request["max_tokens"] <= window
