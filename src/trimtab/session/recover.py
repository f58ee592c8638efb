"""What is done about a call that failed. Deterministic, and no model is asked.

A refusal for length teaches what it names; then less output is asked for, if that is enough; then
the context is cut down at once; then it is said what cannot shrink. A history that is refused as
malformed is folded and repaired once. What has nothing to do with the history leaves it untouched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from trimtab.core.budget import LEAST_OUTPUT
from trimtab.core.guard import cannot_fit
from trimtab.core.plan import Plan
from trimtab.core.policies.aggressive import aggressive
from trimtab.core.policies.knobs import knobs_from
from trimtab.core.window import Window
from trimtab.providers.provider import TRANSIENT, Failure, ProviderError
from trimtab.session.happenings import COMPACTED, Happening, Notice, Restarted
from trimtab.session.session import Session

BROKEN_STREAMS = 2
"""How often a call is made again whose reply broke off."""


@dataclass(slots=True)
class Recovery:
    """What was tried for one call already."""

    output: bool = False
    """Less output was asked for."""
    edits: bool = False
    """The context was cut down."""
    repair: bool = False
    """The history was folded again and repaired."""
    began: bool = False
    """Something of the reply has come: whoever retries in between could not any more."""
    again: int = 0
    """Times that the same request was sent again."""
    told: list[Happening] = field(default_factory=list[Happening])
    """What the user should know."""

    async def after(self, session: Session, failure: Failure) -> None:
        """Do what can be done so that the call may be made again; raises where nothing can."""
        await session.fail(
            failure.kind, limit=failure.limit, input=failure.input, requested=failure.requested
        )
        match failure.kind:
            case "overflow":
                await self._overflow(session, failure)
            case "malformed" if not self.repair:
                self.repair = True
                await session.reload()
            case kind if kind in TRANSIENT and self.began and self.again < BROKEN_STREAMS:
                self.again += 1
            case _:
                raise ProviderError(failure)
        self.told.append(Restarted(why=failure.message))

    async def _overflow(self, session: Session, failure: Failure) -> None:
        if not self.output and _output_is_enough(session.window, failure):
            self.output = True
            return
        if self.edits:
            raise cannot_fit(Plan(session.window, session.budget())) from ProviderError(failure)
        self.output = self.edits = True
        knobs = knobs_from(session.options.context)
        await session.apply_policy(partial(aggressive, knobs=knobs))
        self.told.append(Notice(text=COMPACTED))


def _output_is_enough(window: Window, failure: Failure) -> bool:
    """Whether less output makes it fit, by figures that agree with what was asked for: others
    would change nothing, and the same request would be refused again."""
    limit, counted, last = failure.limit, failure.input, window.last_call
    if limit is None or counted is None or last is None or not window.overflowed:
        return False
    return counted + LEAST_OUTPUT <= limit < counted + last.body.max_output
