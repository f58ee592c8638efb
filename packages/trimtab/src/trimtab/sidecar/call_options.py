"""The options that a call may set for its conversation."""

from __future__ import annotations

import inspect
from typing import Any, cast

from trimtab.context import Context
from trimtab.engine.log.redaction import REDACTION_PATTERNS, Redact, redactor
from trimtab.integrations.conversations import ConversationOptions, check_conversation_options
from trimtab.sidecar.call import Refusal
from trimtab.sidecar.json_text import dump_json

_SET_HERE = ("cache", "max_output_tokens", "on_edit", "tokenizer")
"""Options that JSON cannot express, and what is the client's: cache marks and its output limit."""
_DEFAULTS: dict[str, Any] = {
    name: parameter.default
    for name, parameter in inspect.signature(Context).parameters.items()
    if name in ConversationOptions.__annotations__ and name not in _SET_HERE
} | {"recall": True}
"""The options, and their values if a call does not set them."""
MAX_KNOWN_OPTIONS = 64
"""Different options of calls that are remembered as valid."""
MAX_KNOWN_CHARS = 10_000
"""Characters of options that are remembered. Longer ones are checked at each call."""


class CallOptions:
    """Reads the options of calls, and remembers those that are valid."""

    def __init__(self) -> None:
        self._options: dict[str, ConversationOptions] = {}
        self._redactors: dict[tuple[str, ...], Redact] = {}

    def read(self, given: Any) -> ConversationOptions:
        """Return the options of a call. Those that it does not set have their defaults again.

        Raises:
            Refusal: If one is unknown or invalid.
        """
        if given is not None and not isinstance(given, dict):
            raise Refusal(400, "options must be an object")
        key = dump_json(given)
        if len(key) > MAX_KNOWN_CHARS:
            return self._check(given)
        if key not in self._options:  # to check them takes longer than to fit a short body
            if len(self._options) >= MAX_KNOWN_OPTIONS:
                self._options.clear()
            self._options[key] = self._check(given)
        return self._options[key]

    def _check(self, given: Any) -> ConversationOptions:
        options = {**_DEFAULTS, **cast("dict[str, Any]", given or {})}
        if unknown := options.keys() - _DEFAULTS.keys():
            known = ", ".join(_DEFAULTS)
            raise Refusal(400, f"unknown option {min(unknown)!r}; the options are {known}")
        try:
            options["redact"] = self._find_redactor(options["redact"])
            check_conversation_options({**options, "recall": _add_tag(options["recall"])})
        except (TypeError, ValueError) as error:
            raise Refusal(400, f"options: {error}") from None
        return cast("ConversationOptions", options)

    def _find_redactor(self, names: Any) -> Redact | None:
        """Return the function for names of patterns: the same one for the same names."""
        if names is None or names == []:
            return None
        if not isinstance(names, list) or not all(isinstance(n, str) for n in cast("Any", names)):
            raise TypeError('redact must be a list of names, such as ["email"]')
        key = tuple(dict.fromkeys(cast("list[str]", names)))
        if unknown := set(key) - REDACTION_PATTERNS.keys():
            known = ", ".join(REDACTION_PATTERNS)
            raise ValueError(f"redact has no pattern {min(unknown)!r}; the patterns are {known}")
        if key not in self._redactors:
            self._redactors[key] = redactor(*key)
        return self._redactors[key]


def _add_tag(hint: Any) -> Any:
    """Return a recall hint as long as it is after a log was lost."""
    return hint.replace("{handle}", "{handle}~0000") if isinstance(hint, str) else hint
