import pytest

from trimtab.models.catalog import resolve_model_info
from trimtab.replay.billing import (
    CacheRules,
    InputBill,
    PromptCacheModel,
    PromptPiece,
    build_cache_rules,
    get_provider_pricing,
)

MARKS = CacheRules(style="marks", read=0.1, write=1.25, ttl=300, minimum=1_000)
AUTOMATIC = CacheRules(style="automatic", read=0.1, write=1.0, ttl=300, minimum=1_024, step=128)


def pieces(*sizes: int, blocks: int = 1, salt: str = "") -> list[PromptPiece]:
    return [
        PromptPiece(digest=f"{salt}{index}".encode(), tokens=size, blocks=blocks)
        for index, size in enumerate(sizes)
    ]


def test_a_second_call_reads_what_the_first_marked_and_writes_the_rest():
    cache = PromptCacheModel(MARKS)
    assert cache.bill_call(pieces(2_000, 500), [1], 0.0) == InputBill(read=0, write=2_500, fresh=0)
    grown = cache.bill_call(pieces(2_000, 500, 300), [2], 10.0)
    assert grown == InputBill(read=2_500, write=300, fresh=0)


def test_what_stands_behind_the_last_mark_is_paid_in_full():
    cache = PromptCacheModel(MARKS)
    assert cache.bill_call(pieces(2_000, 500), [0], 0.0) == InputBill(
        read=0, write=2_000, fresh=500
    )


def test_a_prefix_below_the_minimum_is_not_stored():
    cache = PromptCacheModel(MARKS)
    assert cache.bill_call(pieces(900), [0], 0.0) == InputBill(read=0, write=0, fresh=900)
    assert cache.bill_call(pieces(900), [0], 1.0).read == 0


@pytest.mark.parametrize(("pause", "read"), [(300.0, 2_000), (300.1, 0)])
def test_a_prefix_lives_for_its_time_after_the_last_use(pause, read):
    cache = PromptCacheModel(MARKS)
    cache.bill_call(pieces(2_000), [0], 0.0)
    cache.bill_call(pieces(2_000), [0], 200.0)
    assert cache.bill_call(pieces(2_000), [0], 200.0 + pause).read == read


@pytest.mark.parametrize(("added", "read"), [(19, 2_000), (20, 0)])
def test_a_mark_finds_what_was_stored_within_twenty_blocks(added, read):
    cache = PromptCacheModel(MARKS)
    cache.bill_call(pieces(2_000), [0], 0.0)
    assert cache.bill_call(pieces(2_000, *[10] * added), [added], 1.0).read == read


def test_a_changed_piece_ends_what_can_be_read():
    cache = PromptCacheModel(MARKS)
    cache.bill_call(pieces(2_000, 500, 500), [0, 2], 0.0)
    changed = [*pieces(2_000), *pieces(1, 500, 500, salt="x")[1:]]
    assert cache.bill_call(changed, [0, 2], 1.0) == InputBill(read=2_000, write=1_000, fresh=0)


def test_an_automatic_cache_reads_the_common_prefix_in_whole_steps():
    cache = PromptCacheModel(AUTOMATIC)
    cache.bill_call(pieces(1_000, 100, 700), [], 0.0)
    changed = [*pieces(1_000, 100), *pieces(1, 1, 700, salt="x")[2:]]
    assert cache.bill_call(changed, [], 1.0) == InputBill(read=1_024, write=776, fresh=0)


def test_an_automatic_cache_reads_nothing_below_its_minimum_or_after_its_time():
    cache = PromptCacheModel(AUTOMATIC)
    cache.bill_call(pieces(1_023), [], 0.0)
    assert cache.bill_call(pieces(1_023), [], 1.0).read == 0
    cache.bill_call(pieces(2_048), [], 2.0)
    assert cache.bill_call(pieces(2_048), [], 302.1).read == 0


def test_without_a_cache_everything_is_fresh():
    cache = PromptCacheModel(CacheRules(style="none"))
    cache.bill_call(pieces(5_000), [0], 0.0)
    assert cache.bill_call(pieces(5_000), [0], 1.0) == InputBill(read=0, write=0, fresh=5_000)


def test_a_bill_is_paid_in_fresh_tokens():
    assert InputBill(read=1_000, write=100, fresh=10).cost(MARKS) == pytest.approx(235)


def test_rules_are_those_of_the_catalog_entry():
    assert build_cache_rules(resolve_model_info("claude-sonnet-4-5")) == CacheRules(
        style="marks", read=0.1, write=1.25, ttl=300, minimum=1_024, step=1, output=5
    )
    assert build_cache_rules(resolve_model_info("gpt-5")) == CacheRules(
        style="automatic", read=0.1, write=1.0, ttl=300, minimum=1_024, step=128, output=8
    )


def test_a_model_is_billed_by_its_own_prices():
    own = get_provider_pricing("claude-sonnet-4-5")
    assert (own.name, own.price, own.rules.read, own.rules.output) == ("Anthropic", 3, 0.1, 5)
    assert get_provider_pricing("gpt-5").name == "OpenAI"
    assert get_provider_pricing("somebody/unheard-of").name == "somebody/unheard-of"
