"""Events that make no sense, sent to a Discord bot through its real library and real sockets.

50,000 events over the gateway: messages, edits and slash commands in direct messages, channels and
threads of two servers, by people who are allowed, denied or strangers, and news of servers,
channels and threads; six of ten are spoilt: fields that are missing, of another type, of another
place, too long, too deep; ids of others; texts of broken characters; events that come twice. Half
of them meet a bot that opens threads, half one that does not. A message carries a number, and the
model's reply repeats the numbers that it was shown.

crashes               errors in the log, messages that had to be kept anew, tasks that ended with
                      an exception, connections that were lost
wrong_chat            numbers that stand in a session, or in a message that was sent, of another
                      channel than the one they were said in, or the thread that was opened for them
replies_to_strangers  numbers of those who are not allowed in sessions or replies, and their slash
                      commands that were so much as acknowledged
lost                  messages that were not spoilt, by people who are allowed, for the bot, that
                      are in no session
doubled               numbers that stand in a session twice

All must be 0. Who is allowed is decided here anew, from the raw JSON.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness import Report, progress, run
from tests.serve.queue.memory_queue import MemoryQueue
from tests.simulators.discord import (
    DiscordSimulator,
    SlashInteraction,
    serve_simulated_discord,
)
from tests.soak.fuzzing import JUNK, MODEL, NUMBER, TEXTS, Echo, Faults, spoil
from trimtab.engine.log.event import MessageAdded
from trimtab.testing import MemoryStore
from trimtab_serve.agent.agent import Agent
from trimtab_serve.agent.config.spec import AgentSpec, DiscordSpec
from trimtab_serve.channels.discord import DiscordTiming, create_discord_channel
from trimtab_serve.process.local_turns import LocalTurnRunner
from trimtab_serve.service.delivery import ReplyDelivery
from trimtab_serve.service.events.bus import LocalEventBus
from trimtab_serve.service.service import AgentService

EVENTS = {"full": 50_000, "quick": 2_000}
ROUND = 250
"""Events that are sent before it is looked what became of them."""
PEOPLE = 240
"""A third is allowed, a third denied, a third neither."""
SPOILT = 0.6
NAMES = (
    "content", "author", "member", "channel_id", "guild_id", "id", "thread", "user", "mentions",
    "webhook_id", "referenced_message", "message_reference", "poll", "sticker_items", "data",
    "message_snapshots", "attachments", "interaction_metadata", "components", "x",
)  # fmt: skip
NEWS = (
    "THREAD_CREATE", "THREAD_UPDATE", "THREAD_DELETE", "CHANNEL_CREATE", "CHANNEL_UPDATE",
    "GUILD_UPDATE", "GUILD_MEMBER_ADD", "THREAD_LIST_SYNC", "MESSAGE_DELETE", "TYPING_START",
    "GUILD_CREATE", "GUILD_ROLE_CREATE", "USER_UPDATE", "CHANNEL_DELETE", "NOBODY_KNOWS",
)  # fmt: skip
ANY = tuple(one for one in JUNK if one != "\ud800")
"""What can stand in a frame: one that is no JSON ends a connection, and a new one begins."""
VERBS = ("help", "reset", "compact", "context", "why", "stop")
Raw = dict[str, Any]


@dataclass(slots=True)
class Places:
    """Who and what there is."""

    discord: DiscordSimulator
    people: list[Raw] = field(default_factory=list[Raw])
    channels: list[int] = field(default_factory=list[int])
    """Of servers, with threads."""
    allow: set[int] = field(default_factory=set[int])
    deny: set[int] = field(default_factory=set[int])
    aside: int = 0
    """A server in which nobody speaks; news are of it."""
    bots: set[int] = field(default_factory=set[int])
    """Who is no person; that never changes, and the library looks once."""
    last: Raw = field(default_factory=dict[str, Any])
    """Who speaks behind all others, to see whether they were heard."""

    def __post_init__(self) -> None:
        discord = self.discord
        self.last = discord.add_user("Last")
        self.allow.add(int(self.last["id"]))
        self.people = [
            discord.add_user(f"P{number}\nAnn:", bot=number % 31 == 30) for number in range(PEOPLE)
        ]
        self.bots = {int(one["id"]) for one in self.people if one["bot"]}
        ids = [int(one["id"]) for one in self.people]
        self.allow |= {one for at, one in enumerate(ids) if at % 3 < 2}
        self.deny |= {one for at, one in enumerate(ids) if at % 3 == 1}
        for home in (discord.add_guild("home"), discord.add_guild("abroad")):
            mine = [discord.add_channel(home, f"c{number}") for number in range(6)]
            self.allow.add(home if not self.channels else mine[0])
            self.deny.add(mine[1])
            self.channels += mine
            for channel in mine[:4]:
                theirs = discord.add_thread(channel, "theirs", self.people[0])
                own = discord.add_thread(channel, "own", discord.bot)
                self.channels += [theirs, own]
        self.aside = discord.add_guild("aside")
        discord.add_channel(self.aside)

    def may(self, ids: set[int]) -> bool:
        return bool(ids & self.allow) and not ids & self.deny

    def around(self, channel: int) -> set[int]:
        """A channel and what it belongs to."""
        known = self.discord.world.channels.get(channel, {})
        above = {integer(known.get("parent_id")), integer(known.get("guild_id"))}
        return {channel, *(one for one in above if one is not None)}

    def is_own(self, channel: int) -> bool:
        known = self.discord.world.channels.get(channel, {})
        return known.get("owner_id") == self.discord.bot["id"]


def integer(value: Any) -> int | None:
    """What the library takes an id to be."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What a message is, by its raw JSON alone."""

    rooms: frozenset[int]
    """Where it may be answered: its channel, and the thread of its own id."""
    may: bool
    """Whether its author is answered."""


@dataclass(slots=True)
class Fuzz:
    """One bot, and all that is known of what was sent."""

    places: Places
    pick: random.Random
    made: int = 0
    recent: list[tuple[str, Raw]] = field(default_factory=list[tuple[str, Raw]])
    truths: dict[int, list[Truth]] = field(default_factory=dict[int, list[Truth]])
    """By number; a spoilt copy of a message is another one with its number."""
    doubtful: set[int] = field(default_factory=set[int])
    """Of whom it was told that they are a bot, or none, and it is not so."""
    wanted: set[int] = field(default_factory=set[int])
    """Numbers that must be in a session."""
    used: list[tuple[SlashInteraction, bool]] = field(
        default_factory=list[tuple[SlashInteraction, bool]]
    )
    """Slash commands, and whether they may be answered."""
    counts: Counter[str] = field(default_factory=Counter[str])

    async def one(self) -> None:
        """Make an event and send it."""
        pick, self.made = self.pick, self.made + 1
        if self.recent and pick.random() < 0.04:
            await self._tell(*pick.choice(self.recent))
            return
        match pick.choices(("message", "edit", "command", "news"), (72, 8, 10, 10))[0]:
            case "message":
                await self._say("MESSAGE_CREATE", self._message())
            case "edit":
                await self._say("MESSAGE_UPDATE", self._edited())
            case "command":
                await self._use()
            case _:
                await self._news()

    async def _tell(self, event: str, raw: Raw) -> None:
        await self.places.discord.dispatch_event(event, raw)

    def _message(self) -> Raw:
        pick, discord = self.pick, self.places.discord
        who = pick.choice(self.places.people)
        channel = (
            discord.open_direct_channel(who)
            if pick.random() < 0.5
            else pick.choice(self.places.channels)
        )
        named = pick.random() < 0.6
        text = f"k{self.made:06}k {pick.choice(TEXTS)}"
        more: Raw = {"webhook_id": "7"} if pick.random() < 0.02 else {}
        said = discord.world.add_message(
            channel,
            who,
            f"<@{discord.bot['id']}> {text}" if named else text,
            mentions=[discord.bot] if named else [],
            attachments=[self._file()] if pick.random() < 0.05 else [],
            **more,
        )
        return discord.world.to_gateway_message(said)

    def _file(self) -> Raw:
        return self.places.discord.add_attachment(f"{self.made}.txt", b"a file", "text/plain")

    def _edited(self) -> Raw:
        before = [raw for event, raw in self.recent if event == "MESSAGE_CREATE"]
        raw = copy.deepcopy(self.pick.choice(before)) if before else self._message()
        words, at = f"k{self.made:06}k edited", f"2027-01-01T00:{self.made // 60 % 60:02}"
        named = f"<@{self.places.discord.bot['id']}> {words}" if raw["mentions"] else words
        return {**raw, "content": named, "edited_timestamp": f"{at}:{self.made % 60:02}+00:00"}

    async def _say(self, event: str, raw: Raw) -> None:
        spoilt = self.pick.random() < SPOILT
        if spoilt:
            raw = copy.deepcopy(raw)
            self._spoil(raw)
        else:
            self.recent = [*self.recent[-20:], (event, raw)]
        self._note(raw, spoilt=spoilt)
        await self._tell(event, raw)

    def _spoil(self, raw: Raw) -> None:
        pick, places = self.pick, self.places
        others = (*places.channels, *(int(one["id"]) for one in places.people[:9]))
        ids = [str(pick.choice(others)), pick.choice(others), places.discord.bot["id"]]
        for _ in range(pick.choice((1, 1, 1, 2, 4))):
            spoil(raw, pick, names=NAMES, nests="referenced_message", junk=(*ANY, *ids, *ids))

    def _note(self, raw: Raw, *, spoilt: bool) -> None:
        channel, author = integer(raw.get("channel_id")), raw.get("author")
        who = integer(author.get("id")) if isinstance(author, dict) else None
        rooms = {one for one in (channel, integer(raw.get("id"))) if one is not None}
        may = False
        if channel is not None and who is not None and isinstance(author, dict):
            guild = integer(raw.get("guild_id"))
            ids = {who, *self.places.around(channel)} | ({guild} if guild is not None else set())
            is_bot = who in self.places.bots
            if bool(author.get("bot")) is not is_bot:
                self.doubtful.add(who)
            # The library looks at whoever it meets for the first time, and never again.
            may = self.places.may(ids) and (not is_bot or who in self.doubtful)
        truth = Truth(rooms=frozenset(rooms), may=may)
        for number in map(int, NUMBER.findall(json.dumps(raw))):
            self.truths.setdefault(number, []).append(truth)
        direct = "guild_id" not in raw
        meant = bool(raw.get("mentions")) or (channel is not None and self.places.is_own(channel))
        known = "webhook_id" not in raw and who not in self.doubtful
        if not spoilt and may and known and (direct or meant):
            self.wanted.add(self.made)

    async def _use(self) -> None:
        pick, discord = self.pick, self.places.discord
        who = pick.choice(self.places.people)
        channel = (
            discord.open_direct_channel(who)
            if pick.random() < 0.5
            else pick.choice(self.places.channels)
        )
        # A picture takes a tenth of a second.
        name = pick.choices(VERBS, (20, 20, 20, 1, 20, 20))[0]
        options = {"handle": pick.choice(("m2", "m9999", "", "no handle"))} if name == "why" else {}
        begun = discord.rest.interactions.start_interaction(channel, who, name, options, "1")
        if pick.random() < SPOILT:
            begun.payload = copy.deepcopy(begun.payload)
            self._spoil(begun.payload)
        self.used.append((begun, self._may_use(begun.payload)))
        await self._tell("INTERACTION_CREATE", begun.payload)

    def _may_use(self, raw: Raw) -> bool:
        """Whether one of those who may have used it, where they may have, is allowed to."""
        member, place = raw.get("member"), raw.get("channel")
        users = [raw.get("user"), member.get("user") if isinstance(member, dict) else None]
        whos = [integer(one.get("id")) for one in users if isinstance(one, dict)]
        guild = integer(raw.get("guild_id"))
        rooms: list[set[int]] = []
        if (number := integer(raw.get("channel_id"))) is not None:
            rooms.append(self.places.around(number))
        if isinstance(place, dict) and (number := integer(place.get("id"))) is not None:
            above = integer(place.get("parent_id"))
            rooms += [self.places.around(number), {number, *({above} if above else ())}]
        known = {guild} if guild is not None else set[int]()
        return any(self.places.may({who, *room, *known}) for who in whos if who for room in rooms)

    async def _news(self) -> None:
        pick, world = self.pick, self.places.discord.world
        aside = world.build_guild_payload(self.places.aside)
        raw: Any = pick.choice((aside, {**aside["channels"][0], "user": world.bot}, world.bot))
        raw = {**copy.deepcopy(raw), "guild_id": str(self.places.aside)}
        for _ in range(pick.choice((1, 2, 4))):
            spoil(raw, pick, names=NAMES, nests="channel", junk=ANY)
        await self._tell(pick.choice(NEWS), pick.choice((raw, raw, raw, *ANY[:8])))

    def look_out(self) -> None:
        """What the bot has said, all of it."""
        for channel, texts in self.places.discord.posted_texts_by_channel().items():
            for text in texts:
                self.counts["sent"] += 1
                self._seen(text, channel)
        self.counts["replies_to_strangers"] += sum(
            bool(begun.acknowledged) and not may for begun, may in self.used
        )
        self.counts["commands"] = sum(bool(begun.acknowledged) for begun, _ in self.used)

    async def look_in(self, store: MemoryStore) -> None:
        """What stands in the sessions."""
        found: set[tuple[str, int]] = set()
        after = ""
        while page := await store.sessions(after=after, limit=100):
            for stored in page:
                after = session = stored.session
                channel = int(session.rpartition(":")[2])
                async for event in store.events(session):
                    if isinstance(event.body, MessageAdded) and event.body.message.role == "user":
                        text = event.body.message.text
                        self._seen(text, channel)
                        numbers = {(session, int(one)) for one in NUMBER.findall(text)}
                        self.counts["doubled"] += len(numbers & found)
                        found |= numbers
        self.counts["lost"] = len(self.wanted - {number for _, number in found})
        self.counts["kept"] = len(found)

    def _seen(self, text: str, channel: int) -> None:
        for number in map(int, NUMBER.findall(text)):
            here = [one for one in self.truths.get(number, ()) if channel in one.rooms]
            self.counts["wrong_chat"] += not here
            self.counts["replies_to_strangers"] += bool(here) and not any(one.may for one in here)


@dataclass(slots=True)
class Bot:
    """The bot as it runs."""

    places: Places
    channel: Any
    queue: MemoryQueue
    turns: LocalTurnRunner
    work: list[asyncio.Task[None]]

    async def settled(self) -> None:
        """All that was sent is taken in, answered and gone out; raises what a task has raised."""
        discord, last = self.places.discord, self.places.last
        channel = discord.open_direct_channel(last)
        before = len(discord.list_posted_texts(channel))
        await discord.post_user_message(channel, last, "Are you there?")
        async with asyncio.timeout(300):
            while True:
                for task in self.work:
                    if task.done():
                        task.result()
                waits = self.channel._intake._channel_locks._locks or self.turns.running_count
                waits = waits or await self.queue.count_waiting_replies()
                if not waits and len(discord.list_posted_texts(channel)) > before:
                    await self.turns.wait_until_idle()
                    return
                await asyncio.sleep(0.005)


async def lead(size: int, seed: int, *, threads: bool) -> Counter[str]:
    """Send them all, and look what became of them."""
    loop, faults = asyncio.get_running_loop(), Faults()
    loop.set_exception_handler(
        lambda _, told: faults.found.update([f"{told.get('message')}: {told.get('exception')!r}"])
    )
    for name in ("trimtab", "discord"):
        logging.getLogger(name).handlers[:] = [faults]
        logging.getLogger(name).propagate = False
    store = MemoryStore()
    queue = MemoryQueue(store)
    spec = AgentSpec.model_validate({"name": "helper", "model": {"name": MODEL}})
    agent = Agent(spec=spec, system="Help.", store=store, provider=Echo(), tools=(), environ={})
    service = AgentService(
        agents={"helper": agent}, store=store, queue=queue, event_bus=LocalEventBus()
    )
    turns = LocalTurnRunner(service)
    async with serve_simulated_discord(acknowledge=60.0) as discord:
        places = Places(discord)
        lists = {"allow": sorted(map(str, places.allow)), "deny": sorted(map(str, places.deny))}
        told = {"token": discord.options.token, "api": discord.url, "threads": threads, **lists}
        made = create_discord_channel(
            service,
            "helper",
            DiscordSpec.model_validate(told),
            timing=DiscordTiming(guild_ready_timeout_s=0.1, first_intake_retry_s=0.01),
        )
        delivery = ReplyDelivery(queue, {"discord": made.deliver})
        queue.on_posted, queue.on_replies = turns.request_turn, delivery.wake
        work = [asyncio.create_task(made.run()), asyncio.create_task(delivery.run(poll_s=0.05))]
        await discord.gateway.identified.wait()
        bot = Bot(places, made, queue, turns, work)
        fuzz = Fuzz(places, random.Random(seed))  # noqa: S311 - no secret
        for begun in range(0, size, ROUND):
            progress(f"{begun:,} of {size:,} events, {'with' if threads else 'without'} threads")
            for _ in range(ROUND):
                await fuzz.one()
            await bot.settled()
        fuzz.look_out()
        await fuzz.look_in(store)
        identified = sum(one["op"] == 2 for one in discord.gateway.received)
        await made.close()
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await turns.drain(5)
    fuzz.counts["crashes"] = faults.found.total() + identified - 1
    for why, count in faults.found.most_common(10):
        print(f"{count} × {why}", file=sys.stderr)
    return fuzz.counts


def main(quick: bool) -> Report:
    size, begun = EVENTS["quick" if quick else "full"] // 2, time.monotonic()
    counts = Counter[str]()
    for threads in (True, False):
        counts += asyncio.run(lead(size, 9 + threads, threads=threads))
    zero = ("crashes", "wrong_chat", "replies_to_strangers", "lost", "doubled")
    return {
        "sample": f"{2 * size:,} events, {counts['kept']:,} numbers kept, {counts['sent']:,} "
        f"messages out, {counts['commands']:,} commands answered",
        **{name: counts[name] for name in zero},
        "seconds": round(time.monotonic() - begun, 1),
        "broken": [f"{name} is {counts[name]}" for name in zero if counts[name]],
    }


if __name__ == "__main__":
    sys.exit(run(__doc__, main, ("discord.py", "aiohttp")))
