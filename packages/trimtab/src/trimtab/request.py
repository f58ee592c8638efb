"""The static types of a request. At run time it is a plain dict.

An SDK's `create` has one signature for a whole reply and one for a stream. A type checker chooses
between them by the type of the unpacked arguments. `dict[str, Any]` fits both, so the type of the
reply would be lost. Each type here fits only one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar

from trimtab.dialects import DialectName

if TYPE_CHECKING:
    # Part of what every type checker brings along; nothing is installed for it.
    from typing_extensions import TypeVar as TypeVarWithDefault

    class RequestValue(Any):
        """A value of a request. It fits every parameter of an SDK, except `stream=True`."""

        def __getitem__(self, key: Any, /) -> Any: ...
        def __iter__(self) -> Iterator[Any]: ...
        def __len__(self) -> int: ...
        def __getattr__(self, name: str, /) -> Any: ...

    DialectT = TypeVarWithDefault("DialectT", bound=DialectName, default=DialectName)
    DialectT_co = TypeVarWithDefault(
        "DialectT_co", bound=DialectName, default=DialectName, covariant=True
    )
else:
    RequestValue = Any
    DialectT = TypeVar("DialectT")
    DialectT_co = TypeVar("DialectT_co", covariant=True)

Request: TypeAlias = dict[str, RequestValue]
"""Keyword arguments for a call that returns the whole reply."""


class MessagesStreamRequest(TypedDict):
    """Keyword arguments for a streamed call of Anthropic's Messages or OpenAI's Chat Completions.

    A request has more keys than these. The name of the output limit depends on the model.
    """

    model: str
    messages: RequestValue
    max_tokens: int
    stream: Literal[True]


class ResponsesStreamRequest(TypedDict):
    """Keyword arguments for a streamed call of OpenAI's Responses. A request has more keys."""

    model: str
    input: RequestValue
    stream: Literal[True]
