"""What calls and their outcomes taught: usage, limits, cache behaviour and estimation errors.

`Accounting` is the part of the window that keeps this. The provider's reports show how reliable its
prompt cache is. They also show a server that truncates requests silently: Ollama answers a request
beyond its `num_ctx` with status 200 after it dropped the start. The only sign is an input count far
below what was sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, cast

from trimtab.engine.log.call_failure import UNBILLED_KINDS, erase_provider_message
from trimtab.engine.log.event import (
    CallOutcome,
    Event,
    JsonMapping,
    LoggedModelCall,
    ModelCall,
    Settings,
    SummaryAttempt,
    TurnProgressRecord,
    Usage,
    add_usage,
)
from trimtab.engine.log.message import Text
from trimtab.engine.log.size_refusals import (
    SizeRefusal,
    names_context_window,
    parse_size_refusal,
)
from trimtab.engine.tokens.cost import compute_cost_usd
from trimtab.engine.tokens.counter import (
    MAX_LEARNED_RATIO,
    TokenCounter,
    compute_input_upper_bound,
    tools_overhead_tokens,
)
from trimtab.engine.window.conversation import Conversation, FrontState
from trimtab.engine.window.summary_attempts import SummaryAttemptStats

DEFAULT_WINDOW_TOKENS = 128_000
"""Context window of an unknown model, in tokens."""


def resolve_token_limit_and_source(
    settings: Settings, learned_limit: int | None
) -> tuple[int, str]:
    """Return the limit and its source. A limit learned from the provider is never exceeded
    knowingly."""
    for name in ("max_input_tokens", "context_window"):
        value: int | None = settings.limits.get(name)
        if value:
            return (
                (learned_limit, "learned")
                if learned_limit and learned_limit < value
                else (value, name)
            )
    if learned_limit:
        return learned_limit, "learned"
    window: int | None = settings.entry.get("context_window")
    return (window, "model") if window else (DEFAULT_WINDOW_TOKENS, "default")


MISS_RATE_WINDOW_CALLS = 20
"""Number of calls over which the miss rate is averaged. Older calls count less."""


NO_CACHE_MISS_REASONS = (
    "cache_hit",
    "comparison_response_not_found",
    "previous_message_not_found",
    "unavailable",
)
"""Reasons in a provider's diagnosis that are not cache misses."""
UNEXPLAINED_MISS = "unexplained"
"""The reason of a miss that nobody has explained."""


@dataclass(slots=True)
class CacheMissTracker:
    miss_rate: float = 0.0
    """Share of expected cache reads that were reported as misses."""
    expected_read_tokens: int = 0
    """Tokens that the cache should hold for the current call; 0 if nothing is expected."""
    provider_reports_cache: bool = False
    """True once the provider has reported a cache read, a write or a miss. Before that, no report
    means nothing."""
    own_reason: str = ""
    """Why the last call could not be read from the cache, according to the log; empty if everything
    sent before was still cached."""
    last_reason: str = ""
    """Why it was not read, in the provider's word; `unexplained` if a read was expected and nobody
    says why; empty if nothing was missed."""
    last_missed_tokens: int = 0
    """Tokens that could not be read from the cache."""
    misses_by_reason: dict[str, int] = field(default_factory=dict[str, int])
    """Number of calls that missed the cache, by reason."""

    def record_call(self, expected_read_tokens: int, own_reason: str) -> None:
        """Record what may be expected of a call."""
        self.expected_read_tokens = expected_read_tokens
        self.own_reason = own_reason
        self.last_reason = ""
        self.last_missed_tokens = 0

    def record_usage(
        self, usage: Usage, min_cacheable_tokens: int, diagnosis: JsonMapping | None = None
    ) -> None:
        """Record what the provider reported for the current call, and its own diagnosis."""
        reason = str((diagnosis or {}).get("reason", ""))
        reason = "" if reason in NO_CACHE_MISS_REASONS else reason
        self.provider_reports_cache = (
            self.provider_reports_cache or usage.cache_read + usage.cache_write > 0 or bool(reason)
        )
        is_miss = False
        if self.provider_reports_cache and self.expected_read_tokens > min_cacheable_tokens:
            is_miss = usage.cache_read < self.expected_read_tokens / 2
            self.miss_rate += (float(is_miss) - self.miss_rate) / MISS_RATE_WINDOW_CALLS
        if reason or is_miss:
            self._record_miss(reason, usage, diagnosis or {})

    def _record_miss(self, told: str, usage: Usage, diagnosis: JsonMapping) -> None:
        self.last_reason = told or UNEXPLAINED_MISS
        self.last_missed_tokens = int(
            diagnosis.get("missed_tokens") or max(0, self.expected_read_tokens - usage.cache_read)
        )
        self.misses_by_reason = {
            **self.misses_by_reason,
            self.last_reason: self.misses_by_reason.get(self.last_reason, 0) + 1,
        }

    def to_state(self) -> dict[str, Any]:
        """Return the state for a snapshot, under the stored keys."""
        return {
            "cache": [self.miss_rate, self.expected_read_tokens, self.provider_reports_cache],
            "cache_misses": [
                self.own_reason,
                self.last_reason,
                self.last_missed_tokens,
                self.misses_by_reason,
            ],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> CacheMissTracker:
        """Return the tracker of `to_state`'s output."""
        miss_rate, expected_tokens, reports = state["cache"]
        own_reason, last_reason, miss_tokens, by_reason = state["cache_misses"]
        return cls(
            miss_rate=miss_rate,
            expected_read_tokens=expected_tokens,
            provider_reports_cache=reports,
            own_reason=own_reason,
            last_reason=last_reason,
            last_missed_tokens=miss_tokens,
            misses_by_reason=by_reason,
        )


_MIN_COUNTED_SHARE_BY_COUNTER = (
    # How small a part of the estimate the real count may be. Measured with the held-out texts of
    # benchmarks/token_estimates.py against o200k, cl100k and tekken, the lowest of any single text
    # of 1,000 tokens or more: 0.59 by the weights of its own family (0.68 for whole contexts),
    # 0.18 where the family is not known and the estimate is the highest of all, 0.48 by bytes/4.
    # Below are texts of a few characters that repeat, 5 % of those that benchmarks/text_kinds.py
    # generates: there the estimate leans on bytes.
    ("piecewise/max", 0.17),
    ("piecewise/", 0.55),
    ("bytes/4", 0.45),
    ("exact/", 0.9),
)
_MIN_TRUNCATED_TOKENS = 1_000
"""Minimum tokens of a truncated request. No server cuts to less: Ollama cuts to half of a window of
at least 2,048. A lower limit would leave a session without any room."""


def describe_silent_truncation(sent_tokens: int, read_tokens: int) -> str:
    """Describe a silent truncation."""
    return (
        f"about {sent_tokens:,} tokens were sent, but the server read only "
        f"{read_tokens:,} and cut the rest"
    )


CALIBRATION_PRIOR_TOKENS = 500
"""Prior in tokens: assume that the provider agrees with our estimate for this many tokens. So
framing overhead in short requests does not skew the ratio."""
CALIBRATION_HALF_LIFE_TOKENS = 32_768
"""After this many new tokens, earlier text counts half in the calibration."""


HIDDEN_TEXT_MIN_RATIO = 0.7
"""Assumed minimum of a hidden text's real tokens, as a share of its estimate."""
OWN_TEXT_MAX_RATIO = 1.3
"""Assumed maximum of the real tokens of our own texts, as a multiple of their estimate."""
MIN_BELIEVED_USAGE_RATIO = 0.5
"""Usage below this share of our estimate is not believed, unless its trend proves it and our
tokenizer may be that far off."""
MIN_TREND_CALLS = 3
"""Number of calls whose counts must grow as our estimate does before they prove a ratio."""
MAX_TREND_DEVIATION = 0.25
"""How far the growth of such a count may be off, as a share of what the ratio predicts."""
MIN_TRUNCATED_GROWTH = 1.05
"""If our estimate grew by this factor and the count did not grow, the request was truncated."""
MIN_PREFIX_USAGE_RATIO = 0.98
"""Usage below this share of the count of an earlier, shorter request is not believed."""
MAX_HIDDEN_TOKENS = 16_000
MAX_HIDDEN_GROWTH_TOKENS = 2_000
"""Maximum tokens that a provider is assumed to add to a request, such as a system prompt of its own
and instructions for tools; and what it adds between two calls."""
MAX_USAGE_GROWTH_RATIO = 2.0
"""Usage of more than this multiple of our estimate is not believed if it also grew by more than the
new text can have."""
_SERVER_SIDE_PARAMS = ("previous_response_id", "conversation", "prompt")
"""Parameters of a request that name content which the provider holds."""
MIN_REFUSED_TOKENS = 1_000
"""No window is smaller than this. A refusal of fewer tokens teaches no limit."""


class UsageAnchor(NamedTuple):
    """The last call with reported usage, if its request is a prefix of the next."""

    reported_tokens: int
    """Its reported input tokens."""
    message_tokens: int
    """Our estimate of its messages."""
    estimated_tokens: int
    """Our estimate of the whole request."""
    had_volatile: bool = False
    """Whether its count includes a volatile text."""
    media_tokens: int = 0
    """Our estimate of the pictures and files in it."""


class UsageTrend(NamedTuple):
    """Calls with one prefix whose counts grew as our estimate did."""

    reported_tokens: int = 0
    """Reported input tokens of the newest of them, or of a later call that reported more."""
    estimated_tokens: int = 0
    """Our estimate of that request, without what a provider may add for tools."""
    calls: int = 0
    """Number of them in a row. Once they prove a ratio, other counts do not end the row."""

    def is_continued_by(self, reported_tokens: int, estimated_tokens: int) -> bool:
        """Whether a count grew with the request, at the ratio of the whole request.

        A count of the new part only is no higher than our estimate of that part.
        """
        growth = reported_tokens - self.reported_tokens
        new_tokens = estimated_tokens - self.estimated_tokens
        if not self.calls or growth <= 0 or not 0 < new_tokens < reported_tokens:
            return False
        predicted = reported_tokens / estimated_tokens * new_tokens
        return abs(growth - predicted) <= MAX_TREND_DEVIATION * predicted

    def after_call(self, reported_tokens: int, estimated_tokens: int) -> UsageTrend:
        """Return the trend after a call."""
        calls = self.calls + 1
        if not self.is_continued_by(reported_tokens, estimated_tokens):
            is_proven = self.calls >= MIN_TREND_CALLS
            if estimated_tokens <= self.estimated_tokens or (
                is_proven and reported_tokens <= self.reported_tokens
            ):
                return self
            calls = self.calls if is_proven else 1
        return UsageTrend(reported_tokens, estimated_tokens, calls)

    def has_stalled(self, reported_tokens: int, estimated_tokens: int) -> bool:
        """Whether a count did not grow with the request, so that a part of it was not read."""
        return (
            self.calls >= MIN_TREND_CALLS
            and estimated_tokens >= MIN_TRUNCATED_GROWTH * self.estimated_tokens
            and estimated_tokens - self.estimated_tokens < reported_tokens <= self.reported_tokens
        )


class RequestEstimate(NamedTuple):
    """Our estimates at the last call."""

    message_tokens: int
    """Tokens of the messages."""
    total_tokens: int
    """Tokens of the whole request."""
    media_tokens: int = 0
    """Tokens of the pictures and files in it."""


class UsageBeforeEdit(NamedTuple):
    """Usage that was reported before something was hidden.

    The next request has at most the tokens of that one, minus what was removed, plus what was
    added.
    """

    max_tokens: int
    """Maximum tokens of that request."""
    message_tokens: int
    """Our estimate of its messages."""
    ratio: float
    """`max_tokens` divided by our estimate of the whole request."""
    summary_seq: int
    """Position of its summary's event."""
    dropped_messages: int
    """Number of messages in its notice."""
    user_word_blocks: int
    """Number of blocks in its list of the user's words."""
    replacement_tokens: int = 0
    """Our estimate of texts that have replaced others since then."""
    new_tokens: int = 0
    """Our estimate of messages since then."""

    @property
    def front(self) -> FrontState:
        """The state of the texts before its messages."""
        return FrontState(self.summary_seq, self.dropped_messages, self.user_word_blocks)

    def bound_tokens(
        self,
        counter: TokenCounter,
        ratio: float,
        *,
        message_tokens: int,
        front_tokens: int,
        volatile_tokens: int,
    ) -> int:
        """Return the maximum tokens of a request whose messages we estimate at `message_tokens`.

        `front_tokens` are the new tokens before its first message.
        """
        front_tokens += self.replacement_tokens
        removed_tokens = max(
            0, self.message_tokens + self.new_tokens + front_tokens - message_tokens
        )
        usage = self.max_tokens + self.ratio * (
            OWN_TEXT_MAX_RATIO * front_tokens - HIDDEN_TEXT_MIN_RATIO * removed_tokens
        )
        return compute_input_upper_bound(
            counter=counter,
            reported_tokens=max(0, math.ceil(usage)),
            new_tokens=self.new_tokens + volatile_tokens,
            learned_ratio=ratio,
        )


class ProviderRejection(NamedTuple):
    """The last call, if its provider rejected the content. A successful call clears it."""

    last_sent_seq: int = 0
    """The last position that was sent in the rejected call; 0 if the last call was not rejected."""
    provider_message: str = ""
    """The provider's message."""
    superseded_seq: int = 0
    """The last position of what was rejected before the user's newest message."""

    def after_new_user_message(self) -> ProviderRejection:
        """Return the rejection after the user has sent another message."""
        return self._replace(superseded_seq=self.last_sent_seq)


REFUSED_BYTES_SHARE = 0.75
"""If a request was refused for its bytes without a limit, the next may have this share of them."""


class LearnedRequestLimits(NamedTuple):
    """Limits besides tokens that refusals taught; 0 if they taught nothing."""

    max_bytes: int = 0
    """Maximum bytes of the whole request."""
    max_pictures: int = 0
    """Maximum number of pictures."""
    max_picture_bytes: int = 0
    """Maximum bytes of one picture as it is sent."""
    max_side_px: int = 0
    """Maximum width and height of a picture, in pixels."""

    def after_refusal(
        self, refusal: SizeRefusal, *, request_bytes: int, pictures: int
    ) -> LearnedRequestLimits:
        """Return the limits after the refusal of a request of this size."""
        match refusal.cause:
            case "bytes":
                # What was refused counts as we count it: by the provider's figure it may have
                # fitted.
                most = min(refusal.limit or request_bytes, int(REFUSED_BYTES_SHARE * request_bytes))
                return self._replace(max_bytes=min(self.max_bytes or most, most))
            case "pictures":
                most = min(refusal.limit or pictures, max(1, pictures - 1))
                return self._replace(max_pictures=min(self.max_pictures or most, most))
            case "picture_bytes" if refusal.limit:
                most = min(self.max_picture_bytes or refusal.limit, refusal.limit)
                return self._replace(max_picture_bytes=most)
            case "pixels" if refusal.limit:
                most = min(self.max_side_px or refusal.limit, refusal.limit)
                return self._replace(max_side_px=most)
            case _:
                return self


def _count_uncertain_tokens(settings: Settings, counter: TokenCounter) -> int:
    """Return the tokens of our estimate that a provider may add for tools, or may not."""
    return tools_overhead_tokens(counter) if settings.tools else 0


def _min_counted_share(counter: TokenCounter) -> float:
    shares = _MIN_COUNTED_SHARE_BY_COUNTER
    return next((share for name, share in shares if counter.name.startswith(name)), 0.3)


def _may_leave_out_thinking(conversation: Conversation) -> bool:
    """Whether a server may read less of the next request, because the templates of local models
    leave out the thinking of earlier turns."""
    rounds = (round for group in conversation.groups for round in group.rounds)
    return any(group.has_thinking for group in conversation.groups) or any(
        isinstance(part, Text) and "</think>" in part.text
        for round in rounds
        for entry in round.entries
        for part in entry.message.parts
    )


def _has_content_at_provider(settings: Settings) -> bool:
    """Whether a request may have content that is not in it: tools of the provider, or a stored
    prompt."""
    own_keys = ("function", "input_schema", "parameters")
    return any(map(settings.params.__contains__, _SERVER_SIDE_PARAMS)) or any(
        not any(map(tool.__contains__, own_keys))
        and tool.get("type") not in (None, "function", "custom")
        for tool in settings.tools
    )


@dataclass(slots=True)
class Accounting:
    """What calls taught. It starts without any call."""

    epoch: int = 0
    """The epoch of the newest turn."""
    prefix_version: int = 0
    """Rises whenever content that was already sent changes. The provider's cache ends there."""
    prefix_break_cause: str = ""
    """What changed it last."""
    sent_through_seq: int = 0
    """The last position that was sent in a call."""
    last_call: LoggedModelCall | None = None
    """The newest model call."""
    policy_note: JsonMapping | None = None
    """The policy's own record of the last call. A fork starts without one."""
    cache_is_cold: bool = True
    """True until the next call if the provider's cache cannot hold its prefix."""
    cache_misses: CacheMissTracker = field(default_factory=CacheMissTracker)
    """How reliable the provider's cache is."""
    call_count: int = 0
    """Number of calls so far, without imported ones."""
    last_usage: Usage | None = None
    """Usage of the last call that reported any."""
    total_usage: Usage = field(default_factory=lambda: Usage(input=0))
    """Sum of all reported usage."""
    total_cost_usd: float = 0.0
    """US dollars of all calls whose cost is known."""
    costed_calls: int = 0
    """Number of these calls: those with reported usage and a price, and those that were refused and
    cost nothing."""
    learned_limit: int | None = None
    """Maximum tokens for input and output together, as learned from the provider."""
    learned_request_limits: LearnedRequestLimits = field(default_factory=LearnedRequestLimits)
    """Maximum bytes, pictures and pixels of a request, as learned from the provider."""
    last_call_ratio: float = 1.0
    """Reported input divided by our estimate, at the last call that reported."""
    calibration_sums: tuple[float, float] = (0.0, 0.0)
    """Tokens of new text in calls, reported and estimated. Older text counts less."""
    usage_anchor: UsageAnchor | None = None
    """The last call with reported usage, if its request is still a prefix."""
    usage_trend: UsageTrend = field(default_factory=UsageTrend)
    """How the reported usage grew since the prefix changed."""
    carried_usage: UsageBeforeEdit | None = None
    """The size of the next request, derived from that call, if an edit changed it since then."""
    version_at_last_call: int = -1
    """Equal to `prefix_version` if the last call's request is still a prefix."""
    open_call_seq: int | None = None
    """Position of the last call until its outcome is known."""
    overflow_was_counted: bool = False
    """True if the last call was refused for its length and its input was counted."""
    refused_version: int = -1
    """The `prefix_version` of the last call's request if that was refused for its length without a
    count and without a limit; else -1. Calls that fail for another reason do not change it."""
    rejection: ProviderRejection = field(default_factory=ProviderRejection)
    """The last call, if its provider rejected the content."""
    started_tool_keys: list[str] = field(default_factory=list[str])
    """Keys of the tools that were started since the newest reply."""
    summary_stats: SummaryAttemptStats = field(default_factory=SummaryAttemptStats)
    """Statistics of the summaries that a model was asked for."""
    last_estimate: RequestEstimate = field(default_factory=lambda: RequestEstimate(0, 0))
    """Our estimates at the last call."""
    disbelieved_input: int = 0
    """The input that was reported for the last call, if it cannot be true."""
    was_truncated: bool = False
    """True if that is because the server truncated the request silently."""
    refusal_is_doubted: bool = False
    """True if a refusal without numbers was so small that it taught no limit."""

    @property
    def overflow_without_numbers(self) -> bool:
        """Whether the last call was refused for its length, without a count and a limit."""
        return self.refused_version >= 0

    def record_call(
        self, event: Event, call: ModelCall, settings: Settings, message_tokens: int
    ) -> None:
        """Record a call that is made or was imported, with our estimate of its messages."""
        if call.imported:
            # It ended well, elsewhere: what the last call was refused for no longer holds.
            self.rejection = ProviderRejection()
            self.overflow_was_counted = False
            self.refused_version = -1
        self.call_count += not call.imported
        self.cache_misses.record_call(
            self._expected_cache_read_tokens(event.at, settings),
            self._explain_cold_cache(event.at, settings),
        )
        self.last_call = LoggedModelCall(seq=event.seq, at=event.at, body=call)
        self.policy_note = call.note
        self.cache_is_cold = False
        self.sent_through_seq = call.position
        self.version_at_last_call = self.prefix_version
        self.open_call_seq = None if call.imported else event.seq
        self.last_estimate = RequestEstimate(message_tokens, call.tokens, call.media)

    def change_last_call(self, change: Callable[[Event], Event]) -> None:
        """Replace the last call by a changed one. An erasure removes its volatile text this way."""
        if (last := self.last_call) is not None:
            body = change(Event(seq=last.seq, at=last.at, body=last.body)).body
            self.last_call = replace(last, body=cast("ModelCall", body))

    def erase_provider_message(self) -> None:
        """Forget what the last rejection said, which may quote an erased text."""
        message = erase_provider_message(self.rejection.provider_message)
        self.rejection = self.rejection._replace(provider_message=message)

    def record_outcome(self, outcome: CallOutcome, conversation: Conversation) -> None:
        """Record the outcome of a call: a reply with its usage, or an error."""
        settings = conversation.settings
        error = outcome.error or {}
        self.costed_calls += outcome.usage is None and error.get("kind") in UNBILLED_KINDS
        limit = error.get("limit")
        by_bytes = outcome.call == self.open_call_seq and self._learn_request_limits(
            error, conversation
        )
        overflow = error.get("kind") == "overflow" and not by_bytes
        if overflow and isinstance(limit, int) and limit > 0:
            self.learned_limit = limit
        if outcome.call != self.open_call_seq:
            if outcome.usage is not None and outcome.usage.input > 0:
                # Late: it was billed, but what it would teach is about an older request.
                self._add_to_totals(outcome.usage, settings)
            return
        self.open_call_seq = None
        if not error:
            self.rejection = ProviderRejection()
        elif error.get("kind") == "rejected" and self.last_call is not None:
            self.rejection = self.rejection._replace(
                last_sent_seq=self.last_call.body.position,
                provider_message=str(error.get("message", "")),
            )
        usage = outcome.usage
        input_tokens = error.get("input") if overflow else None
        # A refusal that names its count teaches as much as a reply, if the figure can be true.
        is_plausible = isinstance(input_tokens, int) and _is_plausible_count(
            input_tokens, self.last_estimate.total_tokens
        )
        if overflow or not error:
            # An error that has nothing to do with the length does not undo what a refusal taught.
            self.overflow_was_counted = is_plausible
            has_numbers = input_tokens is not None or isinstance(limit, int)
            self.refused_version = self.version_at_last_call if overflow and not has_numbers else -1
            if self.overflow_without_numbers:
                self._learn_limit_from_refusal(settings, str(error.get("message", "")))
        if usage is not None and usage.input > 0:
            self._record_usage(usage, outcome, conversation)
        elif isinstance(input_tokens, int) and is_plausible:
            self._calibrate(input_tokens, conversation)

    def record_turn_state(self, change: TurnProgressRecord) -> None:
        """Record a turn's claim, or the start of a tool."""
        self.epoch = max(self.epoch, change.epoch)
        if change.state == "tool_started" and change.key:
            self.started_tool_keys = [*self.started_tool_keys, change.key]

    def record_summary_attempt(self, attempt: SummaryAttempt, message_count: int) -> None:
        """Record the result of a summary request, after this number of messages."""
        self.summary_stats = self.summary_stats.with_attempt(attempt, message_count)

    def record_reply(self) -> None:
        """Record a reply of the model. Tools that were started before it are finished."""
        self.started_tool_keys = []

    def record_new_turn(self) -> None:
        """Record a new message of the user."""
        self.rejection = self.rejection.after_new_user_message()

    def record_added_tokens(self, tokens: int) -> None:
        """Record a message of this number of estimated tokens."""
        if self.carried_usage is not None:
            self.carried_usage = self.carried_usage._replace(
                new_tokens=self.carried_usage.new_tokens + tokens
            )

    def break_prefix(self, cause: str, times: int = 1) -> None:
        """Record that content that was already sent has changed, by this number of events or
        parts."""
        self.prefix_version += times
        self.prefix_break_cause = cause
        self.usage_anchor = self.carried_usage = None
        self.usage_trend = UsageTrend()

    def reset_learned_on_model_change(self, previous: Settings, current: Settings) -> None:
        """Forget what was learned about another model: its limits and how it counts text.

        If the user sets another context window, the limits are also forgotten.
        """
        if _window_identity(current) != _window_identity(previous):
            self.learned_limit = None
            self.refusal_is_doubted = False
            self.learned_request_limits = LearnedRequestLimits()
        if (current.model, current.dialect) != (previous.model, previous.dialect):
            self.calibration_sums = (0.0, 0.0)

    def reset_calibration(self) -> None:
        """Forget how far our estimates were off, because another counter makes them now."""
        self.last_call_ratio = 1.0
        self.calibration_sums = (0.0, 0.0)

    def compute_calibration_ratio(self) -> float:
        """Return the factor for our estimates: that of the last call or of recently added text,
        whichever is higher."""
        heavy, light = self.calibration_sums
        return max(
            self.last_call_ratio,
            (heavy + CALIBRATION_PRIOR_TOKENS) / (light + CALIBRATION_PRIOR_TOKENS),
        )

    def compute_carried_usage(self, conversation: Conversation) -> UsageBeforeEdit | None:
        """Return what is known about the size of the request before something in it is changed."""
        anchor = self.usage_anchor
        if anchor is None:
            return self.carried_usage
        tokens = conversation.tokens
        new = max(0, tokens - anchor.message_tokens)
        most = compute_input_upper_bound(
            counter=conversation.counter,
            reported_tokens=anchor.reported_tokens,
            new_tokens=new,
            learned_ratio=self._bounded_ratio(),
        )
        estimate = conversation.settings.head.tokens + tokens
        summary_seq, dropped_messages, user_word_blocks = conversation.front_state()
        return UsageBeforeEdit(
            max_tokens=most,
            message_tokens=tokens,
            ratio=min(max(most / max(1, estimate), MIN_BELIEVED_USAGE_RATIO), MAX_LEARNED_RATIO),
            summary_seq=summary_seq,
            dropped_messages=dropped_messages,
            user_word_blocks=user_word_blocks,
        )

    def find_truncation_limit(self, reported_tokens: int, conversation: Conversation) -> int:
        """Return the tokens that certainly fit if the server truncated the last call's request
        silently, else 0.

        It did if it read far less than our estimate, or no more than before although the request
        has grown. Pictures are not counted, because a server may ignore them. What a provider adds
        for tools is not counted, because local servers add nothing. If a provider has a cache, the
        count may only include what the cache did not hold. Such providers refuse requests instead
        of truncating them. Ollama cuts to half of the window. A cut of the first requests is
        noticed once twice as much was sent, if the tokenizer's family is known. Other cuts are
        noticed when the history has grown further.
        """
        settings = conversation.settings
        counter = conversation.counter
        chat = settings.dialect == "openai_chat"  # no others cut
        has_cache = settings.entry.get("cache_style") != "none"
        if not chat or has_cache or reported_tokens < _MIN_TRUNCATED_TOKENS:
            return 0
        pending = self.last_estimate
        estimate = (pending.total_tokens - pending.media_tokens) * min(1.0, self.last_call_ratio)
        if (self.overflow_was_counted or self.was_truncated) and estimate <= (
            self.learned_limit or 0
        ):
            # Cut down to what the server has read already, and again little of it was counted: it
            # is the estimate that is off, and the limit would go down for ever.
            return 0
        uncertain_tokens = _count_uncertain_tokens(settings, counter)
        text = estimate - uncertain_tokens
        is_far_less = reported_tokens < _min_counted_share(counter) * text
        trend = self.usage_trend
        has_stalled = (
            not pending.media_tokens
            and trend.has_stalled(reported_tokens, pending.total_tokens - uncertain_tokens)
            and not _may_leave_out_thinking(conversation)
        )
        if has_stalled:
            return trend.reported_tokens
        anchor = self.usage_anchor
        return max(reported_tokens, anchor.reported_tokens if anchor else 0) if is_far_less else 0

    def to_state(self) -> dict[str, Any]:
        """Return the state for a snapshot, under the stored keys."""
        last = self.last_call
        return {
            "prefix_version": self.prefix_version,
            "broken_by": self.prefix_break_cause,
            "epoch": self.epoch,
            "sent": self.sent_through_seq,
            "calls": self.call_count,
            "cold": self.cache_is_cold,
            "learned_limit": self.learned_limit,
            "ratio": self.last_call_ratio,
            "call_version": self.version_at_last_call,
            "awaiting": self.open_call_seq,
            "overflowed": self.overflow_was_counted,
            "started": self.started_tool_keys,
            "paid": [self.total_cost_usd, self.costed_calls],
            "last_call": last.seq if last else None,
            "noted": self.policy_note is not None,
            "anchor": self.usage_anchor,
            "weighed": self.calibration_sums,
            "pending": self.last_estimate,
            **self.cache_misses.to_state(),
            "last_usage": None if self.last_usage is None else asdict(self.last_usage),
            "used": asdict(self.total_usage),
            "summaries": self.summary_stats.to_json(),
            "rejection": self.rejection,
            "refused": self.refused_version,
            "carried": self.carried_usage,
            "disbelieved": self.disbelieved_input,
            "truncated": self.was_truncated,
            "trend": self.usage_trend,
            "request_limits": self.learned_request_limits,
            "doubted": self.refusal_is_doubted,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], events: Mapping[int, Event]) -> Accounting:
        """Return the accounting of `to_state`'s output, with the events that the snapshot names."""
        last_call = None
        policy_note = None
        if state["last_call"]:
            call_event = events[state["last_call"]]
            assert isinstance(call_event.body, ModelCall)  # noqa: S101 - the snapshot names it so
            last_call = LoggedModelCall(seq=call_event.seq, at=call_event.at, body=call_event.body)
            policy_note = call_event.body.note if state["noted"] else None
        heavy, light = state["weighed"]
        anchor = state["anchor"]
        carried_usage = state["carried"]
        usage = state["last_usage"]
        return cls(
            epoch=state["epoch"],
            prefix_version=state["prefix_version"],
            prefix_break_cause=state["broken_by"],
            sent_through_seq=state["sent"],
            last_call=last_call,
            policy_note=policy_note,
            cache_is_cold=state["cold"],
            cache_misses=CacheMissTracker.from_state(state),
            call_count=state["calls"],
            last_usage=None if usage is None else Usage(**usage),
            total_usage=Usage(**state["used"]),
            total_cost_usd=state["paid"][0],
            costed_calls=state["paid"][1],
            learned_limit=state["learned_limit"],
            last_call_ratio=state["ratio"],
            calibration_sums=(heavy, light),
            usage_anchor=None if anchor is None else UsageAnchor(*anchor),
            carried_usage=None if carried_usage is None else UsageBeforeEdit(*carried_usage),
            version_at_last_call=state["call_version"],
            open_call_seq=state["awaiting"],
            overflow_was_counted=state["overflowed"],
            refused_version=state["refused"],
            rejection=ProviderRejection(*state["rejection"]),
            started_tool_keys=state["started"],
            summary_stats=SummaryAttemptStats.from_json(state["summaries"]),
            last_estimate=RequestEstimate(*state["pending"]),
            disbelieved_input=state["disbelieved"],
            was_truncated=state["truncated"],
            usage_trend=UsageTrend(*state["trend"]),
            refusal_is_doubted=state["doubted"],
            learned_request_limits=LearnedRequestLimits(*state["request_limits"]),
        )

    def _record_usage(self, usage: Usage, outcome: CallOutcome, conversation: Conversation) -> None:
        settings = conversation.settings
        self.cache_misses.record_usage(
            usage, int(settings.entry.get("cache_minimum", 0)), outcome.cache_diagnosis
        )
        self.last_usage = usage
        self._add_to_totals(usage, settings)
        truncation_limit = self.find_truncation_limit(usage.input, conversation)
        self.was_truncated = truncation_limit > 0
        if self.was_truncated:
            self.learned_limit = truncation_limit
            self.disbelieved_input = usage.input
            return
        input_tokens = usage.input if outcome.counted is None else outcome.counted
        uncertain_tokens = _count_uncertain_tokens(settings, conversation.counter)
        too_high = self._is_impossibly_high(input_tokens, settings)
        if too_high and self.disbelieved_input:
            # Twice in a row is no accident, so that what the calls before taught is wrong as well.
            self.usage_anchor = self.carried_usage = None
            self.usage_trend = UsageTrend()
            self.reset_calibration()
        is_calibration = (
            input_tokens > 0 and not too_high and self._calibrate(input_tokens, conversation)
        )
        self.disbelieved_input = 0 if is_calibration else usage.input
        pending = self.last_estimate
        is_prefix = self.version_at_last_call == self.prefix_version
        if is_prefix and not too_high and not pending.media_tokens:
            self.usage_trend = self.usage_trend.after_call(
                input_tokens, pending.total_tokens - uncertain_tokens
            )

    def _add_to_totals(self, usage: Usage, settings: Settings) -> None:
        self.total_usage = add_usage(self.total_usage, usage)
        at = 0.0 if self.last_call is None else self.last_call.at
        cost = compute_cost_usd(usage, settings.entry, at=at)
        if cost is not None:
            self.total_cost_usd += cost
            self.costed_calls += 1

    def _calibrate(self, reported_tokens: int, conversation: Conversation) -> bool:
        """Learn from the count of the last call. Return False if the count cannot be true."""
        pending = self.last_estimate
        if not self._is_believable(reported_tokens, conversation):
            return False
        if pending.total_tokens > 0:
            if not pending.media_tokens:
                self.last_call_ratio = (reported_tokens + CALIBRATION_PRIOR_TOKENS) / (
                    pending.total_tokens + CALIBRATION_PRIOR_TOKENS
                )
            self._update_calibration_sums(reported_tokens)
        if self.version_at_last_call == self.prefix_version:
            rode = self.last_call is not None and bool(self.last_call.body.volatile)
            self.usage_anchor = UsageAnchor(
                reported_tokens,
                pending.message_tokens,
                pending.total_tokens,
                rode,
                pending.media_tokens,
            )
            self.carried_usage = None
        return True

    def _is_impossibly_high(self, reported_tokens: int, settings: Settings) -> bool:
        """Whether a count is above what the request can have, such as a sum over many calls.

        A token is a byte or longer, so that text has at most about four times the tokens of our
        estimate. What a provider adds is constant. Content that only the provider has, such as the
        results of its own tools, can have any size up to the window.
        """
        pending = self.last_estimate
        anchor = self.usage_anchor
        limit, _ = resolve_token_limit_and_source(settings, self.learned_limit)
        most = MAX_LEARNED_RATIO * pending.total_tokens
        if pending.media_tokens or _has_content_at_provider(settings):
            return reported_tokens > max(limit, most + MAX_HIDDEN_TOKENS)
        if reported_tokens > most + (MAX_HIDDEN_TOKENS if reported_tokens <= limit else 0):
            return True
        usual = MAX_USAGE_GROWTH_RATIO * pending.total_tokens
        if anchor is None or self.version_at_last_call != self.prefix_version:
            if self.disbelieved_input:
                return reported_tokens > usual + MAX_HIDDEN_GROWTH_TOKENS
            usual *= max(1.0, self.last_call_ratio)
            return any(self.calibration_sums) and reported_tokens > usual + MAX_HIDDEN_TOKENS
        new = max(0, pending.total_tokens - anchor.estimated_tokens)
        growth = reported_tokens - anchor.reported_tokens - MAX_HIDDEN_GROWTH_TOKENS
        return growth > MAX_LEARNED_RATIO * new and (
            reported_tokens > usual + MAX_HIDDEN_GROWTH_TOKENS
        )

    def _is_believable(self, reported_tokens: int, conversation: Conversation) -> bool:
        """Whether a count may be that of the whole request.

        A partial count, for example without cached tokens, must not lower the bound. It does not
        grow with the whole request, or it is lower than any tokenizer counts. Pictures may cost far
        less than our estimate, and so may a short request, most of which is framing.
        """
        pending = self.last_estimate
        anchor = self.usage_anchor
        counter = conversation.counter
        uncertain_tokens = _count_uncertain_tokens(conversation.settings, counter)
        text = pending.total_tokens - pending.media_tokens - uncertain_tokens
        is_prefix_new = self.version_at_last_call != self.prefix_version
        trend = self.usage_trend
        is_proven = (
            trend.calls + 1 >= MIN_TREND_CALLS
            and not is_prefix_new
            and not pending.media_tokens
            and trend.is_continued_by(reported_tokens, text)
        )
        least_share = _min_counted_share(counter) if is_proven else MIN_BELIEVED_USAGE_RATIO
        least = text * min(MIN_BELIEVED_USAGE_RATIO, max(1 / MAX_LEARNED_RATIO, least_share))
        if anchor is None or anchor.had_volatile or is_prefix_new:
            return text <= CALIBRATION_PRIOR_TOKENS or reported_tokens >= least
        prefix_tokens = MIN_PREFIX_USAGE_RATIO * anchor.reported_tokens
        return reported_tokens >= min(text, max(least, prefix_tokens))

    def _update_calibration_sums(self, reported_tokens: int) -> None:
        """Add the new text of a request to the calibration.

        Text that was added since the previous call shows best how further text will count. A whole
        request shows less, because it includes what a provider adds or leaves out. It is used only
        if it has more tokens than all text so far. Text that came with a picture is not used.
        """
        before, (heavy, light) = self.usage_anchor or UsageAnchor(0, 0, 0), self.calibration_sums
        new = self.last_estimate.total_tokens - before.estimated_tokens
        if self.last_estimate.media_tokens == before.media_tokens and new > (
            0 if self.usage_anchor else light
        ):
            decay = CALIBRATION_HALF_LIFE_TOKENS / (CALIBRATION_HALF_LIFE_TOKENS + new)
            heavy = decay * heavy + min(
                max(0, reported_tokens - before.reported_tokens), MAX_LEARNED_RATIO * new
            )
            self.calibration_sums = (heavy, decay * light + new)

    def _learn_request_limits(self, error: JsonMapping, conversation: Conversation) -> bool:
        """Learn from an error about bytes, pictures or pixels. Return whether it was such an error.

        A request without pictures and files can only become smaller by its text, so it teaches no
        limit here.
        """
        refusal = parse_size_refusal(str(error.get("message", "")))
        names_tokens = "limit" in error or "input" in error
        if refusal is None or names_tokens or not conversation.visible_media:
            return False
        self.learned_request_limits = self.learned_request_limits.after_refusal(
            refusal,
            request_bytes=conversation.request_bytes(),
            pictures=conversation.count_visible_pictures(),
        )
        return True

    def _learn_limit_from_refusal(self, settings: Settings, provider_message: str) -> None:
        """Learn from a refusal without numbers: the limit is below the size of the refused request.

        If less than half of the known window was in use, the first refusal is believed only if it
        names the context window. Any other may have another reason.
        """
        size = self._likely_request_tokens()
        last = self.last_call
        before = self.refusal_is_doubted
        if last is None or size < MIN_REFUSED_TOKENS:
            return
        new_limit = size + last.body.max_output
        prior_limit = self.learned_limit
        limit, _ = resolve_token_limit_and_source(settings, prior_limit)
        is_certain = before or names_context_window(provider_message)
        self.refusal_is_doubted = not is_certain and new_limit < limit // 2
        if not self.refusal_is_doubted:
            self.learned_limit = min(new_limit, prior_limit or new_limit)

    def _likely_request_tokens(self) -> int:
        """Return the tokens of the last call's input as the provider would probably count them."""
        anchor = self.usage_anchor
        pending = self.last_estimate
        ratio = self._bounded_ratio()
        if anchor is None:
            return int(ratio * pending.total_tokens)
        return int(
            anchor.reported_tokens + ratio * max(0, pending.total_tokens - anchor.estimated_tokens)
        )

    def _bounded_ratio(self) -> float:
        return min(max(self.compute_calibration_ratio(), 1.0), MAX_LEARNED_RATIO)

    def _expected_cache_read_tokens(self, at: float, settings: Settings) -> int:
        """Return the tokens that the provider's cache should hold for the current call."""
        last = self.last_call
        ttl = float(settings.entry.get("cache_ttl", 0))
        is_same_prefix = self.version_at_last_call == self.prefix_version
        warm = last is not None and at - last.at <= ttl and is_same_prefix
        return self.last_usage.input if warm and self.last_usage and not self.cache_is_cold else 0

    def _explain_cold_cache(self, at: float, settings: Settings) -> str:
        """Explain why the provider's cache cannot hold the previous request; empty if it can."""
        if self.last_call is None:
            return ""
        if self.version_at_last_call != self.prefix_version:
            return self.prefix_break_cause
        idle = at - self.last_call.at
        ttl = float(settings.entry.get("cache_ttl", 0))
        if idle > ttl > 0:
            return (
                f"{idle:,.0f} s have passed since the last call, and the cache lives {ttl:,.0f} s"
            )
        return ""


def _is_plausible_count(reported_tokens: int, estimated_tokens: int) -> bool:
    """Whether a request with this estimate may really have the reported number of tokens."""
    return (
        0 < reported_tokens <= MAX_LEARNED_RATIO * estimated_tokens
        and estimated_tokens <= MAX_LEARNED_RATIO * (reported_tokens + CALIBRATION_PRIOR_TOKENS)
    )


def _window_identity(settings: Settings) -> tuple[str, str, object]:
    return settings.model, settings.dialect, settings.limits.get("context_window")
