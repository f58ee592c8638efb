"""A provider's own diagnosis of its prompt cache: with which reply a request is compared.

A caller asks for it once in `params`: with `diagnostics` at Anthropic, or with
`comparison_response_id` in `prompt_cache_options` at OpenAI. The id changes with every reply, so it
is filled in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.dialects.json_values import dict_or_none

_COMPARISON_KEY = "comparison_response_id"


def add_cache_comparison(
    dialect: str, params: Mapping[str, Any], last_reply_id: str | None
) -> Mapping[str, Any]:
    """Add the id of the previous reply to the parameters, if a diagnosis is requested.

    An id of another provider is left out.
    """
    reply_id = last_reply_id or ""
    if (
        dialect == "anthropic"
        and (diagnostics := dict_or_none(params.get("diagnostics"))) is not None
    ):
        before = reply_id if reply_id.startswith("msg_") else diagnostics.get("previous_message_id")
        return {**params, "diagnostics": {**diagnostics, "previous_message_id": before}}
    options = dict_or_none(params.get("prompt_cache_options")) or {}
    if dialect != "openai_responses" or _COMPARISON_KEY not in options:
        return params
    before = reply_id if reply_id.startswith("resp_") else options[_COMPARISON_KEY]
    rest = {key: value for key, value in options.items() if key != _COMPARISON_KEY}
    if before is not None:
        return {**params, "prompt_cache_options": {**rest, _COMPARISON_KEY: before}}
    others = {key: value for key, value in params.items() if key != "prompt_cache_options"}
    return {**others, "prompt_cache_options": rest} if rest else others
