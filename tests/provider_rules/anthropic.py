"""What Anthropic's Messages API refuses, by its documentation and by the errors it answers with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests.provider_rules.rules import Broken

Block = Mapping[str, Any]
Turn = tuple[str, list[Block]]
"""A role and its blocks; neighbours of one role are one turn to the API."""

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
PICTURES = ("image/jpeg", "image/png", "image/gif", "image/webp")
MOST_PICTURES, MOST_MARKS, LEAST_THINKING = 600, 4, 1024
THOUGHTS = ("thinking", "redacted_thinking")
IN_RESULTS = ("text", "image", "document", "search_result", "tool_reference")
BLOCKS = (
    *("text", "image", "document", "tool_use", "tool_result", *THOUGHTS),
    *("server_tool_use", "web_search_tool_result", "tool_search_tool_result", "search_result"),
)
NO_SYSTEM_MESSAGES = re.compile(
    r"claude-(3|sonnet-4|haiku-4|opus-4-[0-7]|opus-4$)|.*(@|anthropic\.)"
)
"""Models before Claude Opus 4.8 take the system prompt beside the messages, and nowhere else; so
does, by the names it gives to models, whoever else serves them."""
BUDGET_ONLY = re.compile(r"claude-(3-7|sonnet-4-[05]|sonnet-4-2|haiku-4-5|opus-4-[0125])")
"""Models that think by a budget, and know nothing of adaptive thinking."""
ADAPTIVE_ONLY = re.compile(r"claude-(opus-4-[78]|opus-5|sonnet-5|haiku-5|fable|mythos-5)")
"""Models that refuse a budget for thinking."""
NO_PREFILL = re.compile(r"claude-(opus-4-[678]|sonnet-4-6|[a-z]+-5)")
"""Models that begin every reply themselves."""
NO_THINKING = re.compile(r"claude-3-[05h]")
OF_OPENAI = ("reasoning_effort", "parallel_tool_calls", "store", "n", "seed", "response_format")
"""Parameters of another provider."""


def check(request: Mapping[str, Any]) -> Iterator[Broken]:
    """All rules that a request breaks."""
    turns = _turns(request)
    yield from _parameters(request)
    yield from _roles(request)
    yield from _marks(request)
    if not turns:
        yield Broken("there is at least one message")
        return
    if turns[0][0] != "user":
        yield Broken("the first message is the user's", turns[0][0])
    for role, blocks in turns:
        yield from _blocks(role, blocks)
    pictures = sum(_pictures(blocks) for _, blocks in turns)
    if pictures > MOST_PICTURES:
        yield Broken("a request holds at most 600 pictures", str(pictures))
    yield from _calls(turns)
    yield from _pairs(turns)
    yield from _last_turn(request, turns)
    if _thinks(request):
        yield from _open_loop(turns)


def _list(content: Any) -> list[Block]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content or ())


def _turns(request: Mapping[str, Any]) -> list[Turn]:
    turns: list[Turn] = []
    for message in request.get("messages") or ():
        if message["role"] == "system":
            continue  # judged by its role alone
        if turns and turns[-1][0] == message["role"]:
            turns[-1][1].extend(_list(message.get("content")))
        else:
            turns.append((message["role"], _list(message.get("content"))))
    return turns


def _of(blocks: Iterable[Block], *kinds: str) -> list[Block]:
    return [block for block in blocks if block.get("type") in kinds]


def _thinks(request: Mapping[str, Any]) -> bool:
    return (request.get("thinking") or {}).get("type") == "enabled"


def _parameters(request: Mapping[str, Any]) -> Iterator[Broken]:
    most = request.get("max_tokens")
    if not isinstance(most, int) or most < 1:
        yield Broken("max_tokens is there, and at least 1", str(most))
    elif _thinks(request) and not ADAPTIVE_ONLY.match(str(request.get("model"))):
        budget = request["thinking"].get("budget_tokens", 0)
        if not LEAST_THINKING <= budget < most:
            yield Broken("the thinking budget is below max_tokens", f"{budget} of {most}")
    yield from _thinking(request)
    for name in OF_OPENAI:
        if name in request:
            yield Broken("every parameter is known", name)
    names = [tool.get("name") for tool in request.get("tools") or ()]
    if len(names) != len(set(names)):
        yield Broken("tool names are unique", str(names))


def _thinking(request: Mapping[str, Any]) -> Iterator[Broken]:
    """By the table of what each model takes, and of what goes with it."""
    model, kind = str(request.get("model")), (request.get("thinking") or {}).get("type")
    refusals = {
        "enabled": ADAPTIVE_ONLY.match(model) or NO_THINKING.match(model),
        "adaptive": BUDGET_ONLY.match(model) or NO_THINKING.match(model),
    }
    if refusals.get(str(kind)):
        yield Broken("thinking is of a kind that the model knows", f"{kind} of {model}")
    choice = (request.get("tool_choice") or {}).get("type")
    if kind == "enabled" and choice in ("any", "tool"):
        yield Broken("with a budget for thinking, no tool is forced", str(choice))
    edits = (request.get("context_management") or {}).get("edits") or ()
    clears = any(edit.get("type") == "clear_thinking_20251015" for edit in edits)
    if clears and kind not in ("enabled", "adaptive") and not re.match(r"claude-[a-z]+-5", model):
        yield Broken("thinking is cleared only if it is on", str(kind))


def _roles(request: Mapping[str, Any]) -> Iterator[Broken]:
    for message in request.get("messages") or ():
        role = message.get("role")
        if role not in ("user", "assistant", "system"):
            yield Broken("a message is the user's or the assistant's", str(role))
        if role == "system" and NO_SYSTEM_MESSAGES.match(str(request.get("model"))):
            yield Broken("this model takes no system message among the others")
        if not _list(message.get("content")):
            yield Broken("no message is empty", str(role))
    roles = [message.get("role") for message in request.get("messages") or ()]
    for before, role, after in zip(["", *roles], roles, [*roles[1:], "assistant"], strict=False):
        if role == "system" and (before, after) != ("user", "assistant"):
            order = f"{before}, system, {after}"
            yield Broken("a system message stands between the user's and the assistant's", order)


def _marks(request: Mapping[str, Any]) -> Iterator[Broken]:
    blocks = [*_list(request.get("system")), *(request.get("tools") or ())]
    for message in request.get("messages") or ():
        for block in _list(message.get("content")):
            inner = block.get("content")
            blocks += [block, *(inner if isinstance(inner, list) else ())]
    bodies = [block for block in blocks if block.get("cache_control")]
    if len(bodies) > MOST_MARKS:
        yield Broken("a request has at most 4 cache marks", str(len(bodies)))
    if _of(bodies, *THOUGHTS):
        yield Broken("no cache mark stands on thinking")
    if any(not block.get("text") for block in _of(bodies, "text")):
        yield Broken("no cache mark stands on an empty text")


def _blocks(role: str, blocks: Sequence[Block]) -> Iterator[Broken]:
    only_results = True
    for block in blocks:
        kind = block.get("type")
        if kind not in BLOCKS:
            yield Broken("every block is of a known type", str(kind))
        if kind == "text" and not str(block.get("text") or "").strip():
            yield Broken("no text block is blank", role)
        if kind in ("tool_use", *THOUGHTS) and role != "assistant":
            yield Broken("calls and thinking are the assistant's", f"{kind} of {role}")
        if kind == "tool_result":
            if not only_results:
                yield Broken("results stand before all else in their message")
            if role != "user":
                yield Broken("results are the user's", role)
            yield from _result(block)
        else:
            only_results = False
        if kind == "thinking" and not block.get("signature"):
            yield Broken("thinking is signed")
        if kind == "image":
            yield from _picture(block)


def _picture(block: Block) -> Iterator[Broken]:
    source = block.get("source") or {}
    is_known = source.get("media_type") in PICTURES and source.get("data")
    if source.get("type") == "base64" and not is_known:
        yield Broken("a picture has data of a known type", str(source.get("media_type")))


def _result(block: Block) -> Iterator[Broken]:
    inner = block.get("content", "")
    if not isinstance(inner, str | list):
        yield Broken("a result holds a text or a list", repr(inner)[:60])
    for part in inner if isinstance(inner, list) else ():
        kind = part.get("type")
        if kind not in IN_RESULTS:
            yield Broken("a result holds nothing but texts, pictures and documents", str(kind))
        if kind == "text" and not str(part.get("text") or "").strip():
            yield Broken("no text in a result's list is blank")
        if block.get("is_error") and kind != "text":
            yield Broken("a result that is an error holds text alone", str(kind))
        if kind == "image":
            yield from _picture(part)


def _pictures(blocks: Sequence[Block]) -> int:
    inner = [block.get("content") for block in _of(blocks, "tool_result")]
    lists = [blocks, *(parts for parts in inner if isinstance(parts, list))]
    return sum(len(_of(parts, "image")) for parts in lists)


def _calls(turns: Sequence[Turn]) -> Iterator[Broken]:
    calls = [call for _, blocks in turns for call in _of(blocks, "tool_use")]
    ids = [str(call.get("id")) for call in calls]
    for again in sorted({each for each in ids if ids.count(each) > 1}):
        yield Broken("ids of calls are unique in a request", again)
    for call in calls:
        if not CALL_ID.fullmatch(str(call.get("id"))):
            yield Broken("an id of a call is of letters, digits, _ and -", str(call.get("id")))
        if not TOOL_NAME.fullmatch(str(call.get("name"))):
            yield Broken("a tool's name is of letters, digits, _ and -", str(call.get("name")))
        if not isinstance(call.get("input"), dict):
            yield Broken("the input of a call is an object", str(call.get("input"))[:60])


def _pairs(turns: Sequence[Turn]) -> Iterator[Broken]:
    """Every call is answered by the next message, in order, and nothing else is."""
    call_ids: list[str] = []
    for _, blocks in [*turns, ("", [])]:
        result_ids = [str(each.get("tool_use_id")) for each in _of(blocks, "tool_result")]
        if missing := [each for each in call_ids if each not in result_ids]:
            yield Broken("every call has its result in the next message", str(missing))
        if orphans := [each for each in result_ids if each not in call_ids]:
            yield Broken("every result has its call in the message before", str(orphans))
        if len(set(result_ids)) < len(result_ids):
            yield Broken("no call is answered twice", str(result_ids))
        if [each for each in call_ids if each in result_ids] != [
            e for e in result_ids if e in call_ids
        ]:
            yield Broken("results are in the order of their calls", f"{call_ids} {result_ids}")
        call_ids = [str(call.get("id")) for call in _of(blocks, "tool_use")]


def _last_turn(request: Mapping[str, Any], turns: Sequence[Turn]) -> Iterator[Broken]:
    role, blocks = turns[-1]
    if role != "assistant" or not blocks:
        return
    last = blocks[-1]
    server_calls = _of(blocks, "server_tool_use")
    if _thinks(request) and not server_calls:
        yield Broken("with thinking, the last message is not the assistant's")
    if NO_PREFILL.search(str(request.get("model"))) and not server_calls:
        yield Broken("this model goes on with no reply that has begun")
    if last.get("type") == "text" and last["text"] != last["text"].rstrip():
        yield Broken("a reply to be continued does not end in white space")
    if last.get("type") in THOUGHTS:
        yield Broken("the last block of a reply is not thinking")


def _open_loop(turns: Sequence[Turn]) -> Iterator[Broken]:
    """If results are the newest, the loop that they belong to began with thinking."""
    if turns[-1][0] != "user" or len(_of(turns[-1][1], "tool_result")) != len(turns[-1][1]):
        return
    for at in range(len(turns) - 1, -1, -1):
        role, blocks = turns[at]
        results = _of(blocks, "tool_result")
        if role == "user" and results and len(results) < len(blocks):
            return  # somebody spoke within the loop: where it begins is not documented
        if role == "user" and not results:
            first = turns[at + 1][1][:1]
            if not _of(first, *THOUGHTS):
                first_type = first[0].get("type") if first else None
                yield Broken("with thinking, an open loop begins with thinking", str(first_type))
            return
