import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.rounds import prompt, rendered
from tests.strategies.wire import histories
from trimtab.dialects import DIALECT_NAMES, get_dialect
from trimtab.engine.log.message import message_from_json, message_to_json

each_dialect = pytest.mark.parametrize("name", DIALECT_NAMES)
each_pair = pytest.mark.parametrize(
    ("source", "target"), [(a, b) for a in DIALECT_NAMES for b in DIALECT_NAMES]
)


@pytest.mark.slow
@each_dialect
@given(data=st.data())
def test_what_is_read_is_written_back_equal_and_left_unchanged(name, data):
    wires = data.draw(histories[name])
    before = copy.deepcopy(wires)
    spoken = get_dialect(name)
    assert spoken.serialize_history(spoken.parse_history(wires)) == before
    assert wires == before


@pytest.mark.slow
@each_dialect
@given(data=st.data())
def test_a_history_survives_the_log(name, data):
    wires = data.draw(histories[name])
    key = "input" if name == "openai_responses" else "messages"
    spoken = get_dialect(name)
    assert spoken.find_request_errors({key: wires, "max_tokens": 1}) == [], (
        "the strategy is at fault"
    )
    stored = [json.dumps(message_to_json(m)) for m in spoken.parse_history(wires)]
    assert spoken.serialize_history([message_from_json(json.loads(m)) for m in stored]) == wires


@pytest.mark.slow
@each_pair
@given(data=st.data())
def test_any_valid_history_renders_to_a_request_that_the_target_accepts(source, target, data):
    messages = get_dialect(source).parse_history(data.draw(histories[source]))
    spoken = get_dialect(target)
    model = data.draw(st.sampled_from(["gpt-5.6", "other"]))
    blocks = rendered(spoken, messages, model)
    before = copy.deepcopy(blocks)
    last = len(blocks) - 1
    request = spoken.build_request_kwargs(
        prompt(spoken, blocks, model=model, marks=(-1, 0, last // 2, last), volatile="now")
    )
    assert spoken.find_request_errors(request) == []
    assert blocks == before, "a request leaves the blocks as they are"
    assert rendered(spoken, messages, model) == before, "rendering again gives the same"
    sent = json.dumps(request)
    for message in messages:
        # A text of blanks alone is refused by some, and sent as a word that says so.
        if message.role == "user" and message.text.strip():
            assert all(json.dumps(line)[1:-1] in sent for line in message.text.split("\n"))
