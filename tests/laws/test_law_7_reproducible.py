"""The same log gives the same window and the same request, now and long after."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.laws.picture import picture, recount
from tests.strategies.life import Life
from tests.strategies.logs import Setup, Step, setups, steps
from trimtab import CannotFit, Context
from trimtab.errors import RequestChangedError
from trimtab.log.event import PayloadErasure, RetentionErasure, dump_canonical_json
from trimtab.window.window import Window

MOST = 8
"""Past requests of one life that are shown again, the latest ones; each costs a whole fold."""


class Reproducible(RuleBasedStateMachine):
    @initialize(setup=setups())
    def begin(self, setup: Setup) -> None:
        self.life = Life(setup, asked=self.keep)
        self.kept: dict[int, str] = {}

    @rule(step=steps, again=st.sampled_from([False, False, True]))
    def live(self, step: Step, again: bool) -> None:
        self.life.do(step)
        # A fork leaves the later ones behind.
        self.kept = {seq: text for seq, text in self.kept.items() if self.life.made(seq)}
        assert recount(self.life.context.window) == totals(self.life.context.window)
        if again and self.life.context.window.entries:
            self.restart()

    def restart(self) -> None:
        """A second context, from the log alone, does what the first one does."""
        first, second = self.life.context, self.life.loaded()
        assert picture(second.window) == picture(first.window)
        assert answer(second) == answer(first)
        assert second.events == first.events
        assert picture(second.window) == picture(first.window)

    def keep(self, life: Life, request: dict[str, Any]) -> None:
        sent = life.context.window.last_call
        assert sent is not None
        self.kept[sent.seq] = dump_canonical_json(request)

    def teardown(self) -> None:
        """Every request of this life can be shown again as it was sent."""
        if not hasattr(self, "life"):
            return
        events = self.life.events
        erased = any(isinstance(event.body, PayloadErasure | RetentionErasure) for event in events)
        for seq, text in list(self.kept.items())[-MOST:]:
            try:
                shown = self.life.context.rebuild_request(seq)
            except RequestChangedError:
                assert erased, f"the request of call {seq} changed though nothing was erased"
            else:
                assert dump_canonical_json(shown) == text


def answer(context: Context) -> str:
    """The next request, or why there is none."""
    try:
        return dump_canonical_json(context.request())
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


TestTheLogAloneGivesTheSameRequest = Reproducible.TestCase
TestTheLogAloneGivesTheSameRequest.settings = settings(settings.get_profile("laws"))
