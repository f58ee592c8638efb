"""Large texts leave their event and come back, byte for byte."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.engine.log.event import Event, MessageAdded, Size, dump_event_line, event_from_json
from trimtab.engine.log.message import Text, ToolResult, make_text_message
from trimtab.stores.large_texts import (
    BLOB_THRESHOLD_BYTES,
    compress_text,
    compute_text_digest,
    decompress_text,
    extract_large_texts,
    list_blob_digests,
    restore_large_texts,
)

KEYS = st.text(max_size=4) | st.sampled_from(["a/b", "~", "~1", "", "blobs", "0"])
TEXTS = st.text(st.characters(), max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def said(message, seq=1):
    return Event(
        seq=seq, at=0.5, body=MessageAdded(message=message, sizes=(Size(bytes=1, tokens=1),))
    )


@pytest.mark.slow
@settings(max_examples=200, deadline=None, database=None)
@given(
    st.dictionaries(KEYS.filter(lambda key: key != "blobs"), VALUES, max_size=4),
    st.integers(0, 12),
)
def test_what_is_taken_out_comes_back_byte_for_byte(data, threshold):
    before = json.dumps(data)
    small, texts = extract_large_texts(data, threshold)
    assert json.dumps(data) == before
    assert set(list_blob_digests(small)) == set(texts)
    assert all(len(text.encode("utf-8", "surrogatepass")) > threshold for text in texts.values())
    # Through JSON, as a store does it.
    stored = json.loads(json.dumps(small))
    assert json.dumps(restore_large_texts(stored, texts)) == before


def test_an_event_without_a_large_text_is_what_comes_back():
    data = {"seq": 1, "text": "small"}
    assert extract_large_texts(data, BLOB_THRESHOLD_BYTES) == (data, {})
    assert restore_large_texts(data, {}) is data
    assert list_blob_digests(data) == []


def test_a_text_is_measured_in_bytes_and_the_threshold_itself_stays():
    assert extract_large_texts({"text": "ab"}, 2)[1] == {}
    assert list(extract_large_texts({"text": "ñb"}, 2)[1].values()) == ["ñb"]


def test_the_same_text_twice_is_one_blob_with_two_places():
    small, texts = extract_large_texts({"a": "same text", "b": ["same text"]}, 4)
    digest = compute_text_digest("same text")
    assert small == {"a": "", "b": [""], "blobs": {"/a": digest, "/b/0": digest}}
    assert texts == {digest: "same text"}
    assert list_blob_digests(small) == [digest]


def test_an_event_is_dumped_as_before_even_where_a_user_writes_of_blobs():
    large = "é\ud800" * BLOB_THRESHOLD_BYTES
    extra = {"blobs": {"/text": compute_text_digest(large)}, "a/~b": [large]}
    result = ToolResult(call_id="c", content=(Text(text=large, extra=extra),))
    message = make_text_message("user", "x")
    event = said(type(message)(role="tool", parts=(result, Text(text=large))))
    small, texts = extract_large_texts(json.loads(dump_event_line(event)), BLOB_THRESHOLD_BYTES)
    assert len(json.dumps(small)) < 2_000
    assert list(texts.values()) == [large]
    assert dump_event_line(
        event_from_json(restore_large_texts(json.loads(json.dumps(small)), texts))
    ) == dump_event_line(event)


def test_a_field_that_is_the_stores_own_is_refused():
    with pytest.raises(ValueError, match="event 7 has a field 'blobs'"):
        extract_large_texts({"seq": 7, "blobs": {}}, BLOB_THRESHOLD_BYTES)


def test_a_missing_blob_is_a_key_error():
    with pytest.raises(KeyError):
        restore_large_texts({"a": "", "blobs": {"/a": "0" * 64}}, {})


@pytest.mark.parametrize("text", ["", "plain" * 1000, "\x00é漢🙂", "half \ud83d"])
def test_a_packed_text_unpacks(text):
    assert decompress_text(compress_text(text)) == text
