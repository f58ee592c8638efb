"""A session as a page shows it: its calls, the blocks that each one sent, and what changed them.

The blocks of a call are not listed. Each call has the *splices* that turn the blocks of the call
before into its own: nothing of the size of a request is stored for a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from trimtab.inspect.block_body import BodyEncoder, redact_text
from trimtab.inspect.text_pool import TextPool

SectionKind = Literal["system", "words", "summary", "user", "assistant", "call", "result", "other"]
SECTION_KINDS: tuple[SectionKind, ...] = (
    "system", "words", "summary", "user", "assistant", "call", "result", "other",
)  # fmt: skip
"""What a request consists of, from its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBlock:
    """A block of a request, as long as it does not change."""

    kind: SectionKind
    """The section that counts it."""
    role: str
    """The role of its message as it is sent; empty if the body says it."""
    seq: int
    """Position of its message in the log; 0 for a text that Trimtab wrote."""
    part: int | None
    """Index of the one part that it shows. None for several."""
    tokens: int
    """Estimated tokens."""
    edit: int
    """Position of the edit that cut or replaced it; 0 if it is whole."""
    body: Any
    """The body, encoded."""
    label: str = ""
    """The tool that it calls or answers."""
    has_front: bool = False
    """Whether the list of the user's words, the summary or the notice stands before its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentCall:
    """One call."""

    seq: int
    """Its position in the log."""
    position: int
    """The last event that its request was rendered from."""
    at: float | None
    """Seconds since the epoch. None if it is not recorded."""
    head: int
    """Index of its system prompt, tools and parameters."""
    splices: tuple[int, ...]
    """Groups of four numbers: the place, how many blocks go, the first block that comes, and how
    many come."""
    sections: tuple[int, ...]
    """Estimated tokens of each of `SECTION_KINDS`."""
    limit: int | None
    """Tokens that input and output may reach together."""
    low: int | None
    """Tokens to which a compaction goes back: the low-water mark. None if the policy has none."""
    marks: tuple[int, ...]
    """Blocks after which the prefix was marked for the cache; -1 is the end of the head."""
    volatile: int | None
    """The number of the text for this call only."""
    is_verified: bool | None
    """Whether the request has the recorded hash. None if no hash was recorded."""
    input: int | None = None
    """Reported input tokens. None if nothing was reported, here and below."""
    output: int | None = None
    """Reported output tokens."""
    cache_read: int | None = None
    """Reported input tokens that were read from the cache."""
    cache_write: int | None = None
    """Reported input tokens that were written to it."""
    dollars: tuple[float, ...] | None = None
    """The cost: fresh input, cache reads, cache writes, output."""
    status: str = ""
    """`ok` or `error`; empty if unknown."""
    note: str = ""
    """Why the model stopped, or the kind of the error."""
    lost: int = 0
    """Tokens that had been sent before and were not read from the cache."""
    lost_dollars: float = 0.0
    """What it cost to read them fresh or to write them again."""
    lost_because: str = ""
    """Why, as far as the log says; empty if nothing was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEdit:
    """Something that changed what the model sees."""

    seq: int
    """Its position in the log."""
    op: str
    """The kind of edit, or `rewind`, `erase`, `settings`, `client`."""
    first: int
    """Position of the first message that it names."""
    last: int
    """Position of the last message that it names."""
    part: int | None = None
    """Index of the part that it changes. None for whole messages."""
    why: str = ""
    """The rule that decided it."""
    saved: int = 0
    """Tokens by which the context became smaller."""
    spares: tuple[int, ...] = ()
    """Messages within the range that stayed."""
    listed: tuple[int, ...] = ()
    """Positions of the user's messages that it adds to the list of the user's words."""
    relists: bool = False
    """Whether `listed` is the whole list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePart:
    """A part of a message, in full."""

    kind: str
    """`text`, `call`, `result`, `media` or `block`."""
    name: str
    """The tool's name or the type of the media."""
    text: int
    """The number of its text."""
    tokens: int
    """Estimated tokens in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineMessage:
    """A message, in full."""

    seq: int
    """Its position in the log, and its handle."""
    role: str
    """The role of the speaker."""
    at: float | None
    """Seconds since the epoch."""
    parts: tuple[TimelinePart, ...]
    """Its parts in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenName:
    """A call of a tool that names something that the model did not see at that time."""

    call: int
    """Index of the call whose reply names it."""
    name: str
    """The name."""
    source: int
    """Position of the newest message that contains it."""
    is_recall: bool
    """Whether the model asked for it by its handle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """System prompt, tools and parameters."""

    model: str
    """The model's name."""
    tokens: int
    """Estimated tokens."""
    system: tuple[int, ...]
    """Numbers of the texts of the system prompt."""
    tools: tuple[tuple[str, int, int], ...]
    """Each tool: its name, its tokens, and the number of its definition's text."""
    params: int | None
    """The number of the text of further parameters."""


@dataclass(slots=True, kw_only=True)
class Timeline:
    """Everything that a page shows of a session."""

    title: str
    """The session's name."""
    source: str
    """The program that recorded it: `Trimtab`, or the client's name."""
    note: str = ""
    """What the log does not say."""
    policy: str = ""
    """The policy and its goal."""
    pool: TextPool = field(default_factory=TextPool)
    heads: list[RequestHead] = field(default_factory=list[RequestHead])
    blocks: list[SentBlock] = field(default_factory=list[SentBlock])
    calls: list[SentCall] = field(default_factory=list[SentCall])
    messages: list[TimelineMessage] = field(default_factory=list[TimelineMessage])
    edits: list[TimelineEdit] = field(default_factory=list[TimelineEdit])
    names: list[HiddenName] = field(default_factory=list[HiddenName])
    rewinds: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    is_redacted: bool = False

    def add_text(self, text: str) -> int:
        """Return the number of a text. A redacted page has only its length."""
        return self.pool.add(redact_text(text) if self.is_redacted else text)

    def make_encoder(self) -> BodyEncoder:
        """Return an encoder of bodies over the texts of this timeline."""
        return BodyEncoder(self.pool, redacted=self.is_redacted)


def find_splices(before: Sequence[int], after: Sequence[int]) -> tuple[int, ...]:
    """Return the splices that turn one list of block numbers into another.

    What stays has its order, so one pass finds it. Positions count in the list as it is after the
    splices before.
    """
    rank = {number: place for place, number in enumerate(before)}
    splices: list[int] = []
    old = position = 0
    fresh: list[int] = []
    for number in after:
        place = rank.get(number, -1)
        if place < old:
            fresh.append(number)
            continue
        position += _append_splice(splices, position, place - old, fresh)
        old, fresh = place + 1, []
        position += 1
    _append_splice(splices, position, len(before) - old, fresh)
    return tuple(splices)


def apply_splices(blocks: list[int], splices: Sequence[int]) -> None:
    """Change a list of block numbers. The page's script does the same."""
    for index in range(0, len(splices), 4):
        start, removal, first, count = splices[index : index + 4]
        blocks[start : start + removal] = range(first, first + count)


def _append_splice(splices: list[int], position: int, removal: int, fresh: Sequence[int]) -> int:
    """Append what replaces `removal` blocks, one group for each run of numbers. Return how many
    come."""
    start = 0
    while removal or start < len(fresh):
        end = start
        while end < len(fresh) and fresh[end] == fresh[start] + end - start:
            end += 1
        first = fresh[start] if end > start else 0
        splices += (position + start, removal, first, end - start)
        removal, start = 0, end
    return len(fresh)
