from tests.replay.conversations import conversation
from trimtab.replay.selection import SessionSample


def sample(conversations, max_calls: int) -> list[str]:
    chosen = SessionSample(max_calls)
    for one in conversations:
        chosen.add(one)
    return [one.id for one in chosen.take(max_calls)]


def test_a_sample_takes_the_same_conversations_whatever_their_order():
    conversations = [conversation(f"c{i}", 1, first=100 * i) for i in range(10)]
    ids = sample(conversations, 6)
    assert len(ids) == 3  # of two calls each
    assert sample(conversations[::-1], 6) == ids


def test_a_sample_may_become_smaller_and_always_has_one_conversation():
    conversations = [conversation(f"c{i}", 4, first=100 * i) for i in range(4)]
    assert len(sample(conversations, 1)) == 1
    assert len(sample(conversations, 1_000)) == 4
