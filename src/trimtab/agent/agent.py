"""An agent that runs: its model, its tools, and the sessions it remembers."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from trimtab.agent.config.loader import load_system_prompt, locate_agent_store
from trimtab.agent.config.spec import AgentSpec, CostSpec, ModelSpec
from trimtab.agent.environment import ENVIRON
from trimtab.agent.tools.permissions.rules import ApprovalCallback, decline_unattended
from trimtab.agent.tools.sandbox import build_tool_setting
from trimtab.agent.tools.tools_from_config import open_tools
from trimtab.catalog import (
    ModelInfoValues,
    find_makers_cheap_model,
    find_model_info,
    parse_model_info,
    resolve_model_info,
)
from trimtab.context import Context
from trimtab.dialects.media_validation import AcceptedMedia, find_accepted_media
from trimtab.errors import CostCeilingUncheckable
from trimtab.log.event import Usage
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
from trimtab.session.spending import (
    DEFAULT_TENANT_NAME,
    MICROS_PER_DOLLAR,
    SpendingAccount,
    charge_calls_to,
    explain_unknown_price,
)
from trimtab.session.summariser import Summariser
from trimtab.session.tools import Tool
from trimtab.session.turn import ScheduleSummary, run_turn
from trimtab.stores.base import Store
from trimtab.stores.factory import open_store
from trimtab.stores.spending import CostCeilings, SpendingLedger, find_spending_ledger
from trimtab.tokens.usage_cost_usd import compute_cost_usd

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
    spending_ledger: SpendingLedger | None = None
    """Where it is kept what was spent; None where the file sets no ceiling."""
    clock: Callable[[], float] = time.time
    """Seconds since the epoch, by which a day begins for the ceilings."""
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
        with self.charge_calls(session):
            return await run_turn(
                session, self.provider, self.tools, message=message, **turn_options
            )

    def charge_calls(self, session: Session) -> AbstractContextManager[None]:
        """Let all model calls within count towards the ceilings of this agent and this session,
        unless they are part of another agent's turn."""
        account = None
        if self.spending_ledger is not None:
            account = SpendingAccount(
                ledger=self.spending_ledger,
                ceilings=build_cost_ceilings(self.spec.cost),
                session=session,
                agent=self.spec.name,
                tenant=_find_tenant(session.id, self.spec.name),
                expires_after_s=self.spec.model.timeout,
                clock=self.clock,
            )
        return charge_calls_to(account)

    async def switch_model(self, session: Session, model: str) -> None:
        """Go on with another model; what does not fit its window is hidden before the next call."""
        chosen = _with_other_model(self.configured_model, model, self.provider.dialect)
        spec = self.spec.model_copy(update={"model": chosen})
        provider = _build_provider(chosen, self.environ, self.on_retry_wait, self.breakers)
        summariser = _build_summariser(spec, provider.dialect, self.environ, self.breakers)
        options = build_context_options(spec, self.system, provider.dialect)
        check_cost_ceilings(spec, options)
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
        options = build_context_options(spec, system, provider.dialect)
        check_cost_ceilings(spec, options)
        if store is None:
            store = await open_store(locate_agent_store(spec, folder))
            held.push_async_callback(store.close)
        tools = await held.enter_async_context(
            open_tools(
                spec.tools, build_tool_setting(spec, folder, approve=approve, environ=environ)
            )
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
            spending_ledger=find_spending_ledger(store) if spec.cost.ceilings else None,
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


def build_cost_ceilings(cost: CostSpec) -> CostCeilings:
    """The ceilings of the file in millionths of a US dollar."""
    amounts = (cost.max_per_session, cost.max_per_tenant_per_day, cost.max_per_day)
    session, tenant_per_day, day = (
        None if dollars is None else int(dollars * MICROS_PER_DOLLAR) for dollars in amounts
    )
    return CostCeilings(session=session, tenant_per_day=tenant_per_day, day=day)


def check_cost_ceilings(spec: AgentSpec, options: dict[str, Any]) -> None:
    """Raise `CostCeilingUncheckable` if the file sets a ceiling that cannot be kept: a model has no
    known price, or one reply alone may cost more. `options` are the context's."""
    if not spec.cost.ceilings:
        return
    summaries = _find_summary_model(spec, options["dialect"])
    asked = [spec.model, *([] if summaries is None else [summaries])]
    infos = [resolve_model_info(each.name, parse_model_info(each.model_info)) for each in asked]
    for model, info in zip(asked, infos, strict=True):
        if info.input_price is None or info.output_price is None:
            raise CostCeilingUncheckable(f"cost: {explain_unknown_price(model.name)}")
    name, lowest = min(spec.cost.ceilings.items(), key=lambda each: each[1])
    tokens = Context(**options).budget().max_output
    reply = compute_cost_usd(Usage(input=0, output=tokens), infos[0].to_json(), at=time.time())
    if reply is not None and reply > lowest:
        raise CostCeilingUncheckable(
            f"cost.{name} is ${lowest:g}, and one reply of up to {tokens:,} tokens may cost "
            f"${reply:.4f}, so no call would ever be made; raise it, or lower "
            "model.max_output_tokens"
        )


def _find_tenant(session_id: str, agent: str) -> str:
    """The tenant of a served session, whose id is `tenant/agent/name`."""
    tenant, _, rest = session_id.partition("/")
    return tenant if rest.startswith(f"{agent}/") else DEFAULT_TENANT_NAME


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
    asked = _find_summary_model(spec, dialect)
    if asked is None:
        return None
    return Summariser(
        provider=_build_provider(asked, environ, breakers=breakers),
        model=asked.name,
        context_window=asked.context_window,
        model_info=cast("ModelInfoValues", parse_model_info(asked.model_info)),
        only_results=find_summary_writing_model(spec) is None,
        prompt=spec.session.summary.prompt,
    )


def _find_summary_model(spec: AgentSpec, dialect: str) -> ModelSpec | None:
    """The model that is asked for summaries, or about single results; None where none is."""
    name = find_summary_writing_model(spec)
    if name is None and parse_policy_config(build_policy_settings(spec)).summarises_results:
        name = spec.session.summary.model or _choose_cheap_model(spec.model)
    return None if name is None else _with_other_model(spec.model, name, dialect)


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
