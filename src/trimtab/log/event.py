"""What happened: the records of a session's log, to and from canonical JSON.

An event is an envelope (position, time) around one body. The log only grows; a window is folded
from it and nothing else. Each stored shape carries a version, see `upgrade_event_json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cache
from typing import Any, Literal, NamedTuple, cast

from trimtab.log.message import Message, message_from_json, message_to_json

EVENT_FORMAT_VERSION = 7
"""Of the stored shape. A change of shape raises it, keeps a golden file and adds to
`upgrade_event_json`."""

EditKind = Literal["truncate", "mask", "summarise", "drop", "reveal"]
JsonMapping = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    bytes: int
    """UTF-8 bytes of every text that is sent: content, call names, ids and arguments; four for
    each token of media, whatever their payload weighs."""
    tokens: int
    """Estimated tokens of the same, with the overhead of the blocks that carry them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a provider says a call used, normalised: caches are included in `input`."""

    input: int
    """Prompt tokens, cache reads and writes included."""
    output: int = 0
    """Completion tokens, reasoning included."""
    cache_read: int = 0
    """Prompt tokens read from the provider's cache."""
    cache_write: int = 0
    """Prompt tokens written to the provider's cache."""
    cache_write_long: int = 0
    """Of those, what is kept for the longer lifetime: an hour at Anthropic, twelve at OpenAI."""


def add_usage(first: Usage, second: Usage) -> Usage:
    """Two usages together."""
    return Usage(
        input=first.input + second.input,
        output=first.output + second.output,
        cache_read=first.cache_read + second.cache_read,
        cache_write=first.cache_write + second.cache_write,
        cache_write_long=first.cache_write_long + second.cache_write_long,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that shapes a request besides the messages; a new one replaces the last whole."""

    model: str
    """The model's name as the provider knows it."""
    dialect: str
    """The wire format that requests are rendered in."""
    system: tuple[Message, ...] = ()
    """The system prompt."""
    tools: tuple[JsonMapping, ...] = ()
    """Tool definitions in the dialect's own form: the standard ones, recall tools included, then
    those selected for one turn."""
    selected: int = 0
    """How many of them, at the end, are selected for one turn."""
    listed_system: int = 0
    """How many messages of the system prompt, at its end, came with the caller's own list."""
    params: JsonMapping = field(default_factory=dict[str, Any])
    """Further request parameters, passed on as they are."""
    policy: str = "layered"
    """The policy's name; decisions are in the log, so a fold never needs the function."""
    policy_params: JsonMapping = field(default_factory=dict[str, Any])
    """What the policy was configured with, for the reader of the log."""
    limits: JsonMapping = field(default_factory=dict[str, Any])
    """`context_window`, `max_input_tokens`, `max_output_tokens` where the user set them."""
    entry: JsonMapping = field(default_factory=dict[str, Any])
    """The model's catalog entry as it was resolved."""
    counter: str = ""
    """The name of the token counter whose figures the events carry."""
    recall: bool = False
    """True where the recall tools are among the tools and placeholders name their handles."""
    renderer: int = 1
    """The version of the code that turns a window into a request."""
    head: Size = field(default_factory=lambda: Size(bytes=0, tokens=0))
    """Size of system prompt and tools together."""

    @property
    def rules_model(self) -> str:
        """The name that tells what the model takes and refuses: that of the catalog model which a
        deployment of another name is, else the model's own."""
        return str(self.entry.get("base_model") or self.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAdded:
    message: Message
    """What was said."""
    sizes: tuple[Size, ...]
    """One for each part, in order."""
    counter: str = ""
    """The token counter that `sizes` was taken with."""
    call: int | None = None
    """The position of the call that this replies to."""
    reply_id: str | None = None
    """The provider's id of the reply, by which a second copy is recognised."""
    key: str | None = None
    """The sender's idempotency key, unique in a session."""
    recalled: bool = False
    """True for an answer of the recall tools: it repeats what stands elsewhere."""
    paused: bool = False
    """True for a reply that its provider has not finished: sent back as it is, it goes on."""


class UserPartReference(NamedTuple):
    """One part of a user's message that stays in the list of the user's words, by reference."""

    seq: int
    """Position of the message."""
    part: int
    """Index of the part: a text, or a picture that is named by its handle."""
    head: int = -1
    """Characters kept from the start of the text; -1 keeps all of it."""
    tail: int = 0
    """Characters kept from its end."""
    same_seq: int = 0
    """Position of an earlier message that says the same, to which this one only refers."""
    same_part: int = 0
    """Index of the part there."""


class OmittedUserMessages(NamedTuple):
    """User messages for which the list has no room: one line tells of all of them."""

    messages: int
    """How many."""
    first: int
    """Position of the first of them."""
    last: int
    """Position of the last of them."""
    since: float
    """When the first was said, in seconds since the epoch."""
    until: float
    """When the last was said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """From now on the model sees something else than what was said, or sees it again."""

    op: EditKind
    """`truncate` and `mask` name one part; `drop` and `summarise` whole groups; `reveal` either."""
    first: int
    """Position of the first message it names."""
    last: int
    """Position of the last message it names; equal to `first` for a part."""
    part: int | None = None
    """Index of the part within the message; None for whole messages."""
    text: str = ""
    """The indicator, the placeholder or the summary that stands in."""
    head: int = 0
    """Characters kept from the start (`truncate`)."""
    tail: int = 0
    """Characters kept from the end (`truncate`)."""
    size: Size = field(default_factory=lambda: Size(bytes=0, tokens=0))
    """Size of what stands in: of the whole truncated part, of the placeholder, of the summary."""
    why: str = ""
    """The rule that decided it, with its numbers."""
    prior: int = 0
    """Position of the summary that this one carries on; 0 for the first, and for other edits."""
    spares: tuple[int, ...] = ()
    """Positions of messages that stay though they lie within, with their groups (`summarise`)."""
    pieces: tuple[tuple[int, int], ...] = ()
    """Ranges of characters that are kept of a long result, where more than its ends stay."""
    listed: tuple[UserPartReference, ...] = ()
    """The user's words in what is hidden, which stay in the list: one block of it."""
    relists: bool = False
    """True where `listed` is all of the list: what was listed before is in it, or left out."""
    left_out: OmittedUserMessages | None = None
    """User messages that the list has no room for; with `relists`."""

    @property
    def handle(self) -> str:
        """By what the hidden text is recalled."""
        if self.part is not None:
            return f"m{self.first}.{self.part}"
        return f"m{self.first}" if self.first == self.last else f"m{self.first}-m{self.last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultRepair:
    """A tool call that never got its result gets one, so that the history is valid again."""

    message: Message
    """The result that stands in."""
    sizes: tuple[Size, ...]
    """One for each part, in order."""
    why: str = ""
    """What had happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A request was handed out to be sent."""

    position: int
    """The last event that the request was rendered from."""
    max_output: int
    """Tokens of output asked for."""
    hash: str = ""
    """SHA-256 of the request, see `prompt.py`; empty where none was rendered."""
    tokens: int = 0
    """The estimated input."""
    media: int = 0
    """Of it, the pictures and files: an erasure may destroy them later."""
    bytes: int = 0
    """UTF-8 bytes of all texts sent, head included."""
    bound: int = 0
    """The declared upper bound of the input."""
    blocks: int = 0
    """Blocks sent behind the head."""
    marks: tuple[int, ...] = ()
    """Block indexes after which the prefix was marked for caching; -1 is the end of the head."""
    stream: bool = False
    """Whether a streamed reply was asked for."""
    volatile: str | None = None
    """What rode behind the last cache mark in this call alone."""
    note: JsonMapping | None = None
    """The policy's own small record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    call: int
    """The position of the call."""
    status: Literal["ok", "error"] = "ok"
    """How it ended; a call without an outcome is unknown and teaches nothing."""
    usage: Usage | None = None
    """What the provider reported."""
    stop: str | None = None
    """Why the model stopped, in the provider's word."""
    error: JsonMapping | None = None
    """`kind`, and where the provider named them `limit`, `input`, `requested`; `message` where it
    did not take what was said, or took it for too many bytes; on error only."""
    counted: int | None = None
    """Tokens of the request as it was sent, where `usage.input` is another figure: the provider
    has edited it, or run the model several times. 0 where the reply does not tell them."""
    cache_diagnosis: JsonMapping | None = None
    """What the provider says of its prompt cache: `reason`, and for a miss `missed_tokens`."""
    server_edits: JsonMapping | None = None
    """By kind of edit that the provider made itself: the tokens that it took out. None where the
    reply does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnProgressRecord:
    """Ownership of the agentic loop, and the tools it has started."""

    state: Literal["claimed", "tool_started", "ended"]
    """What is recorded."""
    epoch: int
    """Rises with each claim; a writer with an older one is refused."""
    key: str | None = None
    """The idempotency key of the tool that was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    first: int
    """Position of the first pinned message."""
    last: int
    """Position of the last pinned message."""
    pinned: bool = True
    """False takes a pin off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    to: int
    """Messages, edits and pins become those of the fold at this position; the rest stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    parent: str
    """The session that the events up to here were copied from."""
    position: int
    """The parent's position at the time; not `at`, which is every event's own time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadErasure:
    """The payload of a message or part is destroyed, with the summaries made from it."""

    message: int
    """Position of the message."""
    part: int | None = None
    """Index of the part; None for all of them."""
    why: str = ""
    """Who asked, or which rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionErasure:
    before: int
    """Payloads of messages before this position were destroyed by a retention rule."""
    why: str = ""
    """The rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryAttempt:
    """A model was asked for a summary; what it gave, if it may stand, is an edit of its own."""

    first: int
    """Position of the first message that was to be summarised."""
    last: int
    """Position of the last one."""
    outcome: Literal["made", "patched", "rejected", "failed"]
    """`patched` where something was put right; `rejected` by a check; `failed` without a text."""
    model: str = ""
    """The model that was asked."""
    why: str = ""
    """What was wrong, with the numbers; never what was said."""
    calls: int = 0
    """Requests that it took."""
    usage: Usage | None = None
    """What they used, as reported; None where nothing was."""
    prices: JsonMapping = field(default_factory=dict[str, Any])
    """The model's prices at the time, by the names of its catalog entry."""
    tokens: int = 0
    """Of the summary that stands, its list included; 0 where none does."""
    replaced: int = 0
    """Tokens of the messages and of the summary before it that it was to stand for."""
    patched: int = 0
    """Items that the model's text did not say and the list carries."""
    part: int | None = None
    """Index of the one part that was to be summarised, a tool result; None for whole messages."""


EventBody = (
    Settings
    | MessageAdded
    | Edit
    | ToolResultRepair
    | ModelCall
    | CallOutcome
    | TurnProgressRecord
    | Pin
    | Rewind
    | Fork
    | PayloadErasure
    | RetentionErasure
    | SummaryAttempt
)

_CLASS_BY_KIND: dict[str, type[Any]] = {
    "settings": Settings,
    "message": MessageAdded,
    "edit": Edit,
    "repair": ToolResultRepair,
    "call": ModelCall,
    "outcome": CallOutcome,
    "turn": TurnProgressRecord,
    "pin": Pin,
    "rewind": Rewind,
    "fork": Fork,
    "erase": PayloadErasure,
    "retention": RetentionErasure,
    "attempt": SummaryAttempt,
}
_KIND_BY_CLASS = {cls: name for name, cls in _CLASS_BY_KIND.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One entry of the log: what happened, when, and at which position."""

    seq: int
    """Position in the log, from 1, without gaps."""
    at: float
    """Seconds since the epoch, by the session's clock."""
    body: EventBody
    """What happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedModelCall:
    """A call event, known to be one."""

    seq: int
    """Its position in the log."""
    at: float
    """Seconds since the epoch."""
    body: ModelCall
    """What was recorded."""


def dump_canonical_json(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def dump_event_line(event: Event) -> str:
    """The event as one line of JSON. Keys keep their order: providers' caches see that order."""
    return json.dumps(event_to_json(event), separators=(",", ":"), allow_nan=False)


def load_event_line(line: str | bytes) -> Event:
    """The inverse of `dump`."""
    return event_from_json(json.loads(line))


def event_to_json(event: Event) -> dict[str, Any]:
    """The event as plain JSON values; fields at their default are left out."""
    body = event.body
    out: dict[str, Any] = {
        "v": EVENT_FORMAT_VERSION,
        "seq": event.seq,
        "at": event.at,
        "kind": _KIND_BY_CLASS[type(body)],
    }
    for name, default in _list_fields(type(body)):
        value = getattr(body, name)
        if value != default:
            out[name] = value if type(value) in _SCALARS else _encode_field(value)
    return out


def event_from_json(event_json: JsonMapping) -> Event:
    """The inverse of `event_to_json`; older versions are upgraded first."""
    event_json = upgrade_event_json(event_json)
    cls = _CLASS_BY_KIND[event_json["kind"]]
    known = {spec.name for spec in fields(cls)}
    body = cls(
        **{key: _decode_field(key, value) for key, value in event_json.items() if key in known}
    )
    return Event(seq=event_json["seq"], at=event_json["at"], body=body)


def upgrade_event_json(event_json: JsonMapping) -> JsonMapping:
    """An event of an earlier version in today's shape; a later version is refused.

    1 knew neither `recalled` of a message nor `bytes` of a call, 2 neither `paused` of a message,
    `selected` of settings, `prior` of an edit nor attempts, 3 not `spares` of an edit, 4 neither
    `pieces` nor the list of the user's words, 5 not `media` of a call, 6 neither `counted`,
    `cache_diagnosis` and `server_edits` of an outcome, `cache_write_long` of usage nor
    `listed_system` of settings: what was not known is left out.
    """
    version = event_json.get("v")
    if version not in range(1, EVENT_FORMAT_VERSION + 1):
        raise ValueError(
            f"event {event_json.get('seq')} has format version {version}; this release reads up to "
            f"{EVENT_FORMAT_VERSION}: upgrade trimtab to read this log"
        )
    return event_json


_SCALARS = frozenset((str, int, float, bool))
"""What JSON has as it is."""


@cache
def _list_fields(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    """An event's fields, each with what it is if nothing is said; MISSING equals no value."""
    return tuple(
        (
            spec.name,
            spec.default if spec.default_factory is MISSING else spec.default_factory(),
        )
        for spec in fields(kind)
    )


def _encode_field(value: Any) -> Any:
    match value:
        case Message():
            return message_to_json(value)
        case Size():
            return [value.bytes, value.tokens]
        case Usage():
            figures = asdict(value)
            if not value.cache_write_long:
                del figures["cache_write_long"]
            return figures
        case UserPartReference():
            return _listed_part_to_json(value)
        case tuple():
            return [_encode_field(item) for item in cast("tuple[Any, ...]", value)]
        case _:
            return value


def _decode_field(key: str, value: Any) -> Any:
    match key, value:
        case "message", Mapping():
            return message_from_json(cast("JsonMapping", value))
        case "system", list():
            return tuple(message_from_json(item) for item in cast("list[JsonMapping]", value))
        case "sizes", list():
            return tuple(_size_from_pair(item) for item in cast("list[list[int]]", value))
        case (("size" | "head"), list()):
            return _size_from_pair(cast("list[int]", value))
        case "pieces", list():
            return tuple((start, end) for start, end in cast("list[list[int]]", value))
        case "listed", list():
            return tuple(UserPartReference(*each) for each in cast("list[list[int]]", value))
        case "left_out", list():
            return OmittedUserMessages(*cast("list[Any]", value))
        case "usage", Mapping():
            return Usage(**cast("dict[str, int]", value))
        case _, list():
            return tuple(cast("list[Any]", value))
        case _:
            return value


def _listed_part_to_json(listed: UserPartReference) -> list[int]:
    """A long list is mostly messages that are kept whole: two numbers each."""
    out: list[int] = list(listed)
    for default in (0, 0, 0, -1):
        if out[-1] != default:
            break
        out.pop()
    return out


def _size_from_pair(pair: list[int]) -> Size:
    return Size(bytes=pair[0], tokens=pair[1])
