"""What is known of a model by its name: limits, tokenizer, prices and cache rules.

`models.toml` is read at the first question, never at import. An unknown name is answered by
patterns, so that `resolve` always has an answer; a user's own values come before both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Any, Literal, get_args

from trimtab.core.picture_tokens import picture_tokens
from trimtab.core.token_weights import WEIGHTS

CacheStyle = Literal["marks", "automatic", "none"]
CacheMarks = Literal["off", "5m", "1h"]
CACHES = get_args(CacheMarks)
_HOUR: dict[str, Any] = {"cache_ttl": 3_600, "cache_write": 2.0}
"""Of a cache that lives for an hour: seconds, and the price of writing to it."""
_NO_CACHE: dict[str, Any] = {
    "cache_style": "none",
    "cache_ttl": 0,
    "cache_read": 1.0,
    "cache_write": 1.0,
}

DEFAULT_WINDOW = 128_000
DEFAULT_OUTPUT = 8_192

_WINDOWS = (
    # The first that the name contains; so a version stands before its family.
    ("claude", 200_000),
    ("gpt-5", 400_000),
    ("gpt-4.1", 1_000_000),
    ("gpt-4o", 128_000),
    ("gpt-4-turbo", 128_000),
    ("gpt-4", 128_000),
    ("gemini", 1_000_000),
    ("grok-4", 2_000_000),
    ("grok", 131_072),
    ("deepseek-v3", 163_840),
    ("deepseek-chat-v3", 163_840),
    ("deepseek", 128_000),
    ("qwen3", 131_072),
    ("qwen", 128_000),
    ("llama-4", 327_680),
    ("llama", 128_000),
    ("mistral-large", 262_144),
    ("mistral", 128_000),
    ("mixtral", 128_000),
)

_VENDORS = re.compile(r"^(?:[a-z][a-z-]*\.)+")
"""What Bedrock puts before a name: `us.anthropic.`, `meta.`."""
_FURTHER_VERSION = re.compile(r"-\d{1,2}(?![0-9a-z])(?!-\d{2}(?![0-9a-z]))")
"""`-7`, but neither `-20250514`, `-0324`, `-17b` nor the day `-06-05`."""
_OPENAI = re.compile(r"(?:^|[/.:])(?:gpt-|chatgpt|o\d)")
_RESPONSES_ONLY = re.compile(
    r"(?:gpt-\d|o\d).*-(?:pro|codex|cyber|rosalind|deep-research)(?![a-z])"
    r"|gpt-(?:daybreak|rosalind)-|codex-mini|computer-use-preview"
)
"""OpenAI's own that Chat Completions does not serve. Behind a path (`vendor/model`) is somebody
else's server, which may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One model, as far as it is known. Cache ratios are relative to the price of fresh input."""

    name: str
    """The catalog's name for it; the name asked for where the catalog has none."""
    context_window: int = DEFAULT_WINDOW
    """Tokens of input and output together."""
    input_limit: int = DEFAULT_WINDOW
    """Tokens of input alone; never above the window."""
    max_output: int = DEFAULT_OUTPUT
    """Tokens of output that one call may ask for, reasoning included."""
    tokenizer: str | None = None
    """The family whose weights estimate its tokens; None where it is not known."""
    dialect: str | None = None
    """The wire format it is usually called in; None where the name does not tell."""
    output_param: str = "max_tokens"
    """The request parameter that limits the output."""
    input_price: float | None = None
    """US dollars per million fresh input tokens, below the soft window; None where unknown."""
    output_price: float | None = None
    """US dollars per million output tokens, below the soft window; None where unknown."""
    cache_style: CacheStyle = "none"
    """`marks`: we say where a prefix ends; `automatic`: the provider finds it; `none`: no cache."""
    cache_read: float = 1.0
    """Price of an input token read from the cache, as a ratio of a fresh one."""
    cache_write: float = 1.0
    """Price of an input token written to the cache, as a ratio of a fresh one."""
    cache_ttl: int = 0
    """Seconds that a cached prefix lives after its last use; 0 without a cache."""
    cache_minimum: int = 0
    """Tokens below which a prefix is not cached; 0 without a cache."""
    cache_step: int = 1
    """Tokens by which a cached prefix grows."""
    cache_marks: CacheMarks = "5m"
    """What cache marks ask for, where the provider takes any; `off` writes none."""
    picture_rule: str = ""
    """What a picture costs, as `core/picture_tokens.py` spells it; empty where it is not known."""
    soft_window: int | None = None
    """Input tokens above which every token costs more; None where the price has no cliff."""

    @property
    def cache_read_price(self) -> float | None:
        """US dollars per million input tokens read from the cache."""
        return None if self.input_price is None else self.input_price * self.cache_read

    @property
    def cache_write_price(self) -> float | None:
        """US dollars per million input tokens written to the cache."""
        return None if self.input_price is None else self.input_price * self.cache_write

    def to_json(self) -> dict[str, Any]:
        """All fields as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Entry:
        """The inverse of `to_json`; fields of a later version are left out."""
        return cls(**{key: value for key, value in data.items() if key in _FIELDS})


_FIELDS = frozenset(field.name for field in fields(Entry))
_TEXTS = (
    *("name", "tokenizer", "dialect", "output_param"),
    *("cache_style", "cache_marks", "picture_rule"),
)
_UNKNOWN = tuple(field.name for field in fields(Entry) if field.default is None)
"""What may be None."""


def default_context_window(name: str) -> int:
    """The window that a model's name suggests; 128,000 where it suggests none."""
    lowered = name.lower()
    return next((size for part, size in _WINDOWS if part in lowered), DEFAULT_WINDOW)


def lookup(model: str) -> Entry | None:
    """The catalog's entry for a name: itself, else the longest name it is a form of."""
    catalog = _catalog()
    names = _readings(model)
    for name in names:
        if name in catalog:
            return _as_served(model, catalog[name])
    forms = [known for known in catalog for name in names if _is_form_of(name, known)]
    return _as_served(model, catalog[max(forms, key=len)]) if forms else None


def resolve(model: str, entry: Mapping[str, Any] | None = None) -> Entry:
    """The model's entry, else one made from its name, with the user's own values put in."""
    found = lookup(model) or _guess(model)
    return _override(found, entry) if entry else found


def cached(entry: Mapping[str, Any], cache: CacheMarks | None) -> Mapping[str, Any]:
    """The user's own values for an entry, with the marks that are asked for."""
    if cache is None:
        return entry
    follow = (*_HOUR, *_NO_CACHE)
    return {**{key: entry[key] for key in entry if key not in follow}, "cache_marks": cache}


def like(model: str) -> str | None:
    """The name in the catalog that a misspelt one most likely stands for."""
    from difflib import get_close_matches

    close = get_close_matches(_fold(model), _catalog(), n=1, cutoff=0.8)
    return _catalog()[close[0]].name if close and lookup(model) is None else None


def cheap_model(model: str) -> str:
    """The model of the same maker that writes summaries; the same one where none costs less.

    A name that a server of somebody else's gave (`anthropic/…`, `us.anthropic.…`) stays: what its
    other models are called there is not known.
    """
    name = _cheap().get(entry.name) if (entry := lookup(model)) is not None else None
    known = model.strip().lower()
    plain = "/" not in known and ":" not in known and not _VENDORS.match(known)
    if entry is None or name is None or not plain:
        return model
    prices = entry.input_price, resolve(name).input_price
    return name if prices[0] and prices[1] and prices[1] < prices[0] else model


def _as_served(model: str, entry: Entry) -> Entry:
    only = entry.dialect == "openai_chat" and _RESPONSES_ONLY.match(model.strip().lower())
    return replace(entry, dialect="openai_responses") if only else entry


def _guess(model: str) -> Entry:
    lowered = model.lower()
    window = default_context_window(model)
    dialect, param, rule = None, "max_tokens", ""
    if "claude" in lowered:
        dialect, rule = "anthropic", "squares:2576:4784"
    elif _OPENAI.search(lowered) or _RESPONSES_ONLY.match(lowered.strip()):
        dialect, param = "openai_chat", "max_completion_tokens"
    guessed = Entry(
        name=model,
        context_window=window,
        input_limit=window,
        dialect=dialect,
        output_param=param,
        picture_rule=rule,
    )
    return _as_served(model, guessed)


def _override(found: Entry, values: Mapping[str, Any]) -> Entry:
    unknown = sorted(set(values) - _FIELDS)
    if unknown:
        raise ValueError(
            f"a model entry has no {', '.join(unknown)}; it has {', '.join(sorted(_FIELDS))}"
        )
    style = values.get("cache_style", found.cache_style)
    if style not in get_args(CacheStyle):
        raise ValueError(f"cache_style is {style!r}; it must be marks, automatic or none")
    if values.get("cache_marks", "5m") not in CACHES:
        raise ValueError(f"cache_marks is {values['cache_marks']!r}; it must be off, 5m or 1h")
    family = values.get("tokenizer")
    if family is not None and family not in WEIGHTS:
        raise ValueError(f"unknown tokenizer {family!r}; choose one of {', '.join(WEIGHTS)}")
    for name, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if name not in _TEXTS and not number and (value is not None or name not in _UNKNOWN):
            raise TypeError(f"{name} is {value!r}; it must be a number")
    changed = replace(found, **values)
    if values.get("cache_style", "marks") != "marks" and "cache_marks" not in values:
        # Who says that marks are not how the cache works wants none.
        changed = replace(changed, cache_marks="off")
    elif "cache_marks" in values:
        follow = _following(changed)
        changed = replace(changed, **{key: follow[key] for key in follow if key not in values})
    picture_tokens(changed.picture_rule, None)  # refuses what is none
    if "context_window" in values and "input_limit" not in values:
        # A user who names one number means it: the catalog's other one must not undercut it.
        changed = replace(changed, input_limit=changed.context_window)
    for name in ("context_window", "input_limit", "max_output"):
        if getattr(changed, name) <= 0:
            raise ValueError(f"{name} is {getattr(changed, name)}; it must be above 0")
    return replace(
        changed,
        input_limit=min(changed.input_limit, changed.context_window),
        max_output=min(changed.max_output, changed.context_window),
    )


def _following(entry: Entry) -> dict[str, Any]:
    """What a cache costs, and how long it lives, by the marks that are asked for."""
    if entry.cache_marks == "off":
        return _NO_CACHE
    hour = entry.cache_marks == "1h" and entry.dialect == "anthropic"
    return _HOUR if hour and entry.cache_style == "marks" else {}


def _fold(name: str) -> str:
    """One spelling for `claude-3.5-sonnet`, `claude-3-5-sonnet` and `claude-3-5-sonnet@…`."""
    return re.sub(r"[.@:_]", "-", name)


def _readings(model: str) -> list[str]:
    """The name as it is, without the provider's path, and without Bedrock's vendor."""
    whole = model.strip().lower()
    last = whole.rsplit("/", 1)[-1].removeprefix("ft:")
    bare = _VENDORS.sub("", last)
    return list(dict.fromkeys(_fold(name) for name in (whole, last, bare)))


def _is_form_of(name: str, known: str) -> bool:
    rest = name.removeprefix(known)
    return rest != name and rest.startswith("-") and not _FURTHER_VERSION.match(rest)


@cache
def _groups() -> list[dict[str, Any]]:
    # Both are slow to import, and a context with an entry of its own needs neither.
    import tomllib
    from importlib.resources import files

    text = files("trimtab").joinpath("models.toml").read_text(encoding="utf-8")
    return list(tomllib.loads(text).values())


@cache
def _catalog() -> dict[str, Entry]:
    known: dict[str, Entry] = {}
    for group in _groups():
        common = {key: value for key, value in group.items() if key not in ("models", "cheap")}
        models: dict[str, dict[str, Any]] = group["models"]
        for name, own in models.items():
            values = {"input_limit": own["context_window"], **common, **own}
            known[_fold(name)] = Entry(name=name, **values)
    return known


@cache
def _cheap() -> dict[str, str]:
    """By a model's name in the catalog: its maker's cheap one."""
    return {
        name: group["cheap"] for group in _groups() if "cheap" in group for name in group["models"]
    }
