from dataclasses import replace

from tests.replay.conversations import conversation
from trimtab.replay.selection import assign_corpus_halves, select_conversations


def several(count: int):
    return [conversation(f"c{i}", 1, first=100 * i) for i in range(count)]


def test_the_halves_are_disjoint_and_together_all():
    found = several(20)
    even, odd = (select_conversations(found, half=half) for half in ("even", "odd"))
    assert even
    assert odd
    assert sorted(c.id for c in (*even, *odd)) == sorted(c.id for c in found)


def test_the_half_of_an_id_does_not_depend_on_the_others():
    found = several(20)
    assert assign_corpus_halves(found[5:]) == assign_corpus_halves(found)[5:]


def test_conversations_that_share_call_ids_stay_together():
    found = [conversation(f"c{i}", 1, first=7) for i in range(20)]
    assert len(set(assign_corpus_halves(found))) == 1


def test_counters_are_no_shared_ids():
    def short(name: str):
        whole = conversation(name, 1)
        asked = whole.messages[1]
        parts = tuple(replace(part, id="call_0") for part in asked.calls)
        return replace(whole, messages=(whole.messages[0], replace(asked, parts=parts)))

    assert set(assign_corpus_halves([short(f"c{i}") for i in range(20)])) == {"even", "odd"}


def test_short_conversations_are_left_out():
    found = [conversation("short", 1), conversation("long", 4, first=50)]
    assert [c.id for c in select_conversations(found, min_calls=3)] == ["long"]


def test_a_limit_takes_the_same_conversations_whatever_their_order():
    found = several(10)
    chosen = {c.id for c in select_conversations(found, limit=3)}
    assert len(chosen) == 3
    assert {c.id for c in select_conversations(found[::-1], limit=3)} == chosen
