"""The same log gives the same window and the same request, now and long after."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.laws.lives import law
from tests.laws.picture import picture, recount
from tests.recording import request_anyway
from tests.strategies.life import Hooks, Life
from tests.strategies.logs import Step, Story, stories
from trimtab import Context
from trimtab.engine.log.event import PayloadErasure, RetentionErasure, dump_canonical_json
from trimtab.engine.window.window import Window
from trimtab.errors import CannotFit, RequestChangedError

MOST = 8
"""Past requests of one life that are shown again, the latest ones; each costs a whole fold."""


class Reproducible:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - no secret
        self.kept: dict[int, str] = {}

    def stepped(self, life: Life, _: Step) -> None:
        # A fork leaves the later ones behind.
        self.kept = {seq: text for seq, text in self.kept.items() if life.made(seq)}
        assert recount(life.context.window) == totals(life.context.window)
        if self.random.choice([False, False, True]) and life.context.window.entries:
            self.restart(life)

    def restart(self, life: Life) -> None:
        """A second context, from the log alone, does what the first one does."""
        first, second = life.context, life.loaded()
        assert picture(second.window) == picture(first.window)
        assert answer(second) == answer(first)
        assert second.events == first.events
        assert picture(second.window) == picture(first.window)

    def keep(self, life: Life, request: dict[str, Any]) -> None:
        sent = life.context.window.last_call
        assert sent is not None
        self.kept[sent.seq] = dump_canonical_json(request)

    def ended(self, life: Life) -> None:
        """Every request of this life can be shown again as it was sent."""
        events = life.events
        erased = any(isinstance(event.body, PayloadErasure | RetentionErasure) for event in events)
        for seq, text in list(self.kept.items())[-MOST:]:
            try:
                shown = life.context.rebuild_request(seq)
            except RequestChangedError:
                assert erased, f"the request of call {seq} changed though nothing was erased"
            else:
                assert dump_canonical_json(shown) == text


def answer(context: Context) -> str:
    """The next request, or why there is none."""
    try:
        return dump_canonical_json(request_anyway(context))
    except CannotFit as error:
        return str(error)


def totals(window: Window) -> dict[str, int]:
    return {
        "bytes": window.bytes,
        "tokens": window.tokens,
        "messages": window.visible_messages,
        "turn_bytes": window.conversation.turn_bytes,
        "turn_tokens": window.conversation.turn_tokens,
        "dropped": window.conversation.dropped_groups.message_count,
    }


@law(stories)
def test_the_log_alone_gives_the_same_request(story: Story) -> Hooks:
    reproducible = Reproducible(story.seed)
    return Hooks(stepped=reproducible.stepped, asked=reproducible.keep, ended=reproducible.ended)
