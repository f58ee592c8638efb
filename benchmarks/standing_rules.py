"""How many of a user's lasting rules a model still sees after 600 turns.

Thirty sentences such as "From now on never modify billing/legacy_07.sql without asking me first."
stand in thirty of 600 user messages: ten are the first words of theirs, ten stand in the middle,
ten at the end. All other messages are ordinary requests, 60 tokens each, about 36,000 together.
Each turn has a reply with two calls, two results of 5 to 60 lines, and a reply in words; each reply
reports what a strict server would count, by the library's own estimate of texts, and what its
prompt cache read and wrote, twenty seconds apart. After the last turn one more question is asked,
and the request is searched for the rules.

visible          rules that stand in the request word for word, wherever
first … last     the same by their place in their message
names            of the thirty file names, those that the request still says
request, mean    tokens of the last request, and of one request on average
words            tokens of all user messages before the last one
allowance        what of them is promised to stay: 40,000 tokens, 20,000 with goal `cost`, at most
                 a quarter of the room; only `auto` promises it
within           whether the words are within it

`*_within` are conversations of fewer or shorter messages, whose words are within the allowance of
goal `cost` and of a window of 32,000. `codex_rule_visible` is what Codex's rule keeps of the same
conversation: the newest user messages, up to 20,000 tokens together. `list_read_share` is, of the
list of user messages that stands before a summary, the share that the first request with a later
summary reads from the provider's cache, under goal `cost` in a window of 200,000.

`plans_visible` is for the agent's plan: thirty items that it writes once with a tool, before it
reads files for hundreds of rounds in one turn. It is the smallest number of items that the last
request shows, of all goals of `auto` and all windows.

Wherever the words are within the allowance, all rules must be visible, and 90 % of the list must be
read from the cache. All items of the plan must be visible.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

from benchmarks.harness import Report, progress, run
from trimtab import Context
from trimtab.engine.policy.config import Goal
from trimtab.engine.tokens.counter import make_piecewise_counter
from trimtab.models.catalog import resolve_model_info
from trimtab.testing.request_counter import RequestBlock, RequestCounter
from trimtab.testing.server.prompt_cache import ServerPromptCache
from trimtab.types import PolicyName

MODEL = "claude-sonnet-4-5"
COUNTER = make_piecewise_counter(resolve_model_info(MODEL).tokenizer)
"""What the provider counts is what is estimated: only frames differ."""
WINDOWS = (32_000, 200_000, 1_000_000)
GOALS: tuple[Goal, ...] = ("cost", "balanced", "quality")
PRESETS = ("layered", "compact", "rolling", "thresholds", "full")
PLACES = ("first", "middle", "last")
ALLOWANCE: Mapping[str, int] = {"cost": 20_000, "balanced": 40_000, "quality": 40_000}
"""Tokens of user words that stay, by goal."""
CODEX = 20_000
"""Tokens of user messages that Codex's compaction keeps."""
SUMMARY = "[Summary of the earlier conversation"
"""How a summary begins."""
PAUSE = 20.0
"""Seconds from one request to the next."""
LEAST_READ = 0.9
"""Of the old list, that the first request with a new summary reads from the cache."""
JOBS = 2
PLAN_ROUNDS = {"full": 300, "quick": 60}
"""Rounds of one result each after the plan."""
PLAN_RESULT_LINES = 120
RULES = (
    "From now on never modify {} without asking me first.",
    "Do not touch {} unless I have said so in as many words.",
    "Until further notice {} is frozen, so leave it alone.",
    "Whatever I ask for later, {} stays exactly as it is.",
    "Ask me before you change anything in {}, every single time.",
    "Under no circumstances may {} run against production.",
    "For the rest of our work treat {} as read-only.",
    "Never again reformat {}, because auditors compare it byte by byte.",
    "Always show me the diff before you save {}.",
    "Remember for good that {} must not be renamed or moved.",
)
COUNT = 30
"""Rules in a conversation."""
TASKS = (
    "Have a look at {} and tell me why it is slow.",
    "The report from {} came out empty again on Tuesday.",
    "Then go through {} and sort the imports.",
    "I think that the retry in {} waits too long.",
    "Compare {} with what we had last week.",
    "Somebody wants a column more in the table of {}.",
    "Please write a test for the odd case in {}.",
    "Check whether {} still needs the old flag.",
)
PHRASES = (
    "It is not urgent.",
    "Tell me what you find.",
    "The others can wait until Monday.",
    "There is no need to run everything.",
    "I am in a meeting until three.",
    "Keep it short, as always.",
    "Use your own judgement here.",
)
TOOLS = [
    {
        "name": name,
        "description": text,
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }
    for name, text in (("read", "Read a file."), ("grep", "Search in files."))
]
SYSTEM = "You look after a code base. Read before you change, and say what you have found. "


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """A conversation, by what decides its size."""

    turns: int
    """Each with two results."""
    tokens: int
    """Of a user message, about."""


LONG = {"full": Talk(turns=600, tokens=60), "quick": Talk(turns=240, tokens=150)}
"""About 36,000 tokens of user words either way."""
SHORTER = Talk(turns=560, tokens=30)
"""Within the allowance of goal `cost`."""
SMALL = Talk(turns=120, tokens=30)
"""Within the allowance of a window of 32,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A conversation under one policy."""

    policy: str = "auto"
    """A preset."""
    goal: Goal = "balanced"
    """Of `auto`."""
    window: int = 200_000
    """Tokens of input and output together."""
    talk: Talk
    """What is said."""
    name: str = ""
    """The figure that it is for; empty for a row alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    text: str
    """The sentence."""
    file: str
    """The name in it."""
    place: str
    """Where in its message it stands."""


def rules() -> list[Rule]:
    files = [f"billing/legacy_{number:02}.sql" for number in range(COUNT)]
    return [
        Rule(text=RULES[n % len(RULES)].format(file), file=file, place=PLACES[n % len(PLACES)])
        for n, file in enumerate(files)
    ]


def user_messages(talk: Talk) -> list[str]:
    """What the user says, turn by turn; the rules are spread evenly over the turns."""
    count, every = COUNTER.count, talk.turns // COUNT
    held = {every * number + every // 2: rule for number, rule in enumerate(rules())}
    said: list[str] = []
    for turn in range(talk.turns):
        pick = random.Random(f"user {turn}")  # noqa: S311 - not for secrets
        rule, file = held.get(turn), f"src/part_{pick.randrange(90)}/file_{pick.randrange(900)}.py"
        words = [f"Ticket-{turn:04}.", pick.choice(TASKS).format(file)]
        while count(" ".join([*words, rule.text if rule else ""])) < talk.tokens - 4:
            words.append(pick.choice(PHRASES))
        if rule is not None:
            at = {"first": 0, "middle": len(words) // 2, "last": len(words)}[rule.place]
            words.insert(at, rule.text)
        said.append(" ".join(words))
    return said


def result_text(turn: int, index: int, lines: int | None = None) -> str:
    """What a tool says: 5 to 60 lines if no number is given."""
    pick = random.Random(f"result {turn} {index}")  # noqa: S311 - not for secrets
    return "\n".join(
        f"{line:>4}: def part_{pick.randrange(10**6)}(value): return other_{pick.randrange(10**4)}"
        for line in range(1, (lines or pick.randint(5, 60)) + 1)
    )


@dataclass(slots=True)
class Provider:
    """Counts requests and keeps a prompt cache, as Anthropic's rules say."""

    now: float = 0.0
    """Seconds."""
    counter: RequestCounter = field(default_factory=lambda: RequestCounter(COUNTER.count))
    cache: ServerPromptCache = field(default_factory=ServerPromptCache)
    known: dict[tuple[int, bool], tuple[Any, RequestBlock]] = field(
        default_factory=dict[tuple[int, bool], tuple[Any, RequestBlock]]
    )
    """By a block's identity and whether it begins a message: the block, so that it lives, and what
    is counted for it."""
    sizes: list[int] = field(default_factory=list[int])
    """Of each request so far, in tokens."""
    summary: str = ""
    """Of the last request; empty where it had none."""
    listed: int = 0
    """Tokens of the list before it."""
    old: int = 0
    """Tokens of all lists before a summary that was replaced by a later one."""
    old_read: int = 0
    """Of them, those that the first request with the later one read from the cache."""
    later: int = 0
    """Summaries that replaced another one."""

    def usage(self, request: Mapping[str, Any]) -> dict[str, int]:
        """What the reply to a request reports of its input."""
        self.now += PAUSE
        pieces = list(self._pieces(request))
        bill = self.cache.record_request(
            "key",
            pieces,
            salt="",
            model_info=resolve_model_info(MODEL),
            scale_tokens=self.counter.scale_tokens,
            now=self.now,
            is_anthropic=True,
            marks_end=False,
        )
        self.sizes.append(self.counter.total_tokens(pieces))
        self._look(pieces, bill.read)
        return {
            "input_tokens": self.sizes[-1] - bill.read - bill.written,
            "cache_creation_input_tokens": bill.written,
            "cache_read_input_tokens": bill.read,
        }

    def _pieces(self, request: Mapping[str, Any]) -> Iterator[RequestBlock]:
        """The request's blocks; one that is sent again is looked at once."""
        yield from self.counter.split_blocks({**request, "messages": []}, "anthropic")
        for message in request["messages"]:
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for index, block in enumerate(blocks):
                key = (id(block), index == 0)
                if key not in self.known:
                    before = [{"type": "text", "text": ""}] if index else []
                    alone = {"role": message["role"], "content": [*before, block]}
                    made = self.counter.split_blocks({"messages": [alone]}, "anthropic")[-1]
                    self.known[key] = (block, made)
                yield self.known[key][1]

    def _look(self, pieces: Sequence[RequestBlock], read: int) -> None:
        """What of the old list was read, where the request shows a summary for the first time."""
        head = sum(piece.tokens for piece in pieces if piece.section != "messages")
        summary, listed = front_of(pieces)
        if self.summary and summary and summary != self.summary:
            self.later += 1
            self.old += self.listed
            self.old_read += min(self.listed, max(0, read - head))
        self.summary, self.listed = summary, listed


def front_of(pieces: Sequence[RequestBlock]) -> tuple[str, int]:
    """A request's summary, and the tokens of what the user's first messages say before it."""
    listed = 0
    for piece in pieces:
        if piece.section != "messages":
            continue
        role, _, text = piece.text.partition("\0")
        if role != "user":
            break
        if text.startswith(SUMMARY):
            return text, listed
        listed += piece.tokens
    return "", 0


def lead(case: Case) -> Report:
    """A whole conversation; its row."""
    provider, said = Provider(), user_messages(case.talk)
    context = Context(
        MODEL,
        system=SYSTEM,
        tools=TOOLS,
        policy=cast("PolicyName", case.policy),
        goal=case.goal,
        context_window=case.window,
        clock=lambda: provider.now,
    )
    for turn, text in enumerate(said):
        context.add({"role": "user", "content": text})
        ids = [f"toolu_{turn}_{index}" for index in range(2)]
        context.add(_reply(provider.usage(context.request()), turn, ids))
        made = [
            {"type": "tool_result", "tool_use_id": each, "content": result_text(turn, index)}
            for index, each in enumerate(ids)
        ]
        context.add({"role": "user", "content": made})
        context.add(_reply(provider.usage(context.request()), turn, []))
    context.add({"role": "user", "content": "Which files did I ask you to leave alone?"})
    request = context.request()
    provider.usage(request)
    return {**_row(case, request, provider, said, context.budget().room), "cache": _read(provider)}


def lead_plan(case: Case, rounds: int) -> Report:
    """A turn of many rounds after a plan; its row."""
    provider = Provider()
    context = Context(
        MODEL,
        system=SYSTEM,
        tools=[*TOOLS, {"name": "write_plan", "input_schema": {"type": "object"}}],
        policy=cast("PolicyName", case.policy),
        goal=case.goal,
        context_window=case.window,
        clock=lambda: provider.now,
    )
    items = [f"Step {number}: migrate {rule.file}" for number, rule in enumerate(rules())]
    plan = {"plan": [{"step": item, "status": "pending"} for item in items]}
    context.add({"role": "user", "content": "Plan the migration, then do it."})
    for number in range(rounds + 1):
        reply = _reply(provider.usage(context.request()), number, [f"toolu_{number}"])
        if number == 0:
            reply["content"][-1] |= {"name": "write_plan", "input": plan}
        context.add(reply)
        text = result_text(number, 0, PLAN_RESULT_LINES) if number else "Plan updated."
        answer = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}
        context.add({"role": "user", "content": [answer]})
    shown = "\n".join(texts_of(context.request()["messages"]))
    visible = sum(item in shown for item in items)
    return {"goal": case.goal, "window": case.window, "rounds": rounds, "plan_visible": visible}


def _reply(usage: Mapping[str, int], turn: int, ids: Sequence[str]) -> dict[str, Any]:
    content: list[dict[str, Any]] = [
        {"type": "text", "text": f"Looked at ticket {turn}: nothing else depends on it."}
    ]
    for index, each in enumerate(ids):
        asked = {"path": f"src/part_{turn}/file_{index}.py"}
        content.append({"type": "tool_use", "id": each, "name": "read", "input": asked})
    return {
        "id": f"msg_{turn}_{len(ids)}",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": content,
        "stop_reason": "tool_use" if ids else "end_turn",
        "usage": {**usage, "output_tokens": 30},
    }


def _row(
    case: Case, request: Mapping[str, Any], provider: Provider, said: Sequence[str], room: int
) -> Report:
    text, planted = "\n".join(texts_of(request["messages"])), rules()
    seen = [rule.place for rule in planted if rule.text in text]
    words = sum(map(provider.counter.count_text, said))
    promised = min(ALLOWANCE[case.goal], room // 4) if case.policy == "auto" else None
    return {
        "policy": case.policy,
        "goal": case.goal if case.policy == "auto" else "",
        "window": case.window,
        "turns": case.talk.turns,
        "visible": len(seen),
        **{place: seen.count(place) for place in PLACES},
        "names": sum(rule.file in text for rule in planted),
        "request": provider.sizes[-1],
        "mean": round(statistics.fmean(provider.sizes)),
        "words": words,
        "allowance": promised,
        "within": promised is not None and words <= promised,
    }


def texts_of(value: Any) -> Iterator[str]:
    """Every text of a request, wherever it stands."""
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from texts_of(each)
        case list():
            for each in value:
                yield from texts_of(each)
        case _:
            pass


def _read(provider: Provider) -> Report:
    share = provider.old_read / provider.old if provider.old else 0.0
    return {"later": provider.later, "old": provider.old, "share": round(share, 3)}


def kept_by_codex(said: Sequence[str]) -> int:
    """Rules in the newest messages that are within Codex's allowance together."""
    count, left, kept = COUNTER.count, CODEX, list[str]()
    for text in reversed(said):
        left -= count(text)
        if left < 0:
            break
        kept.append(text)
    return sum(any(rule.text in text for text in kept) for rule in rules())


def cases(*, quick: bool) -> list[Case]:
    """Those that figures are made of first; the other presets are rows alone."""
    talk, ends = LONG["quick" if quick else "full"], {32_000: "_32k", 1_000_000: "_1m"}
    found = [
        Case(goal=goal, window=window, talk=talk, name=f"{goal}_visible{ends.get(window, '')}")
        for window in WINDOWS
        for goal in GOALS
    ]
    within = [
        Case(goal="cost", talk=SHORTER, name="cost_visible_within"),
        Case(window=32_000, talk=SMALL, name="balanced_visible_32k_within"),
    ]
    others = [Case(policy=name, window=size, talk=talk) for size in WINDOWS for name in PRESETS]
    return [*found, *within, *(() if quick else others)]


def main(quick: bool) -> Report:
    chosen = cases(quick=quick)
    # Spawned: a fork would take the threads' locks along.
    context = multiprocessing.get_context("spawn")
    rows: list[Report] = []
    with ProcessPoolExecutor(JOBS, mp_context=context) as pool:
        for row in pool.map(lead, chosen):
            rows.append(row)
            progress(f"{len(rows)} of {len(chosen)} conversations")
        rounds = PLAN_ROUNDS["quick" if quick else "full"]
        plan_cases = [Case(goal=g, window=w, talk=SMALL) for w in WINDOWS for g in GOALS]
        plans = [*pool.map(lead_plan, plan_cases, [rounds] * len(plan_cases))]
    read = [row.pop("cache") for row in rows]
    told = {case.name: at for at, case in enumerate(chosen) if case.name}
    cached = read[told["cost_visible"]]
    figures = {name: rows[at]["visible"] for name, at in told.items()}
    requests = sum(2 * row["turns"] + 1 for row in rows)
    return {
        "sample": f"{len(rows)} conversations, {requests:,} requests, {COUNT} rules in each",
        **figures,
        "codex_rule_visible": kept_by_codex(user_messages(chosen[0].talk)),
        "list_read_share": cached["share"],
        "later_summaries": cached["later"],
        "old_list_tokens": cached["old"],
        "plans_visible": min(row["plan_visible"] for row in plans),
        "rows": rows,
        "plans": plans,
        "broken": [*broken(rows), *_unread(cached), *broken_plans(plans)],
    }


def broken(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Conversations whose words are within the allowance and that lack a rule all the same."""
    for row in rows:
        if row["within"] and row["visible"] < COUNT:
            told = {name: row[name] for name in ("goal", "window", "turns", "words")}
            yield f"{row['visible']} of {COUNT} rules are visible: {json.dumps(told)}"


def broken_plans(plans: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Conversations in which an item of the plan is gone."""
    for row in plans:
        if (visible := row["plan_visible"]) < COUNT:
            yield f"{visible} of {COUNT} items of the plan are visible: {json.dumps(row)}"


def _unread(cached: Mapping[str, Any]) -> Iterator[str]:
    if cached["share"] < LEAST_READ:
        yield f"{cached['share']:.1%} of the old list is read from the cache"


if __name__ == "__main__":
    sys.exit(run(__doc__, main))
