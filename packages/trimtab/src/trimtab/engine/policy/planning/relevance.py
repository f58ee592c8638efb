"""Find the results that the agent keeps using, with an index of words that grows call by call.

It decides which results to hide first. Each order is online and deterministic: it uses only what is
known at that call, and no model.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Literal

from trimtab.engine.log.message import Message, Text, ToolCall, ToolResult
from trimtab.engine.text.identifiers import RankedIdentifiers, count_identifiers, join_string_values
from trimtab.engine.window.structure import Entry, ToolResultView
from trimtab.engine.window.window import Window

ToolKind = Literal["edit", "read", "search", "run", "other"]

_TOOL_KIND_PATTERNS: tuple[tuple[ToolKind, re.Pattern[str]], ...] = (
    ("edit", re.compile(r"edit|write|patch|replace|create|update|insert")),
    ("read", re.compile(r"read|view|open|fetch|\b(?:cat|sed|head|tail|nl|less|bat)\b")),
    ("search", re.compile(r"grep|search|find|glob|list|\b(?:rg|ls|fd|ag|tree)\b")),
)
_SHELL_TOOL = re.compile(r"bash|shell|exec|run|terminal|command")
_LEADING_COMMAND = re.compile(r"^(?:bash\s+-lc\s+)?(?:cd [^&;]+&&\s*)*\s*([\w./-]+)")
# Each begins where nothing of its kind stands before it, so that a long run is read once.
_PATH = re.compile(r"(?<![\w$.-])[\w$.-]*(?:/[\w$.-]+)+|(?<![\w-])[\w-]+\.[a-z]{1,4}\b")
MAX_PATHS_PER_CALL = 4
"""Maximum number of paths of one call to follow."""


@dataclass(slots=True)
class ResultStats:
    """Statistics of one result."""

    kind: ToolKind
    """The kind of tool that returned it."""
    arrived_at: int
    """Number of assistant messages before it."""
    identifiers: RankedIdentifiers
    """The identifiers in it."""
    paths: tuple[str, ...]
    """Paths that its call named."""
    last_used_at: int
    """Number of assistant messages up to the last one that used one of its words."""
    use_count: int = 0
    """How often its words were used since then."""
    superseded: bool = False
    """Whether the same tool was called for the same thing again."""


@dataclass(slots=True)
class ReferenceIndex:
    assistant_messages: int = 0
    """Number of assistant messages so far."""
    stats_by_result: dict[tuple[int, int], ResultStats] = field(
        default_factory=dict[tuple[int, int], ResultStats]
    )
    """Statistics by result."""
    last_named_at: dict[str, int] = field(default_factory=dict[str, int])
    """By path: number of assistant messages up to the last call that named it."""
    last_edited_at: dict[str, int] = field(default_factory=dict[str, int])
    """By path: number of assistant messages up to the last call that changed it."""
    _holders: dict[str, list[ResultStats]] = field(default_factory=dict[str, list[ResultStats]])
    """By word: the results that contain it."""
    _subjects: dict[tuple[str, str], ResultStats] = field(
        default_factory=dict[tuple[str, str], ResultStats]
    )
    """By tool and subject of the call: the newest result."""
    _seen: int = 0
    """The position up to which the index has read the log."""

    def catch_up(self, window: Window) -> None:
        """Read the messages since the last time."""
        fresh: list[Entry] = []
        for entry in reversed(window.entries.values()):
            if entry.seq <= self._seen:
                break
            fresh.append(entry)
        for entry in reversed(fresh):
            self._index_entry(entry)
        self._seen = window.seq
        if len(self.stats_by_result) > 2 * len(window.results) + 100:
            self._drop_hidden_results(window)

    def _index_entry(self, entry: Entry) -> None:
        message = entry.message
        for pairing in entry.round.calls:
            result = pairing.result
            if result is not None and result.entry is entry:
                self._index_result(
                    result.key, message, pairing.name, _call_arguments(entry, pairing.id)
                )
        if message.role == "assistant":
            self.assistant_messages += 1
        if not message.results:
            self._index_mentions(message)

    def _index_result(
        self, key: tuple[int, int], message: Message, tool: str, arguments: str
    ) -> None:
        part = message.parts[key[1]]
        text = part.text if isinstance(part, ToolResult) else ""
        paths = tuple(_PATH.findall(arguments)[:MAX_PATHS_PER_CALL])
        fact = ResultStats(
            kind=classify_tool(tool, arguments),
            arrived_at=self.assistant_messages,
            identifiers=RankedIdentifiers(count_identifiers(text)),
            paths=paths,
            last_used_at=self.assistant_messages,
        )
        self.stats_by_result[key] = fact
        subject = (tool, "\n".join(sorted(paths)) or arguments[:200])
        if (earlier := self._subjects.get(subject)) is not None:
            earlier.superseded = True
        self._subjects[subject] = fact
        for word in fact.identifiers.counts:
            self._holders.setdefault(word, []).append(fact)

    def _index_mentions(self, message: Message) -> None:
        texts: list[str] = []
        for part in message.parts:
            if isinstance(part, Text):
                texts.append(part.text)
            elif isinstance(part, ToolCall):
                arguments = join_string_values(part.arguments)
                texts.append(arguments)
                for path in _PATH.findall(arguments)[:MAX_PATHS_PER_CALL]:
                    self.last_named_at[path] = self.assistant_messages
                    if classify_tool(part.name, arguments) == "edit":
                        self.last_edited_at[path] = self.assistant_messages
        # Without results there is nothing to use, and the text may be long.
        for word in count_identifiers("\n".join(texts)) if self._holders else ():
            for fact in self._holders.get(word, ()):
                fact.last_used_at = self.assistant_messages
                fact.use_count += 1

    def _drop_hidden_results(self, window: Window) -> None:
        """Remove hidden results from the index, because only visible results can be hidden."""
        self.stats_by_result = {
            key: fact for key, fact in self.stats_by_result.items() if key in window.results
        }
        self._holders = {}
        for fact in self.stats_by_result.values():
            for word in fact.identifiers.counts:
                self._holders.setdefault(word, []).append(fact)


def get_reference_index(window: Window) -> ReferenceIndex:
    """Return the window's index, up to date. The first call builds it from the log alone."""
    cache_entry = window.conversation.derived_cache.get("uses")
    uses = cache_entry if isinstance(cache_entry, ReferenceIndex) else ReferenceIndex()
    window.conversation.derived_cache["uses"] = uses
    uses.catch_up(window)
    return uses


def get_result_identifiers(window: Window, entry: Entry, part: int, text: str) -> RankedIdentifiers:
    """Return the identifiers of a text. Those of a result were collected when it arrived."""
    stats = get_reference_index(window).stats_by_result.get((entry.seq, part))
    return stats.identifiers if stats is not None else RankedIdentifiers(count_identifiers(text))


def classify_tool(tool_name: str, arguments: str) -> ToolKind:
    """Return the kind of a tool, by its name or, for a shell, by the command that it runs."""
    name = tool_name.lower()
    shell = _SHELL_TOOL.search(name) is not None
    if shell:
        command = _LEADING_COMMAND.match(arguments)
        name = command[1].rsplit("/", 1)[-1] if command else ""
    for kind, pattern in _TOOL_KIND_PATTERNS:
        if pattern.fullmatch(name) if shell else pattern.search(name):
            return kind
    return "run" if shell else "other"


def _call_arguments(entry: Entry, call_id: str) -> str:
    for other in entry.round.entries:
        for call in other.message.calls:
            if call.id == call_id:
                return join_string_values(call.arguments)
    return ""


SIZE_PENALTY = 0.3
"""How strongly size counts against a result: 0 not at all, 1 token by token."""

TOOL_KIND_WEIGHTS = {"edit": -2.23, "read": 0.15, "search": 0.07, "run": -0.46, "other": 0.0}


def order_oldest_first(_window: Window, results: list[ToolResultView]) -> list[ToolResultView]:
    """Keep the order: oldest first. This is the baseline."""
    return results


def order_least_needed_first(window: Window, results: list[ToolResultView]) -> list[ToolResultView]:
    """Order results by the odds that the agent will use something that only this result contains.

    The weights come from a logistic regression on one half of the recorded conversations.
    """
    uses = get_reference_index(window)
    scores = [
        (compute_need_score(uses, uses.stats_by_result.get(r.key), r.size.tokens), r.key, r)
        for r in results
    ]
    scores.sort()  # no two keys are the same
    return [result for _, _, result in scores]


def compute_need_score(index: ReferenceIndex, stats: ResultStats | None, tokens: int) -> float:
    """Return the log odds that a result is needed again, minus a penalty for its size."""
    if stats is None:
        return 0.0
    last_mention = last_edit = -99
    for path in stats.paths:
        last_mention = max(last_mention, index.last_named_at.get(path, -99))
        last_edit = max(last_edit, index.last_edited_at.get(path, -99))
    size = math.log(tokens + 1)
    return (
        0.82 * math.log1p(len(stats.identifiers.counts))
        + 0.17 * size
        - 0.21 * math.log1p(index.assistant_messages - stats.last_used_at)
        - 0.29 * math.log1p(stats.use_count)
        - 0.25 * math.log1p(min(99, index.assistant_messages - last_mention))
        - 0.79 * (last_edit > stats.arrived_at)
        - 0.15 * stats.superseded
        + TOOL_KIND_WEIGHTS[stats.kind]
        - SIZE_PENALTY * size
    )
