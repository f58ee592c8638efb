"""A Python function as a tool: its signature is the schema, its docstring the description.

The function comes from a file next to `agent.yaml`, or from a package. Its arguments are checked
when it is called. Synchronous functions run in a thread next to the event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import importlib.util
import inspect
import sys
import threading
import traceback
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from trimtab.engine.log.message import Media, OpaqueBlock, Text
from trimtab.session.tools import Tool, ToolContent, ToolError, ToolInvocation
from trimtab_serve.agent.config.spec import PythonToolSpec
from trimtab_serve.agent.environment import explain_withheld_variable
from trimtab_serve.agent.tools.output import HeadTailBuffer, keep_head_and_tail
from trimtab_serve.agent.tools.permissions.rules import (
    PermissionGate,
    build_permission_rules,
    format_arguments_for_patterns,
)
from trimtab_serve.agent.tools.tool_setting import UnusableToolError


async def run_in_daemon_thread(function: Callable[[], Any]) -> Any:
    """Run a function in a thread next to the event loop. A thread cannot be stopped. If it hangs,
    it does not keep the process from ending, as a thread of the loop's own pool would."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(given: Any, error: BaseException | None) -> None:
        if outcome.done():
            return
        if error is None:
            outcome.set_result(given)
        elif isinstance(error, StopIteration):
            outcome.set_exception(RuntimeError("the function raised StopIteration"))
        else:
            outcome.set_exception(error)

    def work() -> None:
        answer = None
        error = None
        try:
            answer = context.run(function)
        except BaseException as error_of_function:  # noqa: BLE001 - whoever waits is told
            error = (
                error_of_function
                if isinstance(error_of_function, Exception)
                else RuntimeError(repr(error_of_function))
            )
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, answer, error)

    threading.Thread(target=work, name="trimtab-tool", daemon=True).start()
    return await outcome


PythonFunction = Callable[..., Any]


def load_function(tool_name: str, reference: str, folder: Path) -> PythonFunction:
    """Load the function of `file.py:name` or `package.module:name`."""
    source, colon, function_name = reference.rpartition(":")
    if not (source and colon and function_name.isidentifier()):
        raise UnusableToolError(
            tool_name,
            f"invalid function {reference!r}: write `file.py:name` or `package.module:name`",
        )
    # What stands beside the file may be imported from it; it shadows nothing that is installed.
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        module = _import_file(folder / source) if source.endswith(".py") else _import_module(source)
    except FileNotFoundError as error:
        if error.filename != str(folder / source):
            raise UnusableToolError(tool_name, f"{source} failed to load: {error}") from error
        raise UnusableToolError(
            tool_name,
            f"the file {folder / source} does not exist; create it, or correct `function`",
        ) from None
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        fix = explain_withheld_variable(error) or "correct it"
        if isinstance(error, ModuleNotFoundError):
            fix = "install the module in the Python environment of trimtab"
        raise UnusableToolError(
            tool_name,
            f"{source} failed to load{_failing_line(error, source)}: {cause}; {fix}",
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        functions = [each for each in vars(module).values() if inspect.isfunction(each)]
        there = [each.__name__ for each in functions if each.__module__ == module.__name__]
        raise UnusableToolError(
            tool_name,
            f"{source} has no function {function_name!r}; it has {', '.join(there) or 'none'}; "
            "correct `function`",
        )
    return function


def _failing_line(error: BaseException, source: str) -> str:
    """Return the line of the file that failed, if it is known."""
    if isinstance(error, SyntaxError):
        return ""  # it says so itself
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename.endswith(source)]
    return f", on line {lines[-1]}" if lines else ""


def _import_module(source: str) -> ModuleType:
    return importlib.import_module(source)


class _SourceLoader(SourceFileLoader):
    """Runs the source of the file itself. Tools that may not change the file can still write to its
    `__pycache__`, which Python would trust."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _import_file(path: Path) -> ModuleType:
    """Return a file's module. It is loaded once per process: two tools of one file share its
    state."""
    module_name = f"trimtab_tools_{sha256(str(path.resolve()).encode()).hexdigest()[:16]}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    if not path.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    loader = _SourceLoader(module_name, str(path))
    module_spec = importlib.util.spec_from_file_location(module_name, path, loader=loader)
    assert module_spec is not None and module_spec.loader is not None  # noqa: S101, PT018 - a path ending in .py
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_name] = module
    try:
        module_spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSignature:
    """The arguments that a function takes."""

    adapters: Mapping[str, TypeAdapter[Any]]
    """The validator of each parameter, by name."""
    required: tuple[str, ...]
    """Parameters without a default."""
    invocation_parameter: str | None
    """The parameter that gets the invocation itself."""
    schema: Mapping[str, Any]
    """The JSON Schema of the arguments."""


def read_function_signature(tool_name: str, function: PythonFunction) -> FunctionSignature:
    """Return the arguments that the function takes, with their schema."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters
    except (NameError, TypeError, ValueError) as error:
        raise UnusableToolError(
            tool_name, f"the function's signature cannot be read: {error}"
        ) from error
    adapters: dict[str, TypeAdapter[Any]] = {}
    invocation = None
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise UnusableToolError(
                tool_name, f"{parameter} is not supported; declare every parameter by name"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise UnusableToolError(
                tool_name, f"{parameter.name} is positional-only; remove the `/` after it"
            )
        hint = hints.get(parameter.name, Any)
        if hint is ToolInvocation:
            invocation = parameter.name
            continue
        try:
            adapters[parameter.name] = TypeAdapter(hint)
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            cause = str(error).splitlines()[0]
            raise UnusableToolError(
                tool_name,
                f"the type of {parameter.name} has no JSON form ({cause}); use another type",
            ) from error
    required_names = tuple(n for n in adapters if parameters[n].default is inspect.Parameter.empty)
    defaults = {n: parameters[n].default for n in adapters if n not in required_names}
    schema = _build_arguments_schema(tool_name, adapters, required_names, defaults)
    return FunctionSignature(
        adapters=adapters, required=required_names, invocation_parameter=invocation, schema=schema
    )


def _build_arguments_schema(
    name: str,
    adapters: Mapping[str, TypeAdapter[Any]],
    required: Sequence[str],
    defaults: Mapping[str, Any],
) -> dict[str, Any]:
    try:
        schemas, definitions_schema = TypeAdapter.json_schemas(
            [(each, "validation", adapter) for each, adapter in adapters.items()]
        )
    except PydanticUserError as error:
        cause = str(error).splitlines()[0]
        raise UnusableToolError(name, f"a parameter's type has no JSON Schema: {cause}") from error
    properties = {each: dict(schema) for (each, _), schema in schemas.items()}
    for each, value in defaults.items():
        try:
            properties[each]["default"] = adapters[each].dump_python(value, mode="json")
        except (PydanticSerializationError, ValueError, UserWarning):
            continue
    out: dict[str, Any] = {"type": "object", "properties": properties, "required": list(required)}
    if definitions := definitions_schema.get("$defs"):
        out["$defs"] = definitions
    return out


def validate_function_arguments(
    signature: FunctionSignature, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Convert the arguments to the types of the function. Raises `ToolError` with all problems."""
    wrong: list[str] = []
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        adapter = signature.adapters.get(name)
        if adapter is None:
            names = ", ".join(signature.adapters) or "none"
            wrong.append(f"unknown parameter {name}; the parameters are {names}")
            continue
        try:
            values[name] = adapter.validate_python(value)
        except ValidationError as error:
            for each in error.errors(include_url=False, include_context=False):
                place = ".".join(map(str, (name, *each["loc"])))
                wrong.append(f"{place}: {each['msg']}")
    wrong += [f"{name}: missing" for name in signature.required if name not in arguments]
    if wrong:
        raise ToolError("invalid arguments:\n" + "\n".join(f"- {each}" for each in wrong))
    return values


def make_python_tool(name: str, spec: PythonToolSpec, folder: Path, gate: PermissionGate) -> Tool:
    """Make the tool that the model gets."""
    function = load_function(name, spec.function, folder)
    signature = read_function_signature(name, function)

    async def run(asked: ToolInvocation) -> str | Sequence[ToolContent]:
        values = validate_function_arguments(signature, asked.arguments)
        if signature.invocation_parameter:
            values[signature.invocation_parameter] = asked
        limit = asyncio.timeout(spec.timeout)
        try:
            async with limit:
                answer = await _call_function(function, values)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ToolError(_explain_timeout(name, function, spec.timeout)) from None
        except KeyError as error:
            if (fix := explain_withheld_variable(error)) is None:
                raise
            raise ToolError(f"{name} failed: {fix}") from error
        return format_function_result(answer, spec.max_output_bytes)

    def text_of(asked: ToolInvocation) -> str:
        validate_function_arguments(signature, asked.arguments)
        return format_arguments_for_patterns(asked.arguments)

    return Tool(
        definition={
            "name": name,
            "description": inspect.getdoc(function) or name.replace("_", " "),
            "input_schema": dict(signature.schema),
        },
        run=run,
        on_interrupt=spec.on_interrupt,
        timeout=spec.timeout + 5,
        check_permission=gate.make_permission_check(build_permission_rules(spec), text_of),
    )


async def _call_function(function: PythonFunction, values: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(**values)
    answer = await run_in_daemon_thread(lambda: function(**values))
    return await answer if inspect.isawaitable(answer) else answer


def format_function_result(value: Any, max_bytes: int) -> str | list[ToolContent]:
    """Convert the return value to a result: text and parts unchanged, other values as JSON."""
    if value is None:
        return "[done, no value]"
    if isinstance(value, bytes | bytearray):
        buffer = HeadTailBuffer(max_bytes)
        buffer.add(bytes(value))
        return buffer.to_text() or "[no bytes]"
    many = isinstance(value, list | tuple)
    parts: Sequence[Any] = cast("Sequence[Any]", value) if many else (value,)
    if parts and all(isinstance(part, Text | Media | OpaqueBlock) for part in parts):
        return [_limit_part(part, max_bytes) for part in parts]
    text = value if isinstance(value, str) else _as_json(value)
    return keep_head_and_tail(text, max_bytes) or "[an empty text]"


def _limit_part(part: ToolContent, max_bytes: int) -> ToolContent:
    if isinstance(part, Text):
        return Text(text=keep_head_and_tail(part.text, max_bytes), extra=part.extra)
    if isinstance(part, Media) and part.data and len(part.data) > max_bytes:
        return Text(text=f"[{part.kind} of {len(part.data):,} bytes left out, above {max_bytes:,}]")
    return part


def _as_json(value: Any) -> str:
    return to_json(value, fallback=repr, inf_nan_mode="constants").decode()


def _explain_timeout(name: str, function: PythonFunction, timeout_s: float) -> str:
    text = f"{name} was given up after {timeout_s:g} seconds"
    if inspect.iscoroutinefunction(function):
        return text
    return f"{text}; the function cannot be stopped and may still be running"
