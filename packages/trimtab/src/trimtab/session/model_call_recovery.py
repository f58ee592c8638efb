"""What to do about a call that failed. It is deterministic and calls no model.

After a refusal for length, Trimtab first learns the limit that the provider names. It then requests
less output if that may be enough, then shrinks the context at once, and at last reports what cannot
shrink. A history that is rejected as malformed is loaded and repaired once, without interrupted
replies. Rejected content, such as a picture, is left out unless it is the user's newest message. In
that case the turn fails, and the content is left out when the user continues. An error that does
not concern the history leaves it unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from trimtab.dialects import get_dialect
from trimtab.dialects.base import WireObject
from trimtab.engine.log.event import Edit, Size, Usage
from trimtab.engine.policy.budget import MIN_OUTPUT_TOKENS, Budget, hides_on_refusal
from trimtab.engine.policy.config import parse_policy_config
from trimtab.engine.policy.guard import build_cannot_fit_error
from trimtab.engine.policy.media import decide_media_over_limits
from trimtab.engine.policy.overflow import decide_aggressive_hiding
from trimtab.engine.policy.planning.plan import Decision, Plan
from trimtab.engine.policy.rejections import decide_masks_before_retry
from trimtab.engine.window.accounting import describe_silent_truncation
from trimtab.engine.window.window import Window
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.providers.base import STREAM_CUT_SHORT, TRANSIENT_KINDS
from trimtab.providers.error_parser import parse_error_event, parse_stop_failure
from trimtab.session.events import (
    COMPACTED_NOTICE,
    CONTENT_LEFT_OUT_NOTICE,
    ModelCallRetried,
    TurnEvent,
    UserNotice,
)
from trimtab.session.session import Session
from trimtab.session.turn_event_builders import total_edits_by_kind_since

MAX_BROKEN_STREAM_RETRIES = 2
"""How often a call is made again if its reply was interrupted."""
REVEAL_REASON = "left out in vain"
EMPTY_SIZE = Size(bytes=0, tokens=0)
MAX_REJECTION_RETRIES = 8
"""How often a call is made again without rejected content. A provider names one part at a time."""


@dataclass(slots=True)
class ModelCallRecovery:
    """What was already tried for one call."""

    tried_less_output: bool = False
    """Less output was requested, or would not help."""
    tried_cutting: bool = False
    """The context was shrunk."""
    tried_repair: bool = False
    """The history was loaded again and repaired."""
    reply_started: bool = False
    """A part of the reply has arrived, so a retrying provider could no longer retry."""
    resends: int = 0
    """How often the same request was sent again."""
    rejections: int = 0
    """How often rejected content was left out."""
    billed: Usage | None = None
    """What the provider billed for a reply that is not kept."""
    guessed_edits: list[Edit] = field(default_factory=list[Edit])
    """Edits that left out content which the provider had not named."""
    unstreamed: bool = False
    """The reply is requested in one piece, because a server may refuse a stream without an
    error."""
    pending_events: list[TurnEvent] = field(default_factory=list[TurnEvent])
    """Events for the user."""

    def find_failure(self, session: Session, reply: WireObject) -> ProviderFailureDetails | None:
        """Find the failure that a received reply reports: an error, a full window, a truncated
        request."""
        if (failure := parse_error_event(reply)) is not None:
            return failure
        failure = _find_full_window(session, reply)
        if failure is not None:
            self.billed = get_dialect(session.window.settings.dialect).parse_reply(reply).usage
        failure = failure or _find_silent_truncation(session.window, reply)
        # Less output would only end the reply sooner.
        self.tried_less_output = self.tried_less_output or failure is not None
        return failure

    async def recover_from(self, session: Session, failure: ProviderFailureDetails) -> None:
        """Prepare the next attempt at the call; raise if nothing can be done."""
        known_limit = session.budget().limit
        limit = failure.limit
        texts = session.recorder.find_rejected_texts(failure.message)
        await session.recorder.record_failure(
            failure.kind,
            limit=failure.limit,
            input=failure.input,
            requested=failure.requested,
            message=failure.message,
            usage=self.billed,
        )
        self.billed = None
        position = session.window.seq
        match failure.kind:
            case "overflow":
                await self._handle_overflow(session, failure)
            case "malformed" if not self.tried_repair:
                self.tried_repair = True
                await session.recorder.reload()
                await session.recorder.apply_policy(_drop_interrupted_replies)
            case "rejected" if self.rejections < MAX_REJECTION_RETRIES:
                await self._leave_out_rejected(session, failure, texts)
            case "server" if (
                failure == STREAM_CUT_SHORT and not self.reply_started and not self.unstreamed
            ):
                self.unstreamed = True
            case kind if (
                kind in TRANSIENT_KINDS
                and self.reply_started
                and self.resends < MAX_BROKEN_STREAM_RETRIES
            ):
                self.resends += 1
            case _:
                await self._reveal_wrong_guesses(session)
                raise ProviderError(failure)
        self.pending_events += await total_edits_by_kind_since(session, position, "recovery")
        fewer = limit if failure.kind == "overflow" and limit and limit < known_limit else None
        self.pending_events.append(
            ModelCallRetried(kind=failure.kind, reason=failure.message, limit=fewer)
        )

    async def _leave_out_rejected(
        self, session: Session, failure: ProviderFailureDetails, rejected_texts: frozenset[str]
    ) -> None:
        self.rejections += 1
        edits = await session.recorder.apply_policy(
            partial(decide_masks_before_retry, blamed_texts=rejected_texts)
        )
        if not edits:
            await self._reveal_wrong_guesses(session)
            raise ProviderError(failure)
        self.guessed_edits += () if rejected_texts else edits
        entries = [session.window.entries[edit.first] for edit in edits]
        if any(entry.message.role == "user" and not entry.message.results for entry in entries):
            self.pending_events.append(UserNotice(text=CONTENT_LEFT_OUT_NOTICE))

    async def _reveal_wrong_guesses(self, session: Session) -> None:
        """Show content again that was left out without success: the provider may just be
        failing."""
        guesses = self.guessed_edits
        self.guessed_edits = []
        if guesses:
            reveals = [
                replace(e, op="reveal", text="", size=EMPTY_SIZE, why=REVEAL_REASON)
                for e in guesses
            ]
            await session.recorder.apply_policy(
                lambda _window, _budget: Decision(edits=tuple(reveals))
            )

    async def _handle_overflow(self, session: Session, failure: ProviderFailureDetails) -> None:
        # Each such refusal lowers what is taken for the limit, until no picture is left.
        if await session.recorder.apply_policy(decide_media_over_limits):
            self.pending_events.append(UserNotice(text=COMPACTED_NOTICE))
            return
        if not self.tried_less_output and _may_less_output_fit(session, failure):
            self.tried_less_output = True
            return
        if self.tried_cutting:
            plan = Plan(session.window, session.budget())
            raise build_cannot_fit_error(plan, refusal=failure.message) from ProviderError(failure)
        self.tried_less_output = self.tried_cutting = True
        knobs = parse_policy_config(session.options.limits)
        edits = await session.recorder.apply_policy(partial(decide_aggressive_hiding, config=knobs))
        last = session.window.last_call
        if edits:
            self.pending_events.append(UserNotice(text=COMPACTED_NOTICE))
        elif last is None or session.budget().max_output >= last.body.max_output:
            # The same request would be refused again.
            plan = Plan(session.window, session.budget())
            raise build_cannot_fit_error(plan, refusal=failure.message) from ProviderError(failure)


def _drop_interrupted_replies(window: Window, budget: Budget) -> Decision:
    """Drop replies that the provider had paused when another message was added.

    What they were about to do has no result, and never will have.
    """
    plan = Plan(window, budget)
    for group in list(plan.visible_groups()):
        if group.rounds[-1].paused:
            plan.drop(group, "the reply was interrupted before it was complete")
    return plan.to_decision()


def _find_full_window(session: Session, reply: WireObject) -> ProviderFailureDetails | None:
    """Detect a window that was full before the reply was complete.

    The limit is learned if it is below the assumed one.
    """
    failure = parse_stop_failure(reply)
    if failure is None or (failure.limit or 0) < session.budget().limit:
        return failure
    return replace(failure, limit=None)


def _find_silent_truncation(window: Window, reply: WireObject) -> ProviderFailureDetails | None:
    """Detect a request that the server truncated silently.

    The highest number of tokens that it read is the limit.
    """
    usage = get_dialect(window.settings.dialect).parse_reply(reply).usage
    if usage is None or window.last_call is None:
        return None
    limit = window.accounting.find_truncation_limit(usage.input, window.conversation)
    if not limit:
        return None
    estimate = window.accounting.last_estimate.total_tokens
    words = describe_silent_truncation(estimate, usage.input)
    return ProviderFailureDetails(kind="overflow", message=words, limit=limit, input=estimate)


def _may_less_output_fit(session: Session, failure: ProviderFailureDetails) -> bool:
    """Whether less output may make the request fit.

    That needs figures which agree with the request. Without figures it is tried first, because it
    costs least.
    """
    window = session.window
    limit = failure.limit
    input_tokens = failure.input
    last = window.last_call
    if last is None:
        return False
    if window.accounting.overflow_without_numbers and not hides_on_refusal(window):
        return session.budget().max_output < last.body.max_output
    if limit is None or input_tokens is None or not window.accounting.overflow_was_counted:
        return False
    return input_tokens + MIN_OUTPUT_TOKENS <= limit < input_tokens + last.body.max_output
