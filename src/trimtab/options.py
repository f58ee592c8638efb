"""What a caller sets, and the settings event it becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from trimtab import given
from trimtab.catalog import resolve
from trimtab.core.event import Settings
from trimtab.core.message import Message
from trimtab.core.plan import Policy
from trimtab.core.policies import DEFAULT, POLICIES, preset
from trimtab.core.policies.knobs import GOALS, SUMMARIES, Goal, Summaries, knobs_from
from trimtab.core.prompt import RENDERER
from trimtab.core.recall import TOOLS
from trimtab.core.tokens import Counter, exact, piecewise, size_of_head
from trimtab.dialects import DIALECTS, dialect, to_wire
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
    """A limit of the user's own, above or below the model's."""
    max_output_tokens: int | None = None
    """Tokens of output to ask for and to reserve."""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further request parameters, passed on as they are."""
    recall: bool = False
    """Whether the model gets tools to look up what is hidden."""
    entry: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values of the user's own for the model's catalog entry."""
    tokenizer: Tokenizer | None = None
    """An exact counter in place of the estimate."""
    redact: Redact | None = None
    """What takes out of a text what must not be kept."""

    def counter(self) -> Counter:
        """How this model's tokens are counted."""
        if self.tokenizer is not None:
            name = getattr(self.tokenizer, "__qualname__", type(self.tokenizer).__qualname__)
            return exact(name, self.tokenizer)
        return piecewise(resolve(self.model, self.entry).tokenizer)

    def decide(self) -> Policy:
        """The policy as a function."""
        if not isinstance(self.policy, str):
            return self.policy
        if self.goal not in GOALS:
            raise ValueError(f"unknown goal {self.goal!r}; choose one of {', '.join(GOALS)}")
        if self.summaries not in SUMMARIES:
            raise ValueError(
                f"unknown summaries {self.summaries!r}; choose one of {', '.join(SUMMARIES)}"
            )
        knobs = knobs_from(self.context)
        return preset(self.policy, knobs, goal=self.goal, summaries=self.summaries)


def made(**values: Any) -> Options:
    """The options that a caller gives, checked; what a log holds is taken as it is."""
    options = Options(**given.options(values))
    given.refuse_output(options.model, options.max_output_tokens, options.entry)
    given.refuse_thinking(options.params, options.max_output_tokens)
    return options


def settings_of(options: Options, counter: Counter) -> Settings:
    """The settings event that records the options, with the catalog entry as it is today."""
    entry = resolve(options.model, options.entry)
    name = options.dialect or entry.dialect
    if name is None:
        raise ValueError(
            f"the dialect of model {options.model!r} is not known; pass dialect= one of "
            f"{', '.join(DIALECTS)}"
        )
    wire = dialect(name)
    system = _system(options, name)
    own, recall = [to_wire(tool) for tool in options.tools], TOOLS if options.recall else ()
    standard = wire.write_tools([*own, *recall])
    names = {name_of(tool) for tool in standard}
    further = wire.write_tools([to_wire(tool) for tool in options.selected])
    selected = [tool for tool in further if name_of(tool) not in names]
    tools = [*standard, *selected]
    policy = options.policy
    limits = ("context_window", "max_input_tokens", "max_output_tokens")
    return Settings(
        model=options.model,
        dialect=name,
        system=system,
        # What the caller goes on to change is not what was set.
        tools=tuple(deepcopy(tools)),
        selected=len(selected),
        params=deepcopy(dict(options.params)),
        policy=policy if isinstance(policy, str) else _function_name(policy),
        policy_params={
            "goal": options.goal,
            "context": deepcopy(dict(options.context)),
            "summaries": options.summaries,
        },
        limits={key: value for key in limits if (value := getattr(options, key)) is not None},
        entry=entry.to_json(),
        counter=counter.name,
        recall=options.recall,
        renderer=RENDERER,
        head=size_of_head(system, tools, counter, options.params),
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
    return options_of(settings, **own)


def changed(options: Options, changes: Mapping[str, Any]) -> Options:
    """The options with some of them changed; with the model goes what follows from it."""
    given.refuse_unknown(changes, [option.name for option in fields(Options)])
    options = replace(options, **given.options(changes))
    if "model" in changes and "entry" not in changes:
        options = replace(options, entry={})
    if "model" in changes and "dialect" not in changes:
        options = replace(options, dialect=None)
    if changes.keys() & {"model", "entry", "max_output_tokens"}:
        given.refuse_output(options.model, options.max_output_tokens, options.entry)
    if changes.keys() & {"params", "max_output_tokens"}:
        given.refuse_thinking(options.params, options.max_output_tokens)
    return options


def options_after(settings: Settings, now: Options, *, earlier: bool = False) -> Options:
    """The options under settings that somebody else has set, or that held earlier.

    A policy that is a function is not in the log: for an earlier one the one of now stands in.
    """
    own = now.policy
    known = not isinstance(own, str) and _function_name(own) == settings.policy
    if not known and not earlier and settings.policy not in POLICIES:
        raise ValueError(
            f"the policy is now {settings.policy!r}, a function that is not in the log; load the "
            "log again with policy= that function"
        )
    policy = settings.policy if settings.policy in POLICIES else own
    return options_of(settings, policy=policy, tokenizer=now.tokenizer, redact=now.redact)


def _system(options: Options, name: str) -> tuple[Message, ...]:
    system = options.system
    if not system:
        return ()
    if not isinstance(system, str) and isinstance(system[0], Message):
        return tuple(cast("Sequence[Message]", system))
    return dialect(name).read_system(cast("str | Sequence[Wire]", system))


def _function_name(policy: Policy) -> str:
    name = getattr(policy, "__qualname__", type(policy).__qualname__)
    return f"{getattr(policy, '__module__', '')}.{name}"
