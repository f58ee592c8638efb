"""What is known about a model by its name: limits, tokenizer, prices and cache rules.

`models.toml` is read at first use, never at import. For an unknown name, patterns apply, so
`resolve_model_info` always has an answer. A user's own values take precedence over both.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, lru_cache
from typing import Any, Literal, TypedDict, get_args

from trimtab.engine.text.arguments import check_token_count
from trimtab.engine.tokens.cost import (
    CATALOG_PRICE_KEYS,
    HOUR_CACHE_WRITE_PRICE,
    count_days_to_date,
    merge_price_changes,
)
from trimtab.engine.tokens.pictures import estimate_picture_tokens
from trimtab.engine.tokens.weights import WEIGHTS_BY_FAMILY

CacheStyle = Literal["marks", "automatic", "none"]
"""How a provider caches prompts: at marks, by itself, or not at all."""
CacheMarks = Literal["off", "5m", "1h", "caller"]
"""The option `cache`: how long marked content lives, or who sets the marks."""
CACHE_MARKS_CHOICES = get_args(CacheMarks)
_ONE_HOUR_CACHE: dict[str, Any] = {"cache_ttl": 3_600, "cache_write": HOUR_CACHE_WRITE_PRICE}
"""For a cache that lives for an hour: the seconds, and the price of writing to it."""
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
"""The prefix that Bedrock puts before a name: `us.anthropic.`, `meta.`."""
_FURTHER_VERSION = re.compile(r"-\d{1,2}(?![0-9a-z])(?!-\d{2}(?![0-9a-z]))")
"""`-7`, but not `-20250514`, `-0324`, `-17b` or the day `-06-05`."""
_OPENAI_NAME = re.compile(r"(?:^|[/.:])(?:gpt-|chatgpt|o\d)")
_RESPONSES_ONLY_NAME = re.compile(
    r"(?:gpt-\d|o\d).*-(?:pro|codex|cyber|rosalind|deep-research)(?![a-z])"
    r"|gpt-(?:daybreak|rosalind)-|codex-mini|computer-use-preview"
)
"""OpenAI's own models that Chat Completions does not serve. A name with a path (`vendor/model`)
belongs to another server, which may serve it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChange:
    """Prices of a model from a certain day on. None leaves a price unchanged."""

    from_date: str
    """The first day, in UTC, such as `2026-12-01`."""
    input_price: float | None = None
    """US dollars per million fresh input tokens."""
    output_price: float | None = None
    """US dollars per million output tokens."""
    cache_read: float | None = None
    """Price of an input token read from the cache, as a ratio of a fresh one."""
    cache_write: float | None = None
    """Price of an input token written to the cache, as a ratio of a fresh one."""

    def to_json(self) -> dict[str, Any]:
        """Return the values that are set as plain JSON values."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What is known about one model. Cache ratios are relative to the price of fresh input."""

    name: str
    """The name in the catalog. For a model that is not in the catalog, the requested name."""
    context_window: int = UNKNOWN_MODEL_WINDOW_TOKENS
    """Maximum number of tokens of input and output together."""
    input_limit: int = UNKNOWN_MODEL_WINDOW_TOKENS
    """Maximum number of input tokens. It is never above the window."""
    max_output: int = UNKNOWN_MODEL_OUTPUT_TOKENS
    """Maximum number of output tokens of one call, including reasoning."""
    tokenizer: str | None = None
    """The family whose weights are used to estimate tokens. None if it is unknown."""
    dialect: str | None = None
    """The usual wire format of the model. None if the name does not show it."""
    output_param: str = "max_tokens"
    """The request parameter that limits the output."""
    input_price: float | None = None
    """US dollars per million fresh input tokens, below the soft window. None if unknown."""
    output_price: float | None = None
    """US dollars per million output tokens, below the soft window. None if unknown."""
    cache_style: CacheStyle = "none"
    """`marks`: the request marks where a prefix ends. `automatic`: the provider finds it. `none`:
    no cache."""
    cache_read: float = 1.0
    """Price of an input token read from the cache, as a ratio of a fresh one."""
    cache_write: float = 1.0
    """Price of an input token written to the cache, as a ratio of a fresh one."""
    cache_ttl: int = 0
    """Seconds that a cached prefix lives after its last use. 0 without a cache."""
    cache_minimum: int = 0
    """Minimum number of tokens of a cached prefix. 0 without a cache."""
    cache_step: int = 1
    """Number of tokens by which a cached prefix grows."""
    cache_marks: CacheMarks = "5m"
    """The lifetime that cache marks request, if the provider supports marks. `off` writes none."""
    picture_rule: str = ""
    """The rule for the tokens of an image, in the notation of `tokens/pictures.py`. Empty if
    unknown."""
    soft_window: int | None = None
    """Number of input tokens above which every token costs more. None if the price has no such
    step."""
    price_changes: tuple[PriceChange, ...] = ()
    """Prices from later days on, the earliest first."""
    base_model: str | None = None
    """The catalog model that a deployment with another name serves. None if the model's own name is
    used."""

    @property
    def cache_read_price(self) -> float | None:
        """US dollars per million input tokens read from the cache."""
        return None if self.input_price is None else self.input_price * self.cache_read

    @property
    def cache_write_price(self) -> float | None:
        """US dollars per million input tokens written to the cache."""
        return None if self.input_price is None else self.input_price * self.cache_write

    def to_json(self) -> dict[str, Any]:
        """Return all fields as plain JSON values. The last two are included only if they are
        set."""
        out = asdict(self)
        out["price_changes"] = [change.to_json() for change in self.price_changes]
        return {
            key: value
            for key, value in out.items()
            if value or key not in _FIELDS_LEFT_OUT_IF_UNSET
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelInfo:
        """Return the model of a `to_json` result. Fields from a newer version are ignored."""
        fields: dict[str, Any] = {key: data[key] for key in data if key in _FIELD_NAMES}
        fields["price_changes"] = _parse_price_changes(fields.get("price_changes", ()))
        return cls(**fields)


class ModelInfoValues(TypedDict, total=False):
    """The values of a `ModelInfo` that a caller may set. The catalog supplies the others."""

    context_window: int
    input_limit: int
    max_output: int
    tokenizer: str | None
    dialect: str | None
    output_param: str
    input_price: float | None
    output_price: float | None
    cache_style: CacheStyle
    cache_read: float
    cache_write: float
    cache_ttl: int
    cache_minimum: int
    cache_step: int
    cache_marks: CacheMarks
    picture_rule: str
    soft_window: int | None
    price_changes: Sequence[Mapping[str, Any]]
    base_model: str | None


_FIELDS_LEFT_OUT_IF_UNSET = ("price_changes", "base_model")
_FIELD_NAMES = frozenset(field.name for field in fields(ModelInfo))
_TEXT_FIELDS = (
    *("name", "tokenizer", "dialect", "output_param"),
    *("cache_style", "cache_marks", "picture_rule", "base_model"),
)
_TOKEN_FIELDS = ("context_window", "input_limit", "max_output")
_OPTIONAL_FIELDS = tuple(field.name for field in fields(ModelInfo) if field.default is None)
"""Fields that may be None."""


def guess_context_window_from_name(model_name: str) -> int:
    """Return the window that a model's name suggests, or 128,000 if it suggests none."""
    part = find_window_pattern(model_name)
    return dict(_WINDOW_BY_NAME_PART).get(part or "", UNKNOWN_MODEL_WINDOW_TOKENS)


def find_window_pattern(model_name: str) -> str | None:
    """Return the part of a name that shows the window of a model that is not in the catalog."""
    lower_name = model_name.lower()
    return next((part for part, _ in _WINDOW_BY_NAME_PART if part in lower_name), None)


def find_model_info(model: str, *, at: float | None = None) -> ModelInfo | None:
    """Return the catalog's entry for a name, or for the longest name that it is a variant of.

    Prices are those of the day of `at`, in seconds since the epoch. None means now.
    """
    known_name = _find_known_name(model)
    if known_name is None:
        return None
    return _with_prices_at(_with_served_dialect(model, _load_catalog()[known_name]), at)


def resolve_model_info(
    model: str, overrides: Mapping[str, Any] | str | None = None, *, at: float | None = None
) -> ModelInfo:
    """Return what is known about a model, from the catalog or from patterns in its name.

    Args:
        model: The model's name. Unknown names get conservative defaults.
        overrides: Your own values, which take precedence. Or the name of a catalog model, for a
            deployment with another name.
        at: The day for prices, in seconds since the epoch. None means now.

    Returns:
        The limits, tokenizer, prices and cache rules of the model.

    Raises:
        ValueError: `overrides` names a model that is not in the catalog, or a value is invalid.
        TypeError: A value must be a number and is not.
    """
    values = parse_model_info(overrides) if isinstance(overrides, str) else overrides or {}
    # A log may name a model that a later catalog has no more: what it holds is taken as it is.
    base_name = values.get("base_model") or model
    base = find_model_info(base_name, at=at) or _guess_model_info(base_name)
    return _with_prices_at(_apply_overrides(base, values), at) if values else base


def parse_model_info(given: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """Return the values of `model_info`: the mapping itself, or one with `base_model` for the name
    of a catalog model. Raises `ValueError` if the catalog has no such model."""
    values: Mapping[str, Any] = {"base_model": given} if isinstance(given, str) else given
    base_name = values.get("base_model")
    if base_name is None:
        return values
    if not isinstance(base_name, str) or _find_known_name(base_name) is None:
        close = suggest_model_names(str(base_name))
        hint = f"did you mean {' or '.join(close)}?" if close else "`trimtab models` lists them."
        raise ValueError(
            f"model_info names {base_name!r}, which is not in the catalog; {hint} For a model that "
            "is not listed, give a mapping, such as {'context_window': 128_000}"
        )
    return values


def list_model_infos(*, at: float | None = None) -> dict[str, list[ModelInfo]]:
    """Return every entry of the catalog, by maker. Prices are those of the day of `at`. None means
    now."""
    infos: dict[str, list[ModelInfo]] = {}
    for key, group in _load_groups().items():
        entries = [find_model_info(name, at=at) for name in group["models"]]
        infos.setdefault(group.get("maker", key), []).extend(e for e in entries if e is not None)
    return infos


def find_maker_in_catalog(model: str) -> str | None:
    """Return the maker of a model, from the catalog. None if the catalog does not have the
    model."""
    known_name = _find_known_name(model)
    return None if known_name is None else _load_makers()[known_name]


def find_retirement_date(model: str) -> str | None:
    """Return the day on which the maker stops serving a model, such as `2026-12-01`, or None.

    It applies only to the maker's own service. Other providers may serve the model longer or
    shorter.
    """
    dates = _load_retirement_dates()
    known_name = _find_known_name(model)
    for name in (*_list_name_forms(model), *([known_name] if known_name else [])):
        if name in dates:
            return dates[name]
    return None


def describe_retirement(model: str, *, at: float | None = None) -> str | None:
    """Return the retirement as a sentence. None if no day is known."""
    day = find_retirement_date(model)
    if day is None:
        return None
    is_past = count_days_to_date(day) * 86_400 <= (time.time() if at is None else at)
    return f"its maker {'retired' if is_past else 'retires'} it on {day}"


def with_cache_marks(
    overrides: Mapping[str, Any], cache_marks: CacheMarks | None
) -> Mapping[str, Any]:
    """Return the user's own values for an entry, with the requested cache marks."""
    if cache_marks is None:
        return overrides
    follow = (*_ONE_HOUR_CACHE, *_NO_CACHE)
    return {
        **{key: overrides[key] for key in overrides if key not in follow},
        "cache_marks": cache_marks,
    }


def suggest_model_name(unknown_model: str) -> str | None:
    """Return the catalog name that a misspelt name most likely means."""
    close = suggest_model_names(unknown_model, count=1)
    return close[0] if close and _find_known_name(unknown_model) is None else None


@lru_cache(maxsize=256)
def describe_unlisted_model(model: str) -> str:
    """Describe what is assumed for a name that the catalog does not have, but a similar one; empty
    for every other name."""
    similar = suggest_model_name(model)
    if similar is None:
        return ""
    return (
        f"the catalog has no model {model!r}; did you mean {similar!r}? A window of "
        f"{guess_context_window_from_name(model):,} tokens and no prices are assumed. If the name "
        "is right, pass model_info= with its values, or the name of a model like it"
    )


def suggest_model_names(name: str, *, count: int = 3) -> list[str]:
    """Return catalog names with a similar spelling, the most similar first."""
    from difflib import get_close_matches

    spelt = _normalise_name(name.strip().lower())
    close = get_close_matches(spelt, _load_catalog(), n=count, cutoff=0.8)
    return [_load_catalog()[each].name for each in close]


def find_makers_cheap_model(model: str) -> str:
    """Return the cheaper model of the same maker that is used for summaries.

    If none costs less, the same name is returned. This also applies to names from other servers
    (`anthropic/…`, `us.anthropic.…`), because the names of their other models are unknown.

    Args:
        model: The model's name.

    Returns:
        The name of the model for summaries.
    """
    entry = find_model_info(model)
    name = None if entry is None else _load_cheap_models().get(entry.name)
    lower_name = model.strip().lower()
    plain = "/" not in lower_name and ":" not in lower_name and not _VENDOR_PREFIX.match(lower_name)
    if entry is None or name is None or not plain:
        return model
    prices = entry.input_price, resolve_model_info(name).input_price
    return name if prices[0] and prices[1] and prices[1] < prices[0] else model


def _with_served_dialect(model: str, entry: ModelInfo) -> ModelInfo:
    only = entry.dialect == "openai_chat" and _RESPONSES_ONLY_NAME.match(model.strip().lower())
    return replace(entry, dialect="openai_responses") if only else entry


def _guess_model_info(model: str) -> ModelInfo:
    lower_name = model.lower()
    window = guess_context_window_from_name(model)
    dialect = None
    param = "max_tokens"
    rule = ""
    if "claude" in lower_name:
        dialect = "anthropic"
        rule = "squares:2576:4784"
    elif _OPENAI_NAME.search(lower_name) or _RESPONSES_ONLY_NAME.match(lower_name.strip()):
        dialect = "openai_chat"
        param = "max_completion_tokens"
    guess = ModelInfo(
        name=model,
        context_window=window,
        input_limit=window,
        dialect=dialect,
        output_param=param,
        picture_rule=rule,
    )
    return _with_served_dialect(model, guess)


def _apply_overrides(info: ModelInfo, overrides: Mapping[str, Any]) -> ModelInfo:
    _check_overrides(overrides)
    # What the user sets is not changed on a day that the catalog names.
    changes = _without_overridden_prices(info.price_changes, overrides)
    if "price_changes" in overrides:
        changes = _parse_price_changes(overrides["price_changes"])
    new_info = replace(info, **{**overrides, "price_changes": changes})
    if overrides.get("cache_style", "marks") != "marks" and "cache_marks" not in overrides:
        # A cache style without marks needs no marks.
        new_info = replace(new_info, cache_marks="off")
    elif "cache_marks" in overrides or _wants_hour_marks(new_info, overrides):
        new_info = replace(new_info, cache_marks=overrides.get("cache_marks", "1h"))
        follow = _find_cache_terms(new_info)
        new_info = replace(new_info, **{key: follow[key] for key in follow if key not in overrides})
    estimate_picture_tokens(new_info.picture_rule, None)  # refuses what is none
    if "context_window" in overrides and "input_limit" not in overrides:
        # A user who names one number means it: the catalog's other one must not undercut it.
        new_info = replace(new_info, input_limit=new_info.context_window)
    return replace(
        new_info,
        input_limit=min(new_info.input_limit, new_info.context_window),
        max_output=min(new_info.max_output, new_info.context_window),
    )


def _wants_hour_marks(info: ModelInfo, overrides: Mapping[str, Any]) -> bool:
    """Return whether the lifetime is one that Claude's cache has only if marks request it."""
    hour = float(_ONE_HOUR_CACHE["cache_ttl"])
    is_marked = info.dialect == "anthropic" and info.cache_style == "marks"
    return is_marked and float(overrides.get("cache_ttl", 0)) >= hour


def _check_overrides(overrides: Mapping[str, Any]) -> None:
    unknown = sorted(set(overrides) - _FIELD_NAMES)
    if unknown:
        raise ValueError(
            f"unknown in model_info: {', '.join(unknown)}; use {', '.join(sorted(_FIELD_NAMES))}"
        )
    if (style := overrides.get("cache_style", "none")) not in get_args(CacheStyle):
        raise ValueError(f"cache_style is {style!r}; it must be marks, automatic or none")
    if overrides.get("cache_marks", "5m") not in CACHE_MARKS_CHOICES:
        raise ValueError(
            f"cache_marks is {overrides['cache_marks']!r}; it must be off, 5m, 1h or caller"
        )
    family = overrides.get("tokenizer")
    if family is not None and family not in WEIGHTS_BY_FAMILY:
        raise ValueError(
            f"unknown tokenizer {family!r}; choose one of {', '.join(WEIGHTS_BY_FAMILY)}"
        )
    for name, value in overrides.items():
        if name == "price_changes" or (value is None and name in _OPTIONAL_FIELDS):
            continue
        if name in _TEXT_FIELDS:
            if not isinstance(value, str):
                raise TypeError(f"{name} is {value!r}; it must be a text")
        elif not isinstance(value, int | float) or isinstance(value, bool):
            raise TypeError(f"{name} is {value!r}; it must be a number")
        elif name in _TOKEN_FIELDS:
            check_token_count(name, value)
    if not overrides.get("output_param", "max_tokens"):
        raise ValueError("output_param is empty; it must be the name of a parameter")


def _parse_price_changes(given: Iterable[Any]) -> tuple[PriceChange, ...]:
    """Return price changes from mappings, the earliest first. A day is a date or its text."""
    changes: list[PriceChange] = []
    for values in given:
        if isinstance(values, PriceChange):
            changes.append(values)
            continue
        unknown = sorted(set(values) - {"from_date", *CATALOG_PRICE_KEYS})
        if unknown or "from_date" not in values:
            raise ValueError(
                f"invalid price change {values!r}: it needs from_date and may have "
                f"{', '.join(CATALOG_PRICE_KEYS)}"
            )
        day = str(values["from_date"])
        count_days_to_date(day)  # refuses what is no date
        prices: dict[str, Any] = {key: values[key] for key in values if key != "from_date"}
        changes.append(PriceChange(from_date=day, **prices))
    return tuple(sorted(changes, key=lambda change: change.from_date))


def _without_overridden_prices(
    changes: Sequence[PriceChange], overrides: Mapping[str, Any]
) -> tuple[PriceChange, ...]:
    firm: dict[str, Any] = {key: None for key in CATALOG_PRICE_KEYS if key in overrides}
    remaining = [replace(change, **firm) for change in changes] if firm else list(changes)
    return tuple(change for change in remaining if len(change.to_json()) > 1)


def _with_prices_at(info: ModelInfo, at: float | None) -> ModelInfo:
    """Return the entry with the prices of a day and only those changes that are still to come."""
    if not info.price_changes:
        return info
    moment = time.time() if at is None else at
    json_changes = [change.to_json() for change in info.price_changes]
    later = [c for c in json_changes if count_days_to_date(c["from_date"]) * 86_400 > moment]
    prices = {
        key: value
        for key, value in merge_price_changes(json_changes, moment).items()
        if key in CATALOG_PRICE_KEYS
    }
    return replace(info, **prices, price_changes=_parse_price_changes(later))


def _find_cache_terms(entry: ModelInfo) -> dict[str, Any]:
    """Return the price and the lifetime of a cache, for the requested marks."""
    if entry.cache_marks == "off":
        return _NO_CACHE
    hour = entry.cache_marks == "1h" and entry.dialect == "anthropic"
    return _ONE_HOUR_CACHE if hour and entry.cache_style == "marks" else {}


def _normalise_name(name: str) -> str:
    """Return one spelling for `claude-3.5-sonnet`, `claude-3-5-sonnet` and
    `claude-3-5-sonnet@…`."""
    return re.sub(r"[.@:_]", "-", name)


def _list_name_forms(model: str) -> list[str]:
    """Return the name as it is, without the provider's path, and without Bedrock's vendor."""
    whole = model.strip().lower()
    last = whole.rsplit("/", 1)[-1].removeprefix("ft:")
    bare = _VENDOR_PREFIX.sub("", last)
    return list(dict.fromkeys(_normalise_name(name) for name in (whole, last, bare)))


def _find_known_name(model: str) -> str | None:
    """Return the catalog's key for a name, or the longest key that it is a variant of."""
    catalog = _load_catalog()
    names = _list_name_forms(model)
    for name in names:
        if name in catalog:
            return name
    forms = [candidate for candidate in catalog for name in names if _is_form_of(name, candidate)]
    return max(forms, key=len) if forms else None


def _is_form_of(name: str, known: str) -> bool:
    rest = name.removeprefix(known)
    return rest != name and rest.startswith("-") and not _FURTHER_VERSION.match(rest)


@cache
def _load_groups() -> dict[str, dict[str, Any]]:
    # Both are slow to import, and a context with an entry of its own needs neither.
    import tomllib
    from importlib.resources import files

    text = files("trimtab.models").joinpath("models.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def _load_catalog() -> dict[str, ModelInfo]:
    infos: dict[str, ModelInfo] = {}
    for group in _load_groups().values():
        common = {key: value for key, value in group.items() if key in _FIELD_NAMES}
        models: dict[str, dict[str, Any]] = group["models"]
        for name, model_fields in models.items():
            values = {"input_limit": model_fields["context_window"], **common, **model_fields}
            values["price_changes"] = _parse_price_changes(values.get("price_changes", ()))
            infos[_catalog_key(name)] = ModelInfo(name=name, **values)
    return infos


@cache
def _load_makers() -> dict[str, str]:
    """Return the maker of each model, by its key in the catalog."""
    return {
        _catalog_key(name): group.get("maker", key)
        for key, group in _load_groups().items()
        for name in group["models"]
    }


@cache
def _load_cheap_models() -> dict[str, str]:
    """Return the maker's cheap model of each model, by its name in the catalog."""
    return {
        name: group["cheap"]
        for group in _load_groups().values()
        if "cheap" in group
        for name in group["models"]
    }


@cache
def _load_retirement_dates() -> dict[str, str]:
    """Return the retirement date of each model, by its key in the catalog."""
    return {
        _catalog_key(name): str(day)
        for group in _load_groups().values()
        for name, day in group.get("retired", {}).items()
    }


def _catalog_key(name: str) -> str:
    return _normalise_name(name.lower())
