"""A provider with a window and a tokenizer of its own, that refuses what is over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from trimtab.engine.log.event import Usage
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.testing import ScriptedProvider, ScriptedReply


class Narrow(ScriptedProvider):
    """Counts `heavier` times what Trimtab estimates, and takes no more than `window` of it."""

    def __init__(
        self,
        dialect: str,
        replies: Any = (),
        *,
        window: int,
        heavier: float = 1.0,
        says: tuple[str, ...] = ("limit", "input", "requested"),
    ) -> None:
        super().__init__(dialect, replies)
        self.window = window
        self.heavier = heavier
        self.says = says
        """The figures that a refusal names."""
        self.refused: list[int] = []
        """Numbers of the requests that were, from 0."""
        self.answered = 0

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        max_output = int(request.get("max_tokens") or request.get("max_completion_tokens") or 0)
        input_tokens = self._usage(ScriptedReply(), request, str(request["model"])).input
        if input_tokens + max_output > self.window:
            self.refused.append(len(self.requests))
            self.requests.append(dict(request))
            self._check(request, len(self.requests))
            self._replies.insert(len(self.requests) - 1, "refused")
            figures = {"limit": self.window, "input": input_tokens, "requested": max_output}
            figures_said: Any = {name: figures[name] for name in self.says}
            raise ProviderError(
                ProviderFailureDetails(
                    kind="overflow", message="too long", status=400, **figures_said
                )
            )
        self.answered += 1
        async for event in super().send(request):
            yield event

    def _usage(self, answer: ScriptedReply, request: Mapping[str, Any], model: str) -> Usage:
        usage = super()._usage(answer, request, model)
        return replace(usage, input=int(usage.input * self.heavier))
