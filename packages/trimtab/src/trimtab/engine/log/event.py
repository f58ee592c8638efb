"""The events of a session's log, and their canonical JSON.

An event is an envelope (position, time) around one body. The log only grows, and a window is
computed from the log alone. Each stored event carries a format version, see `check_event_version`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cache
from typing import Any, Literal, NamedTuple, cast

from trimtab.engine.log.message import Message, message_from_json, message_to_json
from trimtab.errors import NewerLogError

EVENT_FORMAT_VERSION = 1
"""Version of the stored format. It stays 1 until the first release."""
RENDERER_VERSION = 1
"""Version of everything that turns a window into a request. It stays 1 until the first release."""

DEFAULT_RECALL_HINT = "recall {handle}"
"""The words for the recall tools that Trimtab defines."""

EditKind = Literal["truncate", "mask", "summarise", "drop", "reveal"]
"""What an edit does to a part or a message."""
JsonMapping = Mapping[str, Any]
"""A JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a text as it is sent."""

    bytes: int
    """UTF-8 bytes of every text that is sent: content, call names, ids and arguments. Media count
    four bytes for each of their tokens, whatever the size of their payload."""
    tokens: int
    """Estimated tokens of the same texts, including the overhead of the blocks that carry them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a provider reports that a call used, normalised: `input` includes cached tokens."""

    input: int
    """Prompt tokens, including cache reads and writes."""
    output: int = 0
    """Completion tokens, including reasoning."""
    cache_read: int = 0
    """Prompt tokens read from the provider's cache."""
    cache_write: int = 0
    """Prompt tokens written to the provider's cache."""
    cache_write_long: int = 0
    """The part of `cache_write` with the longer lifetime: one hour at Anthropic, twelve at
    OpenAI."""


def add_usage(first: Usage, second: Usage) -> Usage:
    """Return the sum of two usages."""
    return Usage(
        input=first.input + second.input,
        output=first.output + second.output,
        cache_read=first.cache_read + second.cache_read,
        cache_write=first.cache_write + second.cache_write,
        cache_write_long=first.cache_write_long + second.cache_write_long,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that shapes a request except the messages. New settings replace the last ones
    whole."""

    model: str
    """The model's name as the provider knows it."""
    dialect: str
    """The wire format that requests are rendered in."""
    system: tuple[Message, ...] = ()
    """The system prompt."""
    tools: tuple[JsonMapping, ...] = ()
    """Tool definitions in the dialect's own form: first the standard tools, including the recall
    tools, then those selected for one turn."""
    selected: int = 0
    """How many tools at the end of `tools` are selected for one turn."""
    listed_system: int = 0
    """How many messages at the end of `system` came with the caller's own list."""
    params: JsonMapping = field(default_factory=dict[str, Any])
    """Further request parameters. They are passed on unchanged."""
    policy: str = "layered"
    """The policy's name. Its decisions are in the log, so a fold never needs the policy itself."""
    policy_params: JsonMapping = field(default_factory=dict[str, Any])
    """The policy's configuration, for readers of the log."""
    limits: JsonMapping = field(default_factory=dict[str, Any])
    """`context_window`, `max_input_tokens` and `max_output_tokens`, if the user set them."""
    entry: JsonMapping = field(default_factory=dict[str, Any])
    """The model's catalog entry as it was resolved."""
    counter: str = ""
    """The name of the token counter whose figures the events carry."""
    recall: bool | str | None = None
    """True if the recall tools are among the tools and placeholders name their handles. A text if
    the caller has such tools: the words by which placeholders name their handles. None if nobody
    has said whether there are any."""
    budget_note: bool = False
    """Whether each request ends with a line that says how full the window is."""
    redacts: bool = False
    """True if a function of the caller redacts every message before it is stored."""
    renderer: int
    """The version of the code that turns a window into a request, always written."""
    head: Size = field(default_factory=lambda: Size(bytes=0, tokens=0))
    """Size of the system prompt and the tools together."""

    @property
    def recall_hint(self) -> str:
        """The words that tell the model how to get what is hidden, with `{handle}` in the place of
        the handle; empty if it cannot."""
        if isinstance(self.recall, str):
            return self.recall
        return DEFAULT_RECALL_HINT if self.recall else ""

    @property
    def rules_model(self) -> str:
        """The name that decides which rules of a model apply: the catalog model if a deployment has
        another name, otherwise the model's own name."""
        return str(self.entry.get("base_model") or self.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAdded:
    """A message was added to the conversation."""

    message: Message
    """The message."""
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
    """True for an answer of the recall tools, which repeats other messages."""
    paused: bool = False
    """True for a reply that the provider has not finished. It continues if it is sent back
    unchanged."""
    undated: bool = False
    """True for a user message that came in a list together with later ones. The
    time when it was written is unknown."""


class UserPartReference(NamedTuple):
    """One part of a user's message, as a reference from the list of the user's words."""

    seq: int
    """Position of the message."""
    part: int
    """Index of the part: a text, or a picture that is named by its handle."""
    head: int = -1
    """Characters kept from the start of the text; -1 keeps all of it."""
    tail: int = 0
    """Characters kept from its end."""
    same_seq: int = 0
    """Position of an earlier message with the same text. This entry only refers to it."""
    same_part: int = 0
    """Index of the part in that message."""


class OmittedUserMessages(NamedTuple):
    """User messages for which the list has no room. One line of the list stands for all of them."""

    messages: int
    """Number of messages."""
    first: int
    """Position of the first of them."""
    last: int
    """Position of the last of them."""
    since: float | None
    """Time of the first message, in seconds since the epoch; None if it is not known."""
    until: float | None
    """Time of the last message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change of what the model sees: it hides content, replaces it or shows it again."""

    op: EditKind
    """The kind of edit. `truncate` and `mask` change one part, `drop` and `summarise` whole groups,
    and `reveal` either."""
    first: int
    """Position of the first message it names."""
    last: int
    """Position of the last message it names; equal to `first` for a part."""
    part: int | None = None
    """Index of the part within the message; None for whole messages."""
    text: str = ""
    """The indicator, placeholder or summary that replaces the content."""
    head: int = 0
    """Characters kept from the start (`truncate`)."""
    tail: int = 0
    """Characters kept from the end (`truncate`)."""
    size: Size = field(default_factory=lambda: Size(bytes=0, tokens=0))
    """Size of the replacement: the whole truncated part, the placeholder or the summary."""
    why: str = ""
    """The rule that decided it, with its numbers."""
    prior: int = 0
    """Position of the summary that this one continues; 0 for the first one and for other edits."""
    spares: tuple[int, ...] = ()
    """Positions of messages within the range that stay visible with their groups (`summarise`)."""
    pieces: tuple[tuple[int, int], ...] = ()
    """Ranges of characters that are kept of a long result, if more than head and tail stay."""
    listed: tuple[UserPartReference, ...] = ()
    """Hidden words of the user that stay in the list of the user's words: one block of that
    list."""
    relists: bool = False
    """True if `listed` is the whole list. Earlier entries are in it or in `left_out`."""
    left_out: OmittedUserMessages | None = None
    """User messages for which the list has no room. Only set with `relists`."""

    @property
    def handle(self) -> str:
        """The handle by which the hidden text can be recalled."""
        if self.part is not None:
            return f"m{self.first}.{self.part}"
        return f"m{self.first}" if self.first == self.last else f"m{self.first}-m{self.last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultRepair:
    """A result for a tool call that never got one, so that the history is valid again."""

    message: Message
    """The substitute result."""
    sizes: tuple[Size, ...]
    """One for each part, in order."""
    why: str = ""
    """What happened to the call."""


class CallerMark(NamedTuple):
    """A cache mark of the caller, in a request."""

    block: int
    """Index of the block after the head."""
    from_end: int
    """0 for the block itself; 1 for the last part of its content, 2 for the part before it."""
    keys: JsonMapping
    """The mark as the caller has written it, such as `{"cache_control": {"type": "ephemeral"}}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A request that was handed out to be sent, or one that a caller's own list shows was made."""

    position: int
    """The last event that the request was rendered from."""
    max_output: int
    """Output tokens that were requested."""
    hash: str = ""
    """SHA-256 of the request, see `prompt.py`; empty if no request was rendered."""
    imported: bool = False
    """True if a list that was imported has a reply here. A model has read everything up to
    `position`, but Trimtab made no call: nothing was sent, and no reader counts it."""
    tokens: int = 0
    """Estimated input tokens."""
    media: int = 0
    """The part of `tokens` for pictures and files. A later erasure may destroy them."""
    bytes: int = 0
    """UTF-8 bytes of all texts sent, including the head."""
    bound: int = 0
    """The declared upper bound of the input."""
    blocks: int = 0
    """Number of blocks sent after the head."""
    marks: tuple[int, ...] = ()
    """Block indexes after which the prefix was marked for caching; -1 is the end of the head."""
    caller_marks: tuple[CallerMark, ...] = ()
    """The caller's own cache marks, if only those are sent."""
    stream: bool = False
    """Whether a streamed reply was asked for."""
    volatile: str | None = None
    """Text that was sent after the last cache mark, in this call only."""
    note: JsonMapping | None = None
    """The policy's own small record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """A model call has ended."""

    call: int
    """The position of the call."""
    status: Literal["ok", "error"] = "ok"
    """How it ended; a call without an outcome is unknown and teaches nothing."""
    usage: Usage | None = None
    """What the provider reported. On error it is of a reply that was billed and is not kept."""
    stop: str | None = None
    """Why the model stopped, in the provider's word."""
    error: JsonMapping | None = None
    """Only on error: `kind`; `limit`, `input` and `requested` if the provider named them; `message`
    if the provider rejected the content or refused its size in bytes."""
    counted: int | None = None
    """Tokens of the request as it was sent, if `usage.input` differs: the provider edited the
    request or ran the model several times. 0 if the reply does not say."""
    cache_diagnosis: JsonMapping | None = None
    """What the provider reports about its prompt cache: `reason`, and for a miss
    `missed_tokens`."""
    server_edits: JsonMapping | None = None
    """Tokens that the provider itself removed, by kind of edit. None if the reply does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnProgressRecord:
    """Ownership of the agentic loop, and the tools it has started."""

    state: Literal["claimed", "tool_started", "ended"]
    """What is recorded."""
    epoch: int
    """Rises with each claim. A writer with an older epoch is refused."""
    key: str | None = None
    """The idempotency key of the tool that was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """Messages were pinned, so that nothing hides them, or a pin was removed."""

    first: int
    """Position of the first pinned message."""
    last: int
    """Position of the last pinned message."""
    pinned: bool = True
    """False removes a pin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """The conversation was set back to an earlier position."""

    to: int
    """Messages, edits and pins return to the fold at this position. Everything else stays."""
    puts_off: bool = False
    """Whether the undone messages of users are to be added again, by a later turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """The log began as a copy of another session."""

    parent: str
    """The session that the events up to here were copied from."""
    position: int
    """The parent's position at the time; not `at`, which is every event's own time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadErasure:
    """The payload of a message or part was destroyed, with the summaries made from it."""

    message: int
    """Position of the message."""
    part: int | None = None
    """Index of the part; None for all parts."""
    calls: tuple[int, ...] = ()
    """Positions of the calls whose volatile texts were destroyed with it."""
    why: str = ""
    """The person or the rule that asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionErasure:
    """A retention rule destroyed the content of old messages."""

    before: int
    """A retention rule destroyed the payloads of messages before this position."""
    why: str = ""
    """The rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryAttempt:
    """A model was asked for a summary. If its text was accepted, the summary is an edit of its
    own."""

    first: int
    """Position of the first message to summarise."""
    last: int
    """Position of the last message to summarise."""
    outcome: Literal["made", "patched", "rejected", "failed"]
    """`made`; `patched` if missing items were added; `rejected` by a check; `failed` if there was
    no text."""
    model: str = ""
    """The model that was asked."""
    why: str = ""
    """What was wrong, with the numbers. It never quotes the conversation."""
    calls: int = 0
    """Number of requests made."""
    usage: Usage | None = None
    """What the requests used, as reported; None if nothing was reported."""
    prices: JsonMapping = field(default_factory=dict[str, Any])
    """The model's prices at the time, by the names of its catalog entry."""
    tokens: int = 0
    """Tokens of the accepted summary, including its list; 0 if there is none."""
    replaced: int = 0
    """Tokens of the messages and of the previous summary that it was to replace."""
    patched: int = 0
    """Items that the model's text missed and the list carries."""
    part: int | None = None
    """Index of the one part to summarise, a tool result; None for whole messages."""


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
"""What happened: the body of an event."""

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
    """An event whose body is a model call."""

    seq: int
    """Its position in the log."""
    at: float
    """Seconds since the epoch."""
    body: ModelCall
    """What was recorded."""


def dump_canonical_json(value: Any) -> str:
    """Return the canonical JSON text of a value: sorted keys, no spaces, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def dump_event_line(event: Event) -> str:
    """Return the event as one line of JSON. Keys keep their order, because providers' caches see
    it."""
    return json.dumps(event_to_json(event), separators=(",", ":"), allow_nan=False)


def load_event_line(line: str | bytes) -> Event:
    """Return the event of a line that `dump_event_line` wrote."""
    return event_from_json(json.loads(line))


def event_to_json(event: Event) -> dict[str, Any]:
    """Return the event as plain JSON values, without fields that have their default."""
    body = event.body
    out: dict[str, Any] = {
        "version": EVENT_FORMAT_VERSION,
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
    """Return the event of `event_to_json`'s output. Raise the errors of `check_event_version`."""
    kind = event_json["kind"]  # without one it is not an event of any version
    check_event_version(event_json)
    cls = _CLASS_BY_KIND[kind]
    field_names = {spec.name for spec in fields(cls)}
    body = cls(
        **{
            key: _decode_field(key, value)
            for key, value in event_json.items()
            if key in field_names
        }
    )
    return Event(seq=event_json["seq"], at=event_json["at"], body=body)


def check_event_version(event_json: JsonMapping) -> None:
    """Check that this release can read an event.

    Raises:
        NewerLogError: The event was written by a newer version of trimtab.
        KeyError: It has no version: it is not an event.
    """
    version = event_json["version"]
    if version != EVENT_FORMAT_VERSION:
        raise NewerLogError(
            f"event {event_json.get('seq')} has format version {version}; this release reads up to "
            f"{EVENT_FORMAT_VERSION}: upgrade trimtab to read this log"
        )


_SCALARS = frozenset((str, int, float, bool))
"""Types that JSON stores unchanged."""


@cache
def _list_fields(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    """Return an event's fields, each with its default. MISSING equals no value."""
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
        case "caller_marks", list():
            return tuple(CallerMark(*each) for each in cast("list[list[Any]]", value))
        case "left_out", list():
            return OmittedUserMessages(*cast("list[Any]", value))
        case "usage", Mapping():
            return Usage(**cast("dict[str, int]", value))
        case _, list():
            return tuple(cast("list[Any]", value))
        case _:
            return value


def _listed_part_to_json(listed: UserPartReference) -> list[int]:
    """Drop defaults from the end: most entries are whole messages and need only two numbers."""
    out: list[int] = list(listed)
    for default in (0, 0, 0, -1):
        if out[-1] != default:
            break
        out.pop()
    return out


def _size_from_pair(pair: list[int]) -> Size:
    return Size(bytes=pair[0], tokens=pair[1])
