"""`trimtab models`: list the models in the catalog, or explain one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from trimtab.models.catalog import ModelInfo

LABEL_WIDTH_CHARS = 14
"""Width of the label of a line, in characters."""


def models_command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A model to explain, in the catalog or not."),
    ] = None,
    maker: Annotated[
        str | None, typer.Option(help="List only models of this maker: anthropic, openai, …")
    ] = None,
    search: Annotated[
        str | None, typer.Option(help="List only models whose names contain this text.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """List the models of the catalog, or explain what is known about one model."""
    if name is not None:
        _explain_model(name, as_json=as_json)
    else:
        _list_models(maker, search, as_json=as_json)


def _list_models(maker: str | None, search: str | None, *, as_json: bool) -> None:
    import json

    from trimtab.cli.stderr_messages import print_error_for_exit
    from trimtab.models.catalog import find_retirement_date, list_model_infos

    makers = list_model_infos()
    if maker is not None and maker.lower() not in makers:
        raise print_error_for_exit(
            f"the catalog has no maker {maker!r}; its makers: {', '.join(makers)}"
        )
    selection = [
        (made_by, info)
        for made_by, infos in makers.items()
        if maker is None or made_by == maker.lower()
        for info in infos
        if search is None or search.lower() in info.name.lower()
    ]
    if not selection:
        raise print_error_for_exit(f"no model matches {search!r}", exit_status=1)
    if as_json:
        rows = [
            {"maker": made_by, **info.to_json(), "retires": find_retirement_date(info.name)}
            for made_by, info in selection
        ]
        typer.echo(json.dumps(rows))
        return
    widest = max(len(info.name) for _, info in selection)
    typer.echo(f"{'':<{widest}}  {'window':>9}  {'output':>9}  {'$ in':>7}  {'$ out':>7}")
    for made_by in dict.fromkeys(made_by for made_by, _ in selection):
        typer.echo(typer.style(made_by, bold=True))
        for info in (info for by, info in selection if by == made_by):
            typer.echo(_format_row(info, widest))


def _format_row(info: ModelInfo, width: int) -> str:
    from trimtab.models.catalog import find_retirement_date

    prices = (_format_price(price) for price in (info.input_price, info.output_price))
    row = f"{info.name:<{width}}  {info.context_window:>9,}  {info.max_output:>9,}  "
    row += "  ".join(f"{price:>7}" for price in prices)
    notes = [f"new price {change.from_date}" for change in info.price_changes]
    if day := find_retirement_date(info.name):
        notes.append(f"retirement {day}")
    return f"{row}  {', '.join(notes)}".rstrip()


def _format_price(price: float | None) -> str:
    return "–" if price is None else f"{price:g}"


def _explain_model(name: str, *, as_json: bool) -> None:
    import json
    import sys

    from trimtab.cli.text_format import escape_control_characters, wrap_for_terminal
    from trimtab.models.catalog import find_maker_in_catalog, find_model_info, find_retirement_date
    from trimtab.models.catalog import resolve_model_info as resolve

    info = resolve(name)
    if as_json:
        explanation: dict[str, Any] = {
            "asked": name,
            "in_catalog": find_model_info(name) is not None,
            "maker": find_maker_in_catalog(name),
            **info.to_json(),
            "retires": find_retirement_date(name),
        }
        typer.echo(json.dumps(explanation))
        return
    for about, text in (("model", _describe_match(name, info)), *_describe_entry(name, info)):
        line = f"{about:<{LABEL_WIDTH_CHARS}} {escape_control_characters(text)}"
        typer.echo(wrap_for_terminal(sys.stdout, line, " " * (LABEL_WIDTH_CHARS + 1)))


def _describe_match(name: str, info: ModelInfo) -> str:
    """Say which entry of the catalog the name matches, or what is assumed without one."""
    from trimtab.models.catalog import (
        find_maker_in_catalog,
        find_model_info,
        find_window_pattern,
        list_model_infos,
        suggest_model_names,
    )

    if find_model_info(name) is not None:
        form = "" if info.name.lower() == name.strip().lower() else f"{name} is a form of "
        return f"{form}{info.name}, of {find_maker_in_catalog(name)}"
    part = find_window_pattern(name)
    by = f"because of {part!r} in its name" if part else "because its name is not known"
    assumption = f"not in the catalog: a window of {info.context_window:,} tokens is assumed {by}"
    close = (
        suggest_model_names(name)
        or [
            similar.name
            for infos in list_model_infos().values()
            for similar in infos
            if name.strip().lower() in similar.name.lower()
        ][:5]
    )
    near = f"; similar names: {', '.join(close)}" if close and name.strip() else ""
    return (
        f"{assumption}{near}. If it is a deployment of a known model, name that model: "
        "model_info: NAME in agent.yaml, model_info=NAME in Python"
    )


def _describe_entry(name: str, info: ModelInfo) -> list[tuple[str, str]]:
    """Describe the entry, line by line."""
    from trimtab.models.catalog import describe_retirement

    window = f"{info.context_window:,} tokens of input and output together"
    if info.input_limit < info.context_window:
        window += f", of which at most {info.input_limit:,} are input"
    lines = [
        ("window", window),
        ("output", f"up to {info.max_output:,} tokens, requested as {_name_output_param(info)}"),
        ("dialect", info.dialect or "unknown: set dialect= to a dialect that the server accepts"),
        ("tokenizer", info.tokenizer or "unknown: the highest estimate of all tokenizers is used"),
        *_describe_prices(info),
        ("cache", _describe_cache(info)),
    ]
    if retirement := describe_retirement(name):
        lines.append(("retirement", retirement))
    return lines


def _name_output_param(info: ModelInfo) -> str:
    return "max_output_tokens" if info.dialect == "openai_responses" else info.output_param


def _describe_prices(info: ModelInfo) -> list[tuple[str, str]]:
    from dataclasses import replace

    if info.input_price is None or info.output_price is None:
        return [("prices", "unknown")]
    today = f"${info.input_price:g} in and ${info.output_price:g} out per million tokens"
    if info.soft_window:
        today += f"; the input costs twice as much above {info.soft_window:,} tokens"
    lines = [("prices", today)]
    for change in info.price_changes:
        # Each change may leave a price as it was before.
        info = replace(
            info,
            input_price=info.input_price if change.input_price is None else change.input_price,
            output_price=info.output_price if change.output_price is None else change.output_price,
        )
        new = f"${info.input_price:g} in and ${info.output_price:g} out from {change.from_date} on"
        lines.append(("", new))
    return lines


def _describe_cache(info: ModelInfo) -> str:
    if info.cache_style == "none":
        return "unknown"
    how = {
        "marks": "the provider caches the part of a prompt that Trimtab marks",
        "automatic": "found by the provider itself",
    }[info.cache_style]
    return (
        f"{how}; reading costs {info.cache_read:g} and writing {info.cache_write:g} times the "
        f"normal input price; kept for {info.cache_ttl:,} s, from {info.cache_minimum:,} tokens"
    )
