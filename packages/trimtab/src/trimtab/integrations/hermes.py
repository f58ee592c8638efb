"""Hermes Agent: a context engine that hides instead of compressing, and what calls it before each
model call.

Hermes finds this module by the entry point `trimtab` in the group `hermes_agent.plugins`. It is
loaded only if the user's configuration enables the plugin, and it does nothing unless the user also
chooses it as the context engine:

    plugins:
      enabled: [trimtab]
    context:
      engine: trimtab

Hermes keeps the whole history and runs the tools. The engine never compresses it. The middleware
replaces the messages of a request by those that fit.
"""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from trimtab.integrations.missing_framework import make_missing_framework_error

try:
    from agent.context_engine import ContextEngine
    from hermes_cli.config import load_config
except ImportError as error:
    raise make_missing_framework_error("hermes", error) from error

from trimtab.dialects import DialectName
from trimtab.engine.log.event import Usage
from trimtab.engine.prompt.shown_messages import View
from trimtab.errors import CannotFit
from trimtab.integrations.conversations import ConversationOptions, Conversations, limit_output
from trimtab.session.session import Session
from trimtab.verbs.notices import EditNotice

__all__ = ["register"]

ENGINE_NAME = "trimtab"
"""The name of the plugin, and of its context engine in Hermes' configuration."""
MAX_SESSIONS = 1_000
"""Sessions of Hermes that are kept in memory."""
_DIALECTS: Mapping[str, DialectName] = {
    "chat_completions": "openai_chat",
    "anthropic_messages": "anthropic",
    "codex_responses": "openai_responses",
}
_HISTORY_KEYS: Mapping[DialectName, str] = {
    "openai_chat": "messages",
    "anthropic": "messages",
    "openai_responses": "input",
}
_SYSTEM_KEYS: Mapping[DialectName, str] = {
    "anthropic": "system",
    "openai_responses": "instructions",
}
_OUTPUT_KEYS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
T = TypeVar("T")

log = logging.getLogger("trimtab.hermes")


class SmallerRequestFollows(Exception):
    """The provider refused a request for its length. Hermes sends again after this error, and then
    the request is smaller."""


@dataclass(slots=True)
class HermesSession:
    """What this module knows of one session of Hermes."""

    id: str
    """Hermes' id of the session."""
    conversations: Conversations
    """Its conversation, which has the same id."""
    hidden: list[EditNotice]
    """What was hidden."""
    context_window: int | None = None
    """Tokens of the window by Hermes; None if it did not say."""
    calls: int = 0
    """Model calls."""
    refused: int = 0
    """Model calls that were refused for their length."""

    def fit(self, request: Mapping[str, Any], model: str, dialect: DialectName) -> dict[str, Any]:
        """Return a request that fits: Hermes' own, with other messages if something is hidden."""
        key = _HISTORY_KEYS[dialect]
        messages: list[Any] = request[key]
        asked = next((request[name] for name in _OUTPUT_KEYS if request.get(name)), None)
        view = self.conversations.run(
            self.conversations.fit(
                self.id,
                messages,
                model=model,
                dialect=dialect,
                system=request.get(_SYSTEM_KEYS.get(dialect, ""), ""),
                tools=request.get("tools") or (),
                max_output_tokens=limit_output(model, asked),
                context_window=self.context_window,
            )
        )
        if view.is_unchanged:
            return dict(request)
        return {**request, key: _build_messages(messages, view)}

    def retry(self, error: Exception) -> bool:
        """Say whether Hermes should send again, after an error of a model call."""
        try:
            may_retry = self.conversations.run(self.conversations.retry(self.id, error))
        except CannotFit as cause:
            log.warning("nothing more can be hidden: %s", cause)
            may_retry = False
        self.refused += may_retry
        return may_retry

    def answer(self, tool_name: str, arguments: Mapping[str, Any]) -> str:
        """Answer a call of a recall tool."""
        return self.conversations.run(self.conversations.answer(self.id, tool_name, arguments))

    def record_usage(self, usage: Usage) -> None:
        """Record what the last call was billed."""

        async def record(session: Session) -> None:
            await session.recorder.record_usage(usage)

        self._use_session(record)

    def write_last_line(self) -> str:
        """Return one line that says what is hidden, and whether all of it can be read."""

        async def sum_up(session: Session) -> tuple[int, int]:
            hidden = session.report().hidden.values()
            unreadable = 0
            for handle in {notice.handle for notice in self.hidden}:
                try:
                    await session.recall(handle)
                except LookupError:
                    unreadable += 1
            return sum(tokens for _, tokens in hidden), unreadable

        tokens, unreadable = self._use_session(sum_up) or (0, 0)
        size = f"{tokens / 1000:.0f}k" if tokens >= 1000 else str(tokens)
        readable = f"{unreadable} not readable" if unreadable else "all readable"
        calls = "1 call" if self.calls == 1 else f"{self.calls:,} calls"
        return f"trimtab: {calls}, {self.refused:,} refused, {size} tokens hidden, {readable}"

    def _use_session(self, work: Callable[[Session], Coroutine[Any, Any, T]]) -> T | None:
        try:
            return self.conversations.run(self.conversations.use_session(self.id, work))
        except LookupError:  # nothing was fitted yet
            return None


class HermesSessions:
    """The sessions of a process of Hermes, by Hermes' ids."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._by_id: OrderedDict[str, HermesSession] = OrderedDict()
        self.is_chosen = False
        """Whether an agent has chosen the engine. Before that, every request passes."""
        self._make_conversations(None)  # invalid options are an error when the plugin is loaded

    def get(self, session_id: str) -> HermesSession:
        """Return a session; a new one if it is unknown."""
        known = self._by_id.get(session_id)
        if known is None:
            hidden: list[EditNotice] = []
            conversations = self._make_conversations(hidden.append)
            known = HermesSession(session_id, conversations, hidden)
            self._by_id[session_id] = known
        self._by_id.move_to_end(session_id)
        while len(self._by_id) > MAX_SESSIONS:
            self._by_id.popitem(last=False)
        return known

    def end(self, session_id: str) -> HermesSession | None:
        """Forget a session, and return it if it has made a call."""
        known = self._by_id.pop(session_id, None)
        return known if known is not None and known.calls else None

    def _make_conversations(self, on_edit: Callable[[EditNotice], object] | None) -> Conversations:
        options = cast("ConversationOptions", self._options)
        return Conversations(
            tags_handles=True, **{"cache": "caller", **options, "on_edit": on_edit}
        )


class TrimtabEngine(ContextEngine):
    """A context engine that never compresses: what a request shows is decided before each call."""

    def __init__(self, sessions: HermesSessions) -> None:
        self._sessions = sessions
        self._session_id = ""

    def __deepcopy__(self, memo: dict[int, Any]) -> TrimtabEngine:
        """Return another engine for another agent. All share the sessions."""
        return TrimtabEngine(self._sessions)

    @property
    def name(self) -> str:
        """The name in Hermes' configuration."""
        return ENGINE_NAME

    def on_session_start(self, session_id: str, **_: Any) -> None:
        """Begin a session, or continue one."""
        self._sessions.is_chosen = True
        self._session_id = session_id
        self._set_window()

    def on_session_end(self, session_id: str, messages: list[dict[str, Any]]) -> None:
        """Say what was hidden, and forget the session."""
        del messages
        session = self._sessions.end(session_id)
        if session is not None:
            print(session.write_last_line(), file=sys.stderr)  # noqa: T201 - for the user

    def update_model(self, model: str, context_length: int, **options: Any) -> None:
        """Take the model's window."""
        super().update_model(model, context_length, **options)
        self._set_window()

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take the usage of a reply."""
        self.last_prompt_tokens = usage.get("prompt_tokens") or 0
        self.last_completion_tokens = usage.get("completion_tokens") or 0
        self.last_total_tokens = usage.get("total_tokens") or 0
        if self._session_id and self.last_prompt_tokens:
            counts = Usage(
                input=self.last_prompt_tokens,
                output=self.last_completion_tokens,
                cache_read=usage.get("cache_read_tokens") or 0,
                cache_write=usage.get("cache_write_tokens") or 0,
            )
            self._sessions.get(self._session_id).record_usage(counts)

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Never compress."""
        del prompt_tokens
        return False

    def has_content_to_compress(self, messages: list[dict[str, Any]]) -> bool:
        """Say that `/compress` has nothing to do."""
        del messages
        return False

    def compress(self, messages: list[dict[str, Any]], *_: Any, **__: Any) -> list[dict[str, Any]]:
        """Return the history as it is."""
        return messages

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the recall tools."""
        tools = self._sessions.get(self._session_id).conversations.recall_tools
        return [
            {
                "name": tool["name"],
                "description": tool["description"],
                "parameters": tool["input_schema"],
            }
            for tool in tools
        ]

    def handle_tool_call(self, name: str, args: dict[str, Any], **_: Any) -> str:
        """Answer a call of a recall tool."""
        return self._sessions.get(self._session_id).answer(name, args)

    def _set_window(self) -> None:
        if self._session_id:
            session = self._sessions.get(self._session_id)
            session.context_window = self.context_length or None


def register(context: Any) -> None:
    """Register the engine and the middleware. Hermes calls this if the plugin is enabled.

    Args:
        context: The registrations of Hermes.

    Raises:
        TypeError: If the configuration has an unknown option.
        ValueError: If an option has an invalid value.
    """
    try:
        sessions = HermesSessions(_read_options())
    except (TypeError, ValueError) as error:  # Hermes only logs it
        print(f"trimtab: off, and Hermes compresses: {error}", file=sys.stderr)  # noqa: T201 - for the user
        raise

    def fit_request(
        request: dict[str, Any],
        session_id: str = "",
        model: str = "",
        api_mode: str = "",
        **_: Any,
    ) -> dict[str, Any] | None:
        dialect = _DIALECTS.get(api_mode)
        if not sessions.is_chosen or not session_id or dialect is None:
            return None
        session = sessions.get(session_id)
        try:
            fitted = session.fit(request, model, dialect)
        except Exception as error:
            log.warning("a request passes as it is: %s", error, exc_info=True)
            return None
        return {"request": fitted, "source": ENGINE_NAME}

    def watch_call(
        request: dict[str, Any],
        next_call: Callable[[dict[str, Any]], Any],
        session_id: str = "",
        **_: Any,
    ) -> Any:
        if not sessions.is_chosen or not session_id:
            return next_call(request)
        session = sessions.get(session_id)
        session.calls += 1
        try:
            return next_call(request)
        except Exception as error:
            if not session.retry(error):
                raise
        # Not inside of the handler: Hermes would find the refusal in the context of this error,
        # and compress.
        raise SmallerRequestFollows("trimtab hides more now, please send again")

    context.register_context_engine(TrimtabEngine(sessions))
    context.register_middleware("llm_request", fit_request)
    context.register_middleware("llm_execution", watch_call)


def _read_options() -> dict[str, Any]:
    """Return the user's options: `plugins.entries.trimtab.options` in Hermes' configuration.

    Hermes has keys of its own beside `options`.
    """
    configuration: Any = load_config() or {}
    entries: Any = (configuration.get("plugins") or {}).get("entries") or {}
    return dict((entries.get(ENGINE_NAME) or {}).get("options") or {})


def _build_messages(messages: Sequence[Any], view: View) -> list[Any]:
    """Return what to send: Hermes' own messages, and others for those that are edited."""
    first = min((shown.positions[0] for shown in view if shown.positions), default=0)
    system_roles = ("system", "developer")
    out = [message for message in messages[:first] if message.get("role") in system_roles]
    for shown in view:
        if shown.is_callers_own:
            out += [messages[position] for position in shown.positions]
        else:
            out += shown.wire
    return out
