"""The outputs of Claude Code's tools: their texts, and how these are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any, cast

from trimtab.integrations.claude_code.whole_texts import FOLDER_IN_STATE

TOOL_MATCHER = "Bash|Grep|WebFetch|mcp__.*"
"""The tools whose outputs are cut. Claude Code keeps others short itself."""
FILE_MATCHER = f"Read|{TOOL_MATCHER}"
"""The same with files, if the user wants these cut as well: an agent often needs them whole."""
TOKENIZER_FAMILY = "claude_v5"
"""The family whose weights estimate tokens."""
MIN_TEXT_TOKENS = 200
"""Minimum room for each of several texts. A shorter excerpt would show nothing of use."""

MIN_EXCESS = 1.25
"""Only an output of more than this times the tokens to show is cut. A smaller cut saves little, and
the model may need a second call for what is hidden."""

TextPlace = tuple[str | int, ...]
"""The keys and indexes that lead to a text in an output."""


def cap_output(
    event: Mapping[str, Any],
    max_tokens: int,
    choose_path: Callable[[], str],
) -> tuple[Any, dict[str, str]] | None:
    """Cut the output of a tool to about `max_tokens` tokens.

    Args:
        event: What Claude Code says about the call.
        max_tokens: The most tokens to show of an output that is cut.
        choose_path: Returns the path for a whole text.

    Returns:
        The output to show and the whole texts by their paths. None if the output stays as it is.
    """
    tool, tool_input = event.get("tool_name"), event.get("tool_input")
    output = event.get("tool_response")
    if not isinstance(tool, str) or mentions_whole_text(tool_input):
        return None
    if tool == "Read":
        shown = _cut_file(tool_input, output, max_tokens)
        return None if shown is None else (shown, {})
    texts = {
        place: text
        for place, text in _list_texts(tool, output)
        if len(text.encode("utf-8", "surrogatepass")) > MIN_TEXT_TOKENS
    }
    # A token is never shorter than a byte, so most outputs need no count.
    if sum(len(text.encode("utf-8", "surrogatepass")) for text in texts.values()) <= max_tokens:
        return None
    return _cut_texts(output, texts, max_tokens, choose_path)


def mentions_whole_text(tool_input: Any) -> bool:
    """Whether a call names a file of ours. The model asked for the text, so it gets all of it."""
    if isinstance(tool_input, str):
        return f"{FOLDER_IN_STATE}/" in tool_input
    if isinstance(tool_input, dict):
        return any(map(mentions_whole_text, cast("dict[str, Any]", tool_input).values()))
    if isinstance(tool_input, list):
        return any(map(mentions_whole_text, cast("list[Any]", tool_input)))
    return False


def _list_texts(tool: str, output: Any) -> Iterator[tuple[TextPlace, str]]:
    """Yield the texts of an output that may be cut."""
    if isinstance(output, str):
        if tool.startswith("mcp__"):
            yield (), output
    elif isinstance(output, dict):
        fields = cast("dict[str, Any]", output)
        # Claude Code shows the first 2,000 characters of what it stored itself.
        if not fields.get("isImage") and not fields.get("persistedOutputPath"):
            names = {"Bash": ("stdout", "stderr"), "Grep": ("content",), "WebFetch": ("result",)}
            for name in names.get(tool, ()):
                if isinstance(fields.get(name), str):
                    yield (name,), fields[name]
    elif isinstance(output, list) and tool.startswith("mcp__"):
        for index, item in enumerate(cast("list[Any]", output)):
            if isinstance(item, dict):
                block = cast("dict[str, Any]", item)
                if block.get("type") == "text" and isinstance(block.get("text"), str):
                    yield (index, "text"), block["text"]


def _cut_texts(
    output: Any,
    texts: Mapping[TextPlace, str],
    max_tokens: int,
    choose_path: Callable[[], str],
) -> tuple[Any, dict[str, str]] | None:
    """Cut the texts of an output, so that all of them together fit."""
    from trimtab.engine.tokens.piecewise import make_piecewise_count
    from trimtab.shortening import shorten_by_count

    count = make_piecewise_count(TOKENIZER_FAMILY)
    sizes = {place: count(text) for place, text in texts.items()}
    if sum(sizes.values()) <= max_tokens * MIN_EXCESS:
        return None
    tokens_left = max_tokens
    if tokens_left // len(sizes) < MIN_TEXT_TOKENS:
        return None
    whole_texts: dict[str, str] = {}
    # The smallest first: what it does not need, the others get.
    for number, place in enumerate(sorted(sizes, key=sizes.__getitem__)):
        path = choose_path()
        hint = f"the whole text is in {path}"
        room = tokens_left // (len(sizes) - number)
        short = shorten_by_count(texts[place], room, count, hint=hint)
        tokens_left -= short.kept
        if short.kept < short.total:
            output = _replace_at(output, place, short.text)
            whole_texts[path] = texts[place]
    return (output, whole_texts) if whole_texts else None


def _replace_at(output: Any, place: TextPlace, text: str) -> Any:
    """Return the output with another text in a place."""
    if not place:
        return text
    changed: Any = copy(output)
    changed[place[0]] = _replace_at(output[place[0]], place[1:], text)
    return changed


def _cut_file(tool_input: Any, output: Any, max_tokens: int) -> Any:
    """Return the beginning of a file that was read; None if it stays whole.

    Claude Code numbers the lines afterwards. The line that says what is missing is line 0, so that
    the others keep their numbers.
    """
    if not isinstance(tool_input, dict) or not isinstance(output, dict):
        return None
    reply = cast("dict[str, Any]", output)
    file: object = reply.get("file")
    if {"offset", "limit", "pages"} & cast("dict[str, Any]", tool_input).keys():
        return None  # the model asked for exactly these lines
    if not isinstance(file, dict) or reply.get("type") != "text":
        return None
    fields = cast("dict[str, Any]", file)
    content = fields.get("content")
    if not isinstance(content, str) or fields.get("startLine") != 1:
        return None
    if len(content.encode("utf-8", "surrogatepass")) <= max_tokens:
        return None
    from trimtab.engine.log.text_cuts import TextCap, TextCutter, format_shortened_header
    from trimtab.engine.tokens.piecewise import make_piecewise_count

    count = make_piecewise_count(TOKENIZER_FAMILY)
    if (total := count(content)) <= max_tokens * MIN_EXCESS:
        return None
    cutter = TextCutter(cap=TextCap(amount=max_tokens), count_tokens=count)
    head = content[: cutter.count_fitting_chars(content, max_tokens)]
    line_end = head.rfind("\n")
    is_whole_line = line_end > len(head) // 2
    if is_whole_line:
        head = head[:line_end]
    elif "\ud800" <= head[-1:] <= "\udbff":
        head = head[:-1]
    last = head.count("\n") + 1
    lines = content.count("\n") + 1
    header = format_shortened_header(
        count(head), total, f"lines 1 to {last:,} of {lines:,}"
    ).removesuffix("]")
    if is_whole_line:
        header = f"{header} · read on with offset {last + 1}]"
    else:
        header = f"{header}, line {last:,} only in part · read it whole with offset {last}]"
    shown = {**fields, "content": f"{header}\n{head}", "startLine": 0, "numLines": last + 1}
    return {**reply, "file": shown}
