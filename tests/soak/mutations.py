"""Whether the laws can fail: each small fault put into the core must be caught by its law.

A fault goes into a copy of the sources, never into the working tree. `--quick` tries a handful,
`--json` prints for programs. Exits with 1 where a fault survives or no longer applies, or where a
law does not hold without any fault.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROUNDS = 10
"""Searches of 50 lives each that a fault must survive to count as a survivor: 500 lives, as many as
each law is tried on by default."""
PATIENCE = 120
"""Seconds for one search; a fault that makes it run on is caught, too."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    law: int
    """The law that forbids it."""
    what: str
    """What goes wrong, in a few words."""
    file: str
    """Under packages/trimtab/src/trimtab."""
    old: str
    """Text that stands there once."""
    new: str
    """What stands there instead."""
    quick: bool = False
    """Whether the quick run tries it."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    law: int
    what: str
    file: str
    caught: bool
    how: str
    seconds: float


FAULTS = (
    Fault(
        law=1,
        what="the reply gets no room",
        file="engine/policy/guard.py",
        old="and plan.bound() <= plan.budget.max_input_bound",
        new="and plan.bound() <= plan.budget.limit",
        quick=True,
    ),
    Fault(
        law=1,
        what="the volatile tail is not counted",
        file="engine/policy/planning/plan.py",
        old="whole = self.budget.head.tokens + self.tokens + self.budget.volatile",
        new="whole = self.budget.head.tokens + self.tokens",
    ),
    Fault(
        law=1,
        what="usage from before an edit is trusted after it",
        file="engine/window/accounting.py",
        old="        if self.version_at_last_call == self.prefix_version:\n            rode",
        new="        if True:\n            rode",
    ),
    Fault(
        law=1,
        what="a small request makes the text that comes next look light",
        file="engine/window/accounting.py",
        old="(heavy + CALIBRATION_PRIOR_TOKENS) / (light + CALIBRATION_PRIOR_TOKENS),\n",
        new="0.0,\n",
    ),
    Fault(
        law=1,
        what="what was in the call before is weighed again",
        file="engine/window/accounting.py",
        old="max(0, reported_tokens - before.reported_tokens), MAX_LEARNED_RATIO * new",
        new="reported_tokens, MAX_LEARNED_RATIO * new",
    ),
    Fault(
        law=1,
        what="an estimate is taken for an upper bound",
        file="engine/tokens/counter.py",
        old="return math.ceil(new_estimate * (1 + counter.unanchored_margin))",
        new="return math.ceil(new_estimate)",
    ),
    Fault(
        law=1,
        what="a limit that the provider taught is forgotten",
        file="engine/window/accounting.py",
        old="if learned_limit and learned_limit < value",
        new="if learned_limit and value < 0",
    ),
    Fault(
        law=1,
        what="what cannot fit is sent all the same",
        file="engine/policy/guard.py",
        old="    raise build_cannot_fit_error(\n        plan, refusal=",
        new="    if plan.window.entries:\n        return\n"
        "    raise build_cannot_fit_error(\n        plan, refusal=",
    ),
    Fault(
        law=1,
        what="a late result cannot be cut",
        file="engine/policy/hiding.py",
        old="    places += "
        "[(entry, part) for entry in active.entries for part in entry.unpaired_results]\n",
        new="",
    ),
    Fault(
        law=1,
        what="a message without parts is not counted",
        file="engine/tokens/counter.py",
        old="EMPTY_MESSAGE_SIZE = Size(bytes=12, tokens=12)",
        new="EMPTY_MESSAGE_SIZE = Size(bytes=0, tokens=0)",
    ),
    Fault(
        law=1,
        what="cut texts keep the size that another model's counter gave them",
        file="engine/window/window.py",
        old="base.sizes_are_recounted = bool(base.events_since_snapshot or base.snapshot_events)",
        new="base.sizes_are_recounted = False",
    ),
    Fault(
        law=2,
        what="ids that come again are sent as they are",
        file="engine/window/conversation.py",
        old="while wire_id in self.visible_wire_ids:",
        new="while not wire_id:",
    ),
    Fault(
        law=2,
        what="results are sent in the order they came",
        file="engine/prompt/render.py",
        old="or not source_round.calls or _is_in_send_order(source_round):",
        new="or source_round.entries:",
    ),
    Fault(
        law=2,
        what="a call without a result is not repaired",
        file="verbs/requesting.py",
        old="        yield build_repairs_for_open_calls(window)\n        yield _decide_restored",
        new="        yield _decide_restored",
    ),
    Fault(
        law=2,
        what="a second result takes the place of the first",
        file="engine/window/structure.py",
        old="if pairing.result is None and pairing.id == call_id:",
        new="if pairing.id == call_id:",
    ),
    Fault(
        law=2,
        what="a late result is sent as a result",
        file="engine/prompt/render.py",
        old="if index in entry.unpaired_results and isinstance(wire_part, ToolResult):",
        new="if index > 99 and isinstance(wire_part, ToolResult):",
    ),
    Fault(
        law=2,
        what="a loop with signed thinking is cut apart",
        file="engine/window/structure.py",
        old="return self.has_thinking and not next_has_thinking",
        new="return False",
    ),
    Fault(
        law=2,
        what="a result that came after a look at the request is left out",
        file="engine/prompt/render.py",
        old="if self._made_of != made_of or self._is_stale():",
        new="if self._made_of != made_of:",
    ),
    Fault(
        law=3,
        what="the newest user message may be dropped",
        file="engine/window/conversation.py",
        old="return group.index in (len(self.groups) - 1, self.turn_start_group)",
        new="return group.index == len(self.groups) - 1",
        quick=True,
    ),
    Fault(
        law=3,
        what="the active round may be dropped",
        file="engine/window/conversation.py",
        old="return group.index in (len(self.groups) - 1, self.turn_start_group)",
        new="return group.index == self.turn_start_group",
    ),
    Fault(
        law=3,
        what="a text is cut without a sign",
        file="engine/log/text_cuts.py",
        old='return f"[truncated: kept {where}',
        new='return f"[kept {where}',
    ),
    Fault(
        law=3,
        what="a sign names another text's handle",
        file="engine/policy/planning/plan.py",
        old='text = self._with_handle(placeholder, f"m{entry.seq}.{part}")',
        new='text = self._with_handle(placeholder, f"m{entry.seq}.{part + 1}")',
    ),
    Fault(
        law=3,
        what="what is said while calls are open is lost",
        file="engine/prompt/render.py",
        old="in_send_order.append((entry, replace(whole, parts=others)))",
        new="continue",
    ),
    Fault(
        law=3,
        what="what is pinned is hidden all the same",
        file="engine/window/conversation.py",
        old="if not (group.pinned or is_spared or self.is_protected(group)):",
        new="if not (is_spared or self.is_protected(group)):",
    ),
    Fault(
        law=3,
        what="what was revealed is dropped before it is read",
        file="engine/policy/planning/plan.py",
        old="and (include_unread or not self.is_unread(group))",
        new="and (include_unread or not group.pinned)",
    ),
    Fault(
        law=4,
        what="what is said after a round of calls is put into it",
        file="engine/window/conversation.py",
        old="open_ = last if last is not None and last.unanswered_calls else",
        new="open_ = last if last is not None and last.calls else",
    ),
    Fault(
        law=4,
        what="a mark changes the text that carries it",
        file="dialects/openai_cache_breakpoints.py",
        old='"text": content, _BREAKPOINT_KEY: _BREAKPOINT}]}',
        new='"text": f"{content} ", _BREAKPOINT_KEY: _BREAKPOINT}]}',
    ),
    Fault(
        law=4,
        what="the volatile tail stands before the messages",
        file="dialects/openai_chat/codec.py",
        old="[*messages[:-1], _merge_messages(messages[-1], tail)] "
        "if can_join else [*messages, tail]",
        new="[tail, *messages]",
    ),
    Fault(
        law=5,
        what="a placeholder may be larger than what it replaces",
        file="engine/policy/planning/plan.py",
        old="larger = size.tokens >= before.tokens or size.bytes > before.bytes",
        new="larger = size == before",
        quick=True,
    ),
    Fault(
        law=5,
        what="asking again records another call",
        file="verbs/requesting.py",
        old="and last.seq == state.window.seq",
        new="and last.seq > state.window.seq",
    ),
    Fault(
        law=5,
        what="what stands for dropped messages is not counted when they are dropped",
        file="engine/policy/planning/plan.py",
        old='notice = self._longest_notice() if has_notice else ""',
        new='notice = ""',
    ),
    Fault(
        law=6,
        what="a recalled text is not the text that was said",
        file="engine/recall/tools.py",
        old='text = extract_text_or_arguments(part) or ""',
        new='text = (extract_text_or_arguments(part) or "").strip()',
        quick=True,
    ),
    Fault(
        law=6,
        what="an erase takes all that was said after it",
        file="engine/log/erase.py",
        old="case MessageAdded() | ToolResultRepair() if first_seq <= event.seq <= last_seq:",
        new="case MessageAdded() | ToolResultRepair() if first_seq <= event.seq:",
    ),
    Fault(
        law=6,
        what="what was erased is recalled as if it had been said so",
        file="engine/window/checkpoint.py",
        old="if first <= seq <= last and (part_of_range is None or part in (None, part_of_range)):",
        new="if first <= seq <= last and part_of_range is not None and part == part_of_range:",
    ),
    Fault(
        law=6,
        what="the notice names only the last that was dropped",
        file="engine/window/conversation.py",
        old='f"m{self.dropped_groups.first}-m{self.dropped_groups.last}"',
        new='f"m{self.dropped_groups.last}-m{self.dropped_groups.last}"',
    ),
    Fault(
        law=7,
        what="the notice counts what is seen, and so changes with each message",
        file="engine/window/conversation.py",
        old="format_dropped_messages_notice(self.dropped_groups.message_count)",
        new="format_dropped_messages_notice(self.visible_messages)",
    ),
    Fault(
        law=7,
        what="a change of the settings leaves the old rendering",
        file="engine/window/conversation.py",
        old="        for round in self.rounds:\n            round.rendered = None\n",
        new="",
    ),
    Fault(
        law=7,
        what="an error is not stored as one",
        file="engine/log/message.py",
        old='                out["is_error"] = True\n',
        new="                pass\n",
    ),
    Fault(
        law=7,
        what="hidden messages stay in the running total",
        file="engine/window/conversation.py",
        old="        self.visible_messages -= group.message_count\n",
        new="",
    ),
    Fault(
        law=7,
        what="a past request is rendered from one event too few",
        file="dialects/outgoing.py",
        old="window.apply(*events[: call.position])",
        new="window.apply(*events[: call.position - 1])",
    ),
    Fault(
        law=7,
        what="a cut in something sent leaves the old rendering",
        file="engine/window/window.py",
        old="if entry.seq <= accounting.sent_through_seq:",
        new="if entry.seq < 0:",
    ),
    Fault(
        law=7,
        what="a revealed group is not counted again",
        file="engine/window/conversation.py",
        old="            self._add_to_totals(group, group.bytes, group.tokens)\n",
        new="",
    ),
    Fault(
        law=7,
        what="dropped messages that left memory are no longer counted",
        file="engine/window/conversation.py",
        old='"dropped": self.dropped_groups.totals_after_eviction(drops),',
        new='"dropped": (0, 0, 0),',
    ),
    Fault(
        law=7,
        what="a group that comes back from a snapshot joins the one before",
        file="engine/window/conversation.py",
        old="group = self._new_group()\n        for seqs",
        new="group = self.groups[-1] if self.groups else self._new_group()\n        for seqs",
    ),
    Fault(
        law=7,
        what="a rewind to before a snapshot is folded from the snapshot",
        file="engine/window/checkpoint.py",
        old="case Rewind() if body.to < self.snapshot.seq:",
        new="case Rewind() if body.to < 0:",
    ),
    Fault(
        law=7,
        what="edits of kept messages are forgotten",
        file="engine/window/conversation.py",
        old='"edits": sorted(by for entry in entries for by in entry.edited_by.values()),',
        new='"edits": [],',
    ),
    Fault(
        law=8,
        what="edits are made though the request is no smaller for them",
        file="engine/policy/guard.py",
        old="if not plan.breaks_prefix or plan.bound() < Plan(window, budget).bound():",
        new="if plan.window.entries:",
    ),
    Fault(
        law=9,
        what="what is listed is copied into the log",
        file="engine/policy/planning/user_words.py",
        old="            left_out=new.left_out,\n        )",
        new="            left_out=new.left_out,\n"
        '            why="; ".join(item.text for item in self._new_items),\n        )',
    ),
    Fault(
        law=9,
        what="a new block is put into the one before",
        file="engine/window/user_words.py",
        old="self.blocks.append(block)",
        new="before = [place for block in self.blocks for place in block.listed_parts]\n"
        "            self.blocks = ["
        "CompactionUserWords(listed_parts=before + places, left_out=edit.left_out)]",
        quick=True,
    ),
    Fault(
        law=9,
        what="hardly anything is left of a message that is cut",
        file="engine/window/user_words.py",
        old="least = max(MIN_CUT_TOKENS, max_tokens // MIN_CUT_DIVISOR)",
        new="least = 40",
    ),
    Fault(
        law=9,
        what="the newest are left out, not the oldest",
        file="engine/window/user_words.py",
        old="in groupby(reversed(items), key=",
        new="in groupby(items, key=",
    ),
    Fault(
        law=9,
        what="words are cut as soon as there is a list",
        file="engine/window/user_words.py",
        old="self.user_tokens <= allowance.user_tokens\n"
        "            and self.client_tokens <= allowance.client_tokens",
        new="self.user_tokens * 4 <= allowance.user_tokens\n"
        "            and self.client_tokens * 4 <= allowance.user_tokens",
    ),
    Fault(
        law=9,
        what="nothing is left of the newest message",
        file="engine/policy/hiding.py",
        old="return max(share, MIN_NEWEST_TEXT_TOKENS) + CUT_INDICATOR_TOKENS",
        new="return CUT_INDICATOR_TOKENS",
    ),
    Fault(
        law=9,
        what="the list is lost at a checkpoint",
        file="engine/window/conversation.py",
        old='self.user_words = _restore_user_words(state["words"], events, self.counter)',
        new="self.user_words = UserWordsList()",
    ),
    Fault(
        law=9,
        what="the list is lost by a rewind",
        file="engine/window/window.py",
        old="        self._refold()\n        self.base.rewinds.append((self.seq, body.to))\n",
        new="        self._refold()\n"
        "        self.conversation.user_words = type(self.conversation.user_words)()\n"
        "        self.conversation.recount_front()\n"
        "        self.base.rewinds.append((self.seq, body.to))\n",
    ),
    Fault(
        law=9,
        what="the list is lost by an erase of something else",
        file="engine/window/window.py",
        old="        self.accounting.erase_provider_message()\n        self._refold()\n",
        new="        self.accounting.erase_provider_message()\n        self._refold()\n"
        "        self.conversation.user_words = type(self.conversation.user_words)()\n"
        "        self.conversation.recount_front()\n",
    ),
    Fault(
        law=9,
        what="what is seen again stays in the list",
        file="engine/window/conversation.py",
        old="        self.user_words.discard_messages("
        "entry.seq for group in groups for entry in group.entries())\n",
        new="",
    ),
    Fault(
        law=9,
        what="a summary that is made shorter brings its list again",
        file="engine/policy/planning/plan.py",
        old="            current = replace(current, listed=(), relists=False, left_out=None)\n",
        new="",
    ),
    Fault(
        law=9,
        what="what a client program says is taken for a user's",
        file="engine/text/client_text.py",
        old="    if _WHOLE_CLIENT_TEXT.fullmatch(user_text):\n        return True\n",
        new="    if user_text:\n        return False\n",
    ),
    Fault(
        law=9,
        what="what is said again and again is listed each time",
        file="engine/window/user_words.py",
        old="return item if place == _position(item) else make_reference_item(",
        new="return item if place else make_reference_item(",
    ),
    Fault(
        law=9,
        what="what only refers to another is taken for the first",
        file="engine/window/user_words.py",
        old="if item is not None and place.same_seq:",
        new="if item is not None and place.same_seq < 0:",
    ),
    Fault(
        law=9,
        what="no line tells of what is left out",
        file="engine/window/user_words.py",
        old="        [_format_omitted_line(block.left_out, recall_hint=recall_hint)]\n"
        "        if block.left_out is not None\n        else []\n",
        new="        list[str]()\n",
    ),
    Fault(
        law=9,
        what="the line counts only what was left out last",
        file="engine/window/user_words.py",
        old="        earlier_omitted.messages + omission.messages,\n",
        new="        omission.messages,\n",
    ),
    Fault(
        law=9,
        what="a part is left out and nothing tells of it",
        file="engine/window/user_words.py",
        old="if _position(item) not in positions and item.listed_part.seq not in already_omitted",
        new="if item.listed_part.seq not in {seq for seq, _ in positions}",
    ),
    Fault(
        law=9,
        what="a picture that was masked is not listed",
        file="engine/window/user_words.py",
        old='edit.op == "mask" and isinstance(content, Text)',
        new='edit.op == "mask"',
    ),
    Fault(
        law=9,
        what="a policy hides instructions",
        file="engine/policy/planning/plan.py",
        old="stays = group.pinned or (group.has_instructions and not include_instructions)",
        new="stays = group.pinned",
    ),
    Fault(
        law=9,
        what="the reply of the active round is cut",
        file="engine/policy/hiding.py",
        old="        if entry.seq not in active and not entry.pinned",
        new="        if not entry.pinned",
    ),
)


def search(law: int, copy: Path, seed: int) -> str | None:
    """How the law's tests failed on a copy of the sources; None where they did not."""
    tests = sorted((ROOT / "tests" / "laws").glob(f"test_law_{law}_*.py"))
    plugins = ("-p", "no:cacheprovider", "-p", "no:inline_snapshot")
    command = [sys.executable, "-m", "pytest", "-x", "-q", *plugins]
    try:
        done = subprocess.run(
            [*command, f"--hypothesis-seed={seed}", *map(str, tests)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(copy), "TRIMTAB_LAWS": "quick"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {PATIENCE} s"
    if done.returncode == 0:
        return None
    if done.returncode != 1:
        raise RuntimeError(f"the tests of law {law} did not run:\n{done.stdout[-2000:]}")
    return f"search {seed}"


def judge(fault: Fault) -> Verdict:
    start = time.monotonic()
    how: str | None = None
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(
            ROOT / "packages/trimtab/src", copy, ignore=shutil.ignore_patterns("__pycache__")
        )
        path = copy / "trimtab" / fault.file
        source = path.read_text(encoding="utf-8")
        applies = source.count(fault.old) == 1
        if applies:
            path.write_text(source.replace(fault.old, fault.new), encoding="utf-8")
            for seed in range(1, ROUNDS + 1):
                if (how := search(fault.law, copy, seed)) is not None:
                    break
    told = how or ("survived" if applies else f"does not apply: {source.count(fault.old)} places")
    return Verdict(
        law=fault.law,
        what=fault.what,
        file=fault.file,
        caught=how is not None,
        how=told,
        seconds=round(time.monotonic() - start, 1),
    )


def broken(law: int) -> int | None:
    """The law, if it fails on the sources as they are: then it proves nothing to fail on others."""
    return None if search(law, ROOT / "packages/trimtab/src", 1) is None else law


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a handful of faults")
    parser.add_argument("--json", action="store_true", help="one JSON array on standard output")
    parser.add_argument("--only", default="", help="faults whose description contains this")
    options = parser.parse_args()
    faults = [
        fault
        for fault in FAULTS
        if (fault.quick or not options.quick) and options.only in fault.what
    ]
    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        if failing := [*filter(None, pool.map(broken, sorted({f.law for f in faults})))]:
            print(f"laws that fail without any fault: {failing}", file=sys.stderr)
            return 1
        for verdict in pool.map(judge, faults):
            verdicts.append(verdict)
            if not options.json:
                sign = "caught  " if verdict.caught else "SURVIVED"
                line = f"law {verdict.law}  {sign} {verdict.seconds:>6.1f} s  {verdict.what}"
                print(f"{line} ({verdict.file}; {verdict.how})", flush=True)
    caught = sum(verdict.caught for verdict in verdicts)
    if options.json:
        print(json.dumps([asdict(verdict) for verdict in verdicts], indent=2))
    else:
        print(f"{caught} of {len(verdicts)} faults were caught")
    return 0 if caught == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
