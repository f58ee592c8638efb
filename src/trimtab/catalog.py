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

from trimtab.tokens.pictures import estimate_picture_tokens
from trimtab.tokens.weights import WEIGHTS_BY_FAMILY

CacheStyle = Literal["marks", "automatic", "none"]
CacheMarks = Literal["off", "5m", "1h"]
CACHE_MARKS_CHOICES = get_args(CacheMarks)
_ONE_HOUR_CACHE: dict[str, Any] = {"cache_ttl": 3_600, "cache_write": 2.0}
"""Of a cache that lives for an hour: seconds, and the price of writing to it."""
_NO_CACHE: dict[str, Any] = {
    "cache_style": "none",
    "cache_ttl": 0,
    "cache_read": 1.0,
    "cache_write": 1.0,
}

UNKNOWN_MODEL_WINDOW_TOKENS = 128_000
UNKNOWN_MODEL_OUTPUT_TOKENS = 8_192

_WINDOW_BY_NAME_PART = (
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

_VENDOR_PREFIX = re.compile(r"^(?:[a-z][a-z-]*\.)+")
"""What Bedrock puts before a name: `us.anthropic.`, `meta.`."""
_FURTHER_VERSION = re.compile(r"-\d{1,2}(?![0-9a-z])(?!-\d{2}(?![0-9a-z]))")
"""`-7`, but neither `-20250514`, `-0324`, `-17b` nor the day `-06-05`."""
_OPENAI_NAME = re.compile(r"(?:^|[/.:])(?:gpt-|chatgpt|o\d)")
_RESPONSES_ONLY_NAME = re.compile(
    r"(?:gpt-\d|o\d).*-(?:pro|codex|cyber|rosalind|deep-research)(?![a-z])"
    r"|gpt-(?:daybreak|rosalind)-|codex-mini|computer-use-preview"
)
"""OpenAI's own that Chat Completions does not serve. Behind a path (`vendor/model`) is somebody
else's server, which may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """One model, as far as it is known. Cache ratios are relative to the price of fresh input."""

    name: str
    """The catalog's name for it; the name asked for where the catalog has none."""
    context_window: int = UNKNOWN_MODEL_WINDOW_TOKENS
    """Tokens of input and output together."""
    input_limit: int = UNKNOWN_MODEL_WINDOW_TOKENS
    """Tokens of input alone; never above the window."""
    max_output: int = UNKNOWN_MODEL_OUTPUT_TOKENS
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
    """What a picture costs, as `tokens/pictures.py` spells it; empty where it is not known."""
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
    def from_json(cls, data: Mapping[str, Any]) -> ModelInfo:
        """The inverse of `to_json`; fields of a later version are left out."""
        return cls(**{key: value for key, value in data.items() if key in _FIELD_NAMES})


_FIELD_NAMES = frozenset(field.name for field in fields(ModelInfo))
_TEXT_FIELDS = (
    *("name", "tokenizer", "dialect", "output_param"),
    *("cache_style", "cache_marks", "picture_rule"),
)
_OPTIONAL_FIELDS = tuple(field.name for field in fields(ModelInfo) if field.default is None)
"""What may be None."""


def default_context_window(model_name: str) -> int:
    """The window that a model's name suggests; 128,000 where it suggests none."""
    lowered = model_name.lower()
    return next(
        (size for part, size in _WINDOW_BY_NAME_PART if part in lowered),
        UNKNOWN_MODEL_WINDOW_TOKENS,
    )


def find_model_info(model: str) -> ModelInfo | None:
    """The catalog's entry for a name: itself, else the longest name it is a form of."""
    catalog = _load_catalog()
    names = _list_name_forms(model)
    for name in names:
        if name in catalog:
            return _with_served_dialect(model, catalog[name])
    forms = [known for known in catalog for name in names if _is_form_of(name, known)]
    return _with_served_dialect(model, catalog[max(forms, key=len)]) if forms else None


def resolve_model_info(model: str, overrides: Mapping[str, Any] | None = None) -> ModelInfo:
    """The model's entry, else one made from its name, with the user's own values put in."""
    found = find_model_info(model) or _guess_model_info(model)
    return _apply_overrides(found, overrides) if overrides else found


def with_cache_marks(
    overrides: Mapping[str, Any], cache_marks: CacheMarks | None
) -> Mapping[str, Any]:
    """The user's own values for an entry, with the marks that are asked for."""
    if cache_marks is None:
        return overrides
    follow = (*_ONE_HOUR_CACHE, *_NO_CACHE)
    return {
        **{key: overrides[key] for key in overrides if key not in follow},
        "cache_marks": cache_marks,
    }


def suggest_model_name(unknown_model: str) -> str | None:
    """The name in the catalog that a misspelt one most likely stands for."""
    from difflib import get_close_matches

    close = get_close_matches(_normalise_name(unknown_model), _load_catalog(), n=1, cutoff=0.8)
    return (
        _load_catalog()[close[0]].name if close and find_model_info(unknown_model) is None else None
    )


def find_makers_cheap_model(model: str) -> str:
    """The model of the same maker that writes summaries; the same one where none costs less.

    A name that a server of somebody else's gave (`anthropic/…`, `us.anthropic.…`) stays: what its
    other models are called there is not known.
    """
    name = (
        _load_cheap_models().get(entry.name)
        if (entry := find_model_info(model)) is not None
        else None
    )
    known = model.strip().lower()
    plain = "/" not in known and ":" not in known and not _VENDOR_PREFIX.match(known)
    if entry is None or name is None or not plain:
        return model
    prices = entry.input_price, resolve_model_info(name).input_price
    return name if prices[0] and prices[1] and prices[1] < prices[0] else model


def _with_served_dialect(model: str, entry: ModelInfo) -> ModelInfo:
    only = entry.dialect == "openai_chat" and _RESPONSES_ONLY_NAME.match(model.strip().lower())
    return replace(entry, dialect="openai_responses") if only else entry


def _guess_model_info(model: str) -> ModelInfo:
    lowered = model.lower()
    window = default_context_window(model)
    dialect, param, rule = None, "max_tokens", ""
    if "claude" in lowered:
        dialect, rule = "anthropic", "squares:2576:4784"
    elif _OPENAI_NAME.search(lowered) or _RESPONSES_ONLY_NAME.match(lowered.strip()):
        dialect, param = "openai_chat", "max_completion_tokens"
    guessed = ModelInfo(
        name=model,
        context_window=window,
        input_limit=window,
        dialect=dialect,
        output_param=param,
        picture_rule=rule,
    )
    return _with_served_dialect(model, guessed)


def _apply_overrides(info: ModelInfo, overrides: Mapping[str, Any]) -> ModelInfo:
    unknown = sorted(set(overrides) - _FIELD_NAMES)
    if unknown:
        raise ValueError(
            f"a model entry has no {', '.join(unknown)}; it has {', '.join(sorted(_FIELD_NAMES))}"
        )
    style = overrides.get("cache_style", info.cache_style)
    if style not in get_args(CacheStyle):
        raise ValueError(f"cache_style is {style!r}; it must be marks, automatic or none")
    if overrides.get("cache_marks", "5m") not in CACHE_MARKS_CHOICES:
        raise ValueError(f"cache_marks is {overrides['cache_marks']!r}; it must be off, 5m or 1h")
    family = overrides.get("tokenizer")
    if family is not None and family not in WEIGHTS_BY_FAMILY:
        raise ValueError(
            f"unknown tokenizer {family!r}; choose one of {', '.join(WEIGHTS_BY_FAMILY)}"
        )
    for name, value in overrides.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if (
            name not in _TEXT_FIELDS
            and not number
            and (value is not None or name not in _OPTIONAL_FIELDS)
        ):
            raise TypeError(f"{name} is {value!r}; it must be a number")
    changed = replace(info, **overrides)
    if overrides.get("cache_style", "marks") != "marks" and "cache_marks" not in overrides:
        # Who says that marks are not how the cache works wants none.
        changed = replace(changed, cache_marks="off")
    elif "cache_marks" in overrides:
        follow = _find_cache_terms(changed)
        changed = replace(changed, **{key: follow[key] for key in follow if key not in overrides})
    estimate_picture_tokens(changed.picture_rule, None)  # refuses what is none
    if "context_window" in overrides and "input_limit" not in overrides:
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


def _find_cache_terms(entry: ModelInfo) -> dict[str, Any]:
    """What a cache costs, and how long it lives, by the marks that are asked for."""
    if entry.cache_marks == "off":
        return _NO_CACHE
    hour = entry.cache_marks == "1h" and entry.dialect == "anthropic"
    return _ONE_HOUR_CACHE if hour and entry.cache_style == "marks" else {}


def _normalise_name(name: str) -> str:
    """One spelling for `claude-3.5-sonnet`, `claude-3-5-sonnet` and `claude-3-5-sonnet@…`."""
    return re.sub(r"[.@:_]", "-", name)


def _list_name_forms(model: str) -> list[str]:
    """The name as it is, without the provider's path, and without Bedrock's vendor."""
    whole = model.strip().lower()
    last = whole.rsplit("/", 1)[-1].removeprefix("ft:")
    bare = _VENDOR_PREFIX.sub("", last)
    return list(dict.fromkeys(_normalise_name(name) for name in (whole, last, bare)))


def _is_form_of(name: str, known: str) -> bool:
    rest = name.removeprefix(known)
    return rest != name and rest.startswith("-") and not _FURTHER_VERSION.match(rest)


@cache
def _load_groups() -> list[dict[str, Any]]:
    # Both are slow to import, and a context with an entry of its own needs neither.
    import tomllib
    from importlib.resources import files

    text = files("trimtab").joinpath("models.toml").read_text(encoding="utf-8")
    return list(tomllib.loads(text).values())


@cache
def _load_catalog() -> dict[str, ModelInfo]:
    known: dict[str, ModelInfo] = {}
    for group in _load_groups():
        common = {key: value for key, value in group.items() if key not in ("models", "cheap")}
        models: dict[str, dict[str, Any]] = group["models"]
        for name, own in models.items():
            values = {"input_limit": own["context_window"], **common, **own}
            known[_normalise_name(name)] = ModelInfo(name=name, **values)
    return known


@cache
def _load_cheap_models() -> dict[str, str]:
    """By a model's name in the catalog: its maker's cheap one."""
    return {
        name: group["cheap"]
        for group in _load_groups()
        if "cheap" in group
        for name in group["models"]
    }
