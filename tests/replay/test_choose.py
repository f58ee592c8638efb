from tests.replay.conversations import conversation
from trimtab.replay.selection import select_conversations


def several(count: int):
    return [conversation(f"c{i}", 1, first=100 * i) for i in range(count)]


def test_short_conversations_are_left_out():
    found = [conversation("short", 1), conversation("long", 4, first=50)]
    assert [c.id for c in select_conversations(found, min_calls=3)] == ["long"]


def test_a_limit_takes_the_same_conversations_whatever_their_order():
    found = several(10)
    chosen = {c.id for c in select_conversations(found, limit=3)}
    assert len(chosen) == 3
    assert {c.id for c in select_conversations(found[::-1], limit=3)} == chosen
