"""`check`: find what a provider would reject, before the request is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import repr as short
from typing import Any

from trimtab.dialects import get_dialect
from trimtab.dialects.json_values import dicts_in_list
from trimtab.dialects.reading import guess_dialects
from trimtab.engine.text.arguments import describe_wrong_value
from trimtab.models.catalog import find_model_info, resolve_model_info


def check(request: Mapping[str, Any], *, dialect_name: str | None = None) -> list[str]:
    """List what the provider's API would reject in a request.

    Args:
        request: The result of `Context.request()`, or your own keyword arguments.
        dialect_name: The API: `anthropic`, `openai_chat` or `openai_responses`. By default the form
            of the messages decides if only one API accepts it, otherwise the model's name.

    Returns:
        One text for each problem; empty if the API would accept the request.

    Raises:
        TypeError: If the request is not a mapping.
        ValueError: If the dialect is unknown.

    Example:
        Check a request before you send it::

            problems = check(context.request())
            assert not problems
    """
    if not isinstance(request, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's
        raise TypeError(
            f"the request is {short(request)}; it must be the keyword arguments of a call, such as "
            "Context.request() returns"
        )
    dialect = get_dialect(dialect_name or _infer_dialect(request))
    errors = dialect.find_request_errors(request) + find_output_limit_errors(request)
    model = request.get("model", "…")
    if not isinstance(model, str) or not model:
        errors.append(describe_wrong_value("model", model, "the model's name"))
    return errors


def find_output_limit_errors(request: Mapping[str, Any]) -> list[str]:
    """List what is wrong if a request asks for more output than its model writes.

    Only for models of Anthropic and OpenAI: for others the limit depends on the host.
    """
    model = request.get("model")
    entry = find_model_info(model) if isinstance(model, str) else None
    if entry is None:
        return []
    is_claude = entry.dialect == "anthropic"
    most = entry.max_output
    if not is_claude and entry.output_param != "max_completion_tokens":
        return []
    errors: list[str] = []
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
        limit = request.get(name)
        if not isinstance(limit, int) or limit <= most:
            continue
        errors.append(
            f"{name}: {limit} > {most}, which is the maximum allowed number of output tokens for "
            f"{model}"
            if is_claude
            else f"{name} is too large: {limit}. This model supports at most {most} completion "
            f"tokens, whereas you provided {limit}."
        )
    return errors


def _infer_dialect(request: Mapping[str, Any]) -> str:
    if "input" in request:
        return "openai_responses"
    message_dialect = _infer_dialect_from_messages(dicts_in_list(request.get("messages")))
    catalog_dialect = resolve_model_info(str(request.get("model") or "")).dialect
    if message_dialect is None and catalog_dialect is not None:
        # Messages stand in no request of the Responses API.
        return "anthropic" if catalog_dialect == "anthropic" else "openai_chat"
    tools = dicts_in_list(request.get("tools"))
    beside = "system" in request or any("input_schema" in tool for tool in tools)
    return message_dialect or ("anthropic" if beside else "openai_chat")


def _infer_dialect_from_messages(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the only dialect that has such messages, or None if several have."""
    forms = [dialect for message in messages if (dialect := guess_dialects(message))]
    # At Anthropic a system prompt stands beside the messages, never before them.
    if messages[:1] and messages[0].get("role") == "system":
        return "openai_chat"
    if any("anthropic" not in form for form in forms):
        return "openai_chat"
    return "anthropic" if forms else None
