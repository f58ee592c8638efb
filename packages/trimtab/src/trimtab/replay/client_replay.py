"""Replay what a client itself sends: as it was recorded, or under other settings of the client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from trimtab.engine.tokens.counter import measure_request_head
from trimtab.models.catalog import resolve_model_info
from trimtab.replay.billing import CacheRules, PromptCacheModel, PromptPiece
from trimtab.replay.calls import MAX_REFETCH_TOKENS, ConversationRun, ReplayedCall, ReplaySetup
from trimtab.replay.client_settings import (
    AS_RECORDED,
    COMPACTION_OUTPUT_TOKENS,
    ClientSettings,
    cut_results,
    list_kept_messages,
)
from trimtab.replay.needs import NO_NEEDS, CallNeeds, ShownText, count_needs
from trimtab.replay.prompt_scale import (
    PromptScale,
    choose_output_tokens,
    make_counter,
    measure_messages,
    with_learned_lifetime,
)
from trimtab.replay.selection import RecordedCall, RecordedConversation
from trimtab.replay.times import estimate_message_times, with_believed_times

MAX_COMPACTED_SHARE = 0.8
"""A client compacts if at most this share of its prompt is left, and not again at once."""


class ClientReplay:
    """One conversation, measured once, to be replayed under several settings of its client."""

    def __init__(
        self,
        conversation: RecordedConversation,
        model: str,
        rules_by_provider: Mapping[str, CacheRules],
        needs: Mapping[int, CallNeeds],
        scale: PromptScale | None,
    ) -> None:
        self._scale = scale or PromptScale()
        self._rules_by_provider = with_learned_lifetime(rules_by_provider, self._scale)
        if scale is not None:
            conversation = with_believed_times(conversation, self._rules_by_provider)
        self._conversation = conversation
        self._input_limit = resolve_model_info(model).input_limit
        self._needs = needs
        counter = make_counter(model)
        self._times = estimate_message_times(conversation)
        self._sizes = measure_messages(conversation.messages, counter)
        head = measure_request_head(conversation.system, conversation.tools, counter).tokens
        self._head = max(head, self._scale.head)
        self._known_runs: dict[tuple[int, ClientSettings], ConversationRun] = {}

    def run(self, setup: ReplaySetup) -> ConversationRun:
        """Replay the conversation. Settings that change nothing in it share one run."""
        limit = int(setup.options.get("context_window") or self._input_limit)
        settings = self._leave_out_unused(setup.client)
        run = self._known_runs.get((limit, settings))
        if run is None:
            run = self._replay(settings, limit)
            self._known_runs[limit, settings] = run
        return replace(run, setup=setup.name)

    def _leave_out_unused(self, settings: ClientSettings) -> ClientSettings:
        total = self._scale.ratio * (self._head + sum(self._sizes))
        if settings.compact_at is not None and settings.compact_at >= total:
            settings = replace(settings, compact_at=None)
        limit = settings.max_result_tokens
        if limit is not None and limit * settings.cut_from >= max(self._sizes, default=0):
            settings = replace(settings, max_result_tokens=None)
        if settings.compact_at is None and settings.max_result_tokens is None:
            return AS_RECORDED
        return settings

    def _replay(self, settings: ClientSettings, limit: int) -> ConversationRun:
        messages, scale = self._conversation.messages, self._scale
        sizes, cut = cut_results(settings, messages, self._sizes)
        walk = _ClientWalk(
            caches={
                name: PromptCacheModel(rules, scale.shared)
                for name, rules in self._rules_by_provider.items()
            },
            scale=scale,
            whole_sizes=self._sizes,
            cut=cut,
            pieces=[PromptPiece(digest=b"head", tokens=self._head, blocks=1)],
        )
        refusals = 0
        for index, message in enumerate(messages):
            if message.role == "assistant":
                usage = self._conversation.recorded.get(index, RecordedCall()).usage
                at = self._times[index]
                if settings.compact_at is not None and walk.tokens > settings.compact_at:
                    kept = list_kept_messages(settings, messages, sizes, index)
                    pieces = [_make_piece(source, sizes) for source in kept]
                    summary_tokens = round(settings.compacted_tokens / scale.ratio)
                    walk.compact(index, at, summary_tokens, pieces, frozenset(kept))
                # A call that the provider answered was not refused.
                if walk.tokens > limit and usage is None:
                    refusals += 1
                else:
                    output = choose_output_tokens(usage, message, self._sizes[index], scale)
                    walk.call(index, at, output, self._needs.get(index, NO_NEEDS))
            walk.pieces.append(_make_piece(index, sizes))
            walk.estimate += sizes[index]
        return ConversationRun(
            conversation=self._conversation.id,
            setup="",
            calls=tuple(walk.calls),
            cannot_fit=refusals,
        )


@dataclass(slots=True, kw_only=True)
class _ClientWalk:
    """A running replay. The prompt is marked at its end and where the call before ended, as coding
    agents do."""

    caches: Mapping[str, PromptCacheModel]
    scale: PromptScale
    whole_sizes: Sequence[int]
    cut: Mapping[int, ShownText]
    pieces: list[PromptPiece]
    """The prompt: its head, then summary and messages."""
    estimate: int = field(init=False)
    """Estimated tokens of the prompt."""
    start: int = 0
    """Index of the first message after the last compaction."""
    kept: frozenset[int] = frozenset()
    """Earlier messages that the compaction kept."""
    last_mark: int = 0
    calls: list[ReplayedCall] = field(default_factory=list[ReplayedCall])

    def __post_init__(self) -> None:
        self.estimate = self.pieces[0].tokens

    @property
    def tokens(self) -> int:
        """The provider's tokens of the prompt."""
        return round(self.scale.ratio * self.estimate)

    def compact(
        self, index: int, at: float, summary: int, pieces: list[PromptPiece], kept: frozenset[int]
    ) -> None:
        """Ask the model for a summary, and go on with it and with what the client keeps."""
        head = self.pieces[0]
        written = PromptPiece(digest=b"summary %d" % index, tokens=summary, blocks=1)
        left = [head, written, *pieces]
        left_tokens = sum(piece.tokens for piece in left)
        if left_tokens > MAX_COMPACTED_SHARE * self.estimate:
            return
        self.call(index, at, COMPACTION_OUTPUT_TOKENS, NO_NEEDS)
        self.pieces, self.estimate, self.last_mark = left, left_tokens, 0
        self.start, self.kept = index, kept

    def call(self, index: int, at: float, output: int, needs: CallNeeds) -> None:
        """Bill a call, and count what it still sees."""
        ratio, cut = self.scale.ratio, self.cut
        marks = sorted({0, self.last_mark, len(self.pieces) - 1})
        ttl = next(iter(self.caches.values())).rules.ttl
        bills = {
            name: cache.bill_call(self.pieces, marks, at).scaled(
                ratio, long_lived=self.scale.long_lived and cache.rules.style == "marks"
            )
            for name, cache in self.caches.items()
        }
        new_tokens = sum(piece.tokens for piece in self.pieces[self.last_mark + 1 :])
        self.last_mark = len(self.pieces) - 1
        counts, lost = count_needs(
            needs,
            lambda source: self._is_sent(source) and source not in cut,
            lambda sources: [cut[i] for i in sources if i in cut and self._is_sent(i)],
        )
        self.calls.append(
            ReplayedCall(
                index=index,
                at=at,
                tokens=self.tokens,
                head=round(ratio * self.pieces[0].tokens),
                new=round(ratio * new_tokens),
                is_cold=not self.calls or at - self.calls[-1].at > ttl,
                bill=bills,
                output=output,
                edits=0,
                broke=False,
                summarised=0,
                needs=counts,
                missing=sum(min(self.whole_sizes[source], MAX_REFETCH_TOKENS) for source in lost),
            )
        )

    def _is_sent(self, index: int) -> bool:
        return index >= self.start or index in self.kept


def _make_piece(index: int, sizes: Sequence[int]) -> PromptPiece:
    return PromptPiece(digest=b"%d" % index, tokens=sizes[index], blocks=1)
