"""The demo's script: twelve turns of an engineer on call with an agent that has tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trimtab_serve.cli.demo.fake_tools import CULPRIT_COMMIT

SYSTEM_PROMPT = (
    "You help the engineer on call. Look before you answer, say what you have found and what you "
    "would do next, and change nothing that you were not asked to change."
)

INTRO_TEXT = (
    "An agent on call looks into a slow checkout. Its model takes {window:,} tokens, and its tools "
    "return more than 50,000. Watch what is sent and what is hidden. Nothing is lost: near the end "
    "the agent needs something that it read in the first turn."
)
"""The introduction, shown before the story begins."""
RECALLED_NOTE = "{handle} was hidden long ago. The agent recalled it by its handle."
"""Shown when the agent recalls something that it can no longer see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryTurn:
    """One turn."""

    user: str
    """What the engineer says."""
    rounds: tuple[tuple[tuple[str, dict[str, Any]], ...], ...]
    """Tool calls, those of one reply together: a name and its arguments."""
    reply: str
    """What the agent says in the end."""
    recall_text: str = ""
    """Text of a result that the agent has to recall first if it is hidden by then."""


def _one_call_per_reply(
    *calls: tuple[str, dict[str, Any]],
) -> tuple[tuple[tuple[str, dict[str, Any]], ...], ...]:
    """Put each call into a reply of its own."""
    return tuple((call,) for call in calls)


STORY = (
    StoryTurn(
        user="Checkout has been slow since about 14:00. Please find out why.",
        rounds=_one_call_per_reply(
            ("metric", {"name": "checkout.p99_ms", "points": 300}),
            ("deployments", {"service": "checkout"}),
        ),
        reply="p99 jumped from 0.2 s to 5 s at 13:52, the minute of deployment #2210. It touched "
        "the database settings. I would look at the logs next.",
    ),
    StoryTurn(
        user="What do the logs say around then?",
        rounds=_one_call_per_reply(
            ("logs", {"service": "checkout", "pattern": "ERROR|WARN", "lines": 165}),
            ("logs", {"service": "payments", "pattern": "retr|duplicate", "lines": 132}),
        ),
        reply="Checkout waits for connections: the pool has 4, all in use, with up to 250 waiting. "
        "Payments only sees the retries that follow from it.",
    ),
    StoryTurn(
        user="Is the database itself all right?",
        rounds=_one_call_per_reply(
            ("rows", {"sql": "select * from pg_stat_activity", "count": 110}),
            ("metric", {"name": "cart-db.cpu", "points": 240}),
        ),
        reply="Yes: most connections are idle and no query takes longer than 0.9 s. It could serve "
        "ten times as much.",
    ),
    StoryTurn(
        user="Who else uses that pool?",
        rounds=_one_call_per_reply(
            ("read_file", {"path": "src/checkout/db.py", "lines": 132}),
            ("read_file", {"path": "src/cart/db.py", "lines": 99}),
        ),
        reply="Nobody. The cart service has a pool of its own, which is why only checkout is slow.",
    ),
    StoryTurn(
        user="Could it be the network, or the cache?",
        rounds=(
            (
                ("logs", {"service": "gateway", "pattern": "/checkout", "lines": 132}),
                ("metric", {"name": "redis.hit_rate", "points": 180}),
            ),
            (("read_file", {"path": "config/redis.conf", "lines": 198}),),
        ),
        reply="Neither. The gateway waits for checkout, and Redis answers 98 % of what it is "
        "asked. The 504s begin at 13:52 as well.",
    ),
    StoryTurn(
        user="Can you reproduce it on staging?",
        rounds=_one_call_per_reply(
            ("load", {"rate": 20, "seconds": 108}),
            ("load", {"rate": 60, "seconds": 135}),
            ("logs", {"service": "staging", "pattern": "pool", "lines": 132}),
        ),
        reply="Yes. At 20 orders a second all is well; at 60 the pool runs dry after 8 seconds and "
        "half of the orders fail.",
    ),
    StoryTurn(
        user="Then write the fix and test it.",
        rounds=_one_call_per_reply(
            ("read_file", {"path": "deploy/checkout.yaml", "lines": 110}),
            ("edit", {"path": "deploy/checkout.yaml"}),
            ("tests", {"count": 120}),
        ),
        reply="pool_size is 40 again, and all 120 tests pass. I left the retries alone: with no "
        "back-off between them they made it worse.",
    ),
    StoryTurn(
        user="Roll it out to one region first.",
        rounds=_one_call_per_reply(
            ("rollout", {"region": "eu-west", "steps": 36}),
            ("metric", {"name": "checkout.p99_ms.after.eu-west", "points": 180}),
        ),
        reply="eu-west is back at 0.2 s. No errors for ten minutes.",
    ),
    StoryTurn(
        user="Good. Everywhere, please.",
        rounds=_one_call_per_reply(
            ("rollout", {"region": "us-east", "steps": 48}),
            ("rollout", {"region": "ap-south", "steps": 48}),
            ("logs", {"service": "gateway", "pattern": "504", "lines": 110}),
        ),
        reply="Done. #2211 is live in all regions, and the last 504 is from 15:31.",
    ),
    StoryTurn(
        user="Who was paged, and did the alert work?",
        rounds=(
            (
                ("rows", {"sql": "select * from pages where day = current_date", "count": 80}),
                ("read_file", {"path": "config/alerts.yaml", "lines": 176}),
            ),
        ),
        reply="You were, at 14:05. The alert needs ten minutes above 4 s; five would have been "
        "enough.",
    ),
    StoryTurn(
        user="For the report: which commit changed the pool, and what was it before?",
        rounds=(),
        recall_text=CULPRIT_COMMIT,
        reply=f"Commit {CULPRIT_COMMIT}, deployed as #2210 at 13:52: pool_size went from 40 to "
        "4 in "
        "deploy/checkout.yaml.",
    ),
    StoryTurn(
        user="Thank you. Write the report.",
        rounds=(),
        reply=f"13:52: #2210 ({CULPRIT_COMMIT}) lowers pool_size from 40 to 4. 14:05: page. Cause: "
        "checkout waits for connections while the database idles; retries without back-off add "
        "load. 15:31: #2211 restores 40. To do: alert after five minutes, back-off for retries, a "
        "check that pool_size is not below 20.",
    ),
)
