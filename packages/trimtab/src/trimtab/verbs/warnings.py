"""What a verb warns of. Its driver logs the warnings after what the verb recorded."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from trimtab.dialects.base import ModelReply
from trimtab.dialects.foreign_parameters import find_foreign_parameters
from trimtab.engine.log.event import Settings
from trimtab.engine.log.message import Message
from trimtab.engine.window.window import Window
from trimtab.models.catalog import describe_unlisted_model
from trimtab.models.families import is_openai_model
from trimtab.options import Options

_logger = logging.getLogger("trimtab.context")
MISSING_REPLY = (
    "the previous request got no reply, so two user messages follow each other; "
    "call add(reply) with the model's reply, or fail(kind) if the call failed"
)
STREAM_WITHOUT_USAGE = (
    "a watched stream ended without usage, so neither its cost nor its tokens are known; for Chat "
    'Completions send stream_options={"include_usage": True}, which request(stream=True) contains'
)
MAX_LOGGED_IDS = 10
"""Ids of calls that one line names."""
MAX_LOGGED_ID_CHARS = 100
"""Characters of an id. Those of providers have about thirty."""


class VerbWarning(NamedTuple):
    """A warning that its driver will log."""

    text: str
    """What may be wrong, and what to do."""
    once: bool = False
    """Whether it is logged once in a process: a server creates a context for each conversation."""


def log_warnings(warnings: Sequence[VerbWarning]) -> None:
    """Log the warnings of a verb."""
    for warning in warnings:
        if warning.once:
            warn_once(warning.text)
        else:
            _logger.warning("%s", warning.text)


@lru_cache(maxsize=256)
def warn_once(text: str) -> None:
    """Log a warning once in a process."""
    _logger.warning("%s", text)


def warn_of_stream_without_usage(reply: ModelReply) -> None:
    """Warn once if the stream of a reply brought no usage."""
    if reply.usage is None:
        warn_once(STREAM_WITHOUT_USAGE)


def is_reply_missing(window: Window) -> bool:
    """Whether a new request is built although the last one has no recorded reply.

    This may be right, if the stream or the program was interrupted. Or somebody forgot `add`.
    """
    call = window.last_call
    user = window.newest_user_entry
    if call is None or user is None or not call.body.hash:
        return False
    is_open = call.seq == window.accounting.open_call_seq
    return is_open and user.seq > call.seq > window.conversation.last_assistant_seq


def describe_result_of_unknown_call(window: Window, message: Message) -> str:
    """Describe a tool result, before it is added, whose id belongs to no call; empty without one.

    A result that comes too late causes no warning: its call exists, and was answered before.
    """
    if message.role == "assistant" or not message.results:
        return ""
    open_ids = [call.id for call in window.conversation.open_calls()]
    unknown = [result.call_id for result in message.results if result.call_id not in open_ids]
    if unknown:
        call_ids = {call.id for round in window.conversation.rounds for call in round.calls}
        unknown = [call_id for call_id in unknown if call_id not in call_ids]
    if not unknown:
        return ""
    return (
        f"no call has the id of this tool result: {_list_ids(unknown)} (open calls: "
        f"{_list_ids(open_ids) or 'none'}). The model sees the result as text. Set the id of the "
        "call that the result answers"
    )


def _list_ids(call_ids: Sequence[str]) -> str:
    more = len(call_ids) - MAX_LOGGED_IDS
    ids = ", ".join(f"{call_id[:MAX_LOGGED_ID_CHARS]!r}" for call_id in call_ids[:MAX_LOGGED_IDS])
    return f"{ids} and {more:,} more" if more > 0 else ids


def describe_left_out_params(before: Settings, after: Settings) -> str:
    """Describe parameters that changed settings have and requests leave out; empty without any."""
    names = _list_left_out_params(after)
    if not names or names == _list_left_out_params(before):
        return ""
    return (
        f"requests to {after.model} leave out {', '.join(names)}: the API does not have these "
        "parameters"
    )


def _list_left_out_params(settings: Settings) -> list[str]:
    """List parameters that are stored but not sent, because only another provider's API has
    them."""
    is_known = settings.dialect != "openai_chat" or is_openai_model(settings.rules_model)
    return find_foreign_parameters(settings.dialect, settings.params) if is_known else []


def describe_model_doubt(options: Options) -> str:
    """Describe what is assumed for a model that may be misspelt; empty if the caller has described
    it."""
    return "" if options.model_info else describe_unlisted_model(options.model)
