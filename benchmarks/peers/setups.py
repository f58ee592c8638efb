"""Which peers are measured, and how each is set up.

Every peer has its own recommended or default setting, and one that was tuned: triggers so that the
tokens sent per call come near those of `auto` with the goal `balanced`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.engine.policy.auto import build_auto_policy
from trimtab.engine.policy.config import parse_policy_config
from trimtab.replay.runner import ReplaySetup

WINDOW = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSetup:
    name: str
    """As the table shows it."""
    adapter: str
    """The module under `adapters`."""
    environment: str | None = None
    """The peer of `envs.py` that it runs in; None for a model of our own."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the adapter takes."""


def _langchain(name: str, **options: Any) -> PeerSetup:
    return PeerSetup(
        name=f"LangChain {name}", adapter="with_langchain", environment="langchain", options=options
    )


PEERS = (
    _langchain(
        "trim_messages 100k, from a human message",
        kind="trim",
        max_tokens=100_000,
        start_on=["human"],
    ),
    _langchain(
        "trim_messages 64k, from human or model",
        kind="trim",
        max_tokens=64_000,
        start_on=["human", "ai"],
    ),
    _langchain(
        "SummarizationMiddleware at 85 %, keep 20", kind="summarize", trigger=["fraction", 0.85]
    ),
    _langchain(
        "SummarizationMiddleware at 64k, keep 32k",
        kind="summarize",
        trigger=["tokens", 64_000],
        keep=["tokens", 32_000],
        # By default a summariser sees at most 4,000 tokens that begin with a human message. A long
        # tool loop has none there, and all that is left of the history is one sentence saying so.
        trim_tokens_to_summarize=None,
    ),
    _langchain("ContextEditingMiddleware, default", kind="edit"),
    _langchain("ContextEditingMiddleware at 64k, keep 20", kind="edit", trigger=64_000, keep=20),
    PeerSetup(
        name="Anthropic clear_tool_uses (modelled), default",
        adapter="anthropic_server",
        options={"remembers": False},
    ),
    PeerSetup(
        name="Anthropic clear_tool_uses (modelled, remembering) at 64k, clear 16k",
        adapter="anthropic_server",
        options={"remembers": True, "trigger": 64_000, "clear_at_least": 16_000},
    ),
    PeerSetup(
        name="Pydantic AI TieredCompaction at 120k",
        adapter="with_pydantic_ai",
        environment="pydantic_ai",
        options={"target_tokens": 120_000},
    ),
    PeerSetup(
        name="Pydantic AI TieredCompaction at 64k",
        adapter="with_pydantic_ai",
        environment="pydantic_ai",
        options={"target_tokens": 64_000},
    ),
    PeerSetup(
        name="lovia Compaction, default",
        adapter="with_lovia",
        environment="lovia",
        options={"context_window": WINDOW},
    ),
    PeerSetup(
        name="lovia Compaction 72k to 48k",
        adapter="with_lovia",
        environment="lovia",
        options={"context_window": WINDOW, "compact_at": 72_000, "compact_to": 48_000},
    ),
    PeerSetup(
        name="OpenHands condenser, default (80 events)",
        adapter="with_openhands",
        environment="openhands",
    ),
    PeerSetup(
        name="OpenHands condenser, 240 events",
        adapter="with_openhands",
        environment="openhands",
        options={"max_size": 240, "keep_first": 2},
    ),
)

QUICK = (PEERS[3], PEERS[5], PEERS[7], PEERS[9], PEERS[11], PEERS[12])
"""One of each library, for the quick run."""

CHECK = PeerSetup(name="everything", adapter="everything")
"""No peer: measured the peers' way it must cost what `full` costs our way."""


def _own(name: str, **options: Any) -> ReplaySetup:
    return ReplaySetup(name=f"Trimtab {name}", options={"context_window": WINDOW, **options})


OWN = (
    _own("full", policy="full"),
    _own("layered", policy="layered"),
    _own("auto, goal cost", policy="auto", goal="cost"),
    _own("auto, goal balanced", policy="auto"),
    _own("auto, goal quality", policy="auto", goal="quality"),
    # Placeholders of `auto` name words of what they hide, and recall counts them as visible. No
    # peer's do: these two rows show what is left without.
    _own(
        "auto, goal cost, no names in placeholders",
        policy=build_auto_policy(parse_policy_config({}), "cost", max_names=0),
    ),
    _own(
        "auto, goal balanced, no names in placeholders",
        policy=build_auto_policy(parse_policy_config({}), max_names=0),
    ),
)
