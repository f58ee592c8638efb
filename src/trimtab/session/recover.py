"""What is done about a call that failed. Deterministic, and no model is asked.

A refusal for length teaches what it names; then less output is asked for, if that may be enough;
then the context is cut down at once; then it is said what cannot shrink. A history that is refused
as malformed is folded and repaired once, without replies that were interrupted. What is rejected,
such as a picture, is left out if it is no new word of the user's; else the turn fails, and it is
left out when the user goes on. What has nothing to do with the history leaves it untouched.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from trimtab.core.budget import HIDE_FIRST, LEAST_OUTPUT, Budget
from trimtab.core.event import Edit, Size
from trimtab.core.guard import cannot_fit
from trimtab.core.plan import Decision, Plan
from trimtab.core.policies.aggressive import aggressive
from trimtab.core.policies.knobs import knobs_from
from trimtab.core.rejected import at_once
from trimtab.core.truncation import cut_in_silence, silently_truncated
from trimtab.core.window import Window
from trimtab.dialects import dialect
from trimtab.dialects.dialect import Wire
from trimtab.providers.errors import read_event, read_stop
from trimtab.providers.provider import CUT_SHORT, TRANSIENT, Failure, ProviderError
from trimtab.session.happenings import COMPACTED, LEFT_OUT, Happening, Notice, Restarted
from trimtab.session.session import Session
from trimtab.session.telling import edited_since

BROKEN_STREAMS = 2
"""How often a call is made again whose reply broke off."""
IN_VAIN = "left out in vain"
NOTHING = Size(bytes=0, tokens=0)
REJECTIONS = 8
"""How often a call is made again without what was rejected: a provider names one part at a time."""


@dataclass(slots=True)
class Recovery:
    """What was tried for one call already."""

    output: bool = False
    """Less output was asked for, or would not help."""
    edits: bool = False
    """The context was cut down."""
    repair: bool = False
    """The history was folded again and repaired."""
    began: bool = False
    """Something of the reply has come: whoever retries in between could not any more."""
    again: int = 0
    """Times that the same request was sent again."""
    rejections: int = 0
    """Times that something was left out which the provider had rejected."""
    guessed: list[Edit] = field(default_factory=list[Edit])
    """What was left out without being named as the fault."""
    whole: bool = False
    """The reply is asked for in one piece: a server may refuse a stream without a word."""
    told: list[Happening] = field(default_factory=list[Happening])
    """What the user should know."""

    def found(self, session: Session, reply: Wire) -> Failure | None:
        """What a reply that came says all the same: an error, a full window, a request cut off."""
        if (failure := read_event(reply)) is not None:
            return failure
        failure = _full(session, reply) or _cut(session.window, reply)
        # Less output would only end the reply sooner.
        self.output = self.output or failure is not None
        return failure

    async def after(self, session: Session, failure: Failure) -> None:
        """Do what can be done so that the call may be made again; raises where nothing can."""
        assumed, limit = session.budget().limit, failure.limit
        named = session.named(failure.message)
        await session.failed(
            failure.kind,
            limit=failure.limit,
            input=failure.input,
            requested=failure.requested,
            message=failure.message,
        )
        position = session.window.seq
        match failure.kind:
            case "overflow":
                await self._overflow(session, failure)
            case "malformed" if not self.repair:
                self.repair = True
                await session.reload()
                await session.apply_policy(_without_interrupted)
            case "rejected" if self.rejections < REJECTIONS:
                await self._rejected(session, failure, named)
            case "server" if failure == CUT_SHORT and not self.began and not self.whole:
                self.whole = True
            case kind if kind in TRANSIENT and self.began and self.again < BROKEN_STREAMS:
                self.again += 1
            case _:
                await self._show_again(session)
                raise ProviderError(failure)
        self.told += await edited_since(session, position, "recovery")
        fewer = limit if failure.kind == "overflow" and limit and limit < assumed else None
        self.told.append(Restarted(why=failure.message, limit=fewer))

    async def _rejected(self, session: Session, failure: Failure, named: frozenset[str]) -> None:
        self.rejections += 1
        made = await session.apply_policy(partial(at_once, named=named))
        if not made:
            await self._show_again(session)
            raise ProviderError(failure)
        self.guessed += () if named else made
        entries = [session.window.entries[edit.first] for edit in made]
        if any(entry.message.role == "user" and not entry.message.results for entry in entries):
            self.told.append(Notice(text=LEFT_OUT))

    async def _show_again(self, session: Session) -> None:
        """What was left out in vain was not at fault: a provider may just be out of order."""
        made, self.guessed = self.guessed, []
        if made:
            seen = [replace(e, op="reveal", text="", size=NOTHING, why=IN_VAIN) for e in made]
            await session.apply_policy(lambda _window, _budget: Decision(edits=tuple(seen)))

    async def _overflow(self, session: Session, failure: Failure) -> None:
        if not self.output and _output_may_do(session, failure):
            self.output = True
            return
        if self.edits:
            plan = Plan(session.window, session.budget())
            raise cannot_fit(plan, refusal=failure.message) from ProviderError(failure)
        self.output = self.edits = True
        knobs = knobs_from(session.options.context)
        made = await session.apply_policy(partial(aggressive, knobs=knobs))
        last = session.window.last_call
        if made:
            self.told.append(Notice(text=COMPACTED))
        elif last is None or session.budget().max_output >= last.body.max_output:
            # The same request would be refused again.
            plan = Plan(session.window, session.budget())
            raise cannot_fit(plan, refusal=failure.message) from ProviderError(failure)


def _without_interrupted(window: Window, budget: Budget) -> Decision:
    """Drops of replies that their provider had paused when something else was said: what they
    were about to do has no result, and never will have."""
    plan = Plan(window, budget)
    for group in list(plan.groups()):
        if group.rounds[-1].paused:
            plan.drop(group, "interrupted before it was whole")
    return plan.decision()


def _full(session: Session, reply: Wire) -> Failure | None:
    """A window that was full before the reply was whole; learned where it is below the one that
    was believed in."""
    failure = read_stop(reply)
    if failure is None or (failure.limit or 0) < session.budget().limit:
        return failure
    return replace(failure, limit=None)


def _cut(window: Window, reply: Wire) -> Failure | None:
    """A request that was cut in silence; what was read is the limit, for that much fits."""
    usage = dialect(window.settings.dialect).read_reply(reply).usage
    if usage is None or window.last_call is None or not silently_truncated(window, usage.input):
        return None
    words = cut_in_silence(window.pending.estimate, usage.input)
    estimate = window.pending.estimate
    return Failure(kind="overflow", message=words, limit=usage.input, input=estimate)


def _output_may_do(session: Session, failure: Failure) -> bool:
    """Whether less output may make it fit: by figures that agree with what was asked for, others
    would change nothing; or where there are none, for less output costs least."""
    window, limit, counted = session.window, failure.limit, failure.input
    last = window.last_call
    if last is None:
        return False
    if window.refused and window.settings.policy not in HIDE_FIRST:
        return session.budget().max_output < last.body.max_output
    if limit is None or counted is None or not window.overflowed:
        return False
    return counted + LEAST_OUTPUT <= limit < counted + last.body.max_output
