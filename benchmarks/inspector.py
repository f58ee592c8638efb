"""The page of `trimtab inspect`: how soon it is there, how large it is, and what it lets through.

A session of 10,000 calls (1,500 with --quick) is written as a page and opened in the Chromium of
this machine. Then come 200 hostile contents, in messages, results, names of tools and titles:
markup, styles, scripts, characters that turn writing around, terminal codes, huge lines.

- `first_paint_s`: until the first screen is drawn, in seconds
- `click_ms`: from a click on a call to its painted texts, the slowest of twenty, in milliseconds.
  The clicks begin when the file is read, and each opens a call that was not opened before.
- `first_paint_seen_s`, `click_seen_ms`: the same by the clock. The two above are CPU time of the
  page's thread, which other programs on the machine do not lengthen.
- `file_ratio`: bytes of the page for each byte of the session's log
- `executed`: how many hostile contents ran a script, of `hostile`
- `requests`: how many requests left the page
- `overflowing`: screens that are wider than the window
- `violations`: rules of accessibility that axe finds broken, with `--axe FILE` (axe.min.js)
- `rebuilt`: calls whose blocks the page's own script builds byte for byte, of `compared`
"""

from __future__ import annotations

import hashlib
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks import chromium, harness
from benchmarks.long_session import PROSE
from trimtab import Context
from trimtab.engine.log.event import Event, Usage, dump_canonical_json, dump_event_line
from trimtab.inspect.block_body import decode_body
from trimtab.inspect.index_page import IndexedSession, index_session, render_index
from trimtab.inspect.page import render_page
from trimtab.inspect.session_timeline import read_session_timeline
from trimtab.inspect.timeline import Timeline, apply_splices

CALLS, QUICK_CALLS = 10_000, 1_500
HOSTILE = 200
CLICKS = 20
MAX_FIRST_PAINT_S, MAX_CLICK_MS, MAX_FILE_RATIO = 1.0, 100.0, 3.0
MODEL = "claude-sonnet-4-5"
TOOLS = [
    {
        "name": name,
        "description": f"{name.replace('_', ' ').capitalize()} and see what it says.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }
    for name in ("read_file", "run_command", "search")
]
DRAW_EVERYTHING = """(async () => {
  for (const { longList } of document.querySelectorAll(".list")) {
    for (const page of longList.pages) longList.fill(page);
  }
  const wait = () => new Promise((resolve) => { setTimeout(resolve, 300); });
  await wait();
  for (const one of document.querySelectorAll("details")) one.open = true;
  for (const one of document.querySelectorAll(".list .link:not(.json)")) one.click();
  await wait();
  for (const one of document.querySelectorAll(".list .json")) one.click();
  await wait();
})()"""
"""Draws all rows of a call, with every text in full, and then as JSON."""
ADD_LINK = """(() => {
  const link = document.createElement("a");
  link.id = "measured";
  link.href = "#call=NUMBER";
  link.textContent = "open";
  Object.assign(link.style, { position: "fixed", bottom: 0, left: 0, zIndex: 9 });
  document.body.append(link);
  const isVisible = (row) => {
    const box = row.getBoundingClientRect();
    return box.bottom > 0 && box.top < innerHeight;
  };
  const isShown = () => document.body.dataset.shown === "call=NUMBER"
    && [...document.querySelectorAll("#call .content")].filter(isVisible)
      .every((content) => content.textContent || content.querySelector("img"));
  window.painted = new Promise((resolve) => link.addEventListener("click", (event) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      link.remove();
      resolve(performance.now() - event.timeStamp);
    };
    const look = () => (isShown() ? port2.postMessage(0) : requestAnimationFrame(look));
    requestAnimationFrame(look);
  }));
})()"""
"""Adds a link to a call. `painted` promises the milliseconds from the click, as the system reports
it, to the end of the first frame in which all texts of the call that fit the window are there."""
HASH_CALL = """(async () => {
  const all = await loadStructure();
  const lines = [];
  for (const number of listBlocks(all, NUMBER)) {
    lines.push(writeJson(await decodeBody(await bodies.get(number))));
  }
  const data = new TextEncoder().encode(lines.join("\\n"));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", data));
  return [...digest].map((one) => one.toString(16).padStart(2, "0")).join("");
})()"""
"""Returns the SHA-256 of the blocks of a call, as the page builds them."""
COMPARED = 24
"""Calls whose blocks are compared byte for byte."""


def long_session(calls: int) -> list[Event]:
    """A session of an agent, with what a provider with a prompt cache would report."""
    ticks = count(1_700_000_000, 7)
    context = Context(
        model=MODEL,
        system="You look after a code base. Read before you change, and say what you have found.",
        tools=TOOLS,
        policy="auto",
        context_window=64_000,
        clock=lambda: float(next(ticks)),
    )
    pick = random.Random(41)  # noqa: S311 - not for secrets
    before, version, turn, made = 0, -1, 0, 0
    while made < calls:
        turn += 1
        context.add({"role": "user", "content": f"Ticket {turn}: {_prose(pick, 40, 400)}"})
        for step in range(pick.randint(2, 7)):
            context.request()
            made += 1
            call = context.window.last_call
            assert call is not None
            tokens = call.body.tokens
            same = context.window.accounting.prefix_version == version
            read = before if same else context.window.settings.head.tokens
            version, before = context.window.accounting.prefix_version, tokens
            usage = Usage(input=tokens, output=40, cache_read=read, cache_write=tokens - read)
            name = pick.choice(TOOLS)["name"]
            path = f"src/module_{pick.randrange(500)}/part_{turn}_{step}.py"
            block = {"type": "tool_use", "id": f"toolu_{made}", "name": name}
            said: list[dict[str, Any]] = [{"type": "text", "text": _prose(pick, 20, 200)}]
            said.append({**block, "input": {"path": path}})
            context.add({"role": "assistant", "content": said}, usage=usage)
            result = {"type": "tool_result", "tool_use_id": f"toolu_{made}"}
            result["content"] = f"{path}\n{_prose(pick, 200, 3_000)}"
            context.add({"role": "user", "content": [result]})
            if made == calls:
                break
    return list(context.events)


def _prose(pick: random.Random, least: int, most: int) -> str:
    length = pick.randint(least, most)
    start = pick.randrange(len(PROSE) - most)
    return PROSE[start : start + length]


def hostile_texts() -> list[str]:
    """200 contents. Those that run call `ran`, whatever they are inserted into."""
    numbers = count()
    run = "window.executed=(window.executed||0)+1"
    markup = (
        "<script>{run}</script>",
        '<img src=x onerror="{run}">',
        '<svg onload="{run}"><circle r=9 /></svg>',
        "<svg><script>{run}</script></svg>",
        '<iframe srcdoc="<script>parent.executed=1</script>"></iframe>',
        '<details open ontoggle="{run}">x</details>',
        '<body onload="{run}">',
        '<input autofocus onfocus="{run}">',
        '<a href="javascript:{run}">click</a>',
        '<object data="data:text/html,<script>{run}</script>"></object>',
        '<meta http-equiv=refresh content="0;url=javascript:{run}">',
        '<base href="https://example.invalid/">',
        '<link rel=stylesheet href="https://example.invalid/a.css">',
        "<style>@import 'https://example.invalid/b.css'; * {{ display: none }}</style>",
        '<div style="position:fixed;inset:0;background:url(https://example.invalid/c)">x</div>',
        '<form action="https://example.invalid/"><button autofocus>x</button></form>',
        '<video src=x onerror="{run}"></video>',
        "<template><script>{run}</script></template>",
        '<math><mtext><img src=x onerror="{run}"></math>',
        '<noscript><p title="</noscript><img src=x onerror={run}>">',
    )
    wraps = (
        "{0}",
        "\"'>{0}",
        "</script>{0}",
        "</title></style>{0}",
        "<!--{0}-->",
        "]]>{0}",
        "`${{{0}}}",
    )
    texts = [wrap.format(one.format(run=run)) for wrap in wraps for one in markup]
    texts += [
        "\u202egnp.exe\u202c \u2066abc\u2069 \u200b\u200e\ufeff",
        "\x1b[2J\x1b]0;title\x07\x1b[31mred\x1b[0m \x9b1m \x00 \x7f",
        "W" * 300_000,
        "\u202e" * 5_000,
        "a\u0300\u0301\u0302\u0303\u0304\u0305" * 2_000,
        "\n" * 20_000,
        "\ud800 lone \udfff halves",
        "\u2028\u2029\u0085\u180e",
        "\U000e0041\U000e0042 tags",
        "\ufdfa" * 2_000,
        "📁" * 20_000,
        "$& $1 {{constructor.constructor('" + run + "')()}}",
        "__proto__",
        "https://example.invalid/picture.png",
        "data:text/html;base64,PHNjcmlwdD4=",
    ]
    while len(texts) < HOSTILE:
        number = next(numbers)
        text = markup[number % len(markup)].format(run=run)
        texts.append("".join(f"&#x{ord(one):x};" for one in text) if number % 2 else text.upper())
    return texts[:HOSTILE]


def hostile_session() -> list[Event]:
    """A session in which everything that somebody else writes is hostile."""
    texts = hostile_texts()
    ticks = count(1_700_000_000, 7)
    tools: list[dict[str, Any]] = [
        {
            "name": text[:60],
            "description": text,
            "input_schema": {"type": "object", "properties": {text[:40]: {"type": "string"}}},
        }
        for text in texts[:40]
    ]
    context = Context(
        model=MODEL,
        system="\n".join(texts[:20]),
        tools=tools,
        policy="auto",
        context_window=3_000_000,
        clock=lambda: float(next(ticks)),
    )
    for number, text in enumerate(texts):
        context.add({"role": "user", "content": text})
        context.request()
        call = context.window.last_call
        assert call is not None
        usage = Usage(input=call.body.tokens, output=5, cache_write=call.body.tokens)
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": tools[number % 40]["name"]}
        block["input"] = {text[:40] or "x": text, "__proto__": {"x": text[:200]}}
        context.add(
            {"role": "assistant", "content": [{"type": "text", "text": text or "-"}, block]},
            usage=usage,
        )
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}
        context.add({"role": "user", "content": [result]})
        context.request()
        context.add({"role": "assistant", "content": text or "-"})
    return list(context.events)


def main(*, quick: bool, axe: Path | None) -> harness.Report:
    program = chromium.find_chromium()
    if program is None:
        return {"skipped": "no Chromium on the path; install it, or name it in CHROMIUM"}
    calls = QUICK_CALLS if quick else CALLS
    events = long_session(calls)
    log_bytes = sum(len(dump_event_line(event)) + 1 for event in events)
    start = time.perf_counter()
    timeline = read_session_timeline("a long session", events)
    page = render_page(timeline)
    built_s = time.perf_counter() - start
    report: harness.Report = {
        "sample": f"{len(timeline.calls):,} calls, {len(events):,} events",
        "calls": len(timeline.calls),
        "log_bytes": log_bytes,
        "page_bytes": len(page.encode()),
        "file_ratio": round(len(page.encode()) / log_bytes, 3),
        "built_s": round(built_s, 2),
    }
    del events
    with tempfile.TemporaryDirectory(prefix="trimtab-inspector-") as folder:
        path = Path(folder) / "session.html"
        path.write_text(page, encoding="utf-8")
        with chromium.open_tab(program) as tab:
            report |= measure_page(tab, path, timeline)
            if axe is not None:
                report["violations"] = list(find_violations(tab, path, axe))
        with chromium.open_tab(program) as tab:
            report |= try_hostile(tab, Path(folder))
    report["broken"] = list(find_broken(report))
    return report


def measure_page(tab: chromium.Tab, path: Path, timeline: Timeline) -> harness.Report:
    """How soon the first screen and a call are there, and whether its blocks are those sent."""
    tab.resize(1280, 900)
    tab.open(path)
    first_paint_cpu = tab.cpu_ms()
    first_paint = tab.run(
        "Math.max(performance.getEntriesByName('ready')[0].startTime, "
        "performance.getEntriesByName('first-contentful-paint')[0]?.startTime || 0)"
    )
    tab.wait("document.readyState === 'complete' && document.querySelector('#composition table')")
    pick = random.Random(7)  # noqa: S311 - not for secrets
    total = len(timeline.calls)
    chosen = [total, 1, *(pick.randint(1, total) for _ in range(CLICKS - 2))]
    clicks = [click_call(tab, call) for call in chosen]
    cpu, seen = ([round(click[index], 1) for click in clicks] for index in (0, 1))
    rebuilt, compared = compare_blocks(tab, timeline)
    start = time.perf_counter()
    tab.run("location.hash = 'search=' + encodeURIComponent('part_7_1')")
    tab.wait("/text|Nothing/.test(document.querySelector('#search [role=status]')?.textContent)")
    return {
        "first_paint_s": round(first_paint_cpu / 1000, 3),
        "first_paint_seen_s": round(first_paint / 1000, 3),
        "click_ms": max(cpu),
        "click_median_ms": sorted(cpu)[len(cpu) // 2],
        "click_seen_ms": max(seen),
        "search_s": round(time.perf_counter() - start, 2),
        "rebuilt": rebuilt,
        "compared": compared,
        "requests": len(tab.requests()),
        "problems": tab.problems(),
    }


def click_call(tab: chromium.Tab, call: int) -> tuple[float, float]:
    """Click on a link to a call. Return the milliseconds until its texts are painted: of the page's
    CPU, and by the clock."""
    tab.run(ADD_LINK.replace("NUMBER", str(call)))
    before = tab.cpu_ms()
    tab.click("#measured")
    seen: float = tab.run("painted")
    return tab.cpu_ms() - before, seen


def compare_blocks(tab: chromium.Tab, timeline: Timeline) -> tuple[int, int]:
    """How many calls the page's script rebuilds byte for byte, of how many that were compared."""
    pick = random.Random(11)  # noqa: S311 - not for secrets
    chosen = {*pick.sample(range(len(timeline.calls)), min(COMPARED, len(timeline.calls)))}
    blocks: list[int] = []
    rebuilt = 0
    for index, call in enumerate(timeline.calls):
        apply_splices(blocks, call.splices)
        if index not in chosen:
            continue
        bodies = (decode_body(timeline.blocks[one].body, timeline.pool) for one in blocks)
        text = "\n".join(map(dump_canonical_json, bodies))
        digest = hashlib.sha256(text.encode()).hexdigest()
        rebuilt += tab.run(HASH_CALL.replace("NUMBER", str(index))) == digest
    return rebuilt, len(chosen)


def find_violations(tab: chromium.Tab, path: Path, axe: Path) -> Iterator[str]:
    """The rules of accessibility that a screen breaks, in both schemes and at both widths."""
    for scheme in ("light", "dark"):
        for width in (1280, 390):
            tab.use_scheme(scheme)
            tab.resize(width, 900)
            tab.open(path)
            for fragment in ("", "call=30", "diff=29,30", "m5", "search=ticket"):
                tab.show(fragment)
                tab.run(axe.read_text(encoding="utf-8") + "; 0")
                for rule, node in tab.run(
                    "axe.run().then((all) => all.violations.flatMap((rule) => "
                    "rule.nodes.slice(0, 3).map((node) => [rule.id, node.html.slice(0, 200)])))"
                ):
                    yield f"{scheme} {width} {fragment or 'overview'}: {rule} {node}"


def try_hostile(tab: chromium.Tab, folder: Path) -> harness.Report:
    """Open everything that is hostile, at both widths."""
    events = hostile_session()
    texts = hostile_texts()
    timeline = read_session_timeline(texts[0], events)
    executed = 0
    overflowing: list[str] = []
    entries: list[IndexedSession] = []
    last = len(timeline.calls)
    everything = (
        f"call={last}",
        f"diff=1,{last}",
        "search=script",
        f"m{timeline.messages[-1].seq}",
    )
    for number, title in enumerate(texts[:: HOSTILE // 8]):
        timeline.title = title
        path = folder / f"hostile-{number}.html"
        path.write_text(render_page(timeline), encoding="utf-8")
        entries.append(index_session(path.name, timeline))
        tab.resize(390 if number % 2 else 1280, 844)
        tab.open(path)
        for fragment in ("", *(everything if number < 2 else ())):
            tab.show(fragment)
            tab.run(DRAW_EVERYTHING)
            if not tab.run("document.documentElement.scrollWidth <= innerWidth"):
                overflowing.append(f"{number} {fragment}")
            executed += tab.run("Number(window.executed || 0)")
    path = folder / "index.html"
    path.write_text(render_index(texts[0], entries), encoding="utf-8")
    tab.open(path)
    executed += tab.run("Number(window.executed || 0)")
    return {
        "hostile": len(texts),
        "executed": executed,
        "overflowing": overflowing,
        "hostile_requests": tab.requests(),
        "hostile_problems": tab.problems(),
    }


def find_broken(report: harness.Report) -> Iterator[str]:
    for name, most in (
        ("first_paint_s", MAX_FIRST_PAINT_S),
        ("click_ms", MAX_CLICK_MS),
        ("file_ratio", MAX_FILE_RATIO),
        ("executed", 0),
        ("requests", 0),
    ):
        if report[name] > most:
            yield f"{name} is {report[name]}, above {most}"
    for name in ("overflowing", "hostile_requests", "problems", "hostile_problems", "violations"):
        if report.get(name):
            yield f"{name}: {str(report[name])[:2000]}"
    if report["rebuilt"] != report["compared"]:
        yield f"{report['rebuilt']} of {report['compared']} calls are rebuilt byte for byte"


if __name__ == "__main__":
    options = harness.parser(__doc__)
    options.add_argument("--axe", type=Path, help="axe.min.js of axe-core")
    asked = options.parse_args()
    outcome = main(quick=asked.quick, axe=asked.axe)
    if "skipped" in outcome:
        sys.exit(harness.skip(str(outcome["skipped"]), as_json=asked.json))
    sys.exit(harness.finish({**harness.head(), **outcome}, as_json=asked.json))
