"""The options of a simulated provider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from trimtab.engine.tokens.counter import make_piecewise_counter
from trimtab.models.catalog import ModelInfo, find_model_info, resolve_model_info

ChatTemplateMode = Literal["open", "strict"]
"""How strict the chat template of a simulated server is."""
TOKENIZERS = ("o200k_base", "cl100k_base", "estimate")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSimulatorOptions:
    """Options of a simulated provider. They apply to every request until they are changed."""

    window: int | None = None
    """The window of every model in tokens. If it is None, the catalog decides for each model."""
    tokenizer: str | Callable[[str], int] | None = None
    """`o200k_base`, `cl100k_base`, `estimate` (Trimtab's own) or a function. If it is None, the
    model decides; where rs-bpe is not installed, it is the estimate."""
    heavier: float = 1.0
    """Factor for each count of tokens: 1.3 counts 30 % more."""
    api_keys: tuple[str, ...] = ()
    """The accepted API keys. If it is empty, every key is accepted."""
    cache_minimum: int | None = None
    """Minimum number of tokens of a cached prefix. If it is None, the catalog decides for each
    model."""
    stops_at_window: bool | None = None
    """Whether a reply is cut at the end of the window, instead of a refusal if input and
    `max_tokens` exceed it (Anthropic). If it is None, this applies from Claude 4.5 on."""
    truncates: bool = False
    """Whether a chat request above the window is silently cut to half of it, as Ollama does."""
    template: ChatTemplateMode = "open"
    """`strict` requires one system message at the start and alternating roles, as the chat
    templates of many open models do."""
    forbidden: str = ""
    """A request that contains this text is refused, as if it broke a policy. Empty means none."""
    signatures: bool = True
    """Whether thinking that this server has not signed is refused."""
    thinks: bool = True
    """Whether replies begin with thinking if the request or the model asks for it."""
    max_body_bytes: int | None = None
    """Maximum size of a request in bytes. If it is None, each provider has its own limit, such as
    32,000,000 for Anthropic."""
    keeps: bool = True
    """Whether request bodies are kept."""
    seed: str = ""
    """Part of every id. Empty means a random one."""

    def resolve_model_info(self, model: str, dialect: str) -> ModelInfo:
        """Return what is known about the model, with the values of the options."""
        overrides: dict[str, Any] = {}
        if find_model_info(model) is None:
            style = "marks" if dialect == "anthropic" else "automatic"
            overrides = {"cache_style": style, "cache_ttl": 300, "cache_minimum": 1_024}
            overrides["cache_step"] = 1 if dialect == "anthropic" else 128
            overrides["max_output"] = 1_000_000
        if self.window is not None:
            overrides["context_window"] = self.window
        if self.cache_minimum is not None:
            overrides["cache_minimum"] = self.cache_minimum
        return resolve_model_info(model, overrides)

    def get_token_counter(self, model: str) -> Callable[[str], int]:
        """Return the tokenizer that counts a model's requests."""
        if callable(self.tokenizer):
            return self.tokenizer
        family = resolve_model_info(model).tokenizer
        default = family if family in TOKENIZERS else "o200k_base"
        name = self.tokenizer or (default if find_spec("rs_bpe") else "estimate")
        if name == "estimate":
            return make_piecewise_counter(family).count
        return _load_tokenizer(str(name))


def _load_tokenizer(name: str) -> Callable[[str], int]:
    if name not in TOKENIZERS:
        raise ValueError(f"unknown tokenizer {name!r}; choose one of {', '.join(TOKENIZERS)}")
    # A tokenizer takes a second to load, and is not needed if a function was passed.
    import importlib

    openai: Any = importlib.import_module("rs_bpe.bpe").openai
    return getattr(openai, name)().count
