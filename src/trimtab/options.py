"""What a caller sets, and the settings event it becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from trimtab import given
from trimtab.catalog import CacheMarks, cached, resolve
from trimtab.core.event import Settings
from trimtab.core.message import Message, message_from_json, message_to_json
from trimtab.core.plan import Policy
from trimtab.core.policies import DEFAULT, POLICIES, preset
from trimtab.core.policies.knobs import GOALS, SUMMARIES, Goal, Summaries, knobs_from
from trimtab.core.prompt import RENDERER
from trimtab.core.recall import TOOLS
from trimtab.core.tokens import EXACT, Counter, exact, piecewise, size_of_head
from trimtab.core.utf8 import whole_pairs_in
from trimtab.dialects import DIALECTS, dialect
from trimtab.dialects.dialect import Wire
from trimtab.dialects.tools import name_of
from trimtab.redaction import Redact

Tokenizer = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    model: str
    """The model's name as the provider knows it."""
    system: str | Sequence[Wire] | tuple[Message, ...] = ""
    """The system prompt: a text, or the dialect's own blocks or messages."""
    tools: Sequence[Wire] = ()
    """Tool definitions of any known dialect."""
    selected: Sequence[Wire] = ()
    """Tools for one turn, behind the others; one whose name is among those is left out."""
    dialect: str | None = None
    """The wire format; None follows from the model."""
    policy: str | Policy = DEFAULT
    """A preset's name, or a function of one's own."""
    goal: Goal = "balanced"
    """What the preset is tuned for: `cost`, `balanced` or `quality`."""
    context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The knobs of the `session.context` block; what is set binds in every preset."""
    summaries: Summaries = "extractive"
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
    entry: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values of the user's own for the model's catalog entry."""
    cache: CacheMarks | None = None
    """How long a prefix that we mark is cached, `5m` or `1h`; `off` marks none."""
    tokenizer: Tokenizer | None = None
    """An exact counter in place of the estimate, for this model."""
    redact: Redact | None = None
    """What takes out of a text what must not be kept."""

    def counter(self) -> Counter:
        """How this model's tokens are counted."""
        entry = resolve(self.model, self.entry)
        if isinstance(self.tokenizer, _Renamed):
            return exact(self.tokenizer.name, self.tokenizer.count, entry.picture_rule)
        if self.tokenizer is not None:
            return exact(_name_of(self.tokenizer), self.tokenizer, entry.picture_rule)
        return piecewise(entry.tokenizer, entry.picture_rule)

    def decide(self) -> Policy:
        """The policy as a function."""
        if not isinstance(self.policy, str):
            return self.policy
        given.choice("goal", self.goal, among=GOALS)
        given.choice("summaries", self.summaries, among=SUMMARIES)
        knobs = knobs_from(self.context)
        return preset(self.policy, knobs, goal=self.goal, summaries=self.summaries)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Renamed:
    """A tokenizer that goes by another name than its own, which another has in the same log."""

    count: Tokenizer
    """The caller's function."""
    name: str
    """Its own name and a number."""

    def __call__(self, text: str) -> int:
        return self.count(text)


def made(**values: Any) -> Options:
    """The options that a caller gives, checked; what a log holds is taken as it is."""
    options = Options(**given.options(values))
    _refuse_limits(options)
    return options


def settings_of(options: Options, counter: Counter) -> Settings:
    """The settings event that records the options, with the catalog entry as it is today."""
    entry = resolve(options.model, cached(options.entry, options.cache))
    name = options.dialect or entry.dialect
    if name is None:
        raise ValueError(
            f"the dialect of model {options.model!r} is not known; pass dialect= one of "
            f"{', '.join(DIALECTS)}"
        )
    wire = dialect(name)
    system = _system(options, name)
    standard = wire.write_tools([*options.tools, *(TOOLS if options.recall else ())])
    names = {name_of(tool) for tool in standard}
    selected = [tool for tool in wire.write_tools(options.selected) if name_of(tool) not in names]
    # What the caller goes on to change is not what was set.
    tools = whole_pairs_in(deepcopy([*standard, *selected]))
    params = whole_pairs_in(deepcopy(dict(options.params)))
    policy = options.policy
    limits = ("context_window", "max_input_tokens", "max_output_tokens")
    return Settings(
        model=options.model,
        dialect=name,
        system=system,
        tools=tuple(tools),
        selected=len(selected),
        params=params,
        policy=policy if isinstance(policy, str) else _function_name(policy),
        policy_params={
            "goal": options.goal,
            "context": deepcopy(dict(options.context)),
            "summaries": options.summaries,
            **({} if options.cache is None else {"cache": options.cache}),
        },
        limits={key: value for key in limits if (value := getattr(options, key)) is not None},
        entry=entry.to_json(),
        counter=counter.name,
        recall=options.recall,
        renderer=RENDERER,
        head=size_of_head(system, tools, counter, params),
    )


def options_of(
    settings: Settings,
    *,
    policy: str | Policy | None = None,
    tokenizer: Tokenizer | None = None,
    redact: Redact | None = None,
) -> Options:
    """The options that a settings event records; what is not in the log is given again."""
    standard = len(settings.tools) - settings.selected
    own = standard - len(TOOLS) if settings.recall else standard
    params = settings.policy_params
    return Options(
        model=settings.model,
        system=settings.system,
        tools=settings.tools[:own],
        selected=settings.tools[standard:],
        dialect=settings.dialect,
        policy=settings.policy if policy is None else policy,
        goal=params.get("goal", "balanced"),
        context=params.get("context", {}),
        summaries=params.get("summaries", "extractive"),
        cache=params.get("cache"),
        params=settings.params,
        recall=settings.recall,
        entry={key: value for key, value in settings.entry.items() if key != "name"},
        tokenizer=tokenizer,
        redact=redact,
        **settings.limits,
    )


def loaded(settings: Settings, **own: Any) -> Options:
    """The same for a caller who goes on with them; what is theirs is checked."""
    given.options({name: value for name, value in own.items() if value is not None})
    if own.get("policy") is None and settings.policy not in POLICIES:
        raise ValueError(
            f"unknown policy {settings.policy!r}; a function of your own is not in the log: pass "
            "it again, as policy=f, to Context.load or Session.open"
        )
    options = options_of(settings, **own)
    if options.tokenizer is None or not settings.counter.startswith(f"{options.counter().name}#"):
        return options
    name = settings.counter.removeprefix(EXACT)
    return replace(options, tokenizer=_Renamed(count=options.tokenizer, name=name))


def changed(
    options: Options, changes: Mapping[str, Any], counters: Mapping[str, Counter]
) -> Options:
    """The options with some of them changed; with the model go its entry, dialect and tokenizer.

    `counters` are those that the log so far was counted with, by name.
    """
    given.refuse_unknown(changes, [option.name for option in fields(Options)])
    before, options = options, replace(options, **given.options(changes))
    if options.model != before.model and "tokenizer" not in changes:
        options = replace(options, tokenizer=None)
    if "model" in changes and "entry" not in changes:
        options = replace(options, entry={})
    if "model" in changes and "dialect" not in changes:
        options = replace(options, dialect=None)
    if changes.keys() & {"model", "entry", "params", "max_output_tokens"}:
        _refuse_limits(options)
    if changes.keys() & {"tokenizer", "entry"} and options.tokenizer is not None:
        options = replace(options, tokenizer=_apart(options, options.tokenizer, counters))
    return options


def options_after(
    settings: Settings, now: Options, *, earlier: Mapping[str, Counter] | None = None
) -> Options:
    """The options under settings that somebody else has set, or that held earlier.

    A policy that is a function is not in the log: for an earlier one the one of now stands in. A
    tokenizer is not either: an earlier one is among the counters that are known, and ours counts
    for another model only where it was set for that, too.
    """
    own, tokenizer = now.policy, now.tokenizer
    known = not isinstance(own, str) and _function_name(own) == settings.policy
    if not known and earlier is None and settings.policy not in POLICIES:
        raise ValueError(
            f"the policy is now {settings.policy!r}, a function that is not in the log; load the "
            "log again with policy= that function"
        )
    policy = settings.policy if settings.policy in POLICIES else own
    if earlier is not None:
        counter = earlier.get(settings.counter)
        tokenizer = counter.tokenizer if counter else tokenizer
        tokenizer = tokenizer if settings.counter.startswith(EXACT) else None
    elif settings.model != now.model and settings.counter != now.counter().name:
        tokenizer = None
    return options_of(settings, policy=policy, tokenizer=tokenizer, redact=now.redact)


def _refuse_limits(options: Options) -> None:
    given.refuse_limits(options.model, options.max_output_tokens, options.params, options.entry)


def _apart(options: Options, tokenizer: Tokenizer, counters: Mapping[str, Counter]) -> Tokenizer:
    """The tokenizer, renamed where its name stands for another one, or for other prices of
    pictures: sizes are told apart by it."""
    count = tokenizer.count if isinstance(tokenizer, _Renamed) else tokenizer
    own, rule = _name_of(count), resolve(options.model, options.entry).picture_rule
    taken: dict[int, tuple[Tokenizer | None, str]] = {}
    for known in counters.values():
        name, _, number = known.name.removeprefix(EXACT).partition("#")
        if name == own:
            taken[int(number or 1)] = known.tokenizer, known.pictures
    same = [number for number, other in taken.items() if other == (count, rule)]
    number = same[0] if same else max(taken, default=0) + 1
    return count if number == 1 else _Renamed(count=count, name=f"{own}#{number}")


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


def _system(options: Options, name: str) -> tuple[Message, ...]:
    system = options.system
    if not system:
        return ()
    if not isinstance(system, str) and isinstance(system[0], Message):
        read = tuple(cast("Sequence[Message]", system))
    else:
        read = dialect(name).read_system(cast("str | Sequence[Wire]", system))
    told = [message_to_json(message) for message in read]
    whole = whole_pairs_in(told)
    return read if whole == told else tuple(map(message_from_json, whole))


def _function_name(policy: Policy) -> str:
    return f"{getattr(policy, '__module__', '')}.{_name_of(policy)}"
