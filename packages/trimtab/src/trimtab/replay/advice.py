"""What to tell a client: the settings that were replayed, and which of them to choose.

An agent with a plugin of Trimtab, or a loop of one's own, is told a goal. Claude Code and Codex are
told their own settings, and Claude Code a cap by a hook. Chosen is what saves most and hides no
more than the default of Trimtab does in the same sessions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimtab.engine.policy.config import Goal
from trimtab.models.catalog import resolve_model_info
from trimtab.replay import locations
from trimtab.replay.calls import EVERYTHING, ReplaySetup
from trimtab.replay.client_settings import AS_RECORDED, ClientSettings
from trimtab.replay.savings import Saving

MIN_SAVING = 0.03
"""Share of the cost. A smaller saving is not worth a change: it is within the error of a replay."""
MIN_SESSIONS, MIN_CALLS = 3, 90
"""With fewer sessions or calls a comparison proves little."""
CLAUDE_WINDOWS = (100_000, 150_000, 200_000, 300_000, 400_000, 500_000)
"""Tokens for `/autocompact`, which takes 100,000 to 1,000,000."""
CLAUDE_COMPACTS_BELOW = 33_000
"""Claude Code compacts this many tokens below the window that it is told."""
CLAUDE_HOOK_TOOLS = r"Bash|Grep|WebFetch|mcp__.*"
"""The tools whose outputs the hook cuts, without `--files`."""
CLAUDE_STORES_CHARS = 30_000
"""Claude Code stores a longer output of a command itself."""
CODEX_LIMITS = (60_000, 100_000, 150_000, 200_000)
CODEX_KEPT_USER_TOKENS = 20_000
"""Tokens of the user's messages that Codex keeps when it compacts."""
RESULT_CAPS = (1_000, 2_000, 3_000, 4_000, 6_000, 8_000)
GOALS: tuple[Goal, ...] = ("quality", "balanced", 2.0, "cost")
"""Points of the dial of one's own loop."""
_PLUGINS = {
    locations.OPENCODE: "uv tool install trimtab && opencode plugin -g opencode-trimtab",
    locations.PI: "uv tool install trimtab && pi install npm:pi-trimtab",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One thing that a client can be told."""

    name: str
    """What to do, in a few words."""
    lines: tuple[str, ...] = ()
    """What to type, and where."""
    client: ClientSettings = AS_RECORDED
    """The settings of the client, if it decides what is sent."""
    goal: Goal | None = None
    """Trimtab's goal, if Trimtab decides."""

    def build_setup(self, model: str) -> ReplaySetup:
        """Return the setup under which conversations of a model are replayed."""
        if self.goal is None:
            options: dict[str, Any] = {"policy": EVERYTHING}
        else:
            options = {"policy": "auto", "goal": self.goal}
            if resolve_model_info(model).dialect is None:
                options["dialect"] = "openai_chat"
        return ReplaySetup(name=self.name, options=options, model=model, client=self.client)


AS_IT_IS = Setting(name=EVERYTHING)
TRIMTAB = Setting(name="Trimtab", goal="balanced")
"""The default of Trimtab. What it hides is the measure for all others."""


def list_settings(client: str) -> list[Setting]:
    """Return what a client can be told, by its name in logs."""
    match client:
        case locations.CLAUDE_CODE:
            return _list_claude_code_settings()
        case locations.CODEX:
            return _list_codex_settings()
        case locations.OPENCODE | locations.PI:
            return [replace(TRIMTAB, name="install Trimtab's plugin", lines=(_PLUGINS[client],))]
        case _:
            return [
                Setting(
                    name=f"set goal {goal}", lines=(f"Context(model=…, goal={goal!r})",), goal=goal
                )
                for goal in GOALS
            ]


def _list_claude_code_settings() -> list[Setting]:
    windows = [
        Setting(
            name=f"set the window to {window // 1_000}k",
            lines=(f"/autocompact {window // 1_000}k",),
            client=ClientSettings(compact_at=window - CLAUDE_COMPACTS_BELOW),
        )
        for window in CLAUDE_WINDOWS
    ]
    caps = [
        Setting(
            name=f"cut command outputs to {cap:,}",
            lines=(f"trimtab hook claude --max-tokens {cap}",),
            client=ClientSettings(
                max_result_tokens=cap,
                cut_from=1.25,
                capped_tools=CLAUDE_HOOK_TOOLS,
                max_capped_chars=CLAUDE_STORES_CHARS,
            ),
        )
        for cap in RESULT_CAPS
    ]
    return [*windows, *caps, *_combine(windows, caps)]


def _list_codex_settings() -> list[Setting]:
    limits = [
        Setting(
            name=f"compact at {limit // 1_000}k",
            lines=(f"model_auto_compact_token_limit = {limit}",),
            client=ClientSettings(
                compact_at=limit, compacted_tokens=2_000, kept_user_tokens=CODEX_KEPT_USER_TOKENS
            ),
        )
        for limit in CODEX_LIMITS
    ]
    caps = [
        Setting(
            name=f"cut outputs to {cap:,}",
            lines=(f"tool_output_token_limit = {cap}",),
            client=ClientSettings(max_result_tokens=cap),
        )
        for cap in RESULT_CAPS
    ]
    return [*limits, *caps, *_combine(limits, caps)]


def _combine(compactions: Sequence[Setting], caps: Sequence[Setting]) -> list[Setting]:
    """Return each compaction with each cap."""
    return [
        Setting(
            name=f"{compaction.name}, {cap.name}",
            lines=(*compaction.lines, *cap.lines),
            client=replace(
                cap.client,
                compact_at=compaction.client.compact_at,
                compacted_tokens=compaction.client.compacted_tokens,
                kept_user_tokens=compaction.client.kept_user_tokens,
            ),
        )
        for compaction in compactions
        for cap in caps
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to tell one client, from the sessions that were replayed."""

    saving: Mapping[str, Saving]
    """What each setting saves and hides, by its name."""
    trimtab: Saving
    """The same for the default of Trimtab."""
    best: str | None
    """The setting that saves most and hides no more than the default of Trimtab. None if none
    saves enough."""
    next: str | None
    """The next setting, which saves clearly more, and hides more."""


def choose_settings(saving: Mapping[str, Saving]) -> Advice:
    """Choose among the settings of a client.

    Args:
        saving: What each setting saves, by its name. `TRIMTAB` is among them.
    """
    trimtab = saving[TRIMTAB.name]
    by_name = {n: s for n, s in saving.items() if n not in (AS_IT_IS.name, TRIMTAB.name)}
    bar = trimtab.hidden_share
    careful = [name for name in by_name if by_name[name].hidden_share <= bar]
    best = max(careful, key=lambda name: by_name[name].saved, default=None)
    if best is not None and by_name[best].saved < MIN_SAVING:
        best = None
    least = (by_name[best].saved if best is not None else 0.0) + MIN_SAVING
    further = [name for name in by_name if name not in careful and by_name[name].saved >= least]

    def gain(name: str) -> float:
        """What a setting saves beyond the best for what it hides beyond it."""
        return (by_name[name].saved - least + MIN_SAVING) / (by_name[name].hidden_share - bar)

    step = max(further, key=gain, default=None)
    return Advice(saving=by_name, trimtab=trimtab, best=best, next=step)
