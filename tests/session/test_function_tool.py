"""`@tool`: a typed function as a tool."""

from __future__ import annotations

import enum
from typing import Literal, NotRequired, TypedDict

import pytest

from trimtab import ToolError, ToolInvocation, tool


def invocation(**arguments: object) -> ToolInvocation:
    return ToolInvocation(name="t", arguments=arguments, key="s/1/m2.0/c1", session="s")


class Unit(enum.Enum):
    METRIC = "metric"
    IMPERIAL = "imperial"


class Place(TypedDict):
    city: str
    country: NotRequired[str]


def test_the_signature_is_the_schema_and_the_docstring_the_description():
    @tool
    def weather(
        city: str, days: int = 1, unit: Unit = Unit.METRIC, tags: list[str] | None = None
    ) -> str:
        """The weather in a city."""
        return f"{city} {days} {unit} {tags}"

    assert weather.name == "weather"
    assert weather.definition["description"] == "The weather in a city."
    schema = weather.definition["input_schema"]
    assert schema["required"] == ["city"]
    assert schema["properties"] == {
        "city": {"type": "string"},
        "days": {"type": "integer", "default": 1},
        "unit": {"enum": ["metric", "imperial"]},
        "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
    }


def test_unions_literals_and_typed_dicts_have_a_form():
    @tool(name="go")
    def travel(to: Place, how: Literal["foot", "train"] | None = None) -> dict[str, str]:
        return {"to": to["city"], "how": how or ""}

    properties = travel.definition["input_schema"]["properties"]
    assert travel.name == "go"
    assert properties["to"]["required"] == ["city"]
    assert properties["how"] == {"anyOf": [{"enum": ["foot", "train"]}, {"type": "null"}]}


@pytest.mark.anyio
async def test_it_runs_synchronous_and_asynchronous_functions():
    @tool
    def double(n: int) -> int:
        return 2 * n

    @tool
    async def greet(name: str, call: ToolInvocation) -> str:
        return f"{name} {call.key}"

    assert await double.run(invocation(n=4)) == "8"
    assert await greet.run(invocation(name="Ada")) == "Ada s/1/m2.0/c1"
    assert "call" not in greet.definition["input_schema"]["properties"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "needs n"),
        ({"n": 1, "m": 2}, "has no m; it takes n"),
        ({"n": "1"}, "n is '1'"),
        ({"n": True}, "n is True"),
    ],
)
async def test_wrong_arguments_are_told_to_the_model(arguments, said):
    @tool
    def double(n: int) -> int:
        return 2 * n

    with pytest.raises(ToolError, match=said):
        await double.run(invocation(**arguments))


@pytest.mark.anyio
@pytest.mark.parametrize(
    "arguments",
    [
        {"to": {"city": 3}},
        {"to": {"country": "NO"}},
        {"to": {"city": "Oslo", "street": "x"}},
        {"to": {"city": "Oslo"}, "load": {"apples": "many"}},
    ],
)
async def test_what_is_inside_an_object_is_checked_before_the_function_runs(arguments):
    @tool
    def travel(to: Place, load: dict[str, int] | None = None) -> str:
        return f"{to['city']} {load}"

    assert await travel.run(invocation(to={"city": "Oslo"}, load={"apples": 2})) == (
        "Oslo {'apples': 2}"
    )
    with pytest.raises(ToolError, match="it must match"):
        await travel.run(invocation(**arguments))


def test_a_parameter_without_a_type_or_with_a_foreign_one_is_refused():
    with pytest.raises(TypeError, match="needs a type"):
        tool(lambda city: city)
    with pytest.raises(TypeError, match="is not supported"):

        @tool
        def read(at: complex) -> str:
            return str(at)

    with pytest.raises(TypeError, match="not supported"):

        @tool
        def many(*names: str) -> str:
            return str(names)
