"""Three judges of a request: our own check, the simulator, and rules written from the providers'
documents, which share no code with either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.provider_rules import anthropic, openai_chat, openai_responses
from trimtab import check
from trimtab.testing.server import anthropic_rules, openai_chat_rules
from trimtab.testing.server import openai_responses as simulated_responses
from trimtab.testing.server.openai_responses import StoredResponses
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.responses import ProviderRefusal

Params = Mapping[str, Any]
BUDGET: Params = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
ADAPTIVE: Params = {"thinking": {"type": "adaptive"}}
CLEARING: Params = {
    **BUDGET,
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
}
EFFORT: Params = {"reasoning_effort": "low"}
PARAMS: tuple[Params, ...] = ({}, {}, BUDGET, BUDGET, CLEARING, ADAPTIVE, EFFORT)
"""What callers set, whatever the model is: most of it is one provider's."""


@dataclass(frozen=True, slots=True)
class Target:
    model: str
    """As its provider calls it."""
    dialect: str
    """The wire format."""
    thinks: bool
    """Whether its replies bring thinking along."""
    maker: str
    """Who signs what it thinks."""


TARGETS = (
    Target("claude-3-5-haiku", "anthropic", False, "anthropic"),
    Target("claude-sonnet-4-5", "anthropic", True, "anthropic"),
    Target("claude-sonnet-4-6", "anthropic", True, "anthropic"),
    Target("claude-opus-4-8", "anthropic", True, "anthropic"),
    Target("claude-sonnet-5-5", "anthropic", True, "anthropic"),
    Target("us.anthropic.claude-opus-4-8-v1:0", "anthropic", True, "anthropic"),
    Target("kimi-k2", "anthropic", True, "moonshot"),
    Target("gpt-4o", "openai_chat", False, "openai"),
    Target("gpt-5.6", "openai_chat", False, "openai"),
    Target("deepseek-reasoner", "openai_chat", True, "deepseek"),
    Target("qwen/qwen3-coder", "openai_chat", True, "qwen"),
    Target("gpt-4.1", "openai_responses", False, "openai"),
    Target("gpt-5", "openai_responses", True, "openai"),
    Target("o4-mini", "openai_responses", True, "openai"),
    Target("grok-4", "openai_responses", True, "xai"),
)


Wire = dict[str, Any]
JUDGES = ("check", "simulator", "documents")


def made_with(reply: Wire) -> dict[str, str]:
    """By the id of an item of a Responses reply: the reasoning item that it was made with."""
    items: list[Wire] = reply.get("output") or []
    reasoning = [str(item["id"]) for item in items if item["type"] == "reasoning"]
    others = [str(item["id"]) for item in items if item["type"] != "reasoning"]
    return {other: reasoning[0] for other in others if reasoning}


@dataclass(slots=True)
class Court:
    """What the judges know of one conversation besides its requests."""

    belongs: dict[str, str] = field(default_factory=dict[str, str])
    """By item of a Responses reply: the reasoning item that it was made with."""
    kept: StoredResponses = field(default_factory=StoredResponses)
    """What the simulator knows of such replies."""
    strict: bool = True
    """Whether a strict chat template can be asked: it takes no system message in the middle, and
    nobody with a name."""

    def hear(self, reply: Wire, to: Target) -> None:
        if to.dialect == "openai_responses" and to.maker == "openai":
            self.belongs |= made_with(reply)
            self.kept.store_reply({"store": False, "input": []}, reply)

    def verdicts(self, request: Wire, to: Target) -> dict[str, list[str]]:
        """By judge: what it refuses in the request."""
        own = check(request, dialect_name=to.dialect)
        others = self._simulator(request, to), self._documents(request, to)
        return dict(zip(JUDGES, (own, *others), strict=True))

    def _template(self, to: Target) -> bool:
        return self.strict and to.dialect == "openai_chat" and to.maker != "openai"

    def _simulator(self, request: Wire, to: Target) -> list[str]:
        signed = to.maker in ("anthropic", "openai")
        template = "strict" if self._template(to) else "open"
        options = ProviderSimulatorOptions(signatures=signed, template=template)
        try:
            if to.dialect == "anthropic":
                anthropic_rules.validate_anthropic_request(request, options)
            elif to.dialect == "openai_chat":
                known = {key: request[key] for key in request if key not in _ELSEWHERE}
                openai_chat_rules.validate_chat_request(
                    known if to.maker != "openai" else request, options
                )
            else:
                whole = self.kept.expand_request(request)
                simulated_responses.validate_responses_request(request, whole, self.kept, options)
        except ProviderRefusal as refused:
            return [str(refused)]
        return []

    def _documents(self, request: Wire, to: Target) -> list[str]:
        if to.dialect == "anthropic":
            found = list(anthropic.check(request))
        elif to.dialect == "openai_chat":
            found = list(openai_chat.check(request))
            if self._template(to):
                found += openai_chat.check_template(request)
        else:
            reasons = to.thinks
            belongs: Mapping[str, str] = self.belongs
            found = list(openai_responses.check(request, reasons=reasons, belongs=belongs))
        return [f"{broken.rule}: {broken.detail}" for broken in found]


_ELSEWHERE = ("thinking", "context_management")
"""Parameters that some servers of other models take."""
