"""Between prefix-breaking events, the blocks of each request are a prefix of the next one's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.laws.lives import law
from tests.laws.oracle import breaks
from tests.laws.wires import blocks
from tests.recording import rendering
from tests.strategies.life import Hooks, Life
from tests.strategies.logs import Step, Story, stories
from trimtab.engine.log.event import Event


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


class Sticky:
    def __init__(self) -> None:
        self.last: Sent | None = None

    def stepped(self, life: Life, _: Step) -> None:
        if self.last is not None and not life.made(self.last.seq):
            self.last = None  # a fork has left it behind

    def extends(self, life: Life, request: dict[str, Any]) -> None:
        call = life.last_call
        wire = blocks(request, life.context.window.settings, call.volatile)
        rendered = [(block.role, block.body) for block in rendering(life.context).blocks]
        last = self.last
        if last is not None and not broken(life.events[last.seq :], last.position):
            assert rendered[: len(last.rendered)] == last.rendered
            # A volatile tail may be one message with the last: then that is left out of the wire.
            both = min(len(wire), len(last.blocks))
            now, before = wire[:both], last.blocks[:both]
            assert [*map(trimmed, now[:-1])] == [*map(trimmed, before[:-1])]
            assert (
                not both
                or trimmed(now[-1]) == trimmed(before[-1])
                or grown(now[-1], before[-1])
                or spoken_as_system(now[-1], before[-1])
            )
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


def spoken_as_system(now: Any, before: Any) -> bool:
    """Whether the last message is a system message that had to be a user's: Anthropic takes none
    before a volatile tail, which is a user's message too."""
    match now, before:
        case ("system", {"text": text}), ("user", {"text": before_text}):
            return before_text == f"[System message]\n{text}"
        case _:
            return False


def grown(now: Any, before: Any) -> bool:
    """Whether the last message of a chat is the same with more behind it: a neighbour of its role
    that was said since is one message with it where a chat template takes no two in a row."""
    match now, before:
        case dict(), dict():
            return now.keys() >= before.keys() and all(grown(now[k], before[k]) for k in before)
        case str(), str():
            return now.startswith(before)
        case list(), list():
            head = len(before) - 1
            return now[:head] == before[:head] and (
                not before or (len(now) > head and grown(now[head], before[head]))
            )
        case list(), str():
            return bool(now) and grown(now[0], {"type": "text", "text": before})
        case _:
            return now == before


def broken(events: list[Event], sent: int) -> bool:
    return any(breaks(event, sent) for event in events)


@law(stories)
def test_each_request_extends_the_last(story: Story) -> Hooks:
    sticky = Sticky()
    return Hooks(stepped=sticky.stepped, asked=sticky.extends)
