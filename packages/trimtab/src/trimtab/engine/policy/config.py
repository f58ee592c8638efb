"""Settings that a user may change for any policy. A value that the user sets applies in every
preset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import inf
from types import UnionType
from typing import Any, Literal, TypedDict, TypeVar, cast

from trimtab.engine.summaries.format import DEFAULT_LIST_TOKENS
from trimtab.engine.summaries.transcript import MAX_MESSAGE_CHARS

GoalName = Literal["cost", "balanced", "quality"]
"""What a policy saves first."""
Goal = GoalName | float
"""The option `goal`: a name, or the price of `auto` itself: needs in 1,000 tokens."""
GOALS: tuple[GoalName, ...] = ("cost", "balanced", "quality")
PRICE_BY_GOAL: dict[GoalName, float] = {"quality": 0.5, "balanced": 0.8, "cost": 5.0}
"""Needs in 1,000 tokens: `auto` keeps a line while at least that much of it will be needed."""


def parse_goal(text: str) -> Goal:
    """Parse a goal as it is written on a command line: a name or a number."""
    try:
        number = float(text)
    except ValueError:
        return validate_goal(text)
    return validate_goal(number)


def validate_goal(goal: Any) -> Goal:
    """Return the goal, if it is one.

    Raises:
        ValueError: It is neither a known name nor a number above 0.
    """
    is_number = isinstance(goal, int | float) and not isinstance(goal, bool)
    if goal in GOALS or (is_number and 0 < goal < inf):
        return cast("Goal", goal)
    raise ValueError(
        f"unknown goal {goal!r}; choose one of {', '.join(GOALS)}, or a number above 0: "
        "the price in needs for 1,000 tokens"
    )


def price_of_goal(goal: Goal) -> float:
    """Return the price of a goal, in needs for 1,000 tokens."""
    return PRICE_BY_GOAL[goal] if isinstance(goal, str) else goal


def name_of_goal(goal: Goal) -> GoalName:
    """Return the named goal whose caps and marks apply: the dearest one within the price."""
    price = price_of_goal(goal)
    if price >= PRICE_BY_GOAL["cost"]:
        return "cost"
    return "balanced" if price >= PRICE_BY_GOAL["balanced"] else "quality"


ResultTruncation = Literal["head", "tail", "both", "summary"]
"""How a long tool result is cut: the end that stays, or a summary of it."""
RESULT_TRUNCATIONS: tuple[ResultTruncation, ...] = ("head", "tail", "both", "summary")
"""The end of a result that is kept. With `summary` a model summarises the result; if no model does,
it is `head`."""
SummaryMode = Literal["extractive", "manual"]
"""The option `summaries`: how they are written."""
SUMMARY_MODES: tuple[SummaryMode, ...] = ("extractive", "manual")

ROLLING_WINDOW_MESSAGES = 15
"""Number of messages above which `rolling` summarises the oldest."""
ROLLING_FORCED_MESSAGES = 50
"""Number of messages at which `rolling` no longer waits for a summary."""
SUMMARISE_AT_SHARE = 0.7
"""Share of the window in use at which `thresholds` summarises older messages."""
TRIM_AT_SHARE = 0.9
"""Share of the window in use at which `thresholds` drops the oldest messages, as a fallback."""
DEFAULT_KEPT_MESSAGES = 10
"""Number of newest messages that both presets keep whole."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PerToolResultConfig:
    max_tool_result_tokens: int | None = None
    """Maximum tokens of a result of this tool; None is the common cap."""
    tool_result_truncation: ResultTruncation | None = None
    """How a result above its cap is shortened; None is the common setting."""
    exempt: bool = False
    """True: no policy cuts or masks results of this tool, and its newest call stays with its
    arguments. A result that is larger than the room is still cut to fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryConfig:
    window: int = ROLLING_WINDOW_MESSAGES
    """Number of messages above which `rolling` summarises the oldest."""
    keep: int = DEFAULT_KEPT_MESSAGES
    """Number of newest messages that `rolling` keeps whole."""
    forced: int = ROLLING_FORCED_MESSAGES
    """Number of messages at which `rolling` no longer waits for a summary."""
    max_tokens: int | None = None
    """Maximum tokens of a summary, in every preset; None is the preset's own limit."""
    list_tokens: int | None = None
    """Maximum tokens of the summary's list of names, in addition to `max_tokens`; 0 means no list.
    None means no list in `rolling`. In other presets it depends on the size of the replaced
    messages, from 500 to 4,000. If `max_tokens` is set, it is at most 500 and at most
    `max_tokens`."""
    max_message_chars: int = MAX_MESSAGE_CHARS
    """Maximum characters of one message that a summarising model gets, head and tail together."""
    price: float = 0.0
    """Price of an input token of the summarising model, relative to the main model's; 0 if no model
    is used. `auto` takes it into account."""

    def __post_init__(self) -> None:
        for name in ("window", "keep", "forced", "max_tokens", "max_message_chars"):
            _check_count(f"summary.{name}", getattr(self, name))
        _check_count("summary.list_tokens", self.list_tokens, least=0)
        _check_type("summary.price", self.price, int | float, "a number")
        if self.price < 0:
            raise ValueError(f"summary.price is {self.price}; it must be 0 or more")
        if self.keep >= self.window:
            raise ValueError(
                f"summary.keep is {self.keep} and summary.window is {self.window}; "
                "summary.keep must be smaller"
            )
        if self.window > self.forced:
            raise ValueError(
                f"summary.window is {self.window} and summary.forced is {self.forced}; "
                "summary.forced must be at least as large"
            )

    def list_tokens_under(self, policy: str | None) -> int | None:
        """Return the maximum tokens of the list under a preset; None if it depends on the size of
        what is replaced. The summary of a single result is the same under all presets: None."""
        if self.list_tokens is not None or policy == "rolling":
            return self.list_tokens or 0
        return None if self.max_tokens is None else min(DEFAULT_LIST_TOKENS, self.max_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdsPresetConfig:
    summarise: float = SUMMARISE_AT_SHARE
    """Share of the window in use above which `thresholds` summarises; more than 0 and at most 1."""
    trim: float = TRIM_AT_SHARE
    """Share of the window in use above which `thresholds` drops the oldest messages."""
    keep: int = DEFAULT_KEPT_MESSAGES
    """Number of newest messages that `thresholds` keeps whole."""

    def __post_init__(self) -> None:
        _check_count("thresholds.keep", self.keep)
        for name in ("summarise", "trim"):
            value: float = getattr(self, name)
            _check_type(f"thresholds.{name}", value, int | float, "a number")
            if not 0 < value <= 1:
                raise ValueError(
                    f"thresholds.{name} is {value}; it must be a share of the window, more than 0 "
                    "and at most 1"
                )
        if self.summarise >= self.trim:
            raise ValueError(
                f"thresholds.summarise is {self.summarise} and thresholds.trim is "
                f"{self.trim}; thresholds.summarise must be smaller"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    max_history_tokens: int | None = None
    """Maximum tokens of history before the newest user message; 0 means no cap, None the preset's
    own."""
    max_tool_result_tokens: int | None = None
    """Maximum tokens of one tool result, more than 0; None is the preset's own."""
    max_tool_result_chars: int | None = None
    """The same maximum in characters. Set only one of the two."""
    tool_result_truncation: ResultTruncation | None = None
    """`head`, `tail`, `both` or `summary`; None is `head`."""
    tool_result_keep_first: int | None = None
    """Number of first results that are never masked; None is the preset's own."""
    tool_result_keep_last: int | None = None
    """Number of newest results that are never masked. 0 for both settings turns masking off."""
    max_context_bytes: int | None = None
    """Bytes of messages above which `compact` acts, more than 0; None is the goal's own limit."""
    max_request_bytes: int | None = None
    """Maximum bytes of a request as it is sent, more than 0; None is the provider's limit."""
    max_pictures: int | None = None
    """Maximum number of pictures in a request, more than 0; None is the provider's limit."""
    keep: tuple[str, ...] = ()
    """Patterns of file names, such as `README*`. If an argument of a call matches one, whole or by
    its last part, the result of that call is hidden after all other results."""
    tools: Mapping[str, PerToolResultConfig] = field(default_factory=dict[str, PerToolResultConfig])
    """Different settings for single tools, by tool name."""
    summary: SummaryConfig = field(default_factory=SummaryConfig)
    """When `rolling` summarises, and how long a summary may be."""
    thresholds: ThresholdsPresetConfig = field(default_factory=ThresholdsPresetConfig)
    """When the preset `thresholds` acts."""

    def __post_init__(self) -> None:
        if self.max_tool_result_tokens is not None and self.max_tool_result_chars is not None:
            raise ValueError(
                f"max_tool_result_tokens is {self.max_tool_result_tokens} and "
                f"max_tool_result_chars is {self.max_tool_result_chars}; set only one of them"
            )
        _check_count("max_tool_result_tokens", self.max_tool_result_tokens)
        _check_count("max_tool_result_chars", self.max_tool_result_chars)
        for name in ("max_context_bytes", "max_request_bytes", "max_pictures"):
            _check_count(name, getattr(self, name))
        _check_strategy(self.tool_result_truncation)
        for name in ("max_history_tokens", "tool_result_keep_first", "tool_result_keep_last"):
            _check_count(name, getattr(self, name), least=0)
        for name, tool in self.tools.items():
            _check_count(f"tools.{name}.max_tool_result_tokens", tool.max_tool_result_tokens)
            _check_strategy(tool.tool_result_truncation)
            _check_type(f"tools.{name}.exempt", tool.exempt, bool, "True or False")

    def truncation_for_tool(self, tool: str) -> ResultTruncation:
        """Return how a result of a tool is shortened if it is above its cap."""
        tool_config = self.tools.get(tool)
        truncation = tool_config.tool_result_truncation if tool_config is not None else None
        return truncation or self.tool_result_truncation or "head"

    @property
    def summarises_results(self) -> bool:
        """Whether results of any tool should be summarised instead of cut."""
        return any(self.truncation_for_tool(tool) == "summary" for tool in ("", *self.tools))


class PerToolLimits(TypedDict, total=False):
    """Settings for one tool, as a caller writes them: the block `tools` of `limits`."""

    max_tool_result_tokens: int | None
    tool_result_truncation: ResultTruncation | None
    exempt: bool


class SummaryLimits(TypedDict, total=False):
    """Limits of summaries, as a caller writes them: the block `summary` of `limits`."""

    window: int
    keep: int
    forced: int
    max_tokens: int | None
    list_tokens: int | None
    max_message_chars: int
    price: float


class ThresholdsPresetLimits(TypedDict, total=False):
    """The block `thresholds` of `limits`, as a caller writes it."""

    summarise: float
    trim: float
    keep: int


class PolicyLimits(TypedDict, total=False):
    """The option `limits`, as a caller writes it. The page on `Context` describes each key."""

    max_history_tokens: int | None
    max_tool_result_tokens: int | None
    max_tool_result_chars: int | None
    tool_result_truncation: ResultTruncation | None
    tool_result_keep_first: int | None
    tool_result_keep_last: int | None
    max_context_bytes: int | None
    max_request_bytes: int | None
    max_pictures: int | None
    keep: Sequence[str]
    tools: Mapping[str, PerToolLimits]
    summary: SummaryLimits
    thresholds: ThresholdsPresetLimits


def parse_policy_config(context_settings: Mapping[str, Any] | None) -> PolicyConfig:
    """Parse the `session.context` block, including its `summary` and `thresholds`."""
    settings = dict(context_settings or {})
    tools = _require_mapping("tools", settings.get("tools"))
    tool_configs = {
        name: _parse_block(PerToolResultConfig, f"tools.{name}.", value)
        for name, value in tools.items()
    }
    kinds = {"summary": SummaryConfig, "thresholds": ThresholdsPresetConfig}
    blocks: dict[str, Any] = {
        name: _parse_block(kind, f"{name}.", settings[name])
        for name, kind in kinds.items()
        if name in settings
    }
    if settings.get("keep") is not None:
        blocks["keep"] = _parse_keep_patterns(settings["keep"])
    return _parse_block(PolicyConfig, "", {**settings, **blocks, "tools": tool_configs})


def _parse_keep_patterns(value: Any) -> tuple[str, ...]:
    patterns = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else [None]
    if not all(isinstance(each, str) and each.strip() for each in patterns):
        raise ValueError(f'keep is {value!r}; it must be a list of file patterns: ["README*"]')
    return tuple(patterns)


def _parse_block(kind: type[T], key_prefix: str, value: Any) -> T:
    if isinstance(value, kind):
        return value
    # What is None is not set, as a missing one is.
    data = {
        k: v for k, v in _require_mapping(key_prefix.rstrip("."), value).items() if v is not None
    }
    fields_by_name: Mapping[str, Any] = getattr(kind, "__dataclass_fields__", {})
    for name in sorted(data.keys() - fields_by_name.keys()):
        close = get_close_matches(name, fields_by_name, n=1)
        hint = f"did you mean {key_prefix}{close[0]}? " if close else ""
        raise ValueError(
            f"unknown setting {f'{key_prefix}{name}'!r} in limits; {hint}"
            f"known: {', '.join(sorted(fields_by_name))}"
        )
    return kind(**data)


def _require_mapping(name: str, value: Any) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{name or 'context'} is {value!r}; it must be a mapping of settings")
    return cast("Mapping[str, Any]", value or {})


def _check_count(name: str, value: Any, *, least: int = 1) -> None:
    if value is None:
        return
    _check_type(name, value, int, "a whole number")
    if value < least:
        raise ValueError(f"{name} is {value}; it must be {'more than 0' if least else '0 or more'}")


def _check_type(name: str, value: Any, kind: type | UnionType, expected: str) -> None:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name} is {value!r}; it must be {expected}")


def _check_strategy(value: str | None) -> None:
    if value is not None and value not in RESULT_TRUNCATIONS:
        raise ValueError(
            f"tool_result_truncation is {value!r}; choose one of {', '.join(RESULT_TRUNCATIONS)}"
        )
