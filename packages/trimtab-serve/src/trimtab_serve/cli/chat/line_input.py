"""Read lines with a history and single keys, and hide what is typed while a turn runs."""

from __future__ import annotations

import os
import select
import sys
import termios
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead, store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.shortcuts import CompleteStyle

from trimtab.engine.log.redaction import Redact
from trimtab_serve.forgetting.history_file import (
    create_history_file,
    locate_history_file,
    lock_history_file,
    remove_history_lines,
)

INPUT_PROMPT = "> "
CONTINUATION_PROMPT = "  "


class InputInterrupted(Exception):
    """The user pressed Ctrl-C on an empty line."""


class InputClosed(Exception):
    """The user pressed Ctrl-D, or the terminal is gone."""


class KeyboardInput:
    """Reads what the user types."""

    def __init__(self, completions: Sequence[str], history: History | None = None) -> None:
        self._lines: PromptSession[str] = PromptSession(
            history=history or InMemoryHistory(),
            multiline=True,
            key_bindings=_bind_line_keys(),
            prompt_continuation=CONTINUATION_PROMPT,
            completer=WordCompleter(list(completions), sentence=True),
            complete_style=CompleteStyle.READLINE_LIKE,
            complete_while_typing=False,
            enable_history_search=False,
            mouse_support=False,
        )

    def forget_lines(self, texts: Collection[str]) -> None:
        """Remove lines from the history, in memory and in its file."""
        history = self._lines.history
        if isinstance(history, ErasableFileHistory):
            history.forget_lines(texts)

    async def read_line(self, draft: str = "") -> str:
        """Read the next message. Raises InputInterrupted or InputClosed."""
        try:
            return await self._lines.prompt_async(INPUT_PROMPT, default=draft, handle_sigint=False)
        except KeyboardInterrupt as error:
            raise InputInterrupted from error
        except EOFError as error:
            raise InputClosed from error

    def feed_typeahead(self) -> None:
        """Put what the user typed before the prompt appeared into the input line.

        The terminal has turned Enter into a line feed, which would only start a new line. This
        turns it back. Call it inside `suppress_terminal_echo`.
        """
        if not sys.stdin.isatty():
            return
        raw_keys = b""
        source = sys.stdin.fileno()
        while select.select([source], [], [], 0)[0] and (chunk := os.read(source, 4_096)):
            raw_keys += chunk
        keys: list[KeyPress] = []
        parser = Vt100Parser(keys.append)
        parser.feed(raw_keys.decode("utf-8", "ignore").replace("\n", "\r"))
        parser.flush()
        store_typeahead(self._lines.app.input, keys)

    async def read_choice(self, question: str, answers_by_key: Mapping[str, str]) -> str | None:
        """Return the word of the key that the user pressed. None for Ctrl-C or Ctrl-D.

        Keys that were typed before the question appeared are ignored.
        """
        if sys.stdin.isatty():
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
        keys: PromptSession[str] = PromptSession(key_bindings=_bind_answer_keys(answers_by_key))
        clear_typeahead(keys.app.input)
        try:
            return await keys.prompt_async(f"{question} ", handle_sigint=False)
        except (KeyboardInterrupt, EOFError):
            return None


class ErasableFileHistory(FileHistory):
    """A history file that only its owner can read and whose lines can be erased."""

    def __init__(self, path: Path, redact: Redact | None = None) -> None:
        super().__init__(str(path))
        self._path = path
        self._redact = redact

    def append_string(self, string: str) -> None:
        # What must not be kept of a message must not be kept here either.
        super().append_string(string if self._redact is None else self._redact(string))

    def store_string(self, string: str) -> None:
        with lock_history_file(self._path):
            super().store_string(string)

    def forget_lines(self, texts: Collection[str]) -> None:
        """Remove lines from the file and from memory."""
        lines = {text.strip() for text in texts}
        self._loaded_strings = [one for one in self._loaded_strings if one.strip() not in lines]
        remove_history_lines(self._path, texts)


def open_input_history(environ: Mapping[str, str], redact: Redact | None = None) -> History:
    """Open the history file, or a history in memory if the file cannot be written."""
    path = locate_history_file(environ)
    try:
        create_history_file(path)
    except OSError:
        return InMemoryHistory()
    return ErasableFileHistory(path, redact)


@contextmanager
def suppress_terminal_echo() -> Generator[None]:
    """Keep typed keys for the next input line instead of showing them. Ctrl-C still works."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    now = termios.tcgetattr(sys.stdin)
    now[0] &= ~termios.ICRNL  # Enter must still be Enter when it is read
    now[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(sys.stdin, termios.TCSANOW, now)
    try:
        yield
    finally:
        # The terminal may be gone by now.
        _restore_terminal(before)


def _restore_terminal(attributes: list[Any]) -> None:
    try:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, attributes)
    except termios.error:
        return


def _bind_line_keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    return keys


def _bind_answer_keys(answers_by_key: Mapping[str, str]) -> KeyBindings:
    keys = KeyBindings()

    def answer(word: str) -> Callable[[KeyPressEvent], None]:
        def take(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text(word)
            event.app.exit(result=word)

        return take

    for key, word in answers_by_key.items():
        keys.add(key, eager=True)(answer(word))
        keys.add(key.upper(), eager=True)(answer(word))

    @keys.add(Keys.Any)
    @keys.add("enter")
    @keys.add(Keys.BracketedPaste)
    def _(event: KeyPressEvent) -> None:
        """Ignore every other key."""

    @keys.add("c-c")
    @keys.add("c-d")
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt)

    return keys
