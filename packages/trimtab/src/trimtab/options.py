"""The options that a caller sets, and the settings event that records them."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import partial, wraps
from inspect import iscoroutinefunction, signature
from reprlib import repr as short
from typing import Any, Generic, Required, TypedDict, TypeVar, cast

from trimtab.dialects import DIALECT_NAMES, DialectName, get_dialect
from trimtab.dialects.base import WireObject
from trimtab.dialects.reading import copy_message, is_mapping_or_sdk_object, to_plain_dict
from trimtab.dialects.tool_definitions import read_tool_name
from trimtab.engine.log.event import RENDERER_VERSION, Settings
from trimtab.engine.log.message import Message, message_from_json, message_to_json
from trimtab.engine.log.redaction import Redact
from trimtab.engine.policy.budget import read_thinking_budget
from trimtab.engine.policy.config import (
    SUMMARY_MODES,
    Goal,
    PolicyLimits,
    SummaryMode,
    parse_policy_config,
    validate_goal,
)
from trimtab.engine.policy.planning.plan import Policy
from trimtab.engine.policy.presets import (
    DEFAULT_POLICY_NAME,
    POLICY_NAMES,
    PolicyName,
    build_policy,
)
from trimtab.engine.recall.tools import RECALL_TOOLS
from trimtab.engine.text.arguments import check_token_count, describe_wrong_value
from trimtab.engine.text.utf8 import replace_lone_surrogates_in_json
from trimtab.engine.tokens.counter import (
    EXACT_NAME_PREFIX,
    TokenCounter,
    make_exact_counter,
    make_piecewise_counter,
    measure_request_head,
)
from trimtab.models.catalog import (
    CACHE_MARKS_CHOICES,
    CacheMarks,
    ModelInfoValues,
    find_model_info,
    parse_model_info,
    resolve_model_info,
    with_cache_marks,
)
from trimtab.request import DialectT

RESERVED_PARAMS = {
    "model": "model=",
    "messages": "add(message)",
    "input": "add(message)",
    "system": "system=",
    "instructions": "system=",
    "tools": "tools=",
    "max_tokens": "max_output_tokens=",
    "max_completion_tokens": "max_output_tokens=",
    "max_output_tokens": "max_output_tokens=",
    "stream": "request(stream=True)",
}
"""Parameters that Trimtab writes itself, and the option that sets each."""
_SERVER_SIDE_HISTORY = (
    "the provider would add its own history, but Trimtab always sends the whole history; remove it"
)
_SERVER_SIDE_EDITS = (
    "the provider would hide messages itself, and Trimtab would not know what the model sees; "
    "remove it, and choose a policy and limits instead"
)
_FORBIDDEN_PARAMS = {
    "previous_response_id": _SERVER_SIDE_HISTORY,
    "conversation": _SERVER_SIDE_HISTORY,
    "thread": _SERVER_SIDE_HISTORY,
    "compaction": "the provider would reply to each request with a summary of it; remove it, "
    "because Trimtab summarises what it hides",
}
"""Parameters that no request may have, and why, and what to do instead."""
_HARMLESS_EDIT_PREFIX = "clear_thinking"
"""This edit is accepted. Providers also remove old thinking by default, and messages and results
stay."""


def validate_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check each option. None becomes an empty mapping, a model name for `model_info` becomes
    `base_model`.

    Nested values are copied, so later changes by the caller have no effect.
    """
    empty: dict[str, Any] = {}
    out: dict[str, Any] = {
        name: empty if value is None and name in _MAPPING_OPTIONS else value
        for name, value in options.items()
    }
    for name, value in out.items():
        if (check := _OPTION_CHECKS.get(name)) is not None:
            check(name, value)
    if "model_info" in out:
        out["model_info"] = parse_model_info(out["model_info"])
    return {
        name: _copy_nested_option(name, value) if name in _NESTED_OPTIONS else value
        for name, value in out.items()
    }


def reject_unknown_options(
    changes: Mapping[str, Any],
    known_names: Sequence[str],
    *,
    owner: str = "configure",
    sender: str | None = None,
) -> None:
    """Raise `TypeError` if a change names an option that its owner does not have.

    `sender` is who sets the parameters of requests, if it is not the context.
    """
    for name in changes:
        if name in known_names:
            continue
        from difflib import get_close_matches  # slow to import, and seldom needed

        if name in RESERVED_PARAMS:
            advice = f"use {RESERVED_PARAMS[name]} instead"
        elif close := get_close_matches(name, known_names, n=1):
            advice = f"did you mean {close[0]!r}?"
        else:
            place = f"the context's params={{{name!r}: …}}" if sender is None else sender
            advice = (
                f"it has {', '.join(known_names)}. A parameter of the provider's API goes into "
                f"{place}"
            )
        raise TypeError(f"{owner} has no option {name!r}; {advice}")


CallableT = TypeVar("CallableT", bound=Callable[..., Any])


def explain_unknown_options(function: CallableT) -> CallableT:
    """Say what to write instead of an unknown keyword argument. Python would only name it."""
    names = [name for name in signature(function).parameters if name != "self"]
    name_set = frozenset(names)
    owner = function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not kwargs.keys() <= name_set:
            reject_unknown_options(kwargs, names, owner=owner)
        return function(*args, **kwargs)

    @wraps(function)
    async def run_async(*args: Any, **kwargs: Any) -> Any:
        return await run(*args, **kwargs)

    return cast("CallableT", run_async if iscoroutinefunction(function) else run)


def validate_output_and_thinking_limits(
    model: str,
    max_output_tokens: int | None,
    params: Mapping[str, Any],
    model_info: Mapping[str, Any],
) -> None:
    """Reject an output limit above the model's, or one that thinking alone would use up."""
    _check_model_output_limit(model, max_output_tokens, model_info)
    budget = read_thinking_budget(params)
    if max_output_tokens is not None and max_output_tokens <= budget:
        raise ValueError(
            f"max_output_tokens is {max_output_tokens:,}, and thinking.budget_tokens may take "
            f"{budget:,} of it; set a larger max_output_tokens, or leave it out"
        )
    if (
        max_output_tokens is None
        and budget
        and budget >= (most := resolve_model_info(model, model_info).max_output)
    ):
        raise ValueError(
            f"thinking.budget_tokens is {budget:,}, and {model} writes {most:,} at most, including "
            "thinking; set a smaller budget, or model_info={'max_output': …} if it writes more"
        )


def _check_model_output_limit(
    model: str, max_output_tokens: int | None, model_info: Mapping[str, Any]
) -> None:
    """Check the limit only for models of Anthropic and OpenAI, which reject such a request.

    For others the limit depends on the host, and the catalog's value is a cautious guess.
    """
    model_name = str(model_info.get("base_model") or model)
    if max_output_tokens is None or (entry := find_model_info(model_name)) is None:
        return
    strict = entry.dialect == "anthropic" or entry.output_param == "max_completion_tokens"
    most = resolve_model_info(model, model_info).max_output
    if strict and max_output_tokens > most:
        raise ValueError(
            f"max_output_tokens is {max_output_tokens:,}; {model} writes {most:,} at most: "
            "use that or less"
        )


def validate_choice(name: str, value: Any, *, allowed: Sequence[str | None]) -> None:
    """Raise `ValueError` if the value is not one of those allowed."""
    if value not in allowed:
        choices = ", ".join(each for each in allowed if each is not None)
        raise ValueError(f"unknown {name} {value!r}; choose one of {choices}")


def _copy_nested_option(name: str, value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return _copy_as_json(name, value)
    numbered_parts = enumerate(cast("Sequence[Any]", value))
    return tuple(_copy_as_json(f"{name}[{index}]", each) for index, each in numbered_parts)


def _copy_as_json(name: str, value: Any) -> Any:
    """Copy a value as JSON. The reader of the copy rejects a value that is not an object."""
    try:
        if isinstance(value, Message):
            return copy_message(value)
        return to_plain_dict(value) if is_mapping_or_sdk_object(value) else value
    except (TypeError, ValueError) as error:
        raise _prefix_error(name, error) from None


def _prefix_error(location: str, error: Exception) -> Exception:
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"{location}: {error}")


def _check_list(name: str, value: Any, item_noun: str) -> Sequence[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise TypeError(describe_wrong_value(name, value, f"a list of {item_noun}"))
    return cast("Sequence[Any]", value)


def _check_model(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise TypeError(describe_wrong_value(name, value, "the model's name, such as 'gpt-4o'"))


def _check_system(name: str, value: Any) -> None:
    if value is None or isinstance(value, str):
        return
    right = "a text, or a list of the dialect's blocks or messages"
    if not isinstance(value, Sequence):
        raise TypeError(describe_wrong_value(name, value, right))
    for index, block in enumerate(cast("Sequence[Any]", value)):
        if not isinstance(block, Mapping | Message):
            raise TypeError(
                describe_wrong_value(f"{name}[{index}]", block, "a block or a message, as a dict")
            )


def _check_policy(name: str, value: Any) -> None:
    if not isinstance(value, str) and not callable(value):
        right = f"one of {', '.join(POLICY_NAMES)}, or a function that takes a window and a budget"
        raise TypeError(describe_wrong_value(name, value, right))


def _check_tokenizer(name: str, value: Any) -> None:
    right = "a function that takes a text and returns its number of tokens"
    _check_function(name, value, expected=right)
    if value is None:
        return
    count = value(_TOKENIZER_SAMPLE)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        such = "lambda text: len(encoding.encode(text))"
        kind = ValueError if type(count) is int else TypeError
        raise kind(
            f"{name} returned {short(count)} for {_TOKENIZER_SAMPLE!r}; it must be {right}, "
            f"such as {such}"
        )


def _check_function(name: str, value: Any, *, expected: str) -> None:
    if value is not None and not callable(value):
        raise TypeError(describe_wrong_value(name, value, expected))


def _check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(describe_wrong_value(name, value, "True or False"))


def _check_recall(name: str, value: Any) -> None:
    if value is None or isinstance(value, bool):
        return
    right = "True, False or a text with {handle} in it, such as 'recall {handle}'"
    if not isinstance(value, str):
        raise TypeError(describe_wrong_value(name, value, right))
    if "{handle}" not in value or len(value.splitlines()) > 1 or "]" in value:
        raise ValueError(f"{describe_wrong_value(name, value, right)}, on one line and without ]")
    if len(value) > MAX_RECALL_HINT_CHARS:
        raise ValueError(
            f"{name} has {len(value):,} characters; use at most {MAX_RECALL_HINT_CHARS}, because "
            "each placeholder contains it"
        )


def _check_mapping(name: str, value: Any, *, example: str) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(describe_wrong_value(name, value, f"a mapping, such as {example}"))


def _check_model_info(name: str, value: Any) -> None:
    if not isinstance(value, str):
        example = "{'context_window': 32_000}, or the name of a model in the catalog"
        _check_mapping(name, value, example=example)


def _check_policy_limits(name: str, value: Any) -> None:
    _check_mapping(name, value, example="{'max_tool_result_tokens': 4_000}")
    parse_policy_config(value)


def find_forbidden_params(params: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameters that keep history at the provider or let it edit requests, each with
    the reason and what to do instead.

    Parameters in `extra_body` are sent like the others, so they are also checked.
    """
    inner: Any = params.get("extra_body")
    reasons = find_forbidden_params(cast("Mapping[str, Any]", inner)) if _is_mapping(inner) else {}
    for name, why in _FORBIDDEN_PARAMS.items():
        if params.get(name) is not None:
            reasons[name] = why
    management: Any = params.get("context_management")
    edits: Any = management.get("edits") if _is_mapping(management) else management
    edit_list = cast("Sequence[Any]", edits) if isinstance(edits, list | tuple) else ()
    kinds = [str(edit.get("type")) for edit in edit_list if _is_mapping(edit)]
    if any(not kind.startswith(_HARMLESS_EDIT_PREFIX) for kind in kinds):
        reasons["context_management"] = _SERVER_SIDE_EDITS
    if params.get("truncation") == "auto":
        reasons["truncation"] = _SERVER_SIDE_EDITS
    return reasons


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _check_request_params(name: str, value: Any) -> None:
    _check_mapping(name, value, example="{'temperature': 0}")
    for key in value:
        if key in RESERVED_PARAMS:
            raise ValueError(
                f"params contains {key!r}, which Trimtab sets itself; use "
                f"{RESERVED_PARAMS[key]} "
                "instead"
            )
    for key, why in find_forbidden_params(value).items():
        raise ValueError(f"params contains {key!r}: {why}")
    if value.get("n") not in (None, 1):
        raise ValueError(
            f"params contains 'n': {short(value['n'])}; a conversation continues from "
            "one reply: remove it, or request the other replies outside the context"
        )


_TOKENIZER_SAMPLE = "Hello."
MAX_RECALL_HINT_CHARS = 100
"""Maximum number of characters of `recall`, if it is a text."""
_MAPPING_OPTIONS = ("limits", "params", "model_info")
_NESTED_OPTIONS = (*_MAPPING_OPTIONS, "system", "tools", "turn_tools")
_OPTION_CHECKS: Mapping[str, Callable[[str, Any], object]] = {
    "model": _check_model,
    "system": _check_system,
    "tools": partial(_check_list, item_noun="tool definitions"),
    "turn_tools": partial(_check_list, item_noun="tool definitions"),
    "policy": _check_policy,
    "goal": lambda _, goal: validate_goal(goal),
    "limits": _check_policy_limits,
    "summaries": partial(validate_choice, allowed=SUMMARY_MODES),
    "context_window": partial(check_token_count, minimum=0),
    "max_input_tokens": check_token_count,
    "max_output_tokens": check_token_count,
    "params": _check_request_params,
    "recall": _check_recall,
    "budget_note": _check_flag,
    "model_info": _check_model_info,
    "cache": partial(validate_choice, allowed=(None, *CACHE_MARKS_CHOICES)),
    "tokenizer": _check_tokenizer,
    "redact": partial(_check_function, expected="a function that takes a text and returns a text"),
}
"""By an option's name. The other options are checked when they are used."""


Tokenizer = Callable[[str], int]
"""Returns the number of tokens of a text."""


class _OptionsOfAnyDialect(TypedDict, total=False):
    system: str | Sequence[WireObject] | tuple[Message, ...]
    tools: Sequence[WireObject]
    policy: PolicyName | Policy
    goal: Goal
    limits: PolicyLimits | None
    summaries: SummaryMode
    context_window: int | None
    max_input_tokens: int | None
    max_output_tokens: int | None
    params: Mapping[str, Any] | None
    recall: bool | str | None
    budget_note: bool
    model_info: ModelInfoValues | str | None
    cache: CacheMarks | None
    tokenizer: Tokenizer | None
    redact: Redact | None


class ContextOptions(_OptionsOfAnyDialect, total=False):
    """The options of `Context` except the model, for functions that pass them on.

    `Context` documents each option.
    """

    dialect: DialectName | None


class SessionOptions(_OptionsOfAnyDialect, Generic[DialectT], total=False):
    """The options of a session: those of `Context`, the model, and a clock for tests."""

    dialect: DialectT | None
    model: Required[str]
    on_edit: Callable[[Any], object] | None
    clock: Callable[[], float]


class OptionChanges(ContextOptions, total=False):
    """The options that `configure` accepts."""

    model: str
    turn_tools: Sequence[WireObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All options of a context with their values."""

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
    """What the preset optimises for: `cost`, `balanced`, `quality`, or the price of `auto`."""
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
    recall: bool | str | None = None
    """Whether the model gets tools that look up hidden content. A text with `{handle}`: the caller
    has such tools, and the text tells the model how to get what a handle names. None: only if
    `run_turn` makes the first call under `auto`."""
    budget_note: bool = False
    """Whether each request ends with a line that says how full the window is, and what was hidden
    last."""
    model_info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The user's own values for the model's catalog entry. If a caller gives the name of a catalog
    model, this is `{"base_model": name}`."""
    cache: CacheMarks | None = None
    """How long the provider caches a prefix that we mark: `5m` or `1h`. `off` sends no marks,
    `caller` only those that the caller has set."""
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
        validate_goal(self.goal)
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
        [*options.tools, *(RECALL_TOOLS if options.recall is True else ())]
    )
    names = {read_tool_name(tool) for tool in standard}
    turn_tools = [
        tool for tool in wire.render_tools(options.turn_tools) if read_tool_name(tool) not in names
    ]
    # What the caller goes on to change is not what was set.
    tools = replace_lone_surrogates_in_json(deepcopy([*standard, *turn_tools]))
    params = replace_lone_surrogates_in_json(deepcopy(dict(options.params)))
    policy = options.policy
    limits = ("context_window", "max_input_tokens", "max_output_tokens")
    return Settings(
        model=options.model,
        dialect=name,
        system=system,
        tools=tuple(tools),
        selected=len(turn_tools),
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
        budget_note=options.budget_note,
        redacts=options.redact is not None,
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
    own_count = standard - len(RECALL_TOOLS) if settings.recall is True else standard
    own_system, listed_system = split_system_prompt(settings)
    params = settings.policy_params
    return Options(
        model=settings.model,
        system=own_system,
        listed_system=listed_system,
        tools=settings.tools[:own_count],
        turn_tools=settings.tools[standard:],
        dialect=settings.dialect,
        policy=settings.policy if policy is None else policy,
        goal=params.get("goal", "balanced"),
        limits=params.get("context", {}),
        summaries=params.get("summaries", "extractive"),
        cache=params.get("cache"),
        params=settings.params,
        recall=settings.recall,
        budget_note=settings.budget_note,
        model_info={key: value for key, value in settings.entry.items() if key != "name"},
        tokenizer=tokenizer,
        redact=redact,
        **settings.limits,
    )


def split_system_prompt(
    settings: Settings,
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Return the prompt that was set, and the system messages that came with the caller's list."""
    own_count = len(settings.system) - settings.listed_system
    return settings.system[:own_count], settings.system[own_count:]


def require_logged_functions(settings: Settings, given: Container[str]) -> None:
    """Raise `ValueError` if the log was written with a function that is not among those given.

    Without it the next message would be stored as it is, or counted in another way.
    """
    if settings.redacts and "redact" not in given:
        raise ValueError(
            "this log is redacted, and the log does not contain the function that does it. Pass it "
            "again, as redact=f. To stop redacting, open the log with it and call "
            "configure(redact=None)"
        )
    if settings.counter.startswith(EXACT_NAME_PREFIX) and "tokenizer" not in given:
        name = settings.counter.removeprefix(EXACT_NAME_PREFIX)
        raise ValueError(
            f"the tokens of this log are counted by your tokenizer {name!r}, and the log does not "
            "contain it. Pass it again, as tokenizer=f. To use the estimate, open the log with it "
            "and call configure(tokenizer=None)"
        )


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


def has_option_values(options: Options, changes: Mapping[str, Any]) -> bool:
    """Whether options have these values already.

    It only compares. That takes a small part of the time of reading tools and a system prompt.
    """
    try:
        return all(
            name in CONFIGURABLE_OPTIONS and _is_same_value(getattr(options, name), value)
            for name, value in changes.items()
        )
    except (TypeError, ValueError):  # of objects that compare in ways of their own
        return False


def _is_same_value(known: Any, value: Any) -> bool:
    if known.__class__ is value.__class__:
        return bool(known == value)
    if isinstance(known, tuple) and isinstance(value, list):
        return list(cast("tuple[Any, ...]", known)) == value
    return value is None and isinstance(known, Mapping) and not known


def merge_options(
    options: Options, changes: Mapping[str, Any], counters: Mapping[str, TokenCounter]
) -> Options:
    """Return the options with some of them changed. A new model resets its entry, dialect and
    tokenizer.

    `counters` are the counters of the log so far, by name.
    """
    reject_unknown_options(changes, CONFIGURABLE_OPTIONS)
    before = options
    options = replace(options, **validate_options(changes))
    if options.model != before.model:
        reset: dict[str, Any] = {"tokenizer": None, "model_info": {}, "dialect": None}
        options = replace(
            options, **{name: value for name, value in reset.items() if name not in changes}
        )
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
    current_policy = current_options.policy
    tokenizer = current_options.tokenizer
    is_same_function = (
        not isinstance(current_policy, str)
        and _policy_function_name(current_policy) == logged_settings.policy
    )
    if (
        not is_same_function
        and past_counters is None
        and logged_settings.policy not in POLICY_NAMES
    ):
        raise ValueError(
            f"the policy is now {logged_settings.policy!r}, a function that is not in the log; "
            "load the log again with policy= that function"
        )
    if logged_settings.redacts and current_options.redact is None and past_counters is None:
        raise ValueError(
            "messages of this log are now redacted by a function that is not in the log; load the "
            "log again with redact= that function"
        )
    policy = logged_settings.policy if logged_settings.policy in POLICY_NAMES else current_policy
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
    tokenizer_name = _qualified_name(count)
    rule = resolve_model_info(options.model, options.model_info).picture_rule
    tokenizers: dict[int, tuple[Tokenizer | None, str]] = {}
    for counter in counters.values():
        name, _, number = counter.name.removeprefix(EXACT_NAME_PREFIX).partition("#")
        if name == tokenizer_name:
            tokenizers[int(number or 1)] = counter.tokenizer, counter.picture_rule
    same = [number for number, other in tokenizers.items() if other == (count, rule)]
    number = same[0] if same else max(tokenizers, default=0) + 1
    return (
        count if number == 1 else _RenamedTokenizer(count=count, name=f"{tokenizer_name}#{number}")
    )


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
    json_messages = [message_to_json(message) for message in read]
    whole = replace_lone_surrogates_in_json(json_messages)
    return read if whole == json_messages else tuple(map(message_from_json, whole))


def _policy_function_name(policy: Policy) -> str:
    return f"{getattr(policy, '__module__', '')}.{_qualified_name(policy)}"
