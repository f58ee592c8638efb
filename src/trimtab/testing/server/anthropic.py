"""What the Messages API refuses beyond a dialect's rules, and how it says that a window is full."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from trimtab.catalog import Entry, lookup
from trimtab.dialects import dialect
from trimtab.dialects.anthropic_models import claude_version
from trimtab.testing.counting import listed, mark_of
from trimtab.testing.media import refused_media
from trimtab.testing.pairing import unpaired
from trimtab.testing.seals import broken
from trimtab.testing.server.options import Options
from trimtab.testing.server.parameters import ANTHROPIC, ANTHROPIC_COUNT, BLOCKS
from trimtab.testing.server.refusals import anthropic as refused

Wire = Mapping[str, Any]
THINKING = ("thinking", "redacted_thinking")
_ANY = 1 << 31
"""An output above any thinking budget, where a request is only counted."""


def authenticate(headers: Mapping[str, str], options: Options) -> str:
    """The API key, if it is let in."""
    bearer = headers.get("authorization", "").removeprefix("Bearer ").strip()
    key = headers.get("x-api-key") or bearer
    if not key:
        raise refused("x-api-key header is required", 401, cause="auth")
    if options.api_keys and key not in options.api_keys:
        raise refused("invalid x-api-key", 401, cause="auth")
    if not headers.get("anthropic-version"):
        raise refused("anthropic-version: header is required")
    return key


def examine(request: Wire, options: Options, *, counting: bool = False) -> None:
    """Refuse what breaks a rule, in the order in which the API finds it."""
    known = ANTHROPIC_COUNT if counting else ANTHROPIC
    for name in request:
        if name not in known:
            raise refused(f"{name}: Extra inputs are not permitted")
    if not isinstance(request.get("model"), str) or not request["model"]:
        raise refused("model: Field required")
    _examine_blocks(request)
    checked = {"max_tokens": _ANY, **request} if counting else request
    for wrong in dialect("anthropic").check(checked):
        raise refused(wrong)
    if (wrong := unpaired(request, "anthropic")) is not None:
        raise refused(f"messages: {wrong}")
    _examine_thinking(request, options)
    _examine_marks(request)
    if (media := refused_media(request, "anthropic")) is not None:
        raise refused(media.message)
    if options.forbidden and options.forbidden in json.dumps(request["messages"]):
        raise refused("Output blocked by content filtering policy")


def _examine_blocks(request: Wire) -> None:
    if not isinstance(request.get("messages"), list):
        raise refused("messages: Input should be a valid list")
    for index, message in enumerate(request["messages"]):
        if not isinstance(message, dict):
            raise refused(f"messages.{index}: Input should be a valid dictionary")
        _examine_message(index, cast("dict[str, Any]", message))


def _examine_message(index: int, message: Wire) -> None:
    extra = sorted(set(message) - {"role", "content"})
    if extra:
        raise refused(f"messages.{index}.{extra[0]}: Extra inputs are not permitted")
    for number, block in enumerate(listed(message.get("content"))):
        if block.get("type") not in BLOCKS:
            raise refused(
                f"messages.{index}.content.{number}: Input tag {block.get('type')!r} found "
                "using 'type' does not match any of the expected tags"
            )


def thinks(request: Wire) -> bool:
    """Whether the request asks for thinking."""
    config: Wire = request.get("thinking") or {}
    return config.get("type") in ("enabled", "adaptive")


def _examine_thinking(request: Wire, options: Options) -> None:
    config: Wire = request.get("thinking") or {}
    if config.get("type") == "enabled":
        budget = config.get("budget_tokens")
        if not isinstance(budget, int) or budget < 1_024:
            raise refused(
                "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
            )
        choice: Wire = request.get("tool_choice") or {}
        if choice.get("type") in ("any", "tool"):
            raise refused("Thinking may not be enabled when tool_choice forces tool use.")
    if not options.signatures:
        return
    previous = ""
    for index, number, block in thoughts(request):
        text, given = thought(block)
        where = f"messages.{index}.content.{number}"
        match broken(text, given, previous):
            case "forged":
                kind = block["type"]
                field = "signature" if kind == "thinking" else "data"
                raise refused(f"{where}: Invalid `{field}` in `{kind}` block")
            # Rounds before this one may be gone, but what a message holds is one.
            case "cut" if number:
                raise refused(
                    f"{where}: `thinking` or `redacted_thinking` blocks in the latest assistant "
                    "message cannot be modified. These blocks must remain as they were in the "
                    "original response."
                )
            case _:
                previous = given


def thoughts(request: Wire) -> Iterator[tuple[int, int, Wire]]:
    """Thinking blocks with the places where they stand."""
    for index, message in enumerate(listed(request.get("messages"))):
        if message.get("role") == "assistant":
            for number, block in enumerate(listed(message.get("content"))):
                if block.get("type") in THINKING:
                    yield index, number, block


def thought(block: Wire) -> tuple[str, str]:
    """What a thinking block says and its seal."""
    if block["type"] == "thinking":
        return str(block.get("thinking")), str(block.get("signature"))
    mark, _, given = str(block.get("data")).partition(".")
    return mark, given


def last_seal(request: Wire) -> str:
    """The seal that the next thought goes on from: the open loop's last one, or none."""
    messages = listed(request.get("messages"))
    if not messages or not listed(messages[-1].get("content")):
        return ""
    if any(block.get("type") != "tool_result" for block in listed(messages[-1]["content"])):
        # A new word of the user ends the loop.
        return ""
    found = [block for _, _, block in thoughts(request)]
    return thought(found[-1])[1] if found else ""


def _examine_marks(request: Wire) -> None:
    """Their number is the dialect's to check; here their order and their form."""
    blocks = [*listed(request.get("tools")), *listed(request.get("system"))]
    for message in request["messages"]:
        for block in listed(message.get("content")):
            blocks += [*listed(block.get("content")), block]
    short = False
    for block in [*blocks, request]:
        control = block.get("cache_control")
        if not control:
            continue
        if control.get("type") != "ephemeral":
            raise refused("cache_control.type: Input should be 'ephemeral'")
        mark = mark_of(block)
        if mark not in ("5m", "1h"):
            raise refused("cache_control.ttl: Input should be '5m' or '1h'")
        if mark == "1h" and short:
            raise refused(
                "cache_control: a ttl='1h' cache_control block must not come after a ttl='5m' "
                "cache_control block. Note that blocks are processed in the following order: "
                "`tools`, `system`, `messages`."
            )
        short = short or mark == "5m"


def admit(request: Wire, tokens: int, entry: Entry, options: Options) -> int:
    """Tokens that the reply may take, if the request fits."""
    window, asked = entry.context_window, int(request["max_tokens"])
    if tokens > entry.input_limit:
        raise refused(
            f"prompt is too long: {tokens} tokens > {entry.input_limit} maximum", cause="overflow"
        )
    known = lookup(request["model"])
    if known is not None and asked > known.max_output:
        raise refused(
            f"max_tokens: {asked} > {known.max_output}, which is the maximum allowed number of "
            f"output tokens for {request['model']}"
        )
    if tokens + asked > window and not stops_at_window(request["model"], options):
        raise refused(
            f"input length and `max_tokens` exceed context limit: {tokens} + {asked} > {window}, "
            "decrease input length or `max_tokens` and try again",
            cause="overflow",
        )
    return min(asked, window - tokens)


def stops_at_window(model: str, options: Options) -> bool:
    """Whether the model writes until its window is full."""
    if options.stops_at_window is not None:
        return options.stops_at_window
    version = claude_version(model)
    return version is not None and version >= (4, 5)


def cut_stop(request: Wire, allowed: int) -> str:
    """Why a reply ends that had no room."""
    return "max_tokens" if allowed == request["max_tokens"] else "model_context_window_exceeded"
