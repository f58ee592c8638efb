"""What both of OpenAI's APIs refuse beyond a dialect's rules."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from trimtab.catalog import lookup
from trimtab.testing.counting import Piece, RequestCounter, listed
from trimtab.testing.media import refused_media
from trimtab.testing.server.options import Options
from trimtab.testing.server.refusals import openai as refused

Wire = Mapping[str, Any]
_VERSION = re.compile(r"gpt-(\d+)(?:\.(\d+))?")
_REASONS = re.compile(r"^(?:o\d|gpt-[5-9](?!.*chat))")


def authenticate(headers: Mapping[str, str], options: Options) -> str:
    """The API key, if it is let in."""
    key = headers.get("authorization", "").removeprefix("Bearer ").strip()
    if not key:
        raise refused(
            "You didn't provide an API key. You need to provide your API key in an Authorization "
            "header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
            401,
            cause="auth",
        )
    if options.api_keys and key not in options.api_keys:
        raise refused(
            f"Incorrect API key provided: {key[:3]}***. You can find your API key at "
            "https://platform.openai.com/account/api-keys.",
            401,
            code="invalid_api_key",
            cause="auth",
        )
    return key


def examine_names(request: Wire, known: frozenset[str]) -> None:
    """Refuse what the API has never heard of."""
    for name in request:
        if name not in known:
            raise refused(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
    if not isinstance(request.get("model"), str) or not request["model"]:
        raise refused("you must provide a model parameter")


def examine_list(request: Wire, key: str) -> None:
    """Refuse what is no list of objects."""
    given = request.get(key)
    if not isinstance(given, list):
        raise refused(
            f"Invalid type for '{key}': expected an array of objects.",
            param=key,
            code="invalid_type",
        )
    for index, each in enumerate(cast("list[Any]", given)):
        if not isinstance(each, dict):
            name = f"{key}[{index}]"
            raise refused(
                f"Invalid type for '{name}': expected an object.", param=name, code="invalid_type"
            )


def examine_content(request: Wire, dialect: str, options: Options) -> None:
    """Refuse pictures and documents that cannot be read, and what a policy forbids."""
    if (media := refused_media(request, dialect)) is not None:
        raise refused(media.message, param=media.param, code=media.code)
    said = request.get("messages", request.get("input"))
    if options.forbidden and options.forbidden in json.dumps(said):
        raise refused(
            "Invalid prompt: your prompt was flagged as potentially violating our usage policy. "
            "Please try again with a different prompt",
            code="invalid_prompt",
        )


def reasons(model: str) -> bool:
    """Whether the model reasons before it answers."""
    return _REASONS.match(model) is not None


def takes_breakpoints(model: str) -> bool:
    """From GPT-5.6 on; others do not know the field."""
    found = _VERSION.match(model)
    return found is not None and (int(found[1]), int(found[2] or 0)) >= (5, 6)


def examine_breakpoints(request: Wire, key: str, where: str, parts: Sequence[str]) -> None:
    """Breakpoints stand on content parts, and only where the model knows them."""
    for index, holder in enumerate(listed(request.get(key))):
        if "prompt_cache_breakpoint" in holder:
            name = f"{key}[{index}].prompt_cache_breakpoint"
            raise refused(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
        inner = "output" if "output" in holder else where
        for number, part in enumerate(listed(holder.get(inner))):
            if "prompt_cache_breakpoint" not in part:
                continue
            name = f"{key}[{index}].{inner}[{number}].prompt_cache_breakpoint"
            if part.get("type") not in parts or not takes_breakpoints(request["model"]):
                raise refused(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
            told: Wire = part["prompt_cache_breakpoint"] or {}
            if told.get("mode") != "explicit":
                raise refused(
                    f"Invalid value for '{name}.mode': expected 'explicit'.",
                    param=name,
                    code="invalid_value",
                )


def examine_output(asked: Any, name: str, model: str, least: int = 1) -> None:
    """Refuse an output that no call of the model may ask for."""
    if asked is None:
        return
    if not isinstance(asked, int) or asked < least:
        raise refused(
            f"Invalid '{name}': integer below minimum value. Expected a value >= {least}, but "
            f"got {asked} instead.",
            param=name,
            code="integer_below_min_value",
        )
    known = lookup(model)
    if known is not None and asked > known.max_output:
        raise refused(
            f"{name} is too large: {asked}. This model supports at most {known.max_output} "
            f"completion tokens, whereas you provided {asked}.",
            param=name,
            code="invalid_value",
        )


def in_functions(pieces: Sequence[Piece], counter: RequestCounter) -> int:
    """Tokens of the tools' definitions."""
    return counter.scaled(sum(piece.tokens for piece in pieces if piece.part == "tools"))
