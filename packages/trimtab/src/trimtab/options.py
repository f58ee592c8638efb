"""The options that a caller sets, and the settings event that records them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from typing import Any, Required, TypedDict, cast

from trimtab.catalog import CacheMarks, ModelInfoValues, resolve_model_info, with_cache_marks
from trimtab.dialects import DIALECT_NAMES, DialectName, get_dialect
from trimtab.dialects.base import WireObject
from trimtab.dialects.tool_definitions import read_tool_name
from trimtab.log.event import RENDERER_VERSION, Settings
from trimtab.log.message import Message, message_from_json, message_to_json
from trimtab.option_validation import (
    reject_unknown_options,
    validate_choice,
    validate_options,
    validate_output_and_thinking_limits,
)
from trimtab.policy.config import (
    GOALS,
    SUMMARY_MODES,
    Goal,
    PolicyLimits,
    SummaryMode,
    parse_policy_config,
)
from trimtab.policy.planning.plan import Policy
from trimtab.policy.presets import DEFAULT_POLICY_NAME, POLICY_NAMES, PolicyName, build_policy
from trimtab.recall.tools import RECALL_TOOL_DEFINITIONS
from trimtab.redaction import Redact
from trimtab.text.utf8 import replace_lone_surrogates_in_json
from trimtab.tokens.counter import (
    EXACT_NAME_PREFIX,
    TokenCounter,
    make_exact_counter,
    make_piecewise_counter,
    measure_request_head,
)

Tokenizer = Callable[[str], int]


class ContextOptions(TypedDict, total=False):
    """The options of `Context` except the model, for functions that pass them on.

    `Context` documents each option.
    """

    system: str | Sequence[WireObject] | tuple[Message, ...]
    tools: Sequence[WireObject]
    dialect: DialectName | None
    policy: PolicyName | Policy
    goal: Goal
    limits: PolicyLimits | None
    summaries: SummaryMode
    context_window: int | None
    max_input_tokens: int | None
    max_output_tokens: int | None
    params: Mapping[str, Any] | None
    recall: bool
    model_info: ModelInfoValues | str | None
    cache: CacheMarks | None
    tokenizer: Tokenizer | None
    redact: Redact | None


class SessionOptions(ContextOptions, total=False):
    """The options of a session: those of `Context`, the model, and a clock for tests."""

    model: Required[str]
    clock: Callable[[], float]


class OptionChanges(ContextOptions, total=False):
    """The options that `configure` accepts."""

    model: str
    turn_tools: Sequence[WireObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    model: str
    """The model's name as the provider knows it."""
    system: str | Sequence[WireObject] | tuple[Message, ...] = ""
    """The system prompt: a text, or blocks or messages in the form of the dialect."""
    listed_system: tuple[Message, ...] = ()
    """System messages that `sync` found at the start of the caller's list; sent after `system`."""
    tools: Sequence[WireObject] = ()
    """Tool definitions in the form of any supported dialect."""
    turn_tools: Sequence[WireObject] = ()
    """Tools for one turn, sent after the others. A tool whose name is already used is left out."""
    dialect: str | None = None
    """The wire format. None derives it from the model."""
    policy: str | Policy = DEFAULT_POLICY_NAME
    """The name of a preset, or the caller's own function."""
    goal: Goal = "balanced"
    """What the preset optimises for: `cost`, `balanced` or `quality`."""
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The settings of the `session.context` block. They apply in every preset."""
    summaries: SummaryMode = "extractive"
    """`extractive` needs no model. `manual` waits for `add_summary` as long as the conversation
    fits."""
    context_window: int | None = None
    """Tokens of input and output together, if the catalog's value is wrong or missing."""
    max_input_tokens: int | None = None
    """The user's own limit on input and output together, above or below the model's."""
    max_output_tokens: int | None = None
    """Tokens of output to request and to reserve."""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further request parameters, passed on unchanged."""
    recall: bool = False
    """Whether the model gets tools that look up hidden content."""
    model_info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The user's own values for the model's catalog entry. If a caller gives the name of a catalog
    model, this is `{"base_model": name}`."""
    cache: CacheMarks | None = None
    """How long the provider caches a prefix that we mark: `5m` or `1h`; `off` marks none."""
    tokenizer: Tokenizer | None = None
    """An exact token counter for this model, instead of the estimate."""
    redact: Redact | None = None
    """A function that removes from a text what must not be stored."""

    def build_counter(self) -> TokenCounter:
        """Create the token counter of this model."""
        entry = resolve_model_info(self.model, self.model_info)
        if isinstance(self.tokenizer, _RenamedTokenizer):
            return make_exact_counter(self.tokenizer.name, self.tokenizer.count, entry.picture_rule)
        if self.tokenizer is not None:
            return make_exact_counter(
                _qualified_name(self.tokenizer), self.tokenizer, entry.picture_rule
            )
        return make_piecewise_counter(entry.tokenizer, entry.picture_rule)

    def build_policy(self) -> Policy:
        """Create the policy as a function."""
        if not isinstance(self.policy, str):
            return self.policy
        validate_choice("goal", self.goal, allowed=GOALS)
        validate_choice("summaries", self.summaries, allowed=SUMMARY_MODES)
        knobs = parse_policy_config(self.limits)
        return build_policy(self.policy, knobs, goal=self.goal, summary_mode=self.summaries)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RenamedTokenizer:
    """A tokenizer under another name, because another tokenizer in the same log has its name."""

    count: Tokenizer
    """The caller's function."""
    name: str
    """Its own name and a number."""

    def __call__(self, text: str) -> int:
        return self.count(text)


CONFIGURABLE_OPTIONS = [each.name for each in fields(Options) if each.name != "listed_system"]
"""Options that `configure` accepts. `listed_system` is not one of them."""


def build_options(**option_values: Any) -> Options:
    """Check the options of a caller and build them. Options from a log are not checked."""
    options = Options(**validate_options(option_values))
    _check_output_limit(options)
    return options


def build_settings_event(options: Options, counter: TokenCounter, *, at: float) -> Settings:
    """Build the settings event that records the options, with the catalog entry and the prices of
    the day of `at`, in seconds since the epoch."""
    overrides = with_cache_marks(options.model_info, options.cache)
    entry = resolve_model_info(options.model, overrides, at=at)
    name = options.dialect or entry.dialect
    if name is None:
        raise ValueError(
            f"the dialect of model {options.model!r} is unknown; pass dialect= one of "
            f"{', '.join(DIALECT_NAMES)}"
        )
    wire = get_dialect(name)
    system = _parse_system_prompt(options, name)
    standard = wire.render_tools(
        [*options.tools, *(RECALL_TOOL_DEFINITIONS if options.recall else ())]
    )
    names = {read_tool_name(tool) for tool in standard}
    selected = [
        tool for tool in wire.render_tools(options.turn_tools) if read_tool_name(tool) not in names
    ]
    # What the caller goes on to change is not what was set.
    tools = replace_lone_surrogates_in_json(deepcopy([*standard, *selected]))
    params = replace_lone_surrogates_in_json(deepcopy(dict(options.params)))
    policy = options.policy
    limits = ("context_window", "max_input_tokens", "max_output_tokens")
    return Settings(
        model=options.model,
        dialect=name,
        system=system,
        tools=tuple(tools),
        selected=len(selected),
        listed_system=len(options.listed_system),
        params=params,
        policy=policy if isinstance(policy, str) else _policy_function_name(policy),
        policy_params={
            "goal": options.goal,
            "context": deepcopy(dict(options.limits)),
            "summaries": options.summaries,
            **({} if options.cache is None else {"cache": options.cache}),
        },
        limits={key: value for key in limits if (value := getattr(options, key)) is not None},
        entry=entry.to_json(),
        counter=counter.name,
        recall=options.recall,
        renderer=RENDERER_VERSION,
        head=measure_request_head(system, tools, counter, params),
    )


def options_from_settings(
    settings: Settings,
    *,
    policy: str | Policy | None = None,
    tokenizer: Tokenizer | None = None,
    redact: Redact | None = None,
) -> Options:
    """Return the options that a settings event records.

    The caller passes what is not in the log.
    """
    standard = len(settings.tools) - settings.selected
    own = standard - len(RECALL_TOOL_DEFINITIONS) if settings.recall else standard
    own_system, listed_system = split_system_prompt(settings)
    params = settings.policy_params
    return Options(
        model=settings.model,
        system=own_system,
        listed_system=listed_system,
        tools=settings.tools[:own],
        turn_tools=settings.tools[standard:],
        dialect=settings.dialect,
        policy=settings.policy if policy is None else policy,
        goal=params.get("goal", "balanced"),
        limits=params.get("context", {}),
        summaries=params.get("summaries", "extractive"),
        cache=params.get("cache"),
        params=settings.params,
        recall=settings.recall,
        model_info={key: value for key, value in settings.entry.items() if key != "name"},
        tokenizer=tokenizer,
        redact=redact,
        **settings.limits,
    )


def split_system_prompt(
    settings: Settings,
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Return the prompt that was set, and the system messages that came with the caller's list."""
    own = len(settings.system) - settings.listed_system
    return settings.system[:own], settings.system[own:]


def options_from_log(settings: Settings, **overrides: Any) -> Options:
    """Return the options of a log for a caller who continues it, and check the caller's own."""
    validate_options({name: value for name, value in overrides.items() if value is not None})
    if overrides.get("policy") is None and settings.policy not in POLICY_NAMES:
        raise ValueError(
            f"unknown policy {settings.policy!r}. The log does not contain your own "
            "functions. Pass the function again, as policy=f, to Context.load or Session.open"
        )
    options = options_from_settings(settings, **overrides)
    if options.tokenizer is None or not settings.counter.startswith(
        f"{options.build_counter().name}#"
    ):
        return options
    name = settings.counter.removeprefix(EXACT_NAME_PREFIX)
    return replace(options, tokenizer=_RenamedTokenizer(count=options.tokenizer, name=name))


def merge_options(
    options: Options, changes: Mapping[str, Any], counters: Mapping[str, TokenCounter]
) -> Options:
    """Return the options with some of them changed. A new model resets its entry, dialect and
    tokenizer.

    `counters` are the counters of the log so far, by name.
    """
    reject_unknown_options(changes, CONFIGURABLE_OPTIONS)
    before, options = options, replace(options, **validate_options(changes))
    if options.model != before.model and "tokenizer" not in changes:
        options = replace(options, tokenizer=None)
    if "model" in changes and "model_info" not in changes:
        options = replace(options, model_info={})
    if "model" in changes and "dialect" not in changes:
        options = replace(options, dialect=None)
    if changes.keys() & {"model", "model_info", "params", "max_output_tokens"}:
        _check_output_limit(options)
    if changes.keys() & {"tokenizer", "model_info"} and options.tokenizer is not None:
        options = replace(
            options, tokenizer=_disambiguate_tokenizer(options, options.tokenizer, counters)
        )
    return options


def rebuild_options_from_changed_settings(
    logged_settings: Settings,
    current_options: Options,
    *,
    past_counters: Mapping[str, TokenCounter] | None = None,
) -> Options:
    """Return the options for settings that somebody else has set, or that applied earlier.

    A policy function is not in the log, so the current function also stands for an earlier one. A
    tokenizer is not in the log either. An earlier one is found among the known counters. The
    current tokenizer counts for another model only if it was also set for that model.
    """
    own, tokenizer = current_options.policy, current_options.tokenizer
    known = not isinstance(own, str) and _policy_function_name(own) == logged_settings.policy
    if not known and past_counters is None and logged_settings.policy not in POLICY_NAMES:
        raise ValueError(
            f"the policy is now {logged_settings.policy!r}, a function that is not in the log; "
            "load the log again with policy= that function"
        )
    policy = logged_settings.policy if logged_settings.policy in POLICY_NAMES else own
    if past_counters is not None:
        counter = past_counters.get(logged_settings.counter)
        tokenizer = counter.tokenizer if counter else tokenizer
        tokenizer = tokenizer if logged_settings.counter.startswith(EXACT_NAME_PREFIX) else None
    elif (
        logged_settings.model != current_options.model
        and logged_settings.counter != current_options.build_counter().name
    ):
        tokenizer = None
    return options_from_settings(
        logged_settings, policy=policy, tokenizer=tokenizer, redact=current_options.redact
    )


def _check_output_limit(options: Options) -> None:
    validate_output_and_thinking_limits(
        options.model, options.max_output_tokens, options.params, options.model_info
    )


def _disambiguate_tokenizer(
    options: Options, tokenizer: Tokenizer, counters: Mapping[str, TokenCounter]
) -> Tokenizer:
    """Rename the tokenizer if its name means another tokenizer, or other picture sizes.

    The name distinguishes token counts.
    """
    count = tokenizer.count if isinstance(tokenizer, _RenamedTokenizer) else tokenizer
    own, rule = (
        _qualified_name(count),
        resolve_model_info(options.model, options.model_info).picture_rule,
    )
    taken: dict[int, tuple[Tokenizer | None, str]] = {}
    for known in counters.values():
        name, _, number = known.name.removeprefix(EXACT_NAME_PREFIX).partition("#")
        if name == own:
            taken[int(number or 1)] = known.tokenizer, known.picture_rule
    same = [number for number, other in taken.items() if other == (count, rule)]
    number = same[0] if same else max(taken, default=0) + 1
    return count if number == 1 else _RenamedTokenizer(count=count, name=f"{own}#{number}")


def _qualified_name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


def _parse_system_prompt(options: Options, dialect_name: str) -> tuple[Message, ...]:
    """Return the prompt that was set, then the system messages of the caller's list."""
    system = options.system
    if not system:
        read = ()
    elif not isinstance(system, str) and isinstance(system[0], Message):
        read = tuple(cast("Sequence[Message]", system))
    else:
        read = get_dialect(dialect_name).parse_system_messages(
            cast("str | Sequence[WireObject]", system)
        )
    read = (*read, *options.listed_system)
    told = [message_to_json(message) for message in read]
    whole = replace_lone_surrogates_in_json(told)
    return read if whole == told else tuple(map(message_from_json, whole))


def _policy_function_name(policy: Policy) -> str:
    return f"{getattr(policy, '__module__', '')}.{_qualified_name(policy)}"
