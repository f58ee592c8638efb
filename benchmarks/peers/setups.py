"""Which peers are measured, and how each is set up.

Every library has its own recommended or default setting, and a second one that hides earlier.
What runs on a provider's servers is a model of the documented rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.auto_evidence import DIAL
from benchmarks.recorded import make_baseline, make_setup
from benchmarks.samples import WINDOW


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
        "SummarizationMiddleware at 100k, keep 32k",
        kind="summarize",
        trigger=["tokens", 100_000],
        keep=["tokens", 32_000],
        # By default a summariser sees at most 4,000 tokens that begin with a human message. A long
        # tool loop has none there, and all that is left of the history is one sentence saying so.
        trim_tokens_to_summarize=None,
    ),
    _langchain("ContextEditingMiddleware, default", kind="edit"),
    _langchain("ContextEditingMiddleware at 64k, keep 20", kind="edit", trigger=64_000, keep=20),
    *(
        PeerSetup(
            name=f"{name} compaction at {size // 1_000}k",
            adapter="provider_compaction",
            options={"rule": name.lower(), "trigger": size},
        )
        for name in ("Anthropic", "OpenAI")
        for size in (150_000, 100_000, 50_000)
    ),
    PeerSetup(name="Anthropic clear_tool_uses, default", adapter="anthropic_server"),
    *(
        PeerSetup(
            name=f"Anthropic clear_tool_uses, driven: {size}k, clear {least}k, keep {keep}",
            adapter="anthropic_server",
            options={
                "driven": True,
                "trigger": size * 1_000,
                "clear_at_least": least * 1_000,
                "keep": keep,
            },
        )
        for size, least, keep in ((100, 50, 3), (80, 32, 10), (64, 16, 3))
    ),
    PeerSetup(
        name="Pydantic AI TieredCompaction at 120k",
        adapter="with_pydantic_ai",
        environment="pydantic_ai",
        options={"target_tokens": 120_000},
    ),
    PeerSetup(
        name="Pydantic AI TieredCompaction at 90k",
        adapter="with_pydantic_ai",
        environment="pydantic_ai",
        options={"target_tokens": 90_000},
    ),
    PeerSetup(
        name="lovia Compaction, default",
        adapter="with_lovia",
        environment="lovia",
        options={"context_window": WINDOW},
    ),
    PeerSetup(
        name="lovia Compaction 100k to 76k",
        adapter="with_lovia",
        environment="lovia",
        options={"context_window": WINDOW, "compact_at": 100_000, "compact_to": 76_000},
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
    PeerSetup(name="Headroom compress", adapter="with_headroom", environment="headroom"),
)

QUICK = tuple(
    setup
    for setup in PEERS
    if setup.name
    in {
        "LangChain SummarizationMiddleware at 100k, keep 32k",
        "LangChain ContextEditingMiddleware at 64k, keep 20",
        "Anthropic compaction at 100k",
        "OpenAI compaction at 100k",
        "Anthropic clear_tool_uses, driven: 80k, clear 32k, keep 10",
        "Pydantic AI TieredCompaction at 90k",
        "lovia Compaction 100k to 76k",
        "OpenHands condenser, default (80 events)",
        "Headroom compress",
    }
)
"""One of each kind, for the quick run."""

CHECK = PeerSetup(name="everything, the peers' way", adapter="everything")
"""No peer: measured the peers' way it must cost what sending everything costs our way."""


DIAL_PREFIX = "Trimtab auto, goal "
OWN = (
    make_baseline(),
    *(make_setup(f"{DIAL_PREFIX}{name}", **options) for name, options in DIAL.items()),
)
