"""What the advice of `trimtab replay` saves: chosen on half of a user's sessions, paid on the rest.

A *user* is one repository of the recorded sessions of one client. The advice is chosen on the first
half of a user's sessions, by the hash of their ids, as `trimtab replay` chooses it. It is then
measured on the second half, in the same dollars: input as the cache bills it, output, summaries and
what is read again. Nothing advised counts as a saving of nothing.

For each client:

advised             share of the cost of the second halves that the advice saves, with its 95 %
                    interval from resampled sessions; `by_repository` has each user
best_in_hindsight   the same for the setting that is best on the second half itself, under the same
                    rule: it hides no more there than Trimtab's default. The advice, which keeps
                    the rule on the first half, may save more
nothing             doing nothing, 0 by definition
trimtab             what Trimtab's default would save in the second halves, which clients cannot run
next_step           what the next step that replay names saves there, and `next_step_hides` hides
advised_hides, trimtab_hides
                    share of the names and paths used again that the requests do not show
reached_of_default  advised / trimtab. Above .7 settings do what a proxy could do
worse_than_nothing  of 50 resampled users, those whose advice costs more than doing nothing

Needs TRIMTAB_CORPUS. `--quick` takes four sessions of each of the smaller repositories.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence

from benchmarks import corpus
from benchmarks.harness import Report, no_corpus, progress, run, skip
from benchmarks.recorded import resample
from benchmarks.samples import get_repository, sort_by_hash
from trimtab.models.catalog import find_model_info
from trimtab.replay.advice import AS_IT_IS, TRIMTAB, choose_settings, list_settings
from trimtab.replay.billing import get_provider_pricing
from trimtab.replay.runner import replay_all
from trimtab.replay.savings import Saving, add_savings, compute_savings
from trimtab.replay.selection import RecordedConversation

PATTERNS = {
    "Claude Code": ("entire_claude_code*.jsonl.gz", "populations/claude_code*.jsonl.gz"),
    "Codex": ("entire_codex.jsonl.gz", "populations/codex*.jsonl.gz"),
}
MODELS = {"Claude Code": "claude-opus-4-5", "Codex": "gpt-5.4"}
"""For conversations that name no model of the catalog."""
MIN_SESSIONS = 4
"""A user with fewer has no halves."""
MAX_SESSIONS = {"full": 40, "quick": 4}
"""Sessions of each user, the first by the hash of their ids."""
RESAMPLED_USERS = 50
SEED = 54
PROXY_SHARE = 0.7

Session = Mapping[str, Saving]
"""What each setting saves in one session."""


def main(quick: bool) -> Report:
    report: Report = {client: _measure_client(client, quick=quick) for client in PATTERNS}
    report["broken"] = [
        f"the advice for {client} costs {report[client]['worse_than_nothing']} of "
        f"{RESAMPLED_USERS} users more than doing nothing"
        for client in PATTERNS
        if report[client]["worse_than_nothing"]
    ]
    return report


def _measure_client(client: str, *, quick: bool) -> Report:
    users = {
        user: _replay_user(client, user, sessions)
        for user, sessions in _read_users(client, quick=quick).items()
    }
    halves = {user: _split(sessions) for user, sessions in users.items()}
    advised: dict[str, list[Saving]] = {}
    hindsight: list[Saving] = []
    steps: list[Saving] = []
    by_repository: Report = {}
    for user, (first, second) in halves.items():
        advice = choose_settings(_add_up(first))
        later = choose_settings(_add_up(second))
        advised[user] = _take(second, advice.best)
        hindsight += _take(second, later.best)
        steps += _take(second, advice.next or advice.best)
        by_repository[user] = {
            "sessions": len(first) + len(second),
            "advice": advice.best,
            "advised": _round(add_savings(advised[user]).saved),
            "best_in_hindsight": _round(add_savings(_take(second, later.best)).saved),
            "trimtab": _round(add_savings(_take(second, TRIMTAB.name)).saved),
        }
    rows = [saving for own in advised.values() for saving in own]
    defaults = [one for _, second in halves.values() for one in _take(second, TRIMTAB.name)]
    total, trimtab = add_savings(rows), add_savings(defaults)
    intervals = resample(
        len(rows),
        lambda draw: {
            "advised": add_savings(rows[i] for i in draw).saved,
            "reached": add_savings(rows[i] for i in draw).saved
            / max(1e-9, add_savings(defaults[i] for i in draw).saved),
        },
    )
    reached = total.saved / trimtab.saved if trimtab.saved else 0.0
    return {
        "users": len(users),
        "sessions": sum(map(len, users.values())),
        "advised": _round(total.saved),
        "advised_interval": intervals["advised"],
        "best_in_hindsight": _round(add_savings(hindsight).saved),
        "nothing": 0.0,
        "trimtab": _round(trimtab.saved),
        "next_step": _round(add_savings(steps).saved),
        "next_step_hides": _round(add_savings(steps).hidden_share),
        "advised_hides": _round(total.hidden_share),
        "trimtab_hides": _round(trimtab.hidden_share),
        "reached_of_default": _round(reached),
        "reached_interval": intervals["reached"],
        "needs_proxy": reached < PROXY_SHARE,
        "worse_than_nothing": _count_worse(list(users.values())),
        "by_repository": by_repository,
    }


def _read_users(client: str, *, quick: bool) -> dict[str, list[list[RecordedConversation]]]:
    """Return the sessions of each user, each with its parts."""
    max_sessions = MAX_SESSIONS["quick" if quick else "full"]
    parts: dict[str, dict[str, list[RecordedConversation]]] = defaultdict(dict)
    for pattern in PATTERNS[client][1 if quick else 0 :]:
        for conversation in corpus.read_recorded(pattern):
            if conversation.usage:
                sessions = parts[get_repository(conversation)]
                sessions.setdefault(conversation.session, []).append(conversation)
    users: dict[str, list[list[RecordedConversation]]] = {}
    for user, sessions in sorted(parts.items()):
        order = [one.id for one in sort_by_hash(own[0] for own in sessions.values())]
        by_first = {own[0].id: own for own in sessions.values()}
        if len(order) >= MIN_SESSIONS:
            users[user] = [by_first[first] for first in order[:max_sessions]]
    return users


def _replay_user(
    client: str, user: str, sessions: Sequence[Sequence[RecordedConversation]]
) -> list[Session]:
    settings = [AS_IT_IS, TRIMTAB, *list_settings(client)]
    groups: dict[str, list[RecordedConversation]] = defaultdict(list)
    for part in (part for own in sessions for part in own):
        info = find_model_info(part.model or "")
        groups[info.name if info else MODELS[client]].append(part)
    savings: dict[str, dict[str, Saving]] = defaultdict(dict)
    for model, group in groups.items():
        pricing = get_provider_pricing(model)
        setups = [setting.build_setup(model) for setting in settings]
        runs = replay_all(group, setups, {pricing.name: pricing.rules})
        for name, by_conversation in compute_savings(runs, pricing).items():
            savings[name].update(by_conversation)
    progress(f"{client}: {user}, {len(sessions)} sessions")
    return [
        {name: add_savings(own[part.id] for part in parts) for name, own in savings.items()}
        for parts in sessions
    ]


def _split(sessions: Sequence[Session]) -> tuple[Sequence[Session], Sequence[Session]]:
    middle = len(sessions) // 2
    return sessions[:middle], sessions[middle:]


def _add_up(sessions: Sequence[Session]) -> dict[str, Saving]:
    return {name: add_savings(own[name] for own in sessions) for name in sessions[0]}


def _take(sessions: Sequence[Session], setting: str | None) -> list[Saving]:
    """Return what each session costs under a setting; as it is, if there is none."""
    return [own[setting or AS_IT_IS.name] for own in sessions]


def _count_worse(users: Sequence[Sequence[Session]]) -> int:
    """Return how many resampled users pay more with the advice than without it."""
    rng = random.Random(SEED)  # noqa: S311 - no secret, and it must repeat
    worse = 0
    for number in range(RESAMPLED_USERS):
        halves = _split(users[number % len(users)])
        first, second = (rng.choices(half, k=len(half)) for half in halves)
        advice = choose_settings(_add_up(first))
        worse += add_savings(_take(second, advice.best)).saved < 0
    return worse


def _round(share: float) -> float:
    return round(share, 4)


if __name__ == "__main__":
    missing = no_corpus()
    sys.exit(skip(missing, as_json="--json" in sys.argv) if missing else run(__doc__, main))
