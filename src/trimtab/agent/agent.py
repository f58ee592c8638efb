"""An agent that runs: its model, its tools, and the sessions it remembers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.agent.permissions import Approve, nobody
from trimtab.agent.reading import place_of_store, system_of
from trimtab.agent.secrets import ENVIRON
from trimtab.agent.spec import Model, Spec
from trimtab.agent.toolbox import toolbox
from trimtab.catalog import cheap_model, resolve
from trimtab.core.policies.knobs import knobs_from
from trimtab.dialects.media import Takes, takes_of
from trimtab.observe import when_watched
from trimtab.providers.choose import provider_for
from trimtab.providers.provider import Provider
from trimtab.providers.retrying import Waits, retrying, unheard
from trimtab.redaction import Redact, redactor
from trimtab.session import Session
from trimtab.session.happenings import Ended
from trimtab.session.summarise import relative_price
from trimtab.session.summariser import Summariser
from trimtab.session.tools import Tool
from trimtab.session.turn import Later, run_turn
from trimtab.stores.choose import open_store
from trimtab.stores.store import Store

_OF_A_MODEL = (
    "model",
    "dialect",
    "context",
    "summaries",
    "context_window",
    "max_input_tokens",
    "max_output_tokens",
    "cache",
    "params",
    "entry",
)
"""Options that change with the model; the price of its summaries is in `context`."""


@dataclass(slots=True, kw_only=True)
class Agent:
    """What `agent.yaml` describes, running. Made by `running`."""

    spec: Spec
    """The file, read; its model is the one that answers now."""
    system: str
    """The system prompt."""
    store: Store
    """Where the sessions are."""
    provider: Provider
    """Who answers, with retries."""
    tools: Sequence[Tool]
    """What it may do."""
    environ: Mapping[str, str]
    """Where keys are looked up."""
    summariser: Summariser | None = None
    """Who writes summaries; None where lines of what was said stand in."""
    later: Later | None = None
    """Has summaries made elsewhere; None makes them here, behind the turn."""
    waits: Waits = unheard
    """Hears when whoever answers is asked again."""
    written: Model = field(init=False)
    """The model block as it stands in the file, whoever answers now."""
    _left: list[Provider] = field(init=False, default_factory=list[Provider])

    def __post_init__(self) -> None:
        self.written = self.spec.model

    @property
    def takes(self) -> Takes:
        """Which pictures and files its model can be given."""
        return takes_of(self.provider.dialect, self.spec.model.name)

    async def session(self, session: str) -> Session:
        """The session of that name, new or as it was left, under the file as it is now."""
        options = options_of(self.spec, self.system, self.provider.dialect)
        options["tools"] = [tool.definition for tool in self.tools]
        redact = redact_of(self.spec)
        return await Session.open_or_create(self.store, session, redact=redact, **options)

    async def turn(self, session: Session, says: Any = None, **how: Any) -> Ended:
        """Let the model answer; what is not said about how is in the file."""
        how.setdefault("max_tool_iterations", self.spec.session.max_tool_iterations)
        how.setdefault("summariser", self.summariser)
        how.setdefault("later", self.later)
        how["tell"] = when_watched(how.get("tell"), agent=self.spec.name)
        return await run_turn(session, self.provider, self.tools, says=says, **how)

    async def use(self, session: Session, model: str) -> None:
        """Go on with another model; what does not fit its window is hidden before the next call."""
        chosen = _instead(self.written, model, self.provider.dialect)
        spec = self.spec.model_copy(update={"model": chosen})
        provider = _provider(chosen, self.environ, self.waits)
        summariser = _summariser(spec, provider.dialect, self.environ)
        options = options_of(spec, self.system, provider.dialect)
        await session.configure(**{name: options[name] for name in _OF_A_MODEL})
        await self.provider.close()
        if self.summariser is not None:
            # It may be writing in the background, for any session: it is let go of at the end.
            self._left.append(self.summariser.provider)
        self.provider, self.summariser, self.spec = provider, summariser, spec

    async def close(self) -> None:
        """Let go of whoever answers now, and of all who write summaries."""
        last = [] if self.summariser is None else [self.summariser.provider]
        for provider in (self.provider, *last, *self._left):
            await provider.close()


@asynccontextmanager
async def running(
    spec: Spec,
    folder: Path,
    *,
    approve: Approve = nobody,
    environ: Mapping[str, str] = ENVIRON,
    store: Store | None = None,
    waits: Waits = unheard,
) -> AsyncGenerator[Agent]:
    """The agent with its MCP servers started and its provider at hand.

    Its store is opened, and closed at the end, unless one is given.
    """
    system = system_of(spec, folder)
    async with AsyncExitStack() as held:
        provider = _provider(spec.model, environ, waits)
        held.push_async_callback(provider.close)
        summariser = _summariser(spec, provider.dialect, environ)
        if store is None:
            store = await open_store(place_of_store(spec, folder))
            held.push_async_callback(store.close)
        tools = await held.enter_async_context(
            toolbox(spec.tools, folder, approve=approve, environ=environ)
        )
        agent = Agent(
            spec=spec,
            system=system,
            store=store,
            provider=provider,
            tools=tools,
            environ=environ,
            summariser=summariser,
            waits=waits,
        )
        # By then it may be another one's: closing the first twice does no harm.
        held.push_async_callback(agent.close)
        yield agent


def options_of(spec: Spec, system: str, dialect: str) -> dict[str, Any]:
    """What `Context` is given: the file's model and session blocks."""
    model, session = spec.model, spec.session
    return {
        "model": model.name,
        "dialect": dialect,
        "system": system,
        "policy": session.policy,
        "goal": session.goal,
        "recall": session.recall,
        "context": context_of(spec),
        "summaries": "manual" if summary_model(spec) else "extractive",
        "context_window": model.context_window,
        "max_input_tokens": model.max_input_tokens,
        "max_output_tokens": model.max_output_tokens,
        "cache": model.cache,
        "params": model.params,
        "entry": _entry(model),
    }


def redact_of(spec: Spec) -> Redact | None:
    """What takes out of every text what must not be kept; None where nothing is."""
    return redactor(*spec.session.redact) if spec.session.redact else None


def _entry(model: Model) -> dict[str, Any]:
    """At an address of one's own the name need not tell how much is written: the file does."""
    asked = model.max_output_tokens
    if model.base_url is None or asked is None or asked <= resolve(model.name).max_output:
        return {}
    return {"max_output": asked}


def context_of(spec: Spec) -> dict[str, Any]:
    """The knobs that the file sets, and no others: what is not set is the policy's own."""
    session = spec.session
    blocks = {"summary": session.summary, "thresholds": session.thresholds}
    knobs = session.context.model_dump(exclude_unset=True)
    for name, block in blocks.items():
        if given := block.knobs():
            knobs[name] = given
    if asked := summary_model(spec):
        own, main = resolve(asked).input_price, resolve(spec.model.name).input_price
        knobs["summary"] = {"price": relative_price(own, main), **knobs.get("summary", {})}
    return knobs


def summary_model(spec: Spec) -> str | None:
    """The model that writes summaries; None where none does."""
    summary, policy = spec.session.summary, spec.session.policy
    by = summary.by or ("model" if policy in ("rolling", "thresholds") else "extract")
    if by == "extract" or policy not in ("rolling", "thresholds", "auto"):
        return None
    return summary.model or cheap_model(spec.model.name)


def _summariser(spec: Spec, dialect: str, environ: Mapping[str, str]) -> Summariser | None:
    name = summary_model(spec)
    results = name is None and knobs_from(context_of(spec)).summarises_results
    if results:
        name = spec.session.summary.model or cheap_model(spec.model.name)
    if name is None:
        return None
    asked = _instead(spec.model, name, dialect)
    return Summariser(
        provider=_provider(asked, environ),
        model=name,
        window=asked.context_window,
        only_results=results,
        prompt=spec.session.summary.prompt,
    )


def _instead(written: Model, model: str, dialect: str) -> Model:
    """Another model in place of the one in the file, with what holds for both."""
    if model == written.name:
        return written
    theirs = resolve(model).dialect
    if theirs is not None and (theirs == "anthropic") != (dialect == "anthropic"):
        # Another maker's: neither the address nor the key nor the limits are its own.
        return Model(name=model, timeout=written.timeout)
    return written.model_copy(update={"name": model, "context_window": None})


def _provider(model: Model, environ: Mapping[str, str], waits: Waits = unheard) -> Provider:
    return retrying(
        provider_for(
            model.name,
            provider=model.provider,
            api_key=model.api_key,
            base_url=model.base_url,
            timeout=model.timeout,
            environ=environ,
        ),
        waits=waits,
    )
