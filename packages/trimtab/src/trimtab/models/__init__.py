"""What is known of models: families, windows, prices."""

from __future__ import annotations

from trimtab.models.catalog import (
    CacheMarks,
    CacheStyle,
    ModelInfo,
    ModelInfoValues,
    PriceChange,
    find_makers_cheap_model,
    resolve_model_info,
)

__all__ = [
    "CacheMarks",
    "CacheStyle",
    "ModelInfo",
    "ModelInfoValues",
    "PriceChange",
    "find_makers_cheap_model",
    "resolve_model_info",
]
