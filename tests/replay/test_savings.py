from dataclasses import replace

import pytest

from tests.replay.conversations import conversation
from trimtab.engine.log.event import Usage
from trimtab.replay.billing import InputBill, get_provider_pricing
from trimtab.replay.needs import NeedCounts
from trimtab.replay.runner import EVERYTHING, ConversationRun, ReplayedCall, ReplaySetup
from trimtab.replay.savings import ReplayStudy, compute_savings
from trimtab.replay.selection import RecordedCall

MODEL = "claude-sonnet-4-5"
SETUPS = [
    ReplaySetup(name=EVERYTHING, options={"policy": EVERYTHING}, model=MODEL),
    ReplaySetup(name="tight", options={"policy": "layered"}, model=MODEL),
]


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


def study(everything, tight, *, refused: int = 0, usage: Usage | None = None) -> ReplayStudy:
    one = conversation("one", 3)
    if usage is not None:
        one = replace(one, recorded={1: RecordedCall(usage=usage, model=MODEL)})
    runs = [
        ConversationRun(
            conversation="one", setup=EVERYTHING, calls=tuple(everything), cannot_fit=refused
        ),
        ConversationRun(conversation="one", setup="tight", calls=tuple(tight), cannot_fit=0),
    ]
    pricing = get_provider_pricing(MODEL)
    return ReplayStudy(conversations=[one], setups=SETUPS, runs=runs, pricing=pricing)


def test_a_saving_is_a_share_of_what_everything_costs():
    savings = compute_savings([study([call(1, 1_000_000)], [call(1, 600_000)])])
    (tight,) = savings.policies
    assert tight.saved == pytest.approx(0.4)
    assert (savings.everything, tight.dollars) == pytest.approx((3.0, 1.8))


def test_only_calls_that_both_could_send_are_compared_and_the_others_counted():
    sent = [call(1, 1_000)]
    savings = compute_savings([study(sent, [call(1, 500), call(3, 9_000)], refused=1)])
    assert savings.policies[0].saved == pytest.approx(0.5)
    assert savings.refused == 1


def test_what_is_hidden_and_named_again_is_paid_for():
    lost = call(1, 500, needs=2, seen=1, missing=400)
    savings = compute_savings([study([call(1, 1_000, needs=2, seen=2)], [lost])])
    (tight,) = savings.policies
    assert tight.visible == 0.5
    assert tight.saved == pytest.approx(1 - (500 + 1.25 * 400 + 0.1 * 500 + 100 * 5) / 1_000)


def test_the_error_is_the_distance_from_the_bill():
    usage = Usage(input=2_000)
    savings = compute_savings([study([call(1, 1_500)], [call(1, 100)], usage=usage)])
    assert savings.error == pytest.approx(0.25)
    assert savings.modelled / savings.paid == pytest.approx(0.75)


def test_without_usage_there_is_no_error_to_tell():
    assert compute_savings([study([call(1, 10)], [call(1, 10)])]).error is None
