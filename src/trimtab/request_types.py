"""The static types of a request. At run time it is a plain dict.

An SDK's `create` has one signature for a whole reply and one for a stream. A type checker chooses
between them by the type of what is unpacked, and `dict[str, Any]` fits both: the reply's type would
be lost. The types here fit one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar

from trimtab.dialects import DialectName

if TYPE_CHECKING:
    # Part of what every type checker brings along; nothing is installed for it.
    from typing_extensions import TypeVar as TypeVarWithDefault

    class RequestValue(Any):
        """A value of a request: fits every parameter of an SDK, except `stream=True`."""

        def __getitem__(self, key: Any, /) -> Any: ...
        def __iter__(self) -> Iterator[Any]: ...
        def __len__(self) -> int: ...
        def __getattr__(self, name: str, /) -> Any: ...

    DialectT_co = TypeVarWithDefault(
        "DialectT_co", bound=DialectName, default=DialectName, covariant=True
    )
else:
    RequestValue = Any
    DialectT_co = TypeVar("DialectT_co", covariant=True)

Request: TypeAlias = dict[str, RequestValue]
"""Keyword arguments for a call whose reply comes whole."""


class MessagesStreamRequest(TypedDict):
    """Keyword arguments for a streamed call of Anthropic's Messages or OpenAI's Chat Completions.

    There are more than these; those that limit the output go by the name that the model knows.
    """

    model: str
    messages: RequestValue
    max_tokens: int
    stream: Literal[True]


class ResponsesStreamRequest(TypedDict):
    """Keyword arguments for a streamed call of OpenAI's Responses; there are more than these."""

    model: str
    input: RequestValue
    stream: Literal[True]
