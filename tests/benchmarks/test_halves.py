from dataclasses import replace

from benchmarks.halves import assign_corpus_halves, take_half
from tests.replay.conversations import conversation


def several(count: int):
    return [conversation(f"c{i}", 1, first=100 * i) for i in range(count)]


def test_the_halves_are_disjoint_and_together_all():
    found = several(20)
    even, odd = (take_half(found, half) for half in ("even", "odd"))
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
