"""A tool that was begun is not forgotten, whatever is folded anew."""

import pytest

from tests.conversations import calls, chat, user
from tests.recording import append
from trimtab import Context
from trimtab.engine.log.event import TurnProgressRecord


@pytest.mark.parametrize("change", ["erase", "model", "pin"])
def test_a_tool_that_was_begun_stays_so(change):
    context = chat()
    context.add(user("old"))
    context.add(user("Pay."))
    context.request()
    context.add(calls("c", tool="pay"))
    append(context, TurnProgressRecord(state="tool_started", key="s/1/m5.0/c", epoch=1))
    match change:
        case "erase":
            context.erase("m2")
        case "model":
            context.configure(model="claude-sonnet-4-5", dialect=None)
        case _:
            context.pin("m2")
    assert context.window.accounting.started_tool_keys == ["s/1/m5.0/c"]
    assert Context.load(context.dump()).window.accounting.started_tool_keys == ["s/1/m5.0/c"]
