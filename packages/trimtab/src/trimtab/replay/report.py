"""Render a study as one HTML file without scripts, fonts or other requests."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from trimtab.replay.needs import FAR_MESSAGES
from trimtab.replay.plots import (
    build_figure_drawers,
    find_longest_conversation,
    list_distinct_setups,
    make_figure_name,
    render_svg,
)
from trimtab.replay.results import (
    ReplayStudy,
    build_cost_columns,
    build_visibility_and_cache_columns,
    find_best_setup,
    format_noun_count,
)
from trimtab.replay.runner import ReplaySetup
from trimtab.replay.setup_costs import (
    BOOTSTRAP_RESAMPLES,
    REFETCH_OUTPUT_TOKENS,
    SUMMARY_OUTPUT_TOKENS,
)


def render_html_report(study: ReplayStudy) -> str:
    """Render the whole page."""
    style = "".join(
        files("trimtab.replay").joinpath(name).read_text(encoding="utf-8")
        for name in ("look.css", "report.css")
    )
    figures = {name: render_svg(name, draw) for name, draw in build_figure_drawers(study).items()}
    one = find_longest_conversation(study)
    stacks = "".join(
        _figure(_names_of_equal_setups(study, setup), figures[make_figure_name("context", setup)])
        for setup in list_distinct_setups(study)
    )
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Trimtab replay: {escape(study.title)}</title>
<style>
{style}</style>
<main>
<h1>What each policy costs, and what it still shows</h1>
<p class="soft">{escape(study.title)}. From {escape(_describe_sources(study))}.</p>
<div class="scroll">{_render_table(study)}</div>
<p class="soft">Green is the best of its column. Every number is defined at the end of the page.</p>
<h2>Cost against recall</h2>
<p>Points further left are cheaper; points further up show more of what the agent refers back to.
Filled points are those that no other point beats in both; the dotted line joins them.</p>
{_figure("", figures["cost_recall"])}
<h2>What the requests of one conversation contain</h2>
<p>The longest one, {escape(one.id)}, {format_noun_count(one.calls, "call")}. Red ticks are calls
whose prompt did not extend the previous one: the provider’s cache ended at the first change.</p>
<div class="pair">{stacks}</div>
<h2>Cumulative cost of that conversation, call by call</h2>
{_figure("", figures["cumulative"])}
<h2>How it was measured</h2>
<dl>{_render_definitions(study)}</dl>
</main>
</html>
"""


def _figure(caption: str, picture: str) -> str:
    if not caption:
        return f'<figure class="single">{picture}</figure>\n'
    return f"<figure><figcaption>{escape(caption)}</figcaption>{picture}</figure>\n"


def _names_of_equal_setups(study: ReplayStudy, setup: ReplaySetup) -> str:
    """Return the names of all setups that send the same requests as this one."""
    return ", ".join(other.name for other in study.setups if other.options == setup.options)


def _describe_sources(study: ReplayStudy) -> str:
    sources = study.count_sources().most_common()
    names = [f"{name} ({count:,})" for name, count in sources[:6]]
    return ", ".join([*names, *([f"{len(sources) - 6} more"] if len(sources) > 6 else [])])


def _render_table(study: ReplayStudy) -> str:
    columns = [*build_cost_columns(study), *build_visibility_and_cache_columns(study)]
    heads = "".join(
        f"<th>{escape(column.name)}<small>{escape(column.unit)}</small></th>" for column in columns
    )
    best = [find_best_setup(column, study) for column in columns]
    lines: list[str] = []
    for row in study.rows:
        cells = [
            f"<td{' class=best' * (name == row.setup)}>{escape(column.text(row))}</td>"
            for column, name in zip(columns, best, strict=True)
        ]
        lines.append(f"<tr><td>{escape(row.setup)}</td>{''.join(cells)}</tr>")
    head = f"<thead><tr><th>setup</th>{heads}</tr></thead>"
    return f"<table>{head}<tbody>{''.join(lines)}</tbody></table>"


def _render_definitions(study: ReplayStudy) -> str:
    own_name, first = study.providers[0].name, study.setups[0].name
    models = ", ".join(f"{p.name} by {p.model}" for p in study.providers if p.name != "no cache")
    definitions = {
        "Conversations": f"{study.title}; from {_describe_sources(study)}. After the recorded "
        "agent compacted its context, a new conversation begins. The replay is open-loop: the "
        "recorded replies stay as they are, whatever a policy hides. It measures cost and "
        "exposure, not success.",
        "Cost": "Cost per call in fresh input tokens. It is the sum of the input at cache prices, "
        "the recorded output at output prices, and the summary calls. A summariser reads the "
        f"summarised messages and writes {SUMMARY_OUTPUT_TOKENS} tokens, at a third of the main "
        f"model’s prices. Prices and cache rules come from the catalog: {models}.",
        "Providers": f"Policies decide by the prices of {own_name}. The other columns show what "
        "the same prompts cost at other providers.",
        "× cheaper": f"The cost of {first} divided by the cost of the row, with a 95 % interval. "
        f"The interval comes from {BOOTSTRAP_RESAMPLES:,} resamples of the conversations.",
        "Re-fetch": "If a call refers to hidden content, its cost includes fetching that content "
        "again. This is the cost of writing the message that contained it (at most 8,000 tokens "
        "per result), plus one more call. That call reads the prompt and writes "
        f"{REFETCH_OUTPUT_TOKENS} tokens.",
        "Reference": "A text in the arguments of a tool call. An earlier message also contains "
        "this text. It is an identifier or path, or a quoted string of 4 to 80 characters. "
        "Identifiers and paths consist of letters, digits, _ and $, joined by . / \\ - or :. They "
        "have five characters or more, at least one of them alphabetic. They also contain a digit, "
        "an underscore, a joining character, or a capital after a lower-case character. A "
        "reference is visible if a message, as sent, still contains it.",
        "Recall, far, tool": "The visible share of all references; of those last mentioned more "
        f"than {FAR_MESSAGES} messages before; of those that only tool results ever "
        "contained.",
        "Hidden edits": "The share of the edits that quote an old text, if earlier messages "
        "contain all lines of it, of which the request does not show every line.",
        "Far 4-grams": "The visible share of all sequences of four words or signs in the arguments "
        f"of a tool call that were last seen more than {FAR_MESSAGES} messages before.",
        "Cache": "Hit: share of the input that was read from the cache. Uncached: input that was "
        "not read from it, which delays the first token. Breaks: calls whose prompt does not "
        "extend the previous one.",
        "Tokens": f"Estimated with the token weights of the model family {study.tokenizer}.",
        "Pauses": study.describe_pauses().partition(": ")[2].capitalize() + ".",
    }
    if few := study.warn_too_little_data():
        definitions["Too little"] = few.partition(": ")[2].capitalize() + "."
    if bare := study.warn_missing_system_prompts():
        definitions["Not recorded"] = f"{bare}."
    refusals = sum(row.cannot_fit for row in study.rows)
    if refusals:
        definitions["Left out"] = (
            f"{format_noun_count(refusals, 'call')} that could not be made to fit the window."
        )
    return "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in definitions.items()
    )
