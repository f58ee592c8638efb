"""What a user sees of a context: verbs and values, and no machinery."""

import inspect
import re

from trimtab import Context

VERBS = {
    *("add", "answer", "fail", "sync", "watch"),
    *("request", "count_request", "preview", "rebuild_request", "view"),
    *("report", "budget", "why", "recall", "recall_part", "search", "messages"),
    *("add_summary", "pending_summary", "add_result_summary", "pending_result_summaries"),
    *("compact", "configure", "erase", "fork", "pin", "reveal", "rewind", "undo"),
    *("dump", "load"),
}
VALUES = {"dialect", "events", "open_calls", "options", "window"}


def test_a_context_shows_what_a_user_needs_and_no_more():
    context = Context("gpt-4o")
    assert {name for name in dir(context) if not name.startswith("_")} == VERBS | VALUES


def test_every_verb_says_what_it_does():
    for name in VERBS:
        assert inspect.getdoc(getattr(Context, name)), name


def test_a_hover_over_the_constructor_explains_each_option_in_a_line():
    arguments, _, _ = (inspect.getdoc(Context.__init__) or "").partition("Raises:")
    explained = re.findall(r"^    (\w+): \S.*\.$", arguments, re.MULTILINE)
    assert explained == list(inspect.signature(Context).parameters)
