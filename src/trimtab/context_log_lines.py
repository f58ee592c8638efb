"""What a context says in the log of the program it runs in; the logger is `trimtab.context`."""

from __future__ import annotations

import logging

from trimtab.dialects.foreign_parameters import find_foreign_parameters
from trimtab.log.event import Settings
from trimtab.model_families import is_openai_model
from trimtab.window.server_side_editing import describe_server_side_editing
from trimtab.window.window import Window

_log = logging.getLogger("trimtab.context")


def log_missing_reply(window: Window) -> None:
    """Warn that a request is asked for though the last one was never answered, as far as we know.

    It may be right: the stream was broken off, or the program was. It may be a forgotten `add`.
    """
    last, user = window.last_call, window.newest_user_entry
    open_call = window.accounting.open_call_seq
    if last is None or user is None or open_call != last.seq or not last.body.hash:
        return
    if user.seq > last.seq > window.conversation.last_assistant_seq:
        _log.warning(
            "the request before this one got no reply, and two user messages follow each other; "
            "add(reply) what the model says, or call fail(kind) if the call failed"
        )


def log_changed_settings(before: Settings, after: Settings) -> None:
    """Say once what settings mean that nobody would see in a request."""
    told = describe_server_side_editing(after)
    if told and told != describe_server_side_editing(before):
        # Two managers of one prompt are worth a warning; that one steps back is not.
        level = logging.INFO if after.policy == "auto" else logging.WARNING
        _log.log(level, "%s", told)
    left_out = list_left_out_params(after)
    if left_out and left_out != list_left_out_params(before):
        names = ", ".join(left_out)
        _log.warning("left out of requests to %s: %s; its API has no such", after.model, names)


def list_left_out_params(settings: Settings) -> list[str]:
    """Parameters that are kept and not sent, because only another provider's API knows them."""
    is_known = settings.dialect != "openai_chat" or is_openai_model(settings.rules_model)
    return find_foreign_parameters(settings.dialect, settings.params) if is_known else []
