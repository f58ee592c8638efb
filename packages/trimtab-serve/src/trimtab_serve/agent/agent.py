"""A running agent: its model, its tools and its sessions."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from trimtab.context import Context
from trimtab.dialects.media import AcceptedMedia, find_accepted_media
from trimtab.engine.log.event import Usage
from trimtab.engine.log.redaction import Redact, redactor
from trimtab.engine.policy.config import parse_policy_config
from trimtab.engine.tokens.cost import compute_cost_usd
from trimtab.errors import CostCeilingUncheckable, MissingApiKeyError
from trimtab.models.catalog import (
    ModelInfoValues,
    find_makers_cheap_model,
    find_model_info,
    parse_model_info,
    resolve_model_info,
)
from trimtab.observe import instrument
from trimtab.providers.base import Provider
from trimtab.providers.circuit_breaker import (
    CircuitBreaker,
    CircuitBreakers,
    with_circuit_breaker,
)
from trimtab.providers.factory import CLOUD_NAMES, create_provider
from trimtab.providers.retries import with_retries
from trimtab.session import Session
from trimtab.session.events import TurnFinished
from trimtab.session.model_summaries import relative_input_price
from trimtab.session.spending import (
    DEFAULT_TENANT_NAME,
    MICROS_PER_DOLLAR,
    SpendingAccount,
    charge_calls_to,
    count_session_log_micros,
    explain_unknown_price,
)
from trimtab.session.summariser import Summariser
from trimtab.session.tools import Tool
from trimtab.session.turn import ScheduleSummary, run_turn
from trimtab.stores.base import Store
from trimtab.stores.factory import find_spending_ledger, open_store
from trimtab.stores.spending import CostCeilings, SpendingLedger
from trimtab_serve.agent.config.loader import load_system_prompt, locate_agent_store
from trimtab_serve.agent.config.spec import AgentSpec, ModelSpec
from trimtab_serve.agent.environment import ENVIRON
from trimtab_serve.agent.secret_values import build_secret_mask, with_masked_errors
from trimtab_serve.agent.tools.permissions.rules import ApprovalCallback, decline_unattended
from trimtab_serve.agent.tools.sandbox import NO_SERVED_AGENTS, build_tool_setting
from trimtab_serve.agent.tools.tools_from_config import open_tools

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
"""Options that change with the model. The price of its summaries is in `context`."""


@dataclass(slots=True, kw_only=True)
class Agent:
    """The running agent that an `agent.yaml` describes. `open_agent` makes it.

    Example:
        >>> async with open_agent(spec, folder) as agent:
        ...     session = await agent.open_session("first")
        ...     finished = await agent.run_turn(session, "Hello!")
    """

    spec: AgentSpec
    """The settings of the file. `spec.model` is the model in use, which `switch_model` changes."""
    system: str
    """The system prompt."""
    store: Store
    """The store that keeps the sessions."""
    provider: Provider
    """The provider that answers, with retries."""
    tools: Sequence[Tool]
    """The tools that the model may call."""
    environ: Mapping[str, str]
    """The environment in which API keys are looked up."""
    summariser: Summariser | None = None
    """The model that writes summaries. If it is None, extracted lines of the conversation replace
    summaries."""
    schedule_summary: ScheduleSummary | None = None
    """Callback that has summaries written elsewhere. If it is None, they are written here after the
    turn."""
    breakers: CircuitBreakers | None = None
    """Circuit breakers that pause calls to a provider after repeated failures. If it is None, calls
    are never paused."""
    spending_ledger: SpendingLedger | None = None
    """The record of what was spent. None if the file sets no cost ceiling."""
    clock: Callable[[], float] = time.time
    """Clock in seconds since the epoch. It decides when a day begins for the cost ceilings."""
    configured_model: ModelSpec = field(init=False)
    """The model block as written in the file, even after `switch_model`."""
    redact: Redact | None = field(init=False)
    """The function that redacts each text before it is stored. None if nothing is redacted."""
    _retired_providers: list[Provider] = field(init=False, default_factory=list[Provider])

    def __post_init__(self) -> None:
        self.configured_model = self.spec.model
        self.redact = build_redactor(self.spec)

    @property
    def breaker(self) -> CircuitBreaker | None:
        """Return the circuit breaker of the current provider."""
        if self.breakers is None:
            return None
        return _find_breaker(self.breakers, self.spec.model, self.provider.dialect)

    @property
    def accepted_media(self) -> AcceptedMedia:
        """Return which images and files the current model accepts."""
        model = self.spec.model
        return find_accepted_media(self.provider.dialect, model.base_model or model.name)

    async def open_session(self, session_id: str) -> Session:
        """Open the session with this id, or create it, with the settings of the file.

        Args:
            session_id: The id of the session.

        Returns:
            The session. An existing session continues with the current settings of the file.
        """
        options = build_context_options(self.spec, self.system, self.provider.dialect)
        options["tools"] = [tool.definition for tool in self.tools]
        return await Session.open_or_create(self.store, session_id, redact=self.redact, **options)

    async def run_turn(
        self, session: Session, message: Any = None, **turn_options: Any
    ) -> TurnFinished:
        """Run one turn: let the model answer, and run the tools that it calls.

        Args:
            session: The session that the turn belongs to.
            message: The user's message. None continues with what the session already has.
            **turn_options: Options of `trimtab.run_turn`. The file supplies those that are missing.

        Returns:
            The last event of the turn.
        """
        turn_options.setdefault("max_tool_iterations", self.spec.session.max_tool_iterations)
        turn_options.setdefault("summariser", self.summariser)
        turn_options["on_event"] = instrument(turn_options.get("on_event"), agent=self.spec.name)
        with self.charge_calls(session):
            return await run_turn(
                session, self.provider, self.tools, message=message, **turn_options
            )

    def charge_calls(self, session: Session) -> AbstractContextManager[None]:
        """Count all model calls in this block towards the cost ceilings of this agent and session.
        Calls that are part of another agent's turn are not counted here."""
        account = None
        if self.spending_ledger is not None:
            tenant = _find_tenant(session.id, self.spec.name)
            account = SpendingAccount(
                ledger=self.spending_ledger,
                ceilings=build_cost_ceilings(self.spec, tenant),
                session=session,
                agent=self.spec.name,
                tenant=tenant,
                expires_after_s=self.spec.model.timeout,
                clock=self.clock,
            )
        return charge_calls_to(account)

    async def reset_session_budget(self, session: Session) -> None:
        """Begin a new budget for a session in which a new conversation begins. What it has spent
        still counts for the ceilings of the day."""
        if self.spending_ledger is not None:
            await self.spending_ledger.reset_session(
                session.id, count_session_log_micros(session.window)
            )

    async def switch_model(self, session: Session, model: str) -> None:
        """Continue with another model.

        Content that does not fit the new model's window is hidden before the next call.

        Args:
            session: The session whose context changes to the new model.
            model: The name of the new model.

        Raises:
            CostCeilingUncheckable: The file sets a cost ceiling, and the model's price is
                unknown or one reply may cost more than the ceiling.
        """
        model_spec = _with_other_model(self.configured_model, model, self.provider.dialect)
        spec = self.spec.model_copy(update={"model": model_spec})
        provider = _build_provider(model_spec, self.environ, self.breakers)
        summariser = _build_summariser(spec, provider.dialect, self.environ, self.breakers)
        options = build_context_options(spec, self.system, provider.dialect)
        check_cost_ceilings(spec, options)
        await session.configure(**{name: options[name] for name in _MODEL_DEPENDENT_OPTIONS})
        await self.provider.close()
        if self.summariser is not None:
            # It may be writing in the background for any session, so it is closed at the end.
            self._retired_providers.append(self.summariser.provider)
        self.provider = provider
        self.summariser = summariser
        self.spec = spec

    async def close(self) -> None:
        """Close the current provider and every provider that writes summaries."""
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
    breakers: CircuitBreakers | None = None,
    served: Mapping[Path, AgentSpec] = NO_SERVED_AGENTS,
) -> AsyncGenerator[Agent]:
    """Start the MCP servers and open the provider and the store of an agent.

    Args:
        spec: The settings, from `load_agent_spec`.
        folder: The folder of the agent's file. Relative paths in the file start there.
        approve: Called when a tool call needs approval. By default such calls are declined.
        environ: The environment in which API keys are looked up.
        store: A store that is already open; it stays open. By default the store of the file is
            opened, and closed at the end.
        breakers: Circuit breakers that pause calls to a provider after repeated failures.
        served: All agents of the same server by their files. Sandboxes also protect their files.

    Yields:
        The agent. It is closed at the end of the `async with` block.

    Raises:
        CostCeilingUncheckable: The file sets a cost ceiling that cannot be enforced.
        MissingApiKeyError: The key, or the address, of the model is neither in the file nor in
            the environment.
        ValueError: The system prompt cannot be read.
    """
    system = load_system_prompt(spec, folder)
    async with AsyncExitStack() as stack:
        with name_missing_settings_of_file():
            provider = _build_provider(spec.model, environ, breakers)
        stack.push_async_callback(provider.close)
        summariser = _build_summariser(spec, provider.dialect, environ, breakers)
        options = build_context_options(spec, system, provider.dialect)
        check_cost_ceilings(spec, options)
        if store is None:
            store = await open_store(locate_agent_store(spec, folder))
            stack.push_async_callback(store.close)
        tools = await stack.enter_async_context(
            open_tools(
                spec.tools,
                build_tool_setting(spec, folder, approve=approve, environ=environ, served=served),
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
            breakers=breakers,
            spending_ledger=find_spending_ledger(store) if spec.cost_ceilings else None,
        )
        # By then the agent may have another provider. Closing the first one twice is harmless.
        stack.push_async_callback(agent.close)
        yield agent


def build_context_options(spec: AgentSpec, system_prompt: str, dialect: str) -> dict[str, Any]:
    """Return the options for `Context` that the file's model and session blocks set."""
    model = spec.model
    session = spec.session
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


def build_cost_ceilings(spec: AgentSpec, tenant: str) -> CostCeilings:
    """Convert the ceilings of the file for a tenant to millionths of a US dollar."""
    limits = spec.serve.tenant_limits.replace_with(spec.serve.limits_by_tenant.get(tenant))
    amounts = (spec.cost.max_per_session, limits.cost_per_day, spec.cost.max_per_day)
    session, tenant_per_day, day = (
        None if dollars is None else int(dollars * MICROS_PER_DOLLAR) for dollars in amounts
    )
    return CostCeilings(session=session, tenant_per_day=tenant_per_day, day=day)


def check_cost_ceilings(spec: AgentSpec, options: dict[str, Any]) -> None:
    """Raise `CostCeilingUncheckable` if the file sets a ceiling that cannot be enforced: a model's
    price is unknown, or one reply may cost more. `options` are the context's."""
    if not spec.cost_ceilings:
        return
    summaries = _find_summary_model(spec, options["dialect"])
    models = [spec.model, *([] if summaries is None else [summaries])]
    infos = [resolve_model_info(each.name, parse_model_info(each.model_info)) for each in models]
    for model, info in zip(models, infos, strict=True):
        if info.input_price is None or info.output_price is None:
            raise CostCeilingUncheckable(f"cost: {explain_unknown_price(model.name)}")
    name, lowest = min(spec.cost_ceilings.items(), key=lambda each: each[1])
    tokens = Context(**options).budget().max_output
    reply = compute_cost_usd(Usage(input=0, output=tokens), infos[0].to_json(), at=time.time())
    if reply is not None and reply > lowest:
        raise CostCeilingUncheckable(
            f"{name} is ${lowest:g}, but one reply of up to {tokens:,} tokens may cost "
            f"${reply:.4f}, so no call could ever be made; raise {name}, or lower "
            "model.max_output_tokens"
        )


def _find_tenant(session_id: str, agent: str) -> str:
    """Return the tenant of a served session, whose id is `tenant/agent/name`."""
    tenant, _, rest = session_id.partition("/")
    return tenant if rest.startswith(f"{agent}/") else DEFAULT_TENANT_NAME


def build_redactor(spec: AgentSpec) -> Redact | None:
    """Return the function that redacts every text before it is stored. None if nothing is
    redacted."""
    patterns = [*spec.session.redact, *map(re.compile, spec.session.redact_patterns)]
    return redactor(*patterns) if patterns else None


def _model_info_overrides(model: ModelSpec) -> dict[str, Any]:
    """Return the model properties that do not follow from the model's name.

    A server at another address may write more output than the catalog says for the name. An Azure
    deployment can have any name, and all models there take the same parameter for the output limit.
    """
    overrides: dict[str, Any] = {}
    model_info = parse_model_info(model.model_info)
    base_name = str(model_info.get("base_model") or model.name)
    if model.provider == "azure" and find_model_info(base_name) is None:
        overrides["output_param"] = "max_completion_tokens"
    overrides |= model_info
    max_output = model.max_output_tokens
    most = resolve_model_info(model.name, model_info).max_output
    if model.base_url is not None and max_output is not None and max_output > most:
        overrides.setdefault("max_output", max_output)
    return overrides


def build_policy_settings(spec: AgentSpec) -> dict[str, Any]:
    """Return the policy settings that the file sets. The policy has defaults for all others."""
    session = spec.session
    blocks = {"summary": session.summary, "thresholds": session.thresholds}
    knobs = session.context.model_dump(exclude_unset=True)
    for name, block in blocks.items():
        if block_settings := block.policy_settings():
            knobs[name] = block_settings
    if summary_model := find_summary_writing_model(spec):
        main = resolve_model_info(spec.model.name, spec.model.model_info).input_price
        summary_price = (
            main
            if summary_model == spec.model.name
            else resolve_model_info(summary_model).input_price
        )
        knobs["summary"] = {
            "price": relative_input_price(summary_price, main),
            **knobs.get("summary", {}),
        }
    return knobs


def find_summary_writing_model(spec: AgentSpec) -> str | None:
    """Return the name of the model that writes summaries. None if no model does."""
    summary = spec.session.summary
    policy = spec.session.policy
    by = summary.by or ("model" if policy in ("rolling", "thresholds") else "extract")
    if by == "extract" or policy not in ("rolling", "thresholds", "auto"):
        return None
    return summary.model or _choose_cheap_model(spec.model)


def _choose_cheap_model(model: ModelSpec) -> str:
    """Return the cheap model of the same maker. For a deployment or a cloud provider, return the
    same model, because the names of the others are unknown there."""
    if model.base_model or model.provider in CLOUD_NAMES:
        return model.name
    return find_makers_cheap_model(model.name)


def _build_summariser(
    spec: AgentSpec,
    dialect: str,
    environ: Mapping[str, str],
    breakers: CircuitBreakers | None = None,
) -> Summariser | None:
    model_spec = _find_summary_model(spec, dialect)
    if model_spec is None:
        return None
    return Summariser(
        provider=_build_provider(model_spec, environ, breakers=breakers),
        model=model_spec.name,
        context_window=model_spec.context_window,
        model_info=cast("ModelInfoValues", parse_model_info(model_spec.model_info)),
        only_results=find_summary_writing_model(spec) is None,
        prompt=spec.session.summary.prompt,
    )


def _find_summary_model(spec: AgentSpec, dialect: str) -> ModelSpec | None:
    """Return the model that writes summaries or summarises single results. None if no model
    does."""
    name = find_summary_writing_model(spec)
    if name is None and parse_policy_config(build_policy_settings(spec)).summarises_results:
        name = spec.session.summary.model or _choose_cheap_model(spec.model)
    return None if name is None else _with_other_model(spec.model, name, dialect)


def _with_other_model(configured: ModelSpec, model: str, dialect: str) -> ModelSpec:
    """Replace the model of the file by another, and keep the settings that apply to both."""
    if model == configured.name:
        return configured
    theirs = resolve_model_info(model).dialect
    if theirs is not None and (theirs == "anthropic") != (dialect == "anthropic"):
        # The model is from another maker: the address, the key and the limits do not apply to it.
        return ModelSpec(name=model, timeout=configured.timeout)
    return configured.model_copy(update={"name": model, "context_window": None, "model_info": {}})


_ARGUMENT_TO_GIVE = re.compile(r"\bgive (api_key|base_url|region|project)\b")
"""Matches advice of `create_provider` that names one of its arguments."""


@contextmanager
def name_missing_settings_of_file() -> Generator[None]:
    """If a key or an address is missing, say where to set it in agent.yaml.

    The file calls the arguments of `create_provider` by the same names.
    """
    try:
        yield
    except MissingApiKeyError as error:
        text = _ARGUMENT_TO_GIVE.sub(r"set `\1` under `model` in agent.yaml", str(error))
        raise type(error)(text) from error


def _build_provider(
    model: ModelSpec,
    environ: Mapping[str, str],
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
    provider = with_masked_errors(provider, build_secret_mask(environ, model.api_key))
    if breakers is not None:
        provider = with_circuit_breaker(provider, _find_breaker(breakers, model, provider.dialect))
    return with_retries(provider)


def _find_breaker(breakers: CircuitBreakers, model: ModelSpec, dialect: str) -> CircuitBreaker:
    return breakers.get(model.provider or dialect, model.base_url, model.api_key)
