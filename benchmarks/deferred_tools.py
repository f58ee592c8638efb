"""Whether tools that are not in the prompt are counted as what they are, and what loads them stays.

An agent has 300 tools with `defer_loading`, in three dialects. A search loads five of them: the
provider's own in Anthropic's and in the Responses API, where the tools are in a namespace; one that
the caller runs in Chat Completions, as servers like vLLM take it. The agent then calls one of the
five again and again, and searches again at times. The simulated provider of `trimtab.testing` takes
or refuses each request and counts it, by a real vocabulary: tekken, cl100k_base and o200k_base. The
estimate knows none.

counted_ratio      the upper bounds of all requests of `auto` that Trimtab declares, together, over
                   what the provider counts; `estimate_ratio` is the same by the estimate
bound_exceeded     requests that the provider counts higher than their upper bound
first_hidden_call  the number of calls after which `auto` hides something, in a window of 128,000
                   (64,000 in a quick run), in the dialect where it differs most from the next one
first_hidden_call_plain
                   the same of an agent that has the one tool it calls, and no others
loader_lost        calls in requests, under all presets and in a window of 20,000, before which
                   nothing in the request loads their tool
refused            requests that the provider refuses
hidden             messages and results that were hidden at the end, over all presets

The ratio must be between 1 and 1.2 in each dialect and together, both first calls at most one call
apart, and nothing lost, refused or exceeded.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from benchmarks import exact_tokenizers
from benchmarks.harness import Report, run, skip
from trimtab import Context
from trimtab.testing.server import ProviderSimulator, ProviderSimulatorOptions

Wire = dict[str, Any]
TOOL_COUNT = 300
FOUND = 5
"""Tools that a search loads."""
CALLED = "tool_7"
"""The tool that is called."""
WINDOW = {"full": 128_000, "quick": 64_000}
SMALL_WINDOW = 20_000
CALLS = 120
"""At most, until the first result is hidden."""
TURNS = {"full": 60, "quick": 20}
"""Turns under each preset."""
SEARCH_EVERY = 17
"""Turns from one search to the next."""
RATIO = (1.0, 1.2)
"""Between these the counted ratio must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """A dialect, and the model that is asked in it."""

    name: str
    model: str
    vocabulary: str
    """The tokenizer that the provider counts with."""


APIS = (
    Api(name="anthropic", model="claude-sonnet-5-5", vocabulary="tekken"),
    Api(name="openai_chat", model="gpt-4o", vocabulary="cl100k_base"),
    Api(name="openai_responses", model="gpt-5.5", vocabulary="o200k_base"),
)
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "auto, goal cost": {"goal": "cost"},
    "auto, goal balanced": {"goal": "balanced"},
    "auto, goal quality": {"goal": "quality"},
    "auto, manual summaries": {"summaries": "manual"},
    "layered": {"policy": "layered"},
    "compact": {"policy": "compact"},
    "rolling": {"policy": "rolling"},
    "thresholds": {"policy": "thresholds"},
    "full": {"policy": "full"},
}


def pick(*seed: object) -> random.Random:
    return random.Random(repr(seed))  # noqa: S311 - not for secrets


NOUNS = ("ticket", "invoice", "customer", "build", "release", "pull request", "incident", "metric")
VERBS = ("List", "Create", "Update", "Close", "Search", "Assign", "Export", "Archive")


def definition(api: str, name: str, *, deferred: bool = True) -> Wire:
    """A tool of about 200 tokens, as MCP servers list them."""
    choose = pick("tool", name)
    noun, verb = choose.choice(NOUNS), choose.choice(VERBS)
    about = f"{verb} each {noun} of a project. Use it when the user asks about a {noun} by name."
    schema = {
        "type": "object",
        "properties": {
            f"{noun.split()[0]}_{key}": {
                "type": kind,
                "description": f"The {key} of the {noun}, as the {choose.choice(NOUNS)} has it.",
            }
            for key, kind in (("id", "string"), ("state", "string"), ("limit", "integer"))
        },
        "required": [f"{noun.split()[0]}_id"],
    }
    flag = {"defer_loading": True} if deferred else {}
    if api == "anthropic":
        return {"name": name, "description": about, "input_schema": schema, **flag}
    body = {"name": name, "description": about, "parameters": schema}
    if api == "openai_chat":
        return {"type": "function", "function": {**body, **flag}}
    return {"type": "function", **body, "strict": False, **flag}


def toolbox(api: str) -> list[Wire]:
    """All tools of an agent with deferred ones."""
    deferred = [definition(api, f"tool_{number}") for number in range(TOOL_COUNT)]
    if api == "anthropic":
        name = "tool_search_tool_bm25"
        return [{"type": f"{name}_20251119", "name": name}, *deferred]
    if api == "openai_chat":
        return [definition(api, "find_tools", deferred=False), *deferred]
    about = "Tickets, invoices, customers, builds, releases and incidents of all projects."
    return [
        {"type": "tool_search"},
        {"type": "namespace", "name": "work", "description": about, "tools": deferred},
    ]


def search(api: str, turn: int) -> tuple[list[Wire], Wire | None]:
    """What a search leaves in a reply, and the result that the caller adds, if it runs it."""
    others = pick("found", turn).sample(range(8, TOOL_COUNT), FOUND - 1)
    names = [CALLED, *(f"tool_{number}" for number in others)]
    key = f"search_{turn}"
    if api == "anthropic":
        found = [{"type": "tool_reference", "tool_name": name} for name in names]
        content = {"type": "tool_search_tool_search_result", "tool_references": found}
        ask = {"type": "server_tool_use", "id": f"srvtoolu_{key}", "name": "tool_search_tool_bm25"}
        done = {"type": "tool_search_tool_result", "tool_use_id": ask["id"], "content": content}
        return [{**ask, "input": {"query": "tickets"}}, done], None
    if api == "openai_chat":
        call = {"name": "find_tools", "arguments": '{"ticket_id": "x"}'}
        found = [{"type": "tool_reference", "name": name} for name in names]
        result = {"role": "tool", "tool_call_id": key, "content": found}
        return [{"id": key, "type": "function", "function": call}], result
    tools = [definition(api, name) for name in names]
    work = {"type": "namespace", "name": "work", "description": "Work.", "tools": tools}
    given = {"call_id": None, "execution": "server", "status": "completed"}
    ask = {"type": "tool_search_call", "id": f"tsc_{key}", "arguments": {"paths": ["work"]}}
    return [
        {**ask, **given},
        {"type": "tool_search_output", "id": f"tso_{key}", "tools": [work], **given},
    ], None


def call(api: str, turn: int, name: str) -> tuple[list[Wire], Wire]:
    """A call of a tool, and its result of about 1,400 tokens."""
    key, given = f"call_{turn}", {"ticket_id": f"T-{turn:04}"}
    choose = pick("result", turn)
    text = "\n".join(
        f"T-{choose.randrange(10**5)} {choose.choice(NOUNS)} open since day "
        f"{choose.randrange(900)}, owner user{choose.randrange(400)}, {choose.choice(VERBS)}"
        for _ in range(70)
    )
    if api == "anthropic":
        done = {"type": "tool_result", "tool_use_id": f"toolu_{key}", "content": text}
        made = {"type": "tool_use", "id": f"toolu_{key}", "name": name, "input": given}
        return [made], {"role": "user", "content": [done]}
    arguments = json.dumps(given)
    if api == "openai_chat":
        body = {"name": name, "arguments": arguments}
        made = {"id": key, "type": "function", "function": body}
        return [made], {"role": "tool", "tool_call_id": key, "content": text}
    made = {"type": "function_call", "call_id": key, "name": name, "arguments": arguments}
    return [made], {"type": "function_call_output", "call_id": key, "output": text}


@dataclass(slots=True)
class Agent:
    """An agent that asks the simulated provider for a count, and replies to itself."""

    api: Api
    context: Context
    simulator: ProviderSimulator
    bounds: int = 0
    """Of all requests, the upper bounds that were declared."""
    estimates: int = 0
    real: int = 0
    """Of all requests, what the provider has counted."""
    exceeded: int = 0
    refused: list[str] = field(default_factory=list[str])
    lost: int = 0
    requests: int = 0

    def ask(self) -> Wire:
        """Send the next request; what the provider reports of its input."""
        request = cast("Wire", self.context.request())
        self.requests += 1
        self.lost += sum(1 for _ in calls_without_their_tool(request))
        headers = {"x-api-key": "k", "authorization": "Bearer k", "anthropic-version": "2023-06-01"}
        response = self.simulator.handle_request(
            self.api.name, headers, json.dumps(request).encode()
        )
        body = cast("Wire", response.body)
        if response.status != 200:
            self.refused.append(json.dumps(body)[:300])
            return {}
        last = self.context.window.last_call
        assert last is not None
        counted = self.simulator.records.requests[-1].tokens
        self.bounds += last.body.bound
        self.estimates += last.body.tokens
        self.real += counted
        self.exceeded += counted > last.body.bound
        return cast("Wire", body["usage"])

    def reply(self, usage: Wire, made: Sequence[Wire], text: str = "") -> None:
        """Add a reply with this usage."""
        number = len(self.context.events)
        match self.api.name:
            case "anthropic":
                said = [{"type": "text", "text": text}] if text else []
                self.context.add(
                    {
                        "id": f"msg_{number}",
                        "type": "message",
                        "role": "assistant",
                        "model": self.api.model,
                        "content": [*said, *made],
                        "stop_reason": "end_turn",
                        "usage": usage or None,
                    }
                )
            case "openai_chat":
                message: Wire = {"role": "assistant", "content": text or None}
                if made:
                    message["tool_calls"] = [*made]
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                body = {"id": f"chat_{number}", "object": "chat.completion", "choices": [choice]}
                self.context.add({**body, "model": self.api.model, "usage": usage or None})
            case _:
                part = {"type": "output_text", "text": text, "annotations": []}
                said = [{"type": "message", "role": "assistant", "content": [part]}] if text else []
                body = {"id": f"resp_{number}", "object": "response", "status": "completed"}
                self.context.add({**body, "output": [*said, *made], "usage": usage or None})

    def search(self, turn: int) -> None:
        """Load tools, and say that they were found."""
        made, result = search(self.api.name, turn)
        if result is None:
            self.reply(self.ask(), made, "These tools fit.")
        else:
            self.reply(self.ask(), made)
            self.context.add(result)
            self.reply(self.ask(), [], "These tools fit.")

    def work(self, turn: int, tool: str) -> None:
        """Call the tool once."""
        made, result = call(self.api.name, turn, tool)
        self.reply(self.ask(), made)
        self.context.add(result)


def calls_without_their_tool(request: Mapping[str, Any]) -> Iterator[str]:
    """The calls of deferred tools before which nothing in the request loads the tool.

    Read from the wire alone."""
    loaded: set[str] = set()
    for block in _objects(request.get("messages", request.get("input"))):
        name = str(block.get("name"))
        if block.get("type") == "tool_reference":
            loaded.add(str(block.get("tool_name") or name))
        elif "parameters" in block:
            loaded.add(name)
        elif (
            ("arguments" in block or "input" in block)
            and name.startswith("tool_")
            and name[5:].isdecimal()
            and name not in loaded
        ):
            yield name


def _objects(value: Any) -> Iterator[Wire]:
    """All objects within a value, in the order of the wire."""
    if isinstance(value, dict):
        yield cast("Wire", value)
        for each in cast("Wire", value).values():
            yield from _objects(each)
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _objects(each)


def start(
    api: Api, count: Callable[[str], int], window: int, tools: list[Wire], **more: Any
) -> Agent:
    clock = iter(range(0, 10**9, 20))
    context = Context(
        api.model,
        dialect=cast("Any", api.name),
        system="You look after the tickets of a company. Search for a tool before you give up.",
        tools=tools,
        context_window=window,
        max_output_tokens=1_000,
        model_info={"tokenizer": api.vocabulary},
        clock=lambda: float(next(clock)),
        **more,
    )
    options = ProviderSimulatorOptions(tokenizer=count, window=window, keeps=False, seed="s")
    return Agent(api=api, context=context, simulator=ProviderSimulator(options))


def first_hidden(agent: Agent, tool: str, *, searches: bool) -> int | None:
    """Call a tool until something is hidden; the number of calls until then."""
    agent.context.add({"role": "user", "content": "Which tickets are open? Look at all of them."})
    if searches:
        agent.search(0)
        agent.context.add({"role": "user", "content": "Go on."})
    for turn in range(CALLS):
        agent.work(turn, tool)
        if agent.context.preview().edits:
            return turn + 1
    return None


def under_preset(agent: Agent, turns: int) -> None:
    for turn in range(turns):
        agent.context.add({"role": "user", "content": f"What of ticket {turn}? Tell me all."})
        if turn % SEARCH_EVERY == 0:
            agent.search(turn)
            agent.context.add({"role": "user", "content": "Go on."})
        agent.work(turn, CALLED)
        agent.reply(agent.ask(), [], f"Ticket {turn} is still open, and nobody works on it. " * 6)


def measure_api(api: Api, count: Callable[[str], int], size: str) -> Report:
    """All figures of one dialect, in a run of this size."""
    deferred = start(api, count, WINDOW[size], toolbox(api.name))
    plain = start(api, count, WINDOW[size], [definition(api.name, "show", deferred=False)])
    row: Report = {
        "vocabulary": api.vocabulary,
        "first_hidden_call": first_hidden(deferred, CALLED, searches=True),
        "first_hidden_call_plain": first_hidden(plain, "show", searches=False),
    }
    agents = [deferred]
    lost: dict[str, int] = {}
    hidden = 0
    for name, options in PRESETS.items():
        agent = start(api, count, SMALL_WINDOW, toolbox(api.name), **options)
        under_preset(agent, TURNS[size])
        lost[name] = agent.lost
        hidden += sum(many for many, _ in agent.context.report().hidden.values())
        agents.append(agent)
    real, bounds = sum(agent.real for agent in agents), sum(agent.bounds for agent in agents)
    return {
        **row,
        "counted_ratio": round(bounds / max(1, real), 3),
        "estimate_ratio": round(sum(agent.estimates for agent in agents) / max(1, real), 3),
        "bound_tokens": bounds,
        "counted_tokens": real,
        "bound_exceeded": sum(agent.exceeded for agent in agents),
        "loader_lost": lost,
        "requests": sum(agent.requests for agent in agents),
        "refused": [told for agent in (*agents, plain) for told in agent.refused],
        "hidden": hidden,
    }


def broken(report: Report) -> list[str]:
    """What must hold and does not."""
    found: list[str] = []
    rows: Mapping[str, Report] = report["dialects"]
    for name, row in (("all", report), *rows.items()):
        if not RATIO[0] <= row["counted_ratio"] <= RATIO[1]:
            found.append(f"{name}: counted_ratio {row['counted_ratio']} is not in {RATIO}")
    for name, row in rows.items():
        first, plain = row["first_hidden_call"], row["first_hidden_call_plain"]
        if first is None or plain is None or abs(first - plain) > 1:
            found.append(f"{name}: hides at call {first}, with plain tools at {plain}")
        found += (
            f"{name}: {many} calls without their tool under {preset}"
            for preset, many in row["loader_lost"].items()
            if many
        )
        found += (f"{name}: refused: {told}" for told in row["refused"][:3])
        if row["bound_exceeded"]:
            found.append(f"{name}: {row['bound_exceeded']} requests above their upper bound")
        if not row["hidden"]:
            found.append(f"{name}: nothing was hidden, so nothing was tried")
    return found


def main(quick: bool) -> Report:
    counters, size = exact_tokenizers.available(), "quick" if quick else "full"
    rows = {api.name: measure_api(api, counters[api.vocabulary], size) for api in APIS}
    farthest = max(
        rows.values(),
        key=lambda row: abs(
            (row["first_hidden_call"] or 0) - (row["first_hidden_call_plain"] or 0)
        ),
    )
    bounds, real = (
        sum(row[key] for row in rows.values()) for key in ("bound_tokens", "counted_tokens")
    )
    report: Report = {
        "sample": {"tools": TOOL_COUNT, "turns": TURNS[size], "presets": len(PRESETS)},
        "counted_ratio": round(bounds / max(1, real), 3),
        "first_hidden_call": farthest["first_hidden_call"],
        "first_hidden_call_plain": farthest["first_hidden_call_plain"],
        "loader_lost": sum(sum(row["loader_lost"].values()) for row in rows.values()),
        "dialects": rows,
    }
    return {**report, "broken": broken(report)}


def no_vocabulary() -> str | None:
    """Why it cannot run here; None if it can."""
    missing = [api.vocabulary for api in APIS if api.vocabulary not in exact_tokenizers.available()]
    return f"no tokenizer for {', '.join(missing)} is installed" if missing else None


if __name__ == "__main__":
    if (why := no_vocabulary()) is not None:
        sys.exit(skip(why, as_json="--json" in sys.argv))
    sys.exit(run(__doc__, main, packages=("rs-bpe", "mistral-common")))
