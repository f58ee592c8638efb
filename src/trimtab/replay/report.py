"""A study as one HTML file that needs nothing else: no script, no font, no request."""

from __future__ import annotations

from html import escape
from importlib.resources import files

from trimtab.replay.columns import best_of, money, seen
from trimtab.replay.costs import FETCH_OUTPUT, SUMMARY_OUTPUT
from trimtab.replay.plots import edited, file_name, longest, pictures, svg
from trimtab.replay.references import FAR
from trimtab.replay.run import Setup
from trimtab.replay.study import Study, counted
from trimtab.replay.table import RESAMPLES


def html(study: Study) -> str:
    """The whole page."""
    style = files("trimtab.replay").joinpath("report.css").read_text(encoding="utf-8")
    drawn = {name: svg(name, draw) for name, draw in pictures(study).items()}
    one = longest(study)
    stacks = "".join(
        _figure(_same(study, setup), drawn[file_name("context", setup)]) for setup in edited(study)
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
<p class="soft">{escape(study.title)}. From {escape(_sources(study))}.</p>
<div class="scroll">{_table(study)}</div>
<p class="soft">Green is the best of its column. Every number is defined at the end of the page.</p>
<h2>Cost against recall</h2>
<p>Further left is cheaper, further up shows more of what the agent goes back to. Filled points are
those that no other beats in both; the dotted line joins them.</p>
{_figure("", drawn["cost_recall"])}
<h2>What one conversation’s requests were made of</h2>
<p>The longest one, {escape(one.id)}, {counted(one.calls, "call")}. Red ticks are calls whose prompt
did not extend the last one: there the provider’s cache ended at the first change.</p>
<div class="pair">{stacks}</div>
<h2>What that conversation has cost, call by call</h2>
{_figure("", drawn["cumulative"])}
<h2>How it was measured</h2>
<dl>{_definitions(study)}</dl>
</main>
</html>
"""


def _figure(caption: str, picture: str) -> str:
    if not caption:
        return f'<figure class="single">{picture}</figure>\n'
    return f"<figure><figcaption>{escape(caption)}</figcaption>{picture}</figure>\n"


def _same(study: Study, setup: Setup) -> str:
    """The names of all setups that send what this one sends."""
    return ", ".join(other.name for other in study.setups if other.options == setup.options)


def _sources(study: Study) -> str:
    found = study.sources().most_common()
    named = [f"{name} ({count:,})" for name, count in found[:6]]
    return ", ".join([*named, *([f"{len(found) - 6} more"] if len(found) > 6 else [])])


def _table(study: Study) -> str:
    columns = [*money(study), *seen(study)]
    heads = "".join(
        f"<th>{escape(column.name)}<small>{escape(column.unit)}</small></th>" for column in columns
    )
    best = [best_of(column, study) for column in columns]
    lines: list[str] = []
    for row in study.rows:
        cells = [
            f"<td{' class=best' * (name == row.setup)}>{escape(column.text(row))}</td>"
            for column, name in zip(columns, best, strict=True)
        ]
        lines.append(f"<tr><td>{escape(row.setup)}</td>{''.join(cells)}</tr>")
    head = f"<thead><tr><th>setup</th>{heads}</tr></thead>"
    return f"<table>{head}<tbody>{''.join(lines)}</tbody></table>"


def _definitions(study: Study) -> str:
    own, first = study.providers[0].name, study.setups[0].name
    models = ", ".join(f"{p.name} by {p.model}" for p in study.providers if p.name != "no cache")
    said = {
        "Conversations": f"{study.title}; from {_sources(study)}. Where the recorded agent "
        "compacted, the replay stops. It is open-loop: the recorded replies stay as they are, "
        "whatever a policy hides. It measures cost and exposure, not success.",
        "Cost": "Fresh input tokens per call: input as the cache bills it, the recorded output at "
        "the price of output, and summary calls: the summariser reads what is summarised and "
        f"writes {SUMMARY_OUTPUT} tokens, at a third of the main model’s prices. Prices and "
        f"cache rules are the catalog’s: {models}.",
        "Providers": f"Policies decide by {own}’s prices. The other columns bill the same prompts.",
        "× cheaper": f"The cost of {first} over the row’s, with a 95 % interval: conversations "
        f"drawn anew {RESAMPLES:,} times.",
        "Re-fetch": "A call that refers to something hidden pays for writing what held it once "
        "more (at most 8,000 tokens a result), and for one more call that reads the prompt and "
        f"writes {FETCH_OUTPUT} tokens.",
        "Reference": "An identifier or path (a run of letters, digits and underscores, joined by "
        ". / - or :, of five characters or more, with a digit, underscore, joint or inner "
        "capital), or a quoted string of 4 to 80 characters, in the arguments of a tool call, "
        "that some earlier message holds. It is visible where a message, as sent, still holds it.",
        "Recall, far, tool": "The visible share of all references; of those last mentioned more "
        f"than {FAR} messages before; of those that only tool results ever held.",
        "Cache": "Hit: share of input read from the cache. Uncached: input that was not, which a "
        "first token waits for. Breaks: calls whose prompt does not extend the last one.",
        "Tokens": f"Estimates by the weights of the {study.tokenizer} family.",
        "Pauses": study.gaps().partition(": ")[2].capitalize() + ".",
    }
    if few := study.too_little():
        said["Too little"] = few.partition(": ")[2].capitalize() + "."
    if bare := study.without_system():
        said["Not recorded"] = f"{bare}."
    refused = sum(row.cannot_fit for row in study.rows)
    if refused:
        said["Left out"] = f"{counted(refused, 'call')} that no edit could make fit."
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in said.items())
