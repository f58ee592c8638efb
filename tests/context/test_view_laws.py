"""Laws of `view`, over random conversations in all three dialects."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from trimtab import Context, ShownMessage, Text, ToolResult, View
from trimtab.errors import CannotFit
from trimtab.types import DialectName, PolicyName

MODELS: dict[DialectName, tuple[str, ...]] = {
    "anthropic": ("claude-sonnet-4-5", "claude-opus-4-8"),
    "openai_chat": ("gpt-4.1", "qwen3", "gpt-5.6"),
    "openai_responses": ("gpt-5.2", "gpt-5.6"),
}
POLICIES: tuple[PolicyName, ...] = ("auto", "layered", "compact", "rolling", "thresholds")


class Life:
    """A random conversation in a dialect, as a caller's own list that grows."""

    def __init__(self, dialect: DialectName, seed: int) -> None:
        self.pick = random.Random(seed)  # noqa: S311 - a test
        self.dialect: DialectName = dialect
        self.messages: list[dict[str, Any]] = []
        self.calls = 0

    def words(self) -> str:
        count = self.pick.choice((1, 5, 60, 400))
        return " ".join(self.pick.choices(("alpha", "beta", "gamma", "delta"), k=count))

    def text(self, role: str) -> dict[str, Any]:
        if self.pick.random() < 0.7:
            return {"role": role, "content": self.words()}
        kind = "text"
        if self.dialect == "openai_responses":
            kind = "output_text" if role == "assistant" else "input_text"
        parts = [{"type": kind, "text": self.words()} for _ in range(self.pick.choice((1, 2)))]
        return {"role": role, "content": parts}

    def call_round(self) -> list[dict[str, Any]]:
        ids = [f"call_{self.calls + number}" for number in range(self.pick.choice((1, 2, 3)))]
        self.calls += len(ids)
        answered = [name for name in ids if self.pick.random() < 0.95]
        self.pick.shuffle(answered)
        results = [self.result(name) for name in answered]
        if self.dialect == "anthropic":
            uses = [{"type": "tool_use", "id": name, "name": "read", "input": {}} for name in ids]
            said = [{"role": "assistant", "content": uses}]
            return said + self.spread(results)
        if self.dialect == "openai_chat":
            function = {"name": "read", "arguments": "{}"}
            calls = [{"id": name, "type": "function", "function": function} for name in ids]
            said = [{"role": "assistant", "content": None, "tool_calls": calls}]
        else:
            said = [
                {"type": "function_call", "call_id": name, "name": "read", "arguments": "{}"}
                for name in ids
            ]
        if results and self.pick.random() < 0.2:
            results.insert(self.pick.randrange(len(results) + 1), self.text("user"))
        return said + results

    def result(self, call_id: str) -> dict[str, Any]:
        match self.dialect:
            case "anthropic":
                return {"type": "tool_result", "tool_use_id": call_id, "content": self.words()}
            case "openai_chat":
                return {"role": "tool", "tool_call_id": call_id, "content": self.words()}
            case "openai_responses":
                return {"type": "function_call_output", "call_id": call_id, "output": self.words()}

    def spread(self, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Put results into one user message or into several, perhaps with words between them."""
        if self.pick.random() < 0.3:
            at = self.pick.randrange(len(blocks) + 1)
            blocks = [*blocks[:at], {"type": "text", "text": self.words()}, *blocks[at:]]
        if self.pick.random() < 0.5:
            return [{"role": "user", "content": [block]} for block in blocks]
        return [{"role": "user", "content": blocks}] if blocks else []

    def step(self) -> None:
        """Let the conversation go on by one or more messages, not always in turn."""
        kind = self.pick.choice(("user", "user", "assistant", "calls", "calls", "system"))
        if kind == "calls":
            self.messages += self.call_round()
        elif kind != "system" or self.pick.random() < 0.3:
            self.messages.append(self.text(kind))


def sent_messages(context: Context[Any], request: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a request, after the system prompt."""
    settings = context.window.settings
    sent = request["input" if settings.dialect == "openai_responses" else "messages"]
    is_headed = settings.dialect != "anthropic" and "instructions" not in request
    return sent[len(settings.system) :] if is_headed else sent


def as_parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


def with_joined_texts(parts: list[Any]) -> list[Any]:
    """Texts in a row as one: it makes no difference which of them were joined first."""
    out: list[Any] = []
    for part in parts:
        if out and part.keys() == out[-1].keys() == {"type", "text"}:
            out[-1] = {**part, "text": f"{out[-1]['text']}\n\n{part['text']}"}
        else:
            out.append(part)
    return out


def joined(dialect: DialectName, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages in a row of one role as one, as the providers read them."""
    if dialect == "openai_responses":
        return messages
    out: list[dict[str, Any]] = []
    for message in messages:
        last = out[-1] if out else {}
        role = message["role"]
        is_joined = dialect == "anthropic" or role in ("user", "assistant")
        if role != last.get("role") or not is_joined or last.get("tool_calls"):
            out.append({**message, "content": as_parts(message.get("content"))})
            continue
        last["content"] = [*as_parts(last["content"]), *as_parts(message.get("content"))]
        if message.get("tool_calls"):
            last["tool_calls"] = message["tool_calls"]
    return [{**message, "content": with_joined_texts(message["content"])} for message in out]


def list_texts(value: Any) -> list[str]:
    """All texts in wire messages, in no order."""
    if isinstance(value, list):
        return sorted(text for each in cast("list[Any]", value) for text in list_texts(each))
    found = cast("dict[str, Any]", value)
    texts = [found[key] for key in ("text", "content", "output") if isinstance(found.get(key), str)]
    texts = [text.removeprefix("[System message]\n") for text in texts]
    listed = [found[key] for key in ("content", "output") if isinstance(found.get(key), list)]
    return sorted([*texts, *list_texts(listed)] if listed else texts)


def check_view(context: Context[Any], messages: list[Any], request: dict[str, Any]) -> View:
    dialect = cast("DialectName", context.window.settings.dialect)
    view = context.view()
    wire = [message for shown in view for message in shown.wire]
    assert joined(dialect, wire) == joined(dialect, sent_messages(context, request))
    positions = [position for shown in view for position in shown.positions]
    assert len(positions) == len({*positions})
    handles = [shown.handle for shown in view if shown.handle]
    assert len(handles) == len({*handles})
    for shown in view:
        check_shown_message(shown, [messages[position] for position in shown.positions])
    if view.is_unchanged:
        first = len(messages) - len(positions)
        assert positions == [*range(first, len(messages))]
        assert all(shown.is_callers_own for shown in view)
    return view


def check_shown_message(shown: ShownMessage, own: list[Any]) -> None:
    parts = shown.message.parts
    assert shown.edited_parts <= {*range(len(parts))}
    assert shown.is_edited or not shown.edited_parts
    if shown.is_callers_own:
        assert list_texts(own) == list_texts(shown.wire)
    if own:
        texts = list_texts(own)
        kept = [part for index, part in enumerate(parts) if index not in shown.edited_parts]
        assert all(part.text in texts for part in kept if isinstance(part, Text | ToolResult))


def check_that_it_is_kept_right(context: Context[Any], view: View) -> None:
    """What is kept from view to view must not differ from a view that is built anew."""
    state = context._state
    kept, state.shown = state.shown, None
    anew = context.view()
    state.shown = kept
    assert [*view] == [*anew]
    assert view.is_unchanged == anew.is_unchanged
    assert [shown.wire for shown in view] == [shown.wire for shown in anew]


def change_history(life: Life, context: Context[Any], pick: random.Random) -> None:
    """Sometimes do what breaks the prefix, or makes the list differ from the log."""
    match pick.randrange(12):
        case 0:
            del life.messages[pick.randrange(len(life.messages))]
        case 1:
            context.configure(model=pick.choice(MODELS[life.dialect]), dialect=life.dialect)
        case 2:
            context.undo()
        case 3:
            context.add({"role": "user", "content": "Added alone."})
            context.request()
            context.view()
            life.messages.append({"role": "user", "content": "Added alone."})
        case 4 if pick.random() < 0.3:
            context.erase(f"m{pick.choice([*context.window.entries])}")
        case _:
            pass


def check_life(dialect: DialectName, seed: int) -> None:
    life = Life(dialect, seed)
    pick = random.Random(f"{dialect} {seed}")  # noqa: S311 - a test
    context = Context(
        pick.choice(MODELS[dialect]),
        dialect=dialect,
        system="Be careful.",
        policy=pick.choice(POLICIES),
        context_window=pick.choice((4_000, 16_000)),
        max_output_tokens=500,
        recall=pick.random() < 0.3,
    )
    for _ in range(40):
        life.step()
        if pick.random() < 0.5 or all(each.get("role") == "system" for each in life.messages):
            continue
        context.sync(life.messages)
        volatile = "It is noon." if pick.random() < 0.2 else None
        try:
            request = cast("dict[str, Any]", context.request(volatile=volatile))
        except CannotFit:
            return
        view = check_view(context, life.messages, request)
        assert view.max_output_tokens in request.values()
        check_that_it_is_kept_right(context, view)
        change_history(life, context, pick)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", [*MODELS])
@pytest.mark.parametrize("seed", range(3))
def test_the_view_says_what_the_request_sends(dialect: DialectName, seed: int):
    check_life(dialect, seed)


@pytest.mark.soak
@pytest.mark.parametrize("dialect", [*MODELS])
def test_the_view_says_what_the_request_sends_in_many_lives(dialect: DialectName):
    for seed in range(100, 200):
        check_life(dialect, seed)
