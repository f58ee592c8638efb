"""An agent that runs: its model, its tools, and the sessions it remembers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from trimtab.agent.config.loader import load_system_prompt, locate_agent_store
from trimtab.agent.config.spec import AgentSpec, ModelSpec
from trimtab.agent.environment import ENVIRON
from trimtab.agent.tools.permissions.rules import ApprovalCallback, decline_unattended
from trimtab.agent.tools.tools_from_config import open_tools
from trimtab.catalog import (
    ModelInfoValues,
    find_makers_cheap_model,
    find_model_info,
    parse_model_info,
    resolve_model_info,
)
from trimtab.dialects.media_validation import AcceptedMedia, find_accepted_media
from trimtab.observe import instrument_if_watched
from trimtab.policy.config import parse_policy_config
from trimtab.providers.circuit_breaker import (
    CircuitBreaker,
    CircuitBreakers,
    with_circuit_breaker,
)
from trimtab.providers.factory import CLOUD_NAMES, create_provider
from trimtab.providers.protocol_and_failures import Provider
from trimtab.providers.retries import OnRetryWait, ignore_retry_wait, with_retries
from trimtab.redaction import Redact, redactor
from trimtab.session import Session
from trimtab.session.events import TurnFinished
from trimtab.session.model_summaries import relative_input_price
from trimtab.session.summariser import Summariser
from trimtab.session.tools import Tool
from trimtab.session.turn import ScheduleSummary, run_turn
from trimtab.stores.base import Store
from trimtab.stores.factory import open_store

_MODEL_DEPENDENT_OPTIONS = (
    "model",
    "dialect",
    "limits",
    "summaries",
    "context_window",
    "max_input_tokens",
    "max_output_tokens",
    "cache",
    "params",
    "model_info",
)
"""Options that change with the model; the price of its summaries is in `context`."""


@dataclass(slots=True, kw_only=True)
class Agent:
    """What `agent.yaml` describes, running. Made by `running`."""

    spec: AgentSpec
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
    schedule_summary: ScheduleSummary | None = None
    """Has summaries made elsewhere; None makes them here, behind the turn."""
    on_retry_wait: OnRetryWait = ignore_retry_wait
    """Hears when whoever answers is asked again."""
    breakers: CircuitBreakers | None = None
    """Leave a provider alone that fails again and again; None calls it whatever happens."""
    configured_model: ModelSpec = field(init=False)
    """The model block as it stands in the file, whoever answers now."""
    _retired_providers: list[Provider] = field(init=False, default_factory=list[Provider])

    def __post_init__(self) -> None:
        self.configured_model = self.spec.model

    @property
    def breaker(self) -> CircuitBreaker | None:
        """The circuit breaker of whoever answers now."""
        if self.breakers is None:
            return None
        return _find_breaker(self.breakers, self.spec.model, self.provider.dialect)

    @property
    def accepted_media(self) -> AcceptedMedia:
        """Which pictures and files its model can be given."""
        model = self.spec.model
        return find_accepted_media(self.provider.dialect, model.base_model or model.name)

    async def open_session(self, session_id: str) -> Session:
        """The session of that name, new or as it was left, under the file as it is now."""
        options = build_context_options(self.spec, self.system, self.provider.dialect)
        options["tools"] = [tool.definition for tool in self.tools]
        redact = build_redactor(self.spec)
        return await Session.open_or_create(self.store, session_id, redact=redact, **options)

    async def run_turn(
        self, session: Session, message: Any = None, **turn_options: Any
    ) -> TurnFinished:
        """Let the model answer; what is not said about how is in the file."""
        turn_options.setdefault("max_tool_iterations", self.spec.session.max_tool_iterations)
        turn_options.setdefault("summariser", self.summariser)
        turn_options.setdefault("schedule_summary", self.schedule_summary)
        turn_options["on_event"] = instrument_if_watched(
            turn_options.get("on_event"), agent=self.spec.name
        )
        return await run_turn(session, self.provider, self.tools, message=message, **turn_options)

    async def switch_model(self, session: Session, model: str) -> None:
        """Go on with another model; what does not fit its window is hidden before the next call."""
        chosen = _with_other_model(self.configured_model, model, self.provider.dialect)
        spec = self.spec.model_copy(update={"model": chosen})
        provider = _build_provider(chosen, self.environ, self.on_retry_wait, self.breakers)
        summariser = _build_summariser(spec, provider.dialect, self.environ, self.breakers)
        options = build_context_options(spec, self.system, provider.dialect)
        await session.configure(**{name: options[name] for name in _MODEL_DEPENDENT_OPTIONS})
        await self.provider.close()
        if self.summariser is not None:
            # It may be writing in the background, for any session: it is let go of at the end.
            self._retired_providers.append(self.summariser.provider)
        self.provider, self.summariser, self.spec = provider, summariser, spec

    async def close(self) -> None:
        """Let go of whoever answers now, and of all who write summaries."""
        last = [] if self.summariser is None else [self.summariser.provider]
        for provider in (self.provider, *last, *self._retired_providers):
            await provider.close()


@asynccontextmanager
async def open_agent(
    spec: AgentSpec,
    folder: Path,
    *,
    approve: ApprovalCallback = decline_unattended,
    environ: Mapping[str, str] = ENVIRON,
    store: Store | None = None,
    on_retry_wait: OnRetryWait = ignore_retry_wait,
    breakers: CircuitBreakers | None = None,
) -> AsyncGenerator[Agent]:
    """The agent with its MCP servers started and its provider at hand.

    Its store is opened, and closed at the end, unless one is given. With `breakers` a provider
    that fails again and again is left alone for a while.
    """
    system = load_system_prompt(spec, folder)
    async with AsyncExitStack() as held:
        provider = _build_provider(spec.model, environ, on_retry_wait, breakers)
        held.push_async_callback(provider.close)
        summariser = _build_summariser(spec, provider.dialect, environ, breakers)
        if store is None:
            store = await open_store(locate_agent_store(spec, folder))
            held.push_async_callback(store.close)
        tools = await held.enter_async_context(
            open_tools(spec.tools, folder, approve=approve, environ=environ)
        )
        agent = Agent(
            spec=spec,
            system=system,
            store=store,
            provider=provider,
            tools=tools,
            environ=environ,
            summariser=summariser,
            on_retry_wait=on_retry_wait,
            breakers=breakers,
        )
        # By then it may be another one's: closing the first twice does no harm.
        held.push_async_callback(agent.close)
        yield agent


def build_context_options(spec: AgentSpec, system_prompt: str, dialect: str) -> dict[str, Any]:
    """What `Context` is given: the file's model and session blocks."""
    model, session = spec.model, spec.session
    return {
        "model": model.name,
        "dialect": dialect,
        "system": system_prompt,
        "policy": session.policy,
        "goal": session.goal,
        "recall": session.recall,
        "limits": build_policy_settings(spec),
        "summaries": "manual" if find_summary_writing_model(spec) else "extractive",
        "context_window": model.context_window,
        "max_input_tokens": model.max_input_tokens,
        "max_output_tokens": model.max_output_tokens,
        "cache": model.cache,
        "params": model.params,
        "model_info": _model_info_overrides(model),
    }


def build_redactor(spec: AgentSpec) -> Redact | None:
    """What takes out of every text what must not be kept; None where nothing is."""
    return redactor(*spec.session.redact) if spec.session.redact else None


def _model_info_overrides(model: ModelSpec) -> dict[str, Any]:
    """What the name does not tell, and the file or the provider does.

    At an address of one's own the name need not tell how much is written. A deployment of Azure has
    any name, and all models there take one parameter for the output.
    """
    found: dict[str, Any] = {}
    given = parse_model_info(model.model_info)
    named = str(given.get("base_model") or model.name)
    if model.provider == "azure" and find_model_info(named) is None:
        found["output_param"] = "max_completion_tokens"
    found |= given
    asked = model.max_output_tokens
    most = resolve_model_info(model.name, given).max_output
    if model.base_url is not None and asked is not None and asked > most:
        found.setdefault("max_output", asked)
    return found


def build_policy_settings(spec: AgentSpec) -> dict[str, Any]:
    """The knobs that the file sets, and no others: what is not set is the policy's own."""
    session = spec.session
    blocks = {"summary": session.summary, "thresholds": session.thresholds}
    knobs = session.context.model_dump(exclude_unset=True)
    for name, block in blocks.items():
        if given := block.policy_settings():
            knobs[name] = given
    if asked := find_summary_writing_model(spec):
        main = resolve_model_info(spec.model.name, spec.model.model_info).input_price
        own = main if asked == spec.model.name else resolve_model_info(asked).input_price
        knobs["summary"] = {"price": relative_input_price(own, main), **knobs.get("summary", {})}
    return knobs


def find_summary_writing_model(spec: AgentSpec) -> str | None:
    """The model that writes summaries; None where none does."""
    summary, policy = spec.session.summary, spec.session.policy
    by = summary.by or ("model" if policy in ("rolling", "thresholds") else "extract")
    if by == "extract" or policy not in ("rolling", "thresholds", "auto"):
        return None
    return summary.model or _choose_cheap_model(spec.model)


def _choose_cheap_model(model: ModelSpec) -> str:
    """The cheap model of the same maker. Of a deployment, and at a cloud, the same one: which
    others are there, and by which names, is not known."""
    if model.base_model or model.provider in CLOUD_NAMES:
        return model.name
    return find_makers_cheap_model(model.name)


def _build_summariser(
    spec: AgentSpec,
    dialect: str,
    environ: Mapping[str, str],
    breakers: CircuitBreakers | None = None,
) -> Summariser | None:
    name = find_summary_writing_model(spec)
    results = name is None and parse_policy_config(build_policy_settings(spec)).summarises_results
    if results:
        name = spec.session.summary.model or _choose_cheap_model(spec.model)
    if name is None:
        return None
    asked = _with_other_model(spec.model, name, dialect)
    return Summariser(
        provider=_build_provider(asked, environ, breakers=breakers),
        model=name,
        context_window=asked.context_window,
        model_info=cast("ModelInfoValues", parse_model_info(asked.model_info)),
        only_results=results,
        prompt=spec.session.summary.prompt,
    )


def _with_other_model(configured: ModelSpec, model: str, dialect: str) -> ModelSpec:
    """Another model in place of the one in the file, with what holds for both."""
    if model == configured.name:
        return configured
    theirs = resolve_model_info(model).dialect
    if theirs is not None and (theirs == "anthropic") != (dialect == "anthropic"):
        # Another maker's: neither the address nor the key nor the limits are its own.
        return ModelSpec(name=model, timeout=configured.timeout)
    return configured.model_copy(update={"name": model, "context_window": None, "model_info": {}})


def _build_provider(
    model: ModelSpec,
    environ: Mapping[str, str],
    on_retry_wait: OnRetryWait = ignore_retry_wait,
    breakers: CircuitBreakers | None = None,
) -> Provider:
    provider = create_provider(
        model.name,
        provider=model.provider,
        model_info=model.model_info,
        api_key=model.api_key,
        base_url=model.base_url,
        timeout=model.timeout,
        region=model.region,
        project=model.project,
        api_version=model.api_version,
        environ=environ,
    )
    if breakers is not None:
        provider = with_circuit_breaker(provider, _find_breaker(breakers, model, provider.dialect))
    return with_retries(provider, on_wait=on_retry_wait)


def _find_breaker(breakers: CircuitBreakers, model: ModelSpec, dialect: str) -> CircuitBreaker:
    return breakers.get(model.provider or dialect, model.base_url, model.api_key)
