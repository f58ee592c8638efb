"""A context driven through a story, by a scripted model that answers whatever it is asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from tests.pictures import PDF_TEXT, PNG_TEXT, WAV_TEXT
from tests.recording import (
    append,
    build_call,
    checkpoint,
    decide,
    record_external_call,
    request_anyway,
)
from tests.strategies.logs import (
    BEDROCK_MODELS,
    MODELS,
    Back,
    Chat,
    Configure,
    Elsewhere,
    Forget,
    Loop,
    Peek,
    Recall,
    Reload,
    Results,
    Say,
    Setup,
    Squeeze,
    Step,
    Story,
    Stray,
    Summarise,
    Touch,
    Turn,
    Wait,
    Words,
)
from tests.strategies.wild import wild
from trimtab import Context
from trimtab.dialects import DIALECT_NAMES, get_dialect
from trimtab.dialects.media import find_accepted_media
from trimtab.engine.log.erase import erase_event_payload
from trimtab.engine.log.event import (
    Event,
    MessageAdded,
    ModelCall,
    RetentionErasure,
    SummaryAttempt,
    ToolResultRepair,
    Usage,
    dump_event_line,
)
from trimtab.engine.log.message import Media, Message, OpaqueBlock, Part, Text, ToolCall, ToolResult
from trimtab.engine.policy.planning.plan import Policy
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.engine.tokens.counter import estimate_tokens_by_bytes
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.errors import CannotFit, UnusableSummary
from trimtab.types import DialectName, PolicyLimits, PolicyName

TOOLS = ("read", "bash", "search_web")
MEDIA: dict[str, Media] = {
    "image": Media(kind="image", mime="image/png", data=PNG_TEXT),
    "document": Media(kind="document", mime="application/pdf", data=PDF_TEXT),
    "audio": Media(kind="audio", mime="audio/wav", data=WAV_TEXT),
}

CLIENT = (
    "<system-reminder>\nThe list of tasks is empty.\n</system-reminder>",
    f"<system-reminder>\n{'Read the rules of this folder first. ' * 60}\n</system-reminder>",
    "[Request interrupted by user]",
)
"""What client programs put into user messages; each comes again and again."""

REJECTIONS = (
    "Could not process image",
    "Output blocked by content filtering policy",
    "messages.0.content.0: no",
    "Invalid image. (messages[1].content[1])",
    "",
)

Asking = Callable[["Life", bool, str | None], None]
Asked = Callable[["Life", dict[str, Any]], None]
Refused = Callable[["Life", CannotFit, str | None], None]


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Who looks on at a life, and when."""

    begun: Callable[[Life], None] | None = None
    stepping: Callable[[Life, Step], None] | None = None
    """Before each step."""
    stepped: Callable[[Life, Step], None] | None = None
    asking: Asking | None = None
    """Before each request."""
    asked: Asked | None = None
    refused: Refused | None = None
    """Instead of `asked`, if nothing can be sent."""
    ended: Callable[[Life], None] | None = None


NOBODY = Hooks()


class Life:
    """A context and what has been asked of it. The hooks look on."""

    def __init__(self, setup: Setup, hooks: Hooks = NOBODY) -> None:
        self.setup = setup
        self.tokenizer = self._count_tokens if setup.counted else None
        self.patience = sys.maxsize
        """Texts that may be counted from now on."""
        self.now = 1_000.0
        self.count = 0
        self.hooks = hooks
        self.late: tuple[int, dict[str, Any]] | None = None
        """A call, and the reply to it that has not come yet."""
        self.past: list[Event] = []
        """The log up to the last time that the context has let go of it."""
        self.said: dict[int, Message] = {}
        """By position: each message as it was when it was said."""
        self.context = self._begin(setup)
        if hooks.begun is not None:
            hooks.begun(self)

    def _count_tokens(self, text: str) -> int:
        self.lose_patience()
        return estimate_tokens_by_bytes(text)

    def lose_patience(self) -> None:
        self.patience -= 1
        assert self.patience > 0, "a decision counts and counts"

    def _begin(self, setup: Setup) -> Context:
        return Context(
            setup.model,
            dialect=cast("DialectName", setup.dialect),
            system=self.text(setup.system),
            tools=tools(setup.tools),
            policy=cast("PolicyName", policy(setup.policy)),
            goal=setup.goal,
            limits=cast("PolicyLimits", setup.context),
            summaries=setup.summaries,
            context_window=setup.window,
            max_output_tokens=setup.output,
            recall=setup.recall,
            params=self._params(setup),
            tokenizer=self.tokenizer,
            clock=self.clock,
        )

    def _params(self, setup: Setup) -> dict[str, Any]:
        room = setup.output is None or setup.output > 1024
        if setup.thinking and room and setup.dialect == "anthropic":
            return {"thinking": {"type": "enabled", "budget_tokens": 1024}}
        return {}

    def clock(self) -> float:
        return self.now

    @property
    def events(self) -> list[Event]:
        if not self.past:
            return self.context.events
        return [*self.past, *(e for e in self.context.events if e.seq > self.past[-1].seq)]

    @property
    def dialect(self) -> str:
        return self.context.window.settings.dialect

    @property
    def last_call(self) -> ModelCall:
        sent = self.context.window.last_call
        assert sent is not None
        return sent.body

    def made(self, seq: int) -> bool:
        """Whether a call stands at that position."""
        return seq <= len(self.events) and isinstance(self.events[seq - 1].body, ModelCall)

    def text(self, words: Words) -> str:
        """The words, told from all others by a number; blank ones stay blank."""
        if not words.unit.strip():
            return words.unit
        self.count += 1
        tag = f"<{self.count}>"
        times = max(1, words.size // len(words.unit.encode("utf-8", "surrogatepass")))
        return f"{tag} {words.unit * times}"

    def do(self, step: Step) -> None:
        ways: dict[type[Any], Callable[[Any], None]] = {
            Say: self._say,
            Turn: self._turn,
            Results: self._results,
            Stray: self._stray,
            Loop: self._loop,
            Chat: self._chat,
            Squeeze: self._squeeze,
            Configure: self._configure,
            Back: self._back,
            Touch: self._touch,
            Recall: self._recall,
            Summarise: self._summarise,
            Peek: self._peek,
            Reload: self._reload,
            Forget: self._forget,
            Elsewhere: self._elsewhere,
            Wait: self._wait,
        }
        if self.hooks.stepping is not None:
            self.hooks.stepping(self, step)
        self.now += 1
        if self.past and isinstance(step, Back | Touch | Recall | Reload):
            # What they may need has left memory: they begin with the whole log.
            self.context, self.past = self.loaded(self.events), []
        ways[type(step)](step)
        if self.late is not None and isinstance(step, Touch | Configure | Back):
            self._arrive(*self.late)
        self._note()
        if self.hooks.stepped is not None:
            self.hooks.stepped(self, step)

    def _arrive(self, call: int, whole: dict[str, Any]) -> None:
        """A reply that was long under way, to a call that is still the last one."""
        self.late = None
        if call == self.context.window.accounting.open_call_seq:
            self.context.add(whole)

    def add(self, message: Message, form: int) -> None:
        if self.dialect == "openai_responses" and any(
            isinstance(p, OpaqueBlock) for p in message.parts
        ):
            form = 0  # its items come singly, and a thought alone is refused
        for item in wires(message, form, self.dialect):
            self.context.add(item)
        self._note()

    def _note(self) -> None:
        """Remember what was said before anything can happen to it."""
        for event in self.events[max(self.said, default=0) :]:
            if isinstance(event.body, MessageAdded | ToolResultRepair):
                self.said.setdefault(event.seq, event.body.message)

    def ask(self, *, stream: bool = False, volatile: str | None = None) -> dict[str, Any] | None:
        if not self.context.window.entries:
            self._say(Say())  # with nothing said, there is nothing to send
        self._summarise_results()
        if self.hooks.asking is not None:
            self.hooks.asking(self, stream, volatile)
        try:
            request = request_anyway(self.context, stream=stream, volatile=volatile)
        except CannotFit as error:
            if self.hooks.refused is not None:
                self.hooks.refused(self, error, volatile)
            return None
        self._note()
        if self.hooks.asked is not None:
            self.hooks.asked(self, request)
        return request

    def _say(self, step: Say) -> None:
        role = step.role
        if role == "assistant" and self.context.window.settings.params:
            role = "user"  # with thinking enabled, a reply that is put into its mouth is refused
        parts: tuple[Part, ...] = (Text(text=self.text(step.words)),)
        if step.client is not None and role == "user":
            parts = (Text(text=CLIENT[step.client]), *(() if step.alone else parts))
        if step.media is not None and role == "user":
            settings = self.context.window.settings
            heard = "audio" in find_accepted_media(settings.dialect, settings.model).types
            parts += (MEDIA[step.media if heard or step.media != "audio" else "image"],)
        self.add(Message(role=role, parts=parts, plain=len(parts) == 1), step.form)

    def _turn(self, step: Turn) -> None:
        if self.ask(stream=step.stream, volatile=step.volatile) is None or step.reply == "lost":
            return
        if step.reply == "unsaid":
            with suppress(CannotFit):
                self.context.fail("overflow")
            return
        if step.reply == "refused":
            limit = self.context.budget().limit
            if step.twice:
                self.context.fail("rate_limit")
            else:
                with suppress(CannotFit):  # what must stay is all there is
                    self.context.fail("overflow", limit=max(1_000, limit * 9 // 10), input=limit)
            return
        if step.reply == "rejected":
            self.context.fail("rejected", message=REJECTIONS[self.count % len(REJECTIONS)])
            return
        message = self._reply(step)
        if step.reply == "bare":
            self.add(message, 1 if step.twice else 0)
            return
        usage = round(self.last_call.tokens * self.setup.heavier)
        metered = None if step.reply == "unmetered" else usage
        whole = reply(message, self.dialect, self.count, metered)
        if step.reply == "paused" and self.dialect == "anthropic":
            whole["stop_reason"] = "pause_turn"
        if step.reply == "late":
            self.late = (self.events[-1].seq, whole)
            return
        self.context.add(whole)
        if step.twice:
            self.context.add(whole)

    def _reply(self, step: Turn) -> Message:
        parts: list[Part] = []
        if step.opaque or self.context.window.settings.params:
            parts.append(self._thought())
        if step.loads:
            parts += self._load()
        if step.words is not None:
            parts.append(Text(text=self.text(step.words)))
        parts += (
            self._todo_call(call_id)
            if step.todo and call_id is step.calls[0]
            else self._call(call_id, step.arguments)
            for call_id in step.calls
        )
        return Message(role="assistant", parts=tuple(parts), plain=False, origin=self.dialect)

    def _thought(self) -> OpaqueBlock:
        self.count += 1
        thought = f"hm <{self.count}>"
        match self.dialect:
            case "anthropic":
                data = {"type": "thinking", "thinking": thought, "signature": "c2ln"}
            case "openai_chat":
                data = {"reasoning_content": thought}
            case _:
                data = {"type": "reasoning", "id": f"rs_{self.count}", "summary": []}
                data["encrypted_content"] = thought
        return OpaqueBlock(data=data, thinking=True)

    def _load(self) -> list[Part]:
        """What a provider's own tool search leaves in a reply. Chat Completions and Bedrock have
        none."""
        self.count += 1
        # A search finds what the request defines.
        names = TOOLS[: self.setup.tools]
        if not names or self.context.window.settings.model in BEDROCK_MODELS:
            return []
        match self.dialect:
            case "anthropic":
                found = [{"type": "tool_reference", "tool_name": name} for name in names]
                content = {"type": "tool_search_tool_search_result", "tool_references": found}
                search = f"srvtoolu_{self.count}"
                done = {"type": "tool_search_tool_result", "tool_use_id": search}
                ask = {"type": "server_tool_use", "id": search, "name": "tool_search", "input": {}}
                return [OpaqueBlock(data=ask), OpaqueBlock(data={**done, "content": content})]
            case "openai_responses":
                tools = [{"type": "function", "name": name, "parameters": {}} for name in names]
                given = {"call_id": None, "execution": "server", "status": "completed"}
                ask = {"type": "tool_search_call", "id": f"tsc_{self.count}", "arguments": {}}
                done = {"type": "tool_search_output", "id": f"tso_{self.count}", "tools": tools}
                return [OpaqueBlock(data={**ask, **given}), OpaqueBlock(data={**done, **given})]
            case _:
                return []

    def _call(self, call_id: str, given: Words | None) -> ToolCall:
        self.count += 1
        name = TOOLS[self.count % len(TOOLS)]
        valid = self.count % 7 or self.dialect == "anthropic"
        arguments = f"not json <{self.count}>"
        if valid:
            named: dict[str, Any] = {"n": f"<{self.count}>"}
            # An escape within an escape: halves of pairs have texts enough elsewhere.
            told = "" if given is None else self.text(given).replace("\ud800", "")
            more = {} if given is None else {"lines": [{"text": told}, 1]}
            arguments = json.dumps(named | more, separators=(",", ":"))
        return ToolCall(id=call_id, name=name, arguments=arguments)

    def _todo_call(self, call_id: str) -> ToolCall:
        self.count += 1
        todos = [
            {"content": f"<{self.count}> step {number}", "status": "pending"}
            for number in range(1 + self.count % 8)
        ]
        return ToolCall(id=call_id, name="todo_write", arguments=json.dumps({"todos": todos}))

    def _results(self, step: Results) -> None:
        if not self.context.window.conversation.open_calls():
            self._turn(Turn(calls=("a", "b")))
        ids = [pairing.id for pairing in self.context.window.conversation.open_calls()]
        ids = ids[: max(0, len(ids) - step.missing)]
        if step.backwards:
            ids.reverse()
        answers = tuple(self._result(call_id, step) for call_id in ids)
        steering = () if step.steering is None else (Text(text=self.text(step.steering)),)
        if step.together:
            if answers or steering:
                message = Message(role="user", parts=(*answers, *steering), plain=False)
                self.add(message, step.form)
            return
        for number, answer in enumerate(answers):
            if number == 1 and steering:
                self.add(Message(role="user", parts=steering), step.form)
            self.add(Message(role="tool", parts=(answer,)), step.form)

    def _result(self, call_id: str, step: Results) -> ToolResult:
        text = Text(text=self.text(step.words))
        if step.media:
            return ToolResult(call_id=call_id, content=(text, MEDIA["image"]), plain=False)
        return ToolResult(call_id=call_id, content=(text,))

    def _stray(self, step: Stray) -> None:
        result = ToolResult(call_id=step.id, content=(Text(text=self.text(step.words)),))
        self.add(Message(role="tool", parts=(result,)), step.form)

    def _chat(self, step: Chat) -> None:
        for _ in range(step.rounds):
            self._say(Say(words=step.words, client=step.client))
            self._turn(Turn(words=step.reply or step.words))

    def _squeeze(self, step: Squeeze) -> None:
        for _ in range(step.times):
            self._turn(Turn(reply="unsaid" if step.unsaid else "refused"))

    def _loop(self, step: Loop) -> None:
        for number in range(step.rounds):
            calls = tuple(f"call_{number}_{n}" for n in range(step.width))
            loads = step.loads and number == 0
            todo = step.todo and number == 0
            self._turn(Turn(calls=calls, opaque=step.opaque, loads=loads, todo=todo))
            if self.context.window.conversation.open_calls():
                self._results(Results(words=step.words, form=1))

    def _configure(self, step: Configure) -> None:
        changes = dict(step.changes)
        if changes.get("dialect", self.dialect) != self.dialect:
            changes["params"] = {}
        if self.context.window.settings.params and changes.get("max_output_tokens"):
            changes["max_output_tokens"] = 4_000
        if "policy" in changes:
            changes["policy"] = policy(changes["policy"])
        self.context.configure(**changes)

    def _back(self, step: Back) -> None:
        self.context.rewind(max(1, self.context.window.seq - step.by))

    def _touch(self, step: Touch) -> None:
        entries = list(self.context.window.entries.values())
        if step.what == "fork":
            at = 1 + step.which % self.context.window.seq
            self.context = self.context.fork(at=at)
            self.said = {seq: said for seq, said in self.said.items() if seq <= at}
        if not entries or step.what == "fork":
            return
        first = entries[step.which % len(entries)]
        if step.what == "reveal":
            self._reveal(step)
            return
        last = entries[min(len(entries) - 1, step.which % len(entries) + step.until)]
        handle = f"m{first.seq}-m{last.seq}"
        if step.part is not None and first.message.parts:
            handle = f"m{first.seq}.{step.part % len(first.message.parts)}"
        match step.what:
            case "pin" | "unpin":
                self.context.pin(handle, pinned=step.what == "pin")
            case "erase":
                self.context.erase(handle, reason="asked")
            case _:
                append(self.context, RetentionErasure(before=first.seq + 1, why="old"))
                self.events[:] = [erase_event_payload(event, 1, first.seq) for event in self.events]

    def _reveal(self, step: Touch) -> None:
        window = self.context.window
        hidden = [
            f"m{g.first}-m{g.last}" for g in window.conversation.groups if g.hidden is not None
        ]
        cut = [f"m{seq}.{part}" for seq, entry in window.entries.items() for part in entry.edits]
        whole = [f"m{seq}" for seq, e in window.entries.items() if e.edits or e.round.group.hidden]
        if choices := [*hidden, *cut, *whole]:
            self.context.reveal(choices[step.which % len(choices)])

    def _recall(self, step: Recall) -> None:
        if not self.context.window.settings.recall or self.ask() is None:
            return
        entries = list(self.context.window.entries)
        handle = f"m{entries[step.which % len(entries)]}" if entries else "m1"
        call = ToolCall(id="r", name="recall", arguments=f'{{"handle":"{handle}"}}')
        parts: list[Part] = [self._thought()] if self.context.window.settings.params else []
        self.context.add(Message(role="assistant", parts=(*parts, call), origin=self.dialect))
        self.context.answer(call)

    def _summarise(self, step: Summarise) -> None:
        if (wanted := self.context.pending_summary()) is None:
            return
        first, last = wanted.span.first, wanted.span.last
        try:
            self.context.add_summary(self.text(step.words), span=wanted.span)
        except UnusableSummary:
            append(self.context, SummaryAttempt(first=first, last=last, outcome="rejected"))
            return
        used = Usage(input=100, output=9)
        append(self.context, SummaryAttempt(first=first, last=last, outcome="made", usage=used))

    def _summarise_results(self) -> None:
        for number, wanted in enumerate(self.context.pending_result_summaries()):
            tried = SummaryAttempt(
                first=wanted.seq, last=wanted.seq, part=wanted.part, outcome="made"
            )
            try:
                # Every other one is refused, or stays a candidate that is cut.
                self.context.add_result_summary(wanted, "- all is well\n" * (1 + number % 2 * 40))
            except UnusableSummary:
                tried = replace(tried, outcome="rejected")
            append(self.context, tried)

    def _peek(self, _: Peek) -> None:
        if not self.context.window.entries:
            return
        str(self.context.report())
        self.context.pending_summary()
        build_call(self.context)
        try:
            decide(self.context)
            self.context.preview()
        except CannotFit:
            return

    def _elsewhere(self, step: Elsewhere) -> None:
        try:
            record_external_call(self.context)
        except CannotFit:
            return
        if step.words is None:
            return
        parts: list[Part] = [self._thought()] if self.context.window.settings.params else []
        parts.append(Text(text=self.text(step.words)))
        self.add(Message(role="assistant", parts=tuple(parts), origin=self.dialect), 0)

    def _wait(self, step: Wait) -> None:
        self.now += step.seconds

    def _reload(self, _: Reload) -> None:
        self.context = self.loaded()

    def _forget(self, step: Forget) -> None:
        past = list(self.events)
        snapshot = checkpoint(self.context)
        self.past = past
        if step.restart:
            named = {seq for first, last in snapshot.spans for seq in range(first, last + 1)}
            self.context = self.loaded([e for e in past if e.seq in named], snapshot=snapshot)

    def loaded(
        self, events: Iterable[Event] | None = None, snapshot: Snapshot | None = None
    ) -> Context:
        """A second context, from the log alone and what a log cannot hold."""
        named = self.context.window.settings.policy
        return Context.load(
            self.context.dump() if events is None else [dump_event_line(event) for event in events],
            snapshot=snapshot,
            policy=None if named in POLICY_NAMES else cast("Policy", self.context.options.policy),
            tokenizer=self.tokenizer,
            clock=self.clock,
        )


def live(story: Story, hooks: Hooks = NOBODY) -> Life:
    """A whole life, ended by one more request."""
    life = Life(story.setup, hooks)
    for step in story.steps:
        life.do(step)
    life.do(Say(words=Words(unit="the end ", size=8)))
    life.ask()
    if hooks.ended is not None:
        hooks.ended(life)
    return life


def policy(name: str) -> str | Policy:
    return wild if name == "wild" else name


def tools(count: int) -> list[dict[str, Any]]:
    """Tool definitions, each in another dialect's form."""
    schema = {"type": "object", "properties": {"n": {"type": "string"}}}
    all_of_them: list[dict[str, Any]] = [
        {"name": "read", "description": "Read a file.", "input_schema": schema},
        {"type": "function", "function": {"name": "bash", "parameters": schema}},
    ]
    return all_of_them[:count]


def wires(message: Message, form: int, own: str) -> list[Any]:
    """The message itself, or what a client that speaks a dialect would hold in its place."""
    if form == 0 or _has_media(message):
        return [message]
    name = (
        own
        if form == 1 or message.role == "assistant"
        else DIALECT_NAMES[form % len(DIALECT_NAMES)]
    )
    if name == "anthropic":
        role = "user" if message.role == "tool" else message.role
        return get_dialect(name).serialize_history([replace(message, role=role, origin=name)])
    single = [Message(role="tool", parts=(part,), origin=name) for part in message.results]
    others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
    if others or not single:
        role = "user" if message.role == "tool" else message.role
        single.append(replace(message, role=role, parts=others, origin=name))
    return get_dialect(name).serialize_history(single)


def _has_media(message: Message) -> bool:
    contents = [inner for part in message.results for inner in part.content]
    return any(isinstance(part, Media) for part in (*message.parts, *contents))


def reply(message: Message, name: str, number: int, usage: int | None) -> dict[str, Any]:
    """A whole answer as the provider's API gives it."""
    items = get_dialect(name).serialize_history([message])
    if name == "openai_chat" and items[0].get("content") == []:
        items[0]["content"] = None
    calls = bool(message.calls)
    match name:
        case "anthropic":
            whole: dict[str, Any] = {
                "id": f"msg_{number}",
                "type": "message",
                "role": "assistant",
                "model": MODELS[name][0],
                "content": items[0].get("content", []),
                "stop_reason": "tool_use" if calls else "end_turn",
            }
            counts = {"input_tokens": 1, "cache_read_input_tokens": (usage or 1) - 1}
        case "openai_chat":
            reason = "tool_calls" if calls else "stop"
            choice = {"index": 0, "message": items[0], "finish_reason": reason}
            whole = {"id": f"chatcmpl_{number}", "object": "chat.completion", "choices": [choice]}
            counts = {"prompt_tokens": usage}
        case _:
            whole = {"id": f"resp_{number}", "object": "response", "output": items}
            whole["status"] = "completed"
            counts = {"input_tokens": usage}
    if usage is not None:
        whole["usage"] = counts
    return whole
