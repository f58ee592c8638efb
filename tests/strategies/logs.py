"""Arbitrary lives of a context: how it begins, and what happens to it step by step.

A step is plain data that knows nothing of the state it meets, so that any list of steps is a life
and a failing one shrinks well. `life.py` carries the steps out.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from trimtab.log.message import Role
from trimtab.policy.config import GOALS, Goal, SummaryMode
from trimtab.policy.presets import POLICY_NAMES


@dataclass(frozen=True, kw_only=True)
class Words:
    """A text: as much of a unit, repeated, as `size` bytes hold."""

    unit: str = "word "
    size: int = 20


@dataclass(frozen=True, kw_only=True)
class Setup:
    dialect: str = "anthropic"
    model: str = "claude-sonnet-4-5"
    policy: str = "layered"
    goal: Goal = "balanced"
    context: dict[str, Any] = field(default_factory=dict[str, Any])
    summaries: SummaryMode = "extractive"
    window: int = 8_000
    output: int | None = None
    system: Words = field(default_factory=Words)
    tools: int = 0
    recall: bool = False
    thinking: bool = False
    heavier: float = 1.0
    """What the provider counts for each token of our estimate."""


@dataclass(frozen=True, kw_only=True)
class Say:
    """A message of any role that is no reply to a request."""

    role: Role = "user"
    words: Words = field(default_factory=Words)
    media: str | None = None
    form: int = 0
    """0 is a Message, 1 a dict of the context's own dialect, 2 and more one of another."""
    client: int | None = None
    """Which of the texts that a client program puts there stands before the words."""
    alone: bool = False
    """Whether it is all that is said."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A request, and what comes of it."""

    calls: tuple[str, ...] = ()
    """An id for each tool that the model calls."""
    words: Words | None = None
    arguments: Words | None = None
    """What each call is given beside its number."""
    opaque: bool = False
    reply: str = "whole"
    """`whole` with usage, `unmetered` without, `bare` (a message alone), `late` (whole, but after
    something was changed), `paused` (to be gone on with), `refused` for its length, `unsaid` (the
    same without a figure), `rejected` for what was said, `lost`."""
    twice: bool = False
    stream: bool = False
    volatile: str | None = None


@dataclass(frozen=True, kw_only=True)
class Results:
    """Results of the calls that are open."""

    missing: int = 0
    backwards: bool = False
    together: bool = False
    words: Words = field(default_factory=Words)
    media: bool = False
    steering: Words | None = None
    form: int = 0


@dataclass(frozen=True, kw_only=True)
class Stray:
    """A result that nobody waits for: a second one, a late one, or one of no call at all."""

    id: str = "a"
    words: Words = field(default_factory=Words)
    form: int = 0


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Rounds of calls and results, as an agent makes them."""

    rounds: int = 3
    width: int = 1
    words: Words = field(default_factory=Words)
    opaque: bool = False


@dataclass(frozen=True, kw_only=True)
class Chat:
    """A user and a model in turns."""

    rounds: int = 3
    words: Words = field(default_factory=Words)
    reply: Words | None = None
    """What the model says, if that is something else."""
    client: int | None = None
    """Which of a client program's texts stands before the user's words, each time."""


@dataclass(frozen=True, kw_only=True)
class Squeeze:
    """Requests that the provider refuses one after the other, naming a lower limit each time."""

    times: int = 3
    unsaid: bool = False
    """Whether it names none."""


@dataclass(frozen=True, kw_only=True)
class Configure:
    changes: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Back:
    """A rewind, by that many events."""

    by: int = 1


@dataclass(frozen=True, kw_only=True)
class Touch:
    """One of `reveal`, `pin`, `unpin`, `erase`, `retain`, `fork`, done to one of the messages."""

    what: str
    which: int = 0
    part: int | None = None
    until: int = 0
    """How many messages further a range goes."""


@dataclass(frozen=True, kw_only=True)
class Recall:
    """The model asks for a hidden text, and is answered."""

    which: int = 0


@dataclass(frozen=True, kw_only=True)
class Summarise:
    words: Words = field(default_factory=Words)


@dataclass(frozen=True, kw_only=True)
class Peek:
    """Looking at what would be sent, which must not change it."""


@dataclass(frozen=True, kw_only=True)
class Reload:
    """A restart: the log is written, and read again."""


@dataclass(frozen=True, kw_only=True)
class Forget:
    """What is hidden leaves memory, as at a checkpoint."""

    restart: bool = False
    """Whether a new process goes on from the snapshot."""


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """A call that was made by somebody else, whose reply is only told, if it is."""

    words: Words | None = field(default_factory=Words)


@dataclass(frozen=True, kw_only=True)
class Wait:
    seconds: int = 600


Step = (
    Say
    | Turn
    | Results
    | Stray
    | Loop
    | Chat
    | Squeeze
    | Configure
    | Back
    | Touch
    | Recall
    | Summarise
    | Peek
    | Reload
    | Forget
    | Elsewhere
    | Wait
)

units = st.sampled_from(
    ["word ", "数据", "🙂🚀", '{"a": [1, 2]}, ', "0123456789 ", "a line\n", "\ud800x", "[masked]"]
)
short = st.builds(Words, unit=units, size=st.sampled_from([12, 30, 120, 400]))
blank = st.builds(Words, unit=st.sampled_from(["", " ", "\n"]), size=st.just(1))
long = st.builds(Words, unit=units, size=st.sampled_from([1_500, 6_000, 20_000]))
gigantic = st.builds(Words, unit=units, size=st.sampled_from([*[40_000] * 5, 300_000]))
words = st.one_of(*[short] * 7, *[blank] * 2, *[long] * 6, gigantic)
medium = st.one_of(short, long)

ids = st.sampled_from(["a", "b", "c", "a_2", "x:1", "", "i" * 70])
forms = st.sampled_from([0, 0, 1, 1, 1, 2, 3])

MODELS: dict[str, tuple[str, ...]] = {
    "anthropic": ("claude-sonnet-4-5", "claude-opus-5", "somebody/unknown"),
    "openai_chat": ("gpt-4o", "gpt-5.6", "somebody/unknown"),
    "openai_responses": ("gpt-5", "gpt-5.6", "somebody/unknown"),
}
"""By dialect: one of each cache style and tokenizer, and one that nobody knows."""

policies = st.sampled_from((*POLICY_NAMES, "wild"))
"""All presets, and one that is not: see `wild.py`."""

windows = st.sampled_from([2_000, 3_000, 5_000, 8_000, 8_000, 20_000, 60_000, 200_000])
outputs = st.sampled_from([None, None, 1, 256, 1_000, 4_000])
counts = st.sampled_from([0, 0, 1, 2])
knobs = st.fixed_dictionaries(
    {},
    optional={
        "max_history_tokens": st.sampled_from([0, 1, 20, 100, 1_000, 5_000]),
        "max_tool_result_tokens": st.sampled_from([1, 20, 100, 2_000]),
        "tool_result_truncation": st.sampled_from(["head", "tail", "both", "summary"]),
        "tool_result_keep_first": st.integers(0, 2),
        "tool_result_keep_last": st.integers(0, 3),
        "keep": st.sampled_from([["*[02468]*"], ["*1*", "*.toml"], ["*"]]),
        "max_context_bytes": st.sampled_from([1_000, 10_000]),
        "tools": st.sampled_from(
            [{"read": {"max_tool_result_tokens": 50}}, {"bash": {"exempt": True}}]
        ),
    },
)


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    dialect = draw(st.sampled_from(tuple(MODELS)))
    return Setup(
        dialect=dialect,
        model=draw(st.sampled_from(MODELS[dialect])),
        policy=draw(policies),
        goal=draw(st.sampled_from(GOALS)),
        context=draw(st.one_of(st.just({}), knobs)),
        summaries=draw(st.sampled_from(("extractive", "manual"))),
        window=draw(windows),
        output=draw(outputs),
        system=draw(st.one_of(short, blank)),
        tools=draw(st.integers(0, 2)),
        recall=draw(st.booleans()),
        thinking=draw(st.booleans()),
        heavier=draw(st.sampled_from([1.0, 1.0, 1.3, 1.6])),
    )


@st.composite
def models(draw: st.DrawFn) -> Configure:
    dialect = draw(st.sampled_from(tuple(MODELS)))
    model = draw(st.sampled_from(MODELS[dialect]))
    return Configure(changes={"model": model, "dialect": dialect})


@st.composite
def settings(draw: st.DrawFn) -> Configure:
    changes: dict[str, Any]
    match draw(st.sampled_from(["policy", "context", "limit", "system", "tools", "summaries"])):
        case "policy":
            changes = {"policy": draw(policies), "goal": draw(st.sampled_from(GOALS))}
        case "context":
            changes = {"limits": draw(knobs)}
        case "limit":
            name = draw(st.sampled_from(["context_window", "max_input_tokens"]))
            changes = {name: draw(windows), "max_output_tokens": draw(outputs)}
        case "system":
            changes = {"system": f"Another prompt. {draw(st.integers(0, 9))}"}
        case "tools":
            selected = [{"name": f"s{n}", "input_schema": {}} for n in range(draw(counts))]
            changes = {"turn_tools": selected}
            if draw(st.booleans()):
                changes |= {"tools": [], "recall": draw(st.booleans())}
        case _:
            changes = {"summaries": draw(st.sampled_from(("extractive", "manual")))}
    return Configure(changes=changes)


says = st.builds(
    Say,
    role=st.sampled_from(["user", "user", "user", "user", "system", "assistant", "tool"]),
    words=words,
    media=st.sampled_from([None, None, None, None, "image", "document", "audio"]),
    form=forms,
    client=st.sampled_from([None, None, None, None, None, 0, 1, 2]),
    alone=st.booleans(),
)
turns = st.builds(
    Turn,
    calls=st.lists(ids, max_size=5).map(tuple),
    words=st.none() | short | words,
    arguments=st.none() | st.none() | medium,
    opaque=st.booleans(),
    reply=st.sampled_from(
        [
            *("whole", "whole", "whole", "late", "late", "unmetered", "bare"),
            *("paused", "paused", "refused", "unsaid", "rejected", "lost"),
        ]
    ),
    twice=st.sampled_from([False, False, False, True]),
    stream=st.booleans(),
    volatile=st.sampled_from([None, None, None, "It is noon.", "Notes: " + "some " * 100]),
)
results = st.builds(
    Results,
    missing=st.sampled_from([0, 0, 0, 0, 1, 2]),
    backwards=st.booleans(),
    together=st.booleans(),
    words=words,
    media=st.sampled_from([False, False, False, True]),
    steering=st.none() | st.none() | words,
    form=forms,
)


def touches(*what: str) -> st.SearchStrategy[Touch]:
    return st.builds(
        Touch,
        what=st.sampled_from(what),
        which=st.integers(0, 40),
        part=st.sampled_from([None, None, 0, 1]),
        until=st.sampled_from([0, 0, 3, 30]),
    )


strays = st.builds(Stray, id=ids, words=words, form=forms)
loops = st.builds(
    Loop,
    rounds=st.integers(1, 9),
    width=st.sampled_from([1, 1, 2, 3]),
    words=medium,
    opaque=st.booleans(),
)
chats = st.builds(Chat, rounds=st.integers(1, 9), words=medium)
others = st.one_of(
    st.builds(Squeeze, times=st.integers(2, 6), unsaid=st.booleans()),
    st.builds(Recall, which=st.integers(0, 40)),
    st.builds(Summarise, words=medium),
    st.builds(Reload),
    st.builds(Elsewhere, words=st.none() | medium),
    st.builds(Wait),
)

_SHARES: dict[str, tuple[int, st.SearchStrategy[Step]]] = {
    "say": (4, says),
    "turn": (6, turns),
    "results": (4, results),
    "stray": (1, strays),
    "loop": (3, loops),
    "chat": (2, chats),
    "reveal": (2, touches("reveal")),
    "pin": (2, touches("pin", "unpin")),
    "erase": (2, touches("erase", "erase", "retain")),
    "fork": (1, touches("fork")),
    "back": (1, st.builds(Back, by=st.integers(1, 25))),
    "model": (2, models()),
    "settings": (2, settings()),
    "peek": (2, st.builds(Peek)),
    "other": (4, others),
}


def by_share(shares: dict[str, tuple[int, st.SearchStrategy[Step]]]) -> st.SearchStrategy[Step]:
    kinds = [kind for kind, (share, _) in shares.items() for _ in range(share)]
    # Not `one_of`: it would count each of the kinds within a kind as much as a kind.
    return st.sampled_from(kinds).flatmap(lambda kind: shares[kind][1])


steps = by_share(_SHARES)


@dataclass(frozen=True, kw_only=True)
class Story:
    """A whole life."""

    setup: Setup
    steps: tuple[Step, ...]


stories: st.SearchStrategy[Story] = st.builds(
    Story,
    setup=setups(),
    steps=st.one_of(st.lists(steps, max_size=8), st.lists(steps, min_size=7, max_size=14)).map(
        tuple
    ),
)


talk = st.builds(
    Words, unit=units, size=st.sampled_from([30, 120, 400, 400, 1_500, 1_500, 6_000, 20_000])
)
"""What is said where lists are to come of it: much, and little at a time."""


clients = st.sampled_from([None, None, 0, 1, 1, 2])


@st.composite
def listing_setups(draw: st.DrawFn) -> Setup:
    """Under `auto`, in windows that are soon full."""
    setup = draw(setups())
    context = draw(
        st.sampled_from(
            [{}, {}, {}, {}, {"max_history_tokens": 600}, {"summary": {"max_tokens": 300}}]
        )
    )
    window = draw(st.sampled_from([3_000, 5_000, 5_000, 8_000, 8_000, 20_000, 60_000]))
    return replace(setup, policy="auto", context=context, window=window, output=None)


_LISTING: dict[str, tuple[int, st.SearchStrategy[Step]]] = {
    "say": (
        5,
        st.builds(
            Say,
            role=st.sampled_from(["user", "user", "user", "system"]),
            words=talk,
            media=st.sampled_from([None, None, None, "image"]),
            form=forms,
            client=clients,
            alone=st.booleans(),
        ),
    ),
    "chat": (3, st.builds(Chat, rounds=st.integers(2, 9), words=talk, client=clients)),
    # Much is hidden in them, and little of it listed: they make one block after the other.
    "report": (
        4,
        st.builds(Chat, rounds=st.integers(2, 9), words=short, reply=long, client=clients),
    ),
    "loop": (4, loops),
    "turn": (3, turns),
    "results": (2, results),
    "reveal": (2, touches("reveal")),
    "pin": (1, touches("pin", "unpin")),
    "erase": (1, touches("erase", "erase", "retain")),
    "fork": (1, touches("fork")),
    "back": (1, st.builds(Back, by=st.integers(1, 25))),
    "model": (1, models()),
    "squeeze": (1, st.builds(Squeeze, times=st.integers(1, 3), unsaid=st.booleans())),
    "summarise": (2, st.builds(Summarise, words=medium)),
    "forget": (2, st.builds(Forget, restart=st.booleans())),
    "wait": (2, st.builds(Wait)),
}
listings: st.SearchStrategy[Story] = st.builds(
    Story,
    setup=listing_setups(),
    steps=st.lists(by_share(_LISTING), min_size=4, max_size=12).map(tuple),
)
"""Lives in which what users said is listed."""
