import pytest

from trimtab.replay.billing import InputBill, get_provider_pricing
from trimtab.replay.calls import EVERYTHING, ConversationRun, ReplayedCall
from trimtab.replay.needs import NeedCounts
from trimtab.replay.savings import Saving, add_savings, compute_savings

MODEL = "claude-sonnet-4-5"


def call(index: int, fresh: int, *, needs: int = 0, seen: int = 0, missing: int = 0):
    return ReplayedCall(
        index=index,
        at=0.0,
        tokens=fresh,
        head=0,
        new=fresh,
        is_cold=False,
        bill={"Anthropic": InputBill(read=0, write=0, fresh=fresh)},
        output=0,
        edits=0,
        broke=False,
        summarised=0,
        needs=NeedCounts(references=needs, seen=seen),
        missing=missing,
    )


def saving_of_tight(everything, tight, *, refused: int = 0) -> Saving:
    runs = [
        ConversationRun(conversation="one", setup=name, calls=tuple(calls), cannot_fit=refused)
        for name, calls in ((EVERYTHING, everything), ("tight", tight))
    ]
    return compute_savings(runs, get_provider_pricing(MODEL))["tight"]["one"]


def test_a_saving_is_a_share_of_what_everything_costs():
    saving = saving_of_tight([call(1, 1_000_000)], [call(1, 600_000)])
    assert saving.saved == pytest.approx(0.4)
    assert (saving.baseline, saving.cost) == pytest.approx((3.0, 1.8))


def test_only_calls_that_both_could_send_are_compared_and_the_others_counted():
    saving = saving_of_tight([call(1, 1_000)], [call(1, 500), call(3, 9_000)], refused=1)
    assert saving.saved == pytest.approx(0.5)
    assert saving.refused == 1


def test_what_is_hidden_and_named_again_is_paid_for():
    lost = call(1, 500, needs=2, seen=1, missing=400)
    saving = saving_of_tight([call(1, 1_000, needs=2, seen=2)], [lost])
    assert saving.hidden_share == 0.5
    assert saving.saved == pytest.approx(1 - (500 + 1.25 * 400 + 0.1 * 500 + 100 * 5) / 1_000)


def test_savings_of_several_conversations_are_weighted_by_their_cost():
    total = add_savings([Saving(cost=1, baseline=2), Saving(cost=8, baseline=8, references=4)])
    assert total.saved == pytest.approx(0.1)
    assert total.hidden_share == 0.0
    assert add_savings([]) == Saving()
