import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies.wire import histories
from tests.unit.dialects.rounds import prompt, rendered
from trimtab.core.message import message_from_json, message_to_json
from trimtab.dialects import DIALECTS, dialect

each_dialect = pytest.mark.parametrize("name", DIALECTS)
each_pair = pytest.mark.parametrize(
    ("source", "target"), [(a, b) for a in DIALECTS for b in DIALECTS]
)


@each_dialect
@given(data=st.data())
def test_what_is_read_is_written_back_equal_and_left_unchanged(name, data):
    wires = data.draw(histories[name])
    before = copy.deepcopy(wires)
    spoken = dialect(name)
    assert spoken.write_history(spoken.read_history(wires)) == before
    assert wires == before


@each_dialect
@given(data=st.data())
def test_a_history_survives_the_log(name, data):
    wires = data.draw(histories[name])
    key = "input" if name == "openai_responses" else "messages"
    spoken = dialect(name)
    assert spoken.check({key: wires, "max_tokens": 1}) == [], "the strategy is at fault"
    stored = [json.dumps(message_to_json(m)) for m in spoken.read_history(wires)]
    assert spoken.write_history([message_from_json(json.loads(m)) for m in stored]) == wires


@each_pair
@given(data=st.data())
def test_any_valid_history_renders_to_a_request_that_the_target_accepts(source, target, data):
    messages = dialect(source).read_history(data.draw(histories[source]))
    spoken = dialect(target)
    model = data.draw(st.sampled_from(["gpt-5.6", "other"]))
    blocks = rendered(spoken, messages, model)
    before = copy.deepcopy(blocks)
    last = len(blocks) - 1
    request = spoken.request(
        prompt(spoken, blocks, model=model, marks=(-1, 0, last // 2, last), volatile="now")
    )
    assert spoken.check(request) == []
    assert blocks == before, "a request leaves the blocks as they are"
    assert rendered(spoken, messages, model) == before, "rendering again gives the same"
    sent = json.dumps(request)
    for message in messages:
        # A text of blanks alone is refused by some, and sent as a word that says so.
        if message.role == "user" and message.text.strip():
            assert all(json.dumps(line)[1:-1] in sent for line in message.text.split("\n"))
