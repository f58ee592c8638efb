"""The log lines of a context. The logger is `trimtab.context`."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from trimtab.dialects.foreign_parameters import find_foreign_parameters
from trimtab.log.event import Settings
from trimtab.log.message import Message
from trimtab.model_families import is_openai_model
from trimtab.window.server_side_editing import describe_server_side_editing
from trimtab.window.window import Window

MAX_LOGGED_IDS = 10
"""Ids of calls that one line names."""
MAX_LOGGED_ID_CHARS = 100
"""Characters of an id. Those of providers have about thirty."""

_log = logging.getLogger("trimtab.context")


def log_missing_reply(window: Window) -> None:
    """Warn if a new request is built although the last one has no recorded reply.

    This may be right, if the stream or the program was interrupted. Or somebody forgot `add`.
    """
    last, user = window.last_call, window.newest_user_entry
    open_call = window.accounting.open_call_seq
    if last is None or user is None or open_call != last.seq or not last.body.hash:
        return
    if user.seq > last.seq > window.conversation.last_assistant_seq:
        _log.warning(
            "the previous request got no reply, so two user messages follow each other; "
            "call add(reply) with the model's reply, or fail(kind) if the call failed"
        )


def log_result_of_unknown_call(window: Window, message: Message) -> None:
    """Warn if a message, before it is added, has a tool result whose id belongs to no call.

    A result that comes too late is not one: its call was answered before, by a note or a result.
    """
    if message.role == "assistant" or not message.results:
        return
    open_ids = [call.id for call in window.conversation.open_calls()]
    unknown = [result.call_id for result in message.results if result.call_id not in open_ids]
    if unknown:
        known = {call.id for round in window.conversation.rounds for call in round.calls}
        unknown = [call_id for call_id in unknown if call_id not in known]
    if unknown:
        _log.warning(
            "no call has the id of this tool result: %s (open calls: %s). The model sees the "
            "result as text. Set the id of the call that the result answers",
            _list_ids(unknown),
            _list_ids(open_ids) or "none",
        )


def _list_ids(call_ids: Sequence[str]) -> str:
    more = len(call_ids) - MAX_LOGGED_IDS
    shown = ", ".join(f"{call_id[:MAX_LOGGED_ID_CHARS]!r}" for call_id in call_ids[:MAX_LOGGED_IDS])
    return f"{shown} and {more:,} more" if more > 0 else shown


def log_changed_settings(before: Settings, after: Settings) -> None:
    """Log once what the settings cause, if a request would not show it."""
    told = describe_server_side_editing(after)
    if told and told != describe_server_side_editing(before):
        # Two managers of one prompt are worth a warning; that one steps back is not.
        level = logging.INFO if after.policy == "auto" else logging.WARNING
        _log.log(level, "%s", told)
    left_out = list_left_out_params(after)
    if left_out and left_out != list_left_out_params(before):
        names = ", ".join(left_out)
        _log.warning(
            "requests to %s leave out %s: the API does not have these parameters",
            after.model,
            names,
        )


def list_left_out_params(settings: Settings) -> list[str]:
    """List parameters that are stored but not sent, because only another provider's API has
    them."""
    is_known = settings.dialect != "openai_chat" or is_openai_model(settings.rules_model)
    return find_foreign_parameters(settings.dialect, settings.params) if is_known else []
