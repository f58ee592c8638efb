"""What a caller sets, and the settings event it becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from typing import Any, Required, TypedDict, cast

from trimtab.catalog import CacheMarks, ModelInfoValues, resolve_model_info, with_cache_marks
from trimtab.dialects import DIALECT_NAMES, DialectName, get_dialect
from trimtab.dialects.base import WireObject
from trimtab.dialects.tool_definitions import read_tool_name
from trimtab.log.event import Settings
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
from trimtab.prompt.render import RENDERER_VERSION
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
    """The options of `Context` besides the model, for functions that pass them on.

    `Options` says what each of them is.
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
    """The same for a session: the model as well, and a clock for tests."""

    model: Required[str]
    clock: Callable[[], float]


class OptionChanges(ContextOptions, total=False):
    """What `configure` takes."""

    model: str
    turn_tools: Sequence[WireObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    model: str
    """The model's name as the provider knows it."""
    system: str | Sequence[WireObject] | tuple[Message, ...] = ""
    """The system prompt: a text, or the dialect's own blocks or messages."""
    listed_system: tuple[Message, ...] = ()
    """What `sync` found at the start of the caller's list; it stands after `system`."""
    tools: Sequence[WireObject] = ()
    """Tool definitions of any known dialect."""
    turn_tools: Sequence[WireObject] = ()
    """Tools for one turn, behind the others; one whose name is among those is left out."""
    dialect: str | None = None
    """The wire format; None follows from the model."""
    policy: str | Policy = DEFAULT_POLICY_NAME
    """A preset's name, or a function of one's own."""
    goal: Goal = "balanced"
    """What the preset is tuned for: `cost`, `balanced` or `quality`."""
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The knobs of the `session.context` block; what is set binds in every preset."""
    summaries: SummaryMode = "extractive"
    """`extractive` needs no model; `manual` waits for `add_summary` until it cannot."""
    context_window: int | None = None
    """Tokens of input and output together, where the catalog is wrong or does not know."""
    max_input_tokens: int | None = None
    """A limit of the user's own for input and output together, above or below the model's."""
    max_output_tokens: int | None = None
    """Tokens of output to ask for and to reserve."""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further request parameters, passed on as they are."""
    recall: bool = False
    """Whether the model gets tools to look up what is hidden."""
    model_info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values of the user's own for the model's catalog entry. A caller may give the name of the
    catalog model that a deployment of another name is: here that is `{"base_model": name}`."""
    cache: CacheMarks | None = None
    """How long a prefix that we mark is cached, `5m` or `1h`; `off` marks none."""
    tokenizer: Tokenizer | None = None
    """An exact counter in place of the estimate, for this model."""
    redact: Redact | None = None
    """What takes out of a text what must not be kept."""

    def build_counter(self) -> TokenCounter:
        """How this model's tokens are counted."""
        entry = resolve_model_info(self.model, self.model_info)
        if isinstance(self.tokenizer, _RenamedTokenizer):
            return make_exact_counter(self.tokenizer.name, self.tokenizer.count, entry.picture_rule)
        if self.tokenizer is not None:
            return make_exact_counter(
                _qualified_name(self.tokenizer), self.tokenizer, entry.picture_rule
            )
        return make_piecewise_counter(entry.tokenizer, entry.picture_rule)

    def build_policy(self) -> Policy:
        """The policy as a function."""
        if not isinstance(self.policy, str):
            return self.policy
        validate_choice("goal", self.goal, allowed=GOALS)
        validate_choice("summaries", self.summaries, allowed=SUMMARY_MODES)
        knobs = parse_policy_config(self.limits)
        return build_policy(self.policy, knobs, goal=self.goal, summary_mode=self.summaries)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RenamedTokenizer:
    """A tokenizer that goes by another name than its own, which another has in the same log."""

    count: Tokenizer
    """The caller's function."""
    name: str
    """Its own name and a number."""

    def __call__(self, text: str) -> int:
        return self.count(text)


CONFIGURABLE_OPTIONS = [each.name for each in fields(Options) if each.name != "listed_system"]
"""Options that `configure` takes; what a caller's list begins with is not set by name."""


def build_options(**option_values: Any) -> Options:
    """The options that a caller gives, checked; what a log holds is taken as it is."""
    options = Options(**validate_options(option_values))
    _check_output_limit(options)
    return options


def build_settings_event(options: Options, counter: TokenCounter, *, at: float) -> Settings:
    """The settings event that records the options, with the catalog entry and the prices of the
    day of `at`, in seconds since the epoch."""
    overrides = with_cache_marks(options.model_info, options.cache)
    entry = resolve_model_info(options.model, overrides, at=at)
    name = options.dialect or entry.dialect
    if name is None:
        raise ValueError(
            f"the dialect of model {options.model!r} is not known; pass dialect= one of "
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
    """The options that a settings event records; what is not in the log is given again."""
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
    """What was set as the prompt, and what came with the caller's list after it."""
    own = len(settings.system) - settings.listed_system
    return settings.system[:own], settings.system[own:]


def options_from_log(settings: Settings, **overrides: Any) -> Options:
    """The same for a caller who goes on with them; what is theirs is checked."""
    validate_options({name: value for name, value in overrides.items() if value is not None})
    if overrides.get("policy") is None and settings.policy not in POLICY_NAMES:
        raise ValueError(
            f"unknown policy {settings.policy!r}; a function of your own is not in the log: pass "
            "it again, as policy=f, to Context.load or Session.open"
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
    """The options with some of them changed; with the model go its entry, dialect and tokenizer.

    `counters` are those that the log so far was counted with, by name.
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
    """The options under settings that somebody else has set, or that held earlier.

    A policy that is a function is not in the log: for an earlier one the one of now stands in. A
    tokenizer is not either: an earlier one is among the counters that are known, and ours counts
    for another model only where it was set for that, too.
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
    """The tokenizer, renamed where its name stands for another one, or for other prices of
    pictures: sizes are told apart by it."""
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
    """The prompt that was set, then what came with the caller's list."""
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
