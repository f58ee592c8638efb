"""A conversation that was made to trouble Trimtab: who says what, and what is known of it.

What is said depends on the seed and hardly on Trimtab, so that a change there leaves conversations
nearly as they are. `asking.py` checks the requests, `steps.py` says what happens next.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.adversary import laws
from tests.adversary.dice import Dice
from tests.adversary.findings import Broken, Findings
from tests.adversary.laws import Kept, Question, Room, Size
from tests.adversary.speech import Call, Reply, made_with, maybe_picture, reply, result, user
from tests.adversary.subject import (
    AT_BEDROCK,
    GOALS,
    MODELS,
    POLICIES,
    REASONING,
    SUMMARIES,
    TOOLS,
    Settings,
    Subject,
)
from tests.adversary.texts import text

EACH_AT_BEDROCK = 7
NOTHING = Kept(head=0, tail=0)
CALLS = (0, 1, 1, 1, 2, 4)
"""How many tools a reply asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large conversations are."""

    name: str
    """As a person calls it."""
    steps: int
    """Steps of each."""
    windows: tuple[int, ...]
    """Tokens."""
    longest_question: int
    """Bytes; most are much shorter."""
    longest_result: int
    """Bytes; most are much shorter."""


LARGE = Scale(
    name="large",
    steps=120,
    windows=(3_000, 6_000, 12_000, 40_000, 120_000),
    longest_question=30_000,
    longest_result=60_000,
)
SMALL = Scale(
    name="small",
    steps=60,
    windows=(3_000, 6_000, 12_000),
    longest_question=8_000,
    longest_result=12_000,
)
"""Smaller ones get into the same straits with less text to count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message that is in force."""

    handle: str
    """By which Trimtab knows it."""
    texts: dict[int, str]
    """By part."""

    @property
    def position(self) -> int:
        return int(self.handle[1:])

    @property
    def names(self) -> set[str]:
        """Of its texts."""
        matches = [laws.NAME.search(text) for text in self.texts.values()]
        return {each[0] for each in matches if each}


@dataclass(slots=True)
class Conversation:
    seed: int
    """All that is drawn follows from it."""
    scale: Scale
    """How large it is."""
    findings: Findings
    """Where violations are noted."""
    did: list[str] = field(default_factory=list[str])
    """All steps, by name."""
    said: list[Said] = field(default_factory=list[Said])
    """All messages in force."""
    undone: list[Said] = field(default_factory=list[Said])
    """All messages that were taken back."""
    erased: set[str] = field(default_factory=set[str])
    """Handles of messages and of parts."""
    gone: set[str] = field(default_factory=set[str])
    """Names of texts that were erased or taken back."""
    open_calls: list[str] = field(default_factory=list[str])
    """Ids of calls that wait for their results."""
    question: Question | None = None
    """The newest that the user said."""
    kept: Kept = NOTHING
    """What the last request holds of it."""
    tightest: Room | None = None
    """The room in which no request could be made, since the last one: some may be cut by then."""
    takes_turns: bool = True
    """Whether user and assistant have spoken in turn so far."""
    requests: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Position and JSON of the last requests."""
    before: list[Any] | None = None
    """Blocks of the last request; None if the next need not begin with them."""
    belongs: dict[str, str] = field(default_factory=dict[str, str])
    """By item of a Responses reply: the reasoning item that it was made with."""
    now: float = 1_700_000_000.0
    """Seconds since the epoch."""
    names: int = 0
    """How many names were given."""
    last_role: str = ""
    """Of what was said last."""
    shown: dict[str, Any] = field(default_factory=dict[str, Any])
    """The last request."""
    subject: Subject = field(init=False)
    """The context."""

    def __post_init__(self) -> None:
        dice = Dice(self.seed, "settings")
        model, dialect = dice.one_of(self.models)
        thinking = dialect == "anthropic" and dice.chance(0.4)
        settings = Settings(
            model=model,
            dialect=dialect,
            policy=dice.one_of(POLICIES),
            goal=dice.one_of(GOALS),
            window=dice.one_of(self.scale.windows),
            recall=dice.chance(0.5),
            system="Be careful. " + text(dice, dice.one_of((10, 400)), "english"),
            max_output=dice.one_of((None, 1_400 if thinking else 300)),
            summaries=dice.one_of(SUMMARIES),
            thinking=thinking,
            exact=dice.chance(0.15),
        )
        self.subject = Subject(settings, lambda: self.now)

    @property
    def models(self) -> tuple[tuple[str, str], ...]:
        """Those that it is had with: every seventh conversation is at Bedrock."""
        return MODELS if self.seed % EACH_AT_BEDROCK else AT_BEDROCK

    @property
    def where(self) -> str:
        return f"{self.seed} ({self.scale.name})"

    @property
    def settings(self) -> Settings:
        return self.subject.settings

    @property
    def dialect(self) -> str:
        return str(self.settings.dialect)

    def size(self, request: dict[str, Any], volatile: str | None = None) -> Size:
        """Of the last request; of its tail only if it is given."""
        input_bound = self.subject.bound(volatile)
        return Size(bound=input_bound, output=laws.output_of(request), limit=self.subject.limit)

    def check_newest(self, request: dict[str, Any], size: Size, room: Room) -> None:
        """What a request holds of the newest that the user said."""
        if self.question is None:
            return
        self.broke("v1", laws.newest_is_there(request, self.question, size))
        now, before = laws.kept_of(request, self.question), self.kept
        if self.tightest is not None:
            room = min(room, self.tightest, key=lambda each: each.tokens)
        self.broke("v1", laws.newest_keeps_its_share(now, before, self.question, room))
        self.kept, self.tightest = now, None

    def set_window(self, window: int) -> None:
        self.subject.change(replace(self.settings, window=window))

    def name(self, dice: Dice) -> str:
        """One that no other text or id of this conversation has."""
        self.names += 1
        return f"{self.names:05}-{dice.hex(6)}"

    def broke(self, kind: str, broken: Iterable[Broken]) -> None:
        """Note what a check has said of the last request."""
        if not (faults := list(broken)):
            return
        self.findings.note(
            kind,
            faults,
            where=self.where,
            request=self.shown,
            step=len(self.did),
            did=tuple(self.did[-6:]),
            settings=str(self.settings),
        )

    def crashed(self, error: Exception) -> None:
        """Note an error that nobody has documented."""
        frames = reversed(traceback.extract_tb(error.__traceback__)[-3:])
        where = " ← ".join(f"{Path(each.filename).name}:{each.lineno}" for each in frames)
        rule = f"{type(error).__name__} is not raised"
        self.broke("v13", [Broken(rule, f"{error!s:.200} ({where})")])

    def ask(self, dice: Dice, size: int | None = None) -> None:
        """The user says something."""
        name = self.name(dice)
        longest = dice.between(1, self.scale.longest_question)
        size = size if size is not None else dice.one_of((20, 200, 200, 1_000, 1_000, longest))
        self.question = Question(name=name, words=text(dice, size))
        self.kept = laws.all_of(self.question)
        words = self.question.text
        if self.last_role == "user" or self.open_calls:
            self.takes_turns = False
        self._say(user(self.dialect, words, maybe_picture(dice, 0.12)), {0: words}, "user")

    def answer(self, dice: Dice, usage: int | None) -> None:
        """The model replies."""
        words = f"‹{self.name(dice)}› {text(dice, dice.one_of((10, 200, 2_000)), 'english')}"
        reply_name = self.name(dice)
        ids = [
            f"call_{reply_name}_{i}" if dice.chance(0.97) else "call_0"
            for i in range(dice.one_of(CALLS))
        ]
        if self.dialect == "anthropic" and dice.chance(0.02):
            ids = [each.replace("call", "toolu") for each in ids]
        calls = [self._call(dice, each) for each in dict.fromkeys(ids)]
        says = dice.chance(0.7)
        made = Reply(
            id=reply_name,
            model=self.settings.model,
            text=words if says else "",
            calls=calls,
            thinks=self._thinks(dice),
            refuses=not calls and dice.chance(0.03),
            usage=usage,
        )
        wire, texts = reply(self.dialect, made, dice)
        self.belongs |= made_with(wire)
        self._say(wire, texts, "assistant")
        self.open_calls = [call.id for call in calls]

    def _call(self, dice: Dice, call_id: str) -> Call:
        argument = text(dice, dice.one_of((5, 50, 50, 3_000)), "english")
        return Call(id=call_id, tool=dice.one_of(TOOLS)["name"], argument=argument)

    def _thinks(self, dice: Dice) -> bool:
        if self.dialect == "openai_responses":
            return self.settings.model in REASONING and dice.chance(0.8)
        return self.settings.thinking and (self.last_role == "user" or dice.chance(0.6))

    def return_result(self, dice: Dice) -> None:
        """A tool answers one of the calls that wait."""
        call = dice.one_of(self.open_calls) if dice.chance(0.2) else self.open_calls[0]
        name = self.name(dice)
        longest = dice.between(1, self.scale.longest_result)
        size = dice.one_of((0, 30, 300, 3_000, 3_000, longest))
        words = f"⟦{name}⟧ {text(dice, size)} ⟦/{name}⟧"
        image = maybe_picture(dice, 0.06)
        error = image is None and dice.chance(0.1)
        self._say(result(self.dialect, call, words, image=image, error=error), {0: words}, "tool")
        self.open_calls.remove(call)

    def _say(self, wire: dict[str, Any], texts: dict[int, str], role: str) -> None:
        handle = self.subject.add(wire)
        self.said.append(Said(handle=handle, texts=texts))
        self.last_role = role
