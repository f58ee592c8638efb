"""Between prefix-breaking events, the blocks of each request are a prefix of the next one's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.laws.oracle import breaks
from tests.laws.wires import blocks
from tests.strategies.life import Life
from tests.strategies.logs import Setup, Step, setups, steps
from trimtab.core.event import Event


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A request as it stood in the provider's cache."""

    seq: int
    position: int
    blocks: list[Any]
    rendered: list[tuple[str, Any]]
    head: dict[str, Any]


def head_of(request: dict[str, Any]) -> dict[str, Any]:
    return {key: request.get(key) for key in ("model", "system", "instructions", "tools")}


class Sticky(RuleBasedStateMachine):
    @initialize(setup=setups())
    def begin(self, setup: Setup) -> None:
        self.life = Life(setup, asked=self.extends)
        self.last: Sent | None = None

    @rule(step=steps)
    def live(self, step: Step) -> None:
        self.life.do(step)
        if self.last is not None and not self.life.made(self.last.seq):
            self.last = None  # a fork has left it behind

    def extends(self, life: Life, request: dict[str, Any]) -> None:
        call, rendering = life.last_call, life.context.rendering
        wire = blocks(request, life.context.window.settings, call.volatile)
        rendered = [(block.role, block.body) for block in rendering.blocks]
        last = self.last
        if last is not None and not broken(life.events[last.seq :], last.position):
            assert rendered[: len(last.rendered)] == last.rendered
            assert [*map(trimmed, wire[: len(last.blocks)])] == [*map(trimmed, last.blocks)]
            assert head_of(request) == last.head
        sent = life.context.window.last_call
        assert sent is not None
        self.last = Sent(
            seq=sent.seq,
            position=call.position,
            blocks=wire,
            rendered=rendered,
            head=head_of(request),
        )


def trimmed(block: Any) -> Any:
    """Anthropic refuses a reply to be continued that ends in white space, so its last text differs
    by that from what is sent when the conversation went on."""
    match block:
        case ("assistant", {"type": "text", "text": text}):
            return ("assistant", text.rstrip())
        case _:
            return block


def broken(events: list[Event], sent: int) -> bool:
    return any(breaks(event, sent) for event in events)


TestEachRequestExtendsTheLast = Sticky.TestCase
TestEachRequestExtendsTheLast.settings = settings(settings.get_profile("laws"))
