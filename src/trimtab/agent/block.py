"""What blocks of `agent.yaml` are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from trimtab.agent.references import typed

# Strict: "25" in quotes is a text; one from the environment stands for what it would unquoted.
Share = Annotated[float, Field(gt=0, le=1, strict=True), BeforeValidator(typed)]
Tokens = Annotated[int, Field(gt=0, strict=True), BeforeValidator(typed)]
Count = Annotated[int, Field(ge=0, strict=True), BeforeValidator(typed)]
Seconds = Annotated[float, Field(gt=0, strict=True, allow_inf_nan=False), BeforeValidator(typed)]
Flag = Annotated[bool, Field(strict=True), BeforeValidator(typed)]
Argv = Annotated[tuple[str, ...], Field(min_length=1)]
ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z][a-zA-Z0-9_-]{0,47}$")]


class Block(BaseModel):
    """A block of the file: what it does not know it refuses."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Numbers and blocks only: any text may be a secret from the environment."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, Block | int | float):
                yield name, value
