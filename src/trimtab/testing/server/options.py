"""How a simulated provider is set up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from trimtab.catalog import ModelInfo, find_model_info, resolve_model_info
from trimtab.tokens.counter import make_piecewise_counter

ChatTemplateMode = Literal["open", "strict"]
TOKENIZERS = ("o200k_base", "cl100k_base", "estimate")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSimulatorOptions:
    """What holds for every request until it is changed."""

    window: int | None = None
    """Tokens that every model takes; None for what the catalog says of each."""
    tokenizer: str | Callable[[str], int] | None = None
    """`o200k_base`, `cl100k_base`, `estimate` (Trimtab's own) or a function; None: by model."""
    heavier: float = 1.0
    """What each count is multiplied by: 1.3 counts 30 % more."""
    api_keys: tuple[str, ...] = ()
    """Keys that are let in; empty for all."""
    aws_secret_key: str = "simulated-secret"  # noqa: S105 - known to all, and to nothing else
    """What requests to Bedrock must be signed with, by whatever access key."""
    cache_minimum: int | None = None
    """Tokens below which no prefix is cached; None for what the catalog says of each model."""
    stops_at_window: bool | None = None
    """Whether a reply is cut where the window ends, instead of a refusal when input and
    `max_tokens` exceed it (Anthropic); None: from Claude 4.5 on."""
    truncates: bool = False
    """Whether a chat request above the window is silently cut to half of it, as Ollama does."""
    template: ChatTemplateMode = "open"
    """`strict` holds chat messages to one system message at the start and to roles that alternate,
    as the templates of many open models do."""
    forbidden: str = ""
    """A request that holds this text is refused, as one that breaks a policy; empty for none."""
    signatures: bool = True
    """Whether thinking that this server has not signed is refused."""
    thinks: bool = True
    """Whether replies begin with thinking where the request or the model asks for it."""
    max_body_bytes: int | None = None
    """Bytes of a request that are taken; None for what each provider takes, such as 32,000,000 for
    Anthropic."""
    keeps: bool = True
    """Whether request bodies are kept."""
    seed: str = ""
    """Part of every id; empty for a random one."""

    def resolve_model_info(self, model: str, dialect: str) -> ModelInfo:
        """What is known of the model, with the options' own values put in."""
        own: dict[str, Any] = {}
        if find_model_info(model) is None:
            style = "marks" if dialect == "anthropic" else "automatic"
            own = {"cache_style": style, "cache_ttl": 300, "cache_minimum": 1_024}
            own["cache_step"] = 1 if dialect == "anthropic" else 128
            own["max_output"] = 1_000_000
        if self.window is not None:
            own["context_window"] = self.window
        if self.cache_minimum is not None:
            own["cache_minimum"] = self.cache_minimum
        return resolve_model_info(model, own)

    def get_token_counter(self, model: str) -> Callable[[str], int]:
        """The tokenizer that a model's requests are counted with."""
        if callable(self.tokenizer):
            return self.tokenizer
        family = resolve_model_info(model).tokenizer
        name = self.tokenizer or (family if family in TOKENIZERS else "o200k_base")
        if name == "estimate":
            return make_piecewise_counter(family).count
        return _load_tokenizer(str(name))


def _load_tokenizer(name: str) -> Callable[[str], int]:
    if name not in TOKENIZERS:
        raise ValueError(f"no tokenizer is called {name!r}; choose one of {', '.join(TOKENIZERS)}")
    # A tokenizer takes a second to load, and whoever brings a function needs none.
    import importlib

    openai: Any = importlib.import_module("rs_bpe.bpe").openai
    return getattr(openai, name)().count
