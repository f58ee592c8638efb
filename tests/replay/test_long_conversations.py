"""A long conversation is replayed in a time that grows with its length."""

from trimtab.replay.billing import CacheRules, PromptCacheModel, PromptPiece


class CountedPieces(list[PromptPiece]):
    """A prompt that counts how many of its pieces are looked at."""

    looked_at = 0

    def __iter__(self):
        for piece in super().__iter__():
            self.looked_at += 1
            yield piece


def test_a_call_that_extends_the_prompt_looks_at_new_pieces_only():
    rules = CacheRules(
        style="automatic", read=0.1, write=1.0, ttl=300.0, minimum=0, step=1, output=5.0
    )
    cache = PromptCacheModel(rules)
    pieces = CountedPieces()
    for number in range(500):
        pieces.append(PromptPiece(digest=str(number).encode(), tokens=10, blocks=1))
        bill = cache.bill_call(pieces, [], float(number))
        assert (bill.read, bill.total) == (10 * number, 10 * (number + 1))
    assert pieces.looked_at <= 1
