"""A call of a replay, and the rules that bill it."""

from dataclasses import replace
from typing import Any

from trimtab.replay.billing import CacheRules, InputBill, ProviderPricing
from trimtab.replay.calls import ReplayedCall
from trimtab.replay.needs import NeedCounts

RULES = CacheRules(read=0.1, write=1.25, output=5.0)
PROVIDER = ProviderPricing(name="A", model="m", rules=RULES, price=3.0)
CALL = ReplayedCall(
    index=1,
    at=0.0,
    tokens=1_110,
    head=400,
    new=60,
    is_cold=False,
    bill={"A": InputBill(read=1_000, write=100, fresh=10)},
    output=20,
    edits=0,
    broke=False,
    summarised=0,
    needs=NeedCounts(references=4, seen=4, far=2, far_seen=2),
    missing=0,
)


def call(**changes: Any) -> ReplayedCall:
    return replace(CALL, **changes)
