"""Prompt caches as the providers keep them: by prefix, for a time, for one key and model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from trimtab.models.catalog import ModelInfo
from trimtab.testing.request_counter import RequestBlock

LOOK_BACK_BLOCKS = 20
"""Number of blocks before a mark in which Anthropic looks for a stored prefix."""
MAX_WRITTEN_BREAKPOINTS = 4
"""Maximum number of breakpoints that one request writes."""
_CHUNK_CHARS = 256
"""Number of characters by which an automatic cache compares texts. A prefix may end in a block."""
_TTL_SECONDS = {"5m": 300.0, "1h": 3_600.0, "30m": 1_800.0, "12h": 43_200.0}
_MAX_PREFIXES = 500_000
_Key = tuple[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCacheUsage:
    """What a cache did for one request, in tokens."""

    read: int = 0
    """Tokens read from the cache."""
    written: int = 0
    """Tokens written to the cache."""
    hour_written: int = 0
    """Tokens written to the cache for an hour, included in `written`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PrefixEnd:
    """A position at which a prefix ends."""

    digest: bytes
    """The digest of everything up to here."""
    tokens: int
    """The tokens of everything up to here."""
    mark: str | None
    """How long to keep the prefix. None if it is not kept."""


@dataclass(slots=True, kw_only=True)
class ServerPromptCache:
    """All stored prefixes, with the time until which they are stored."""

    _kept: dict[_Key, tuple[float, float]] = field(default_factory=dict[_Key, tuple[float, float]])
    """Until when a prefix is stored, and by how many seconds a use prolongs it."""

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()

    def record_request(
        self,
        scope: str,
        blocks: Sequence[RequestBlock],
        *,
        salt: str,
        model_info: ModelInfo,
        scale_tokens: Callable[[int], int],
        now: float,
        is_anthropic: bool,
        marks_end: bool,
    ) -> SimulatedCacheUsage:
        """Look a request up and store it. `salt` is what invalidates messages but not the head.
        `marks_end` says whether the request's end counts as marked."""
        if model_info.cache_style == "none":
            return SimulatedCacheUsage()
        if len(self._kept) > _MAX_PREFIXES:
            self._kept = {key: entry for key, entry in self._kept.items() if entry[0] >= now}
        if model_info.cache_style == "automatic":
            points = list(_prefix_ends(blocks, salt, scale_tokens, chunk=_CHUNK_CHARS))
            return self._automatic(scope, points, model_info, now)
        points = list(_prefix_ends(blocks, salt, scale_tokens, chunk=0))
        return self._marked(
            scope, points, model_info, now, anthropic=is_anthropic, implicit=marks_end
        )

    def _holds(self, key: _Key, now: float) -> bool:
        return self._kept.get(key, (-1.0, 0.0))[0] >= now

    def _keep(self, key: _Key, now: float, life: float) -> None:
        """Prolong a stored prefix. A short mark does not shorten a prefix that is stored for an
        hour."""
        if self._holds(key, now):
            life = max(life, self._kept[key][1])
        self._kept[key] = (now + life, life)

    def _automatic(
        self, scope: str, points: list[_PrefixEnd], rules: ModelInfo, now: float
    ) -> SimulatedCacheUsage:
        read = 0
        for point in points:
            if not self._holds((scope, point.digest), now):
                break
            read = point.tokens
        for point in points:
            self._keep((scope, point.digest), now, rules.cache_ttl)
        read = read // rules.cache_step * rules.cache_step if read >= rules.cache_minimum else 0
        return SimulatedCacheUsage(read=read)

    def _marked(
        self,
        scope: str,
        points: list[_PrefixEnd],
        rules: ModelInfo,
        now: float,
        *,
        anthropic: bool,
        implicit: bool,
    ) -> SimulatedCacheUsage:
        marks = [index for index, point in enumerate(points) if point.mark]
        if implicit and points and len(points) - 1 not in marks:
            marks.append(len(points) - 1)
        if anthropic:
            indexes = {
                i for mark in marks for i in range(max(0, mark - LOOK_BACK_BLOCKS + 1), mark + 1)
            }
        else:
            # Breakpoints of earlier requests are found wherever they were; there is no look-back.
            indexes = set(range(len(points)))
        hits = [i for i in indexes if self._holds((scope, points[i].digest), now)]
        hit = max(hits, default=-1)
        read = points[hit].tokens if hit >= 0 else 0
        usual = "5m" if anthropic else "30m"
        write_indexes = [i for i in marks if points[i].tokens >= rules.cache_minimum][
            -MAX_WRITTEN_BREAKPOINTS:
        ]
        if hit >= 0 and hit not in write_indexes:
            write_indexes.append(hit)
        for index in write_indexes:
            life = _TTL_SECONDS[points[index].mark or usual]
            self._keep((scope, points[index].digest), now, life)
        ends = [points[i] for i in write_indexes if i > hit]
        hours = [point.tokens for point in ends if point.mark == "1h"]
        last = max((point.tokens for point in ends), default=read)
        return SimulatedCacheUsage(
            read=read, written=last - read, hour_written=max(hours, default=read) - read
        )


def _prefix_ends(
    blocks: Iterable[RequestBlock], salt: str, scale_tokens: Callable[[int], int], *, chunk: int
) -> Iterable[_PrefixEnd]:
    """Return the ends of prefixes: after each block, and with a chunk size also inside of texts."""
    whole = hashlib.blake2b(digest_size=16)
    before = 0
    has_salt = False
    for piece in blocks:
        if piece.section == "messages" and not has_salt:
            whole.update(salt.encode())
            has_salt = True
        size = len(piece.text)
        cuts = [*range(chunk, size, chunk), size] if chunk else [size]
        start = 0
        whole.update(b"\0\1")
        for cut in cuts:
            whole.update(piece.text[start:cut].encode("utf-8", "surrogatepass"))
            start = cut
            tokens = before + (piece.tokens * cut // size if size else piece.tokens)
            mark = piece.cache_ttl if cut == size else None
            yield _PrefixEnd(digest=whole.digest(), tokens=scale_tokens(tokens), mark=mark)
        before += piece.tokens
