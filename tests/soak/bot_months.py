"""A Telegram bot that lives for months: 5,000 messages in one chat, half an hour apart.

The bot is a process of its own: the Telegram channel through its real library, the queue and the
sessions in files, a model with a window of 6,000 tokens behind the official SDK, the simulator as
that model. Time is simulated: the clocks of the bot and of the model's cache follow the messages'
dates. Every tenth time three messages come at once. At 20 moments, while three messages are being
answered, the process is killed with kill -9 and started again. The last fifth is one life.

lost       messages that are not in the log; replies in the log that never came to the chat; times
           that nothing was answered
doubled    messages that are in the log twice; replies that came to the chat more often than they
           are in the log and do not say that they are sent again
not_found  messages of the first day that `search_history` does not find at the end, word by word
refused    requests that the model's server refused
slope      how much the cost of a message changes in 100 messages, relative to its mean, once the
           window is reached: by least squares over means of 50 messages, with a 95 % interval
grown      how much more memory the process has at the end of its last life than after a fifth of it

The first four must be 0, the interval of the slope within ±1 %, `grown` below 5 %; of a quick run,
whose interval is wide, it is asked that it does not lie above 0. A message's cost is the input of
all requests made for it, as the server counted. `sent_again` are replies that came
twice and say so, `memory` the process's resident memory, in MB, at the same age in each life.
"""

from __future__ import annotations

import asyncio
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, finish, head, parser, progress
from tests.simulators.telegram import ServedTelegramSimulator, TelegramSimulator
from tests.simulators.telegram import serve_simulated_telegram as serve_bot_api
from tests.soak.bot_life import AGENT, WINDOW
from trimtab.engine.log.event import MessageAdded
from trimtab.session import Session
from trimtab.stores.files import FileStore
from trimtab.testing.server import ServedSimulator, serve_simulated_provider
from trimtab_serve.channels.telegram.reply_sender import RESENT_NOTICE

MESSAGES = {"full": 5_000, "quick": 300}
KILLS = 20
"""In a full run."""
APART = 1_800
"""Seconds between two messages."""
DAY = 86_400 // APART
BLOCK = 50
"""Messages of which the mean is taken."""
REACHED = 100
"""Messages after which the window is reached."""
CHAT = 7
SESSION = f"default/{AGENT}/telegram:{CHAT}"
DEADLINE = 120.0
"""Seconds in which an answer must come, restarts included."""
ROOT = Path(__file__).parents[2]
WORDS = "the parcel is at the door and nobody was home so it will come again in the morning".split()


def says(number: int) -> str:
    """What the user says: always about as long, and always something new."""
    pick = random.Random(number)  # noqa: S311 - not for secrets
    return (
        f"Parcel-{number:05} went to shelf {shelf(number)}. {' '.join(pick.choices(WORDS, k=40))}"
    )


def shelf(number: int) -> str:
    return f"row{number * 7 % 89}/box{number * 13 % 97}"


@dataclass(slots=True)
class Months:
    """The chat and the process behind it, as seen from outside."""

    folder: Path
    bots: ServedTelegramSimulator
    model: ServedSimulator
    size: int
    kills: int
    begun: float = field(default_factory=time.time)
    process: subprocess.Popen[bytes] | None = None
    age: int = 0
    """Messages since the process was started."""
    seen: int = 0
    """The newest message of the chat that was looked at."""
    costs: list[float] = field(default_factory=list[float])
    """Tokens by message."""
    memory: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    """In MB, by the process's age."""
    last_life: list[float] = field(default_factory=list[float])
    unanswered: int = 0
    steps: int = 0

    @property
    def now(self) -> float:
        return self.begun + self.steps * APART

    def start(self) -> None:
        places = (str(self.folder), self.bots.url, self.model.url, str(self.now))
        command = [sys.executable, "-m", "tests.soak.bot_life", *places]
        self.process = subprocess.Popen(command, cwd=ROOT)
        self.age = 0

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def lead(self) -> None:
        """All the messages, and all the ends."""
        pick = random.Random(1)  # noqa: S311 - not for secrets
        last = self.size * 4 // 5
        deaths = {(n + 1) * last // (self.kills + 1) for n in range(self.kills)}
        old = False
        self.start()
        while len(self.costs) < self.size:
            number = len(self.costs)
            progress(f"{number:,} of {self.size:,} messages")
            dies = any(death in deaths for death in range(number, number + 3))
            deaths -= set(range(number, number + 3))
            if number >= last and not old:
                old = True
                self.kill()
                self.start()
            self.step(3 if dies or self.steps % 10 == 9 else 1, pick.random() if dies else None)
            self.age += 1
            if self.age % 25 == 0:
                self._weigh(last)
        self.kill()

    def step(self, count: int, dies: float | None) -> None:
        """So many messages at once, and the answer; perhaps the process dies in between."""
        first = len(self.costs)
        count = min(count, self.size - first)
        before = self._tokens()
        self.model.simulator.advance_clock(APART)
        self.steps += 1
        last = first + count - 1
        self.model.simulator.script.set_replies(otherwise={"text": f"Noted {last:05}, thank you."})
        for number in range(first, first + count):
            self.bots.simulator.post_user_message(CHAT, says(number), date=int(self.now))
        if dies is not None:
            time.sleep(dies * 0.2)
            self.kill()
            self.start()
        self.unanswered += not self._answered(f"Noted {last:05}", quiet=count > 1)
        self.costs += [(self._tokens() - before) / count] * count

    def _answered(self, text: str, *, quiet: bool) -> bool:
        """Wait for the answer, and for all that may come behind it."""
        chat = self.bots.simulator.get_or_add_chat(CHAT)
        ends, still = time.monotonic() + DEADLINE, 0.0
        found = False
        while time.monotonic() < ends:
            if chat.last_message_id > self.seen:
                new = [chat.messages.get(n) for n in range(self.seen + 1, chat.last_message_id + 1)]
                self.seen, still = chat.last_message_id, time.monotonic()
                found = found or any(text in one.get("text", "") for one in new if one is not None)
            if found and (not quiet or time.monotonic() - still > 0.3):
                return True
            time.sleep(0.002)
        return False

    def _tokens(self) -> int:
        return sum(record.tokens for record in self.model.simulator.records.requests)

    def _weigh(self, last: int) -> None:
        assert self.process is not None
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        size = int(text.split("VmRSS:")[1].split()[0]) / 1024
        self.memory.setdefault(self.age, []).append(size)
        if len(self.costs) > last:
            self.last_life.append(size)


async def look(months: Months) -> Counter[str]:
    """What the log and the chat say in the end."""
    store, found = FileStore(months.folder), Counter[str](unanswered=months.unanswered)
    session = await Session.open(store, SESSION)
    said = [e.body.message async for e in store.events(SESSION) if isinstance(e.body, MessageAdded)]
    users = Counter(m.text for m in said if m.role == "user")
    replies = Counter(m.text for m in said if m.role == "assistant")
    once, again = _sent(months.bots.simulator)
    wanted = [says(number) for number in range(months.size)]
    found["lost"] = sum(users[text] == 0 for text in wanted) + months.unanswered
    found["lost"] += sum((replies - once - again).values())
    found["doubled"] = sum(users[text] > 1 for text in wanted) + sum((once - replies).values())
    found["sent_again"] = sum(again.values())
    for number in range(DAY):
        hit = await session.search(f"Parcel-{number:05}")
        found["not_found"] += f"Parcel-{number:05} went to shelf {shelf(number)}." not in hit
    found["events"] = session.window.seq
    await session.close()
    await store.close()
    return found


def _sent(api: TelegramSimulator) -> tuple[Counter[str], Counter[str]]:
    """What came to the chat, by its text; and what came with the word that it comes again."""
    texts = api.list_bot_texts(CHAT)
    again = [
        text.removeprefix(RESENT_NOTICE).strip() for text in texts if text.startswith(RESENT_NOTICE)
    ]
    return Counter(text for text in texts if not text.startswith(RESENT_NOTICE)), Counter(again)


def slope(values: list[float], step: float) -> Report:
    """The change of a value over one `step` of its places, relative to the mean, with a 95 %
    interval."""
    places = [index / step for index in range(len(values))]
    mean, middle = statistics.fmean(values), statistics.fmean(places)
    line = statistics.linear_regression(places, values)
    spread = sum((x - middle) ** 2 for x in places)
    errors = (y - line.slope * x - line.intercept for x, y in zip(places, values, strict=True))
    free = max(1, len(values) - 2)
    # Student's t, its 97.5 % quantile, to three digits from four degrees of freedom on.
    quantile = 1.96 + 2.37 / free + 2.8 / free**2
    half = quantile * (sum(e * e for e in errors) / free / spread) ** 0.5
    told = (line.slope, line.slope - half, line.slope + half)
    return dict(zip(("slope", "low", "high"), (round(x / mean, 5) for x in told), strict=True))


def _uneven(flat: Report, *, few: bool) -> bool:
    return flat["low"] > 0 if few else max(-flat["low"], flat["high"]) > 0.01


def main(size: int, kills: int) -> Report:
    api, begun = TelegramSimulator(), time.monotonic()
    api.get_or_add_chat(CHAT, "Ada")
    with (
        tempfile.TemporaryDirectory(prefix="trimtab-") as folder,
        serve_simulated_provider(window=WINDOW, seed="s", keeps=False) as model,
        serve_bot_api(api) as bots,
    ):
        months = Months(Path(folder), bots, model, size, kills)
        try:
            months.lead()
        finally:
            months.kill()
        found, stats = asyncio.run(look(months)), model.simulator.stats()
    return _report(months, found, stats, time.monotonic() - begun)


def _report(months: Months, found: Counter[str], stats: dict[str, int], seconds: float) -> Report:
    costs, weighed = months.costs, months.last_life
    means = [
        statistics.fmean(costs[at : at + BLOCK])
        for at in range(REACHED, len(costs) - BLOCK + 1, BLOCK)
    ]
    flat = slope(means, 100 / BLOCK) if len(means) > 3 else None
    fifth = weighed[len(weighed) // 5]
    grown = weighed[-1] / fifth - 1
    zero = {name: found[name] for name in ("lost", "doubled", "not_found")}
    zero["refused"] = stats["refused"]
    uneven = flat is not None and _uneven(flat, few=months.size < MESSAGES["full"] // 4)
    ages: Any = {age: [round(sizes[0]), round(sizes[-1])] for age, sizes in months.memory.items()}
    return {
        "sample": f"{months.size:,} messages in {months.steps * APART // 86_400} days, "
        f"{stats['requests']:,} requests, {months.kills} kills, {found['events']:,} events",
        **zero,
        "sent_again": found["sent_again"],
        "cost": round(statistics.fmean(means)) if means else None,
        "slope": flat or "too few messages",
        "grown": round(grown, 4),
        "memory": {"first life, last life, by age": ages, "last": round(weighed[-1])},
        "seconds": round(seconds, 1),
        "broken": [
            *(f"{name} is {value}" for name, value in zero.items() if value),
            *(["the cost of a message is not flat"] if uneven else []),
            *(["memory is not flat"] if grown > 0.05 else []),
        ],
    }


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--messages", type=int, help="another number of messages")
    asked = arguments.parse_args()
    length = "quick" if asked.quick else "full"
    size = asked.messages or MESSAGES[length]
    # As often as in a full run, and at least twice.
    kills = max(2, KILLS * size // MESSAGES["full"])
    report = {**head(("python-telegram-bot", "anthropic")), **main(size, kills)}
    sys.exit(finish(report, as_json=asked.json))
