"""Updates that make no sense, sent to a Telegram bot through its real library and real sockets.

100,000 updates: messages, edits, commands, albums and files in private chats, groups and topics,
by people who are allowed, denied or strangers; two thirds of them spoilt: fields that are missing,
of another type, of another place, too long, too deep; texts of broken characters; entities that
reach out of their texts; updates that come twice. Four of five are fetched by long polling, one of
five is posted to the webhook, some of those with a wrong secret or as no JSON at all. A message
carries a number, and the model's reply repeats the numbers that it was shown.

crashes               errors in the log, updates that had to be tried again, answers of 5xx at the
                      webhook, tasks that ended with an exception
wrong_chat            numbers that stand in a session, or in a message that was sent, of another
                      chat or topic than the one they were said in
replies_to_strangers  messages, edits, pictures and typing signs to chats in which nobody who is
                      allowed had said anything, and numbers of strangers in sessions or replies
lost                  messages that were not spoilt, by people who are allowed, for the bot, that
                      are in no session
doubled               numbers that stand in a session twice
forged                updates with a wrong secret that were not refused

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
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette

from benchmarks.harness import Report, finish, head, parser, progress
from tests.serve.queue.memory_queue import MemoryQueue
from tests.simulators.telegram import (
    ServedTelegramSimulator,
    TelegramSimulator,
    make_telegram_user,
    serve_simulated_telegram,
)
from tests.soak.fuzzing import JUNK, MODEL, NUMBER, TEXTS, Echo, Faults, spoil
from trimtab.engine.log.event import MessageAdded
from trimtab.testing import MemoryStore
from trimtab.testing.server.local_server import build_socket_url, open_local_socket
from trimtab_serve.agent.agent import Agent
from trimtab_serve.agent.config.spec import AgentSpec, TelegramSpec
from trimtab_serve.channels.telegram import TelegramChannel
from trimtab_serve.process.local_turns import LocalTurnRunner
from trimtab_serve.process.wiring import map_channel_senders
from trimtab_serve.service.delivery import ReplyDelivery
from trimtab_serve.service.events.bus import LocalEventBus
from trimtab_serve.service.service import AgentService

UPDATES = {"full": 100_000, "quick": 2_500}
ROUND = 500
"""Updates that are sent before it is looked what became of them."""
SECRET = "fuzz_secret"  # noqa: S105 - of nobody
NAME = "helper_bot"
PEOPLE, STRANGERS, GROUPS = range(2, 400), range(1_000, 1_400), range(-1_300, -1_000)
HEARD, OFF, BANNED = range(-1_040, -1_000), -1_041, -1_042
"""Groups in which everything is heard, in which nothing is, and one that is denied."""
ALLOW = (*(one for one in PEOPLE if one % 2 == 0), "@ally", *range(-1_150, -1_000))
DENY = (*(one for one in PEOPLE if one % 10 == 0), BANNED, "@foe")
RULES = (
    *({"who": one, "groups": "all"} for one in HEARD),
    {"who": OFF, "groups": "off"},
    {"who": 4, "commands": ["help"], "media": False},
)
SENDS = ("sendMessage", "editMessageText", "sendPhoto", "sendChatAction")


@dataclass(slots=True)
class Making:
    """Makes updates, sound ones and others."""

    pick: random.Random
    made: int = 0
    recent: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def next(self) -> tuple[dict[str, Any], bool]:
        """An update, and whether it was spoilt."""
        pick, self.made = self.pick, self.made + 1
        if self.recent and pick.random() < 0.04:
            again = copy.deepcopy(pick.choice(self.recent))
            # An edit has no other name than its update's number.
            new = "message" in again and pick.random() < 0.5
            return (again | {"update_id": self.made} if new else again), True
        raw = {"update_id": self.made, self._kind(): self._message()}
        if pick.random() < 0.65:
            for _ in range(pick.choice((1, 1, 1, 2, 4))):
                spoil(raw, pick, names=NAMES, nests="reply_to_message", junk=ANY)
            if isinstance(raw.get("update_id"), int):
                raw["update_id"] = self.made  # one from the future would confirm all before it
            return raw, True
        self.recent = [*self.recent[-20:], raw]
        return raw, False

    def _kind(self) -> str:
        kinds = ("message", "edited_message", "channel_post", "callback_query", "my_chat_member")
        return self.pick.choices(kinds, (80, 12, 3, 3, 2))[0]

    def _message(self) -> dict[str, Any]:
        pick = self.pick
        chat, who = self._chat(), pick.choice((*PEOPLE, *STRANGERS))
        if chat["type"] == "private":
            who = chat["id"]
        names = {2: "ally", 3: "ally2", 6: "foe"}
        sender = make_telegram_user(
            who, pick.choice(("Ada", "Bob\nEve:", "", "😀" * 30)), names.get(who % 50)
        )
        said: dict[str, Any] = {
            "message_id": 10_000 + self.made,
            "date": 1_700_000_000 + self.made,
            "chat": chat,
            "from": sender | {"is_bot": pick.random() < 0.03},
        }
        if chat["type"] == "supergroup" and pick.random() < 0.3:
            said |= {"message_thread_id": pick.choice((5, 6)), "is_topic_message": True}
        if pick.random() < 0.03:
            said["sender_chat"] = {"id": pick.choice(GROUPS), "type": "channel", "title": "T"}
        if pick.random() < 0.1:
            quoted = {"message_id": 1, "date": 1, "chat": chat, "text": "before", "from": sender}
            said["reply_to_message"] = quoted
        return said | self._words()

    def _chat(self) -> dict[str, Any]:
        pick = self.pick
        if pick.random() < 0.6:
            number = pick.choice(PEOPLE if pick.random() < 0.6 else STRANGERS)
            return {"id": number, "type": "private", "first_name": "Ada"}
        number = pick.choice(GROUPS)
        kind = pick.choices(("supergroup", "group", "channel"), (80, 15, 5))[0]
        return {"id": number, "type": kind, "title": "Team"}

    def _words(self) -> dict[str, Any]:
        pick, number = self.pick, f"k{self.made:06}k"
        if pick.random() < 0.06:
            names = ("help", "reset", "compact", "why m3", "why", "stop", "start", "nothing")
            text = "/" + pick.choices((*names, "context"), (*[10] * 8, 2))[0]
            length = len(text.split()[0])
            return {"text": text, "entities": [_entity("bot_command", 0, length)]}
        at = f"@{NAME} " if pick.random() < 0.6 else ""
        text = f"{at}{number} {pick.choice(LONG)}"
        entities = [_entity("mention", 0, len(at) - 1)] if at else []
        if pick.random() < 0.9:
            return {"text": text, "entities": entities}
        kind = pick.choice(("photo", "document", "voice", "sticker", "location", "media_group_id"))
        file = {"file_id": f"f{self.made}", "file_unique_id": "u", "file_size": 10}
        own: Any = {
            "photo": [file | {"width": 1, "height": 1}],
            "document": file | {"file_name": "a.txt", "mime_type": "text/plain"},
            "voice": file | {"duration": 1, "mime_type": "audio/ogg"},
            "sticker": file
            | {"width": 1, "height": 1, "type": "regular", "is_animated": False, "is_video": False},
            "location": {"latitude": 1.5, "longitude": 2},
            "media_group_id": "album",
        }[kind]
        return {"caption": text, "caption_entities": entities, kind: own}


LONG = (*TEXTS, "a" * 5_000, "😀" * 2_100)
"""Also longer than one message may be."""
ANY: tuple[Any, ...] = (*JUNK, 4, -1_001, "@ally", "private")
NAMES = ("text", "chat", "from", "sender_chat", "id", "forward_origin", "quote", "entities", "x")


def _entity(kind: str, offset: int, length: int) -> dict[str, Any]:
    return {"type": kind, "offset": offset, "length": length}


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What an update is, by its raw JSON alone."""

    chat: int
    session: str
    """Its name, without the agent."""
    may: bool
    """Whether the sender is answered."""
    wanted: bool
    """Whether, were it sound, it must be in its session."""


def truth_of(raw: Any) -> Truth | None:
    """None where it is no message."""
    message = raw.get("message") or raw.get("edited_message") if isinstance(raw, dict) else None
    chat = message.get("chat") if isinstance(message, dict) else None
    if (
        not isinstance(message, dict)
        or not isinstance(chat, dict)
        or type(chat.get("id")) is not int
    ):
        return None
    sender, other = message.get("from"), message.get("sender_chat")
    who: set[Any] = set()
    for one in (chat, other or sender):
        if isinstance(one, dict) and type(one.get("id")) is int:
            who |= {one["id"], f"@{one.get('username')}"}
    machine = not other and not (isinstance(sender, dict) and sender.get("is_bot") is False)
    listed = bool(who & set(ALLOW)) and not who & set(DENY)
    topic = message.get("message_thread_id") if message.get("is_topic_message") is True else None
    name = f"telegram:{chat['id']}" + (f":{topic}" if topic is not None else "")
    kind = chat.get("type")
    may = listed and not machine and kind in ("private", "group", "supergroup")
    text = str(message.get("text") or message.get("caption") or "")
    # Rules are for chats and for senders, the first that matches; those for HEARD stand first.
    heard = bool(who & set(HEARD))
    meant = heard or (text.startswith(f"@{NAME} ") and OFF not in who)
    moves = "message" not in raw and "location" in message
    wanted = may and not moves and (kind == "private" or meant)
    return Truth(chat=chat["id"], session=name, may=may, wanted=wanted)


@dataclass(slots=True)
class Fuzz:
    """Two channels of one bot, and all that is known of what was sent."""

    service: AgentService
    turns: LocalTurnRunner
    served: ServedTelegramSimulator
    faults: Faults
    making: Making
    truths: dict[int, Truth] = field(default_factory=dict[int, Truth])
    """By number."""
    wanted: dict[int, str] = field(default_factory=dict[int, str])
    """Numbers that must be in a session, with its id."""
    chats: set[int] = field(default_factory=set[int])
    """Where somebody who is allowed has said something."""
    counts: Counter[str] = field(default_factory=Counter[str])

    def one(self, hook: HTTPConnection) -> None:
        """Make an update and send it."""
        raw, spoilt = self.making.next()
        pick = self.making.pick
        posted = pick.random() < 0.2
        forged = posted and pick.random() < 0.1
        # Told apart by the agent: polled ones go to one channel, posted ones to another.
        agent = "hooked" if posted else "polled"
        data = json.dumps(raw).encode()
        if posted and pick.random() < 0.1:
            data, spoilt = pick.choice((b"", b"{", b"\xff", b"[]", b"[" * 5_000, data[:-3])), True
        self._note(raw, agent, spoilt=spoilt, forged=forged)
        if not posted:
            self.served.simulator.push_update(raw, update_id=self.making.made)
            return
        secret = "wrong" if forged else SECRET
        hook.request("POST", "/hook", data, {"X-Telegram-Bot-Api-Secret-Token": secret})
        response = hook.getresponse()
        response.read()
        self.counts["crashes"] += response.status >= 500
        self.counts["forged"] += forged and response.status != 403

    def _note(self, raw: Any, agent: str, *, spoilt: bool, forged: bool) -> None:
        truth = truth_of(raw)
        if truth is None:
            return
        may = truth.may and not forged
        if may:
            self.chats.add(truth.chat)
        message: Any = raw.get("message") or raw.get("edited_message")
        for number in map(int, NUMBER.findall(json.dumps(message))):
            before = self.truths.get(number)
            if before is None or may:
                self.truths[number] = Truth(
                    chat=truth.chat, session=truth.session, may=may, wanted=truth.wanted
                )
            if not spoilt and may and truth.wanted:
                self.wanted[number] = f"default/{agent}/{truth.session}"

    def look_out(self) -> None:
        """What has been sent since the last look."""
        asked, self.served.simulator.recorded_calls = self.served.simulator.recorded_calls, []
        for call in asked:
            if call.method not in SENDS:
                continue
            chat = int(call.params["chat_id"])
            self.counts["sent"] += 1
            self.counts["replies_to_strangers"] += chat not in self.chats
            for number in map(int, NUMBER.findall(str(call.params.get("text", "")))):
                truth = self.truths[number]
                self.counts["wrong_chat"] += truth.chat != chat
                self.counts["replies_to_strangers"] += not truth.may

    async def look_in(self) -> None:
        """What stands in the sessions."""
        found: set[tuple[str, int]] = set()
        after = ""
        while page := await self.service.store.sessions(after=after, limit=100):
            for stored in page:
                after = stored.session
                async for event in self.service.store.events(stored.session):
                    if isinstance(event.body, MessageAdded) and event.body.message.role == "user":
                        self._said(stored.session, event.body.message.text, found)
        self.counts["lost"] = sum((name, n) not in found for n, name in self.wanted.items())
        self.counts["kept"] = len(found)

    def _said(self, session: str, text: str, found: set[tuple[str, int]]) -> None:
        # One message may say its number twice: as its text, and as its sender's name.
        for number in set(map(int, NUMBER.findall(text))):
            truth = self.truths[number]
            self.counts["wrong_chat"] += session.split("/", 2)[2] != truth.session
            self.counts["replies_to_strangers"] += not truth.may
            self.counts["doubled"] += (session, number) in found
            found.add((session, number))


async def lead(served: ServedTelegramSimulator, size: int, seed: int) -> Counter[str]:
    """Send them all, and look what became of them."""
    loop, faults = asyncio.get_running_loop(), Faults()
    loop.set_exception_handler(lambda _, told: faults.found.update([str(told.get("message"))]))
    logging.getLogger("trimtab").addHandler(faults)
    logging.getLogger("trimtab").propagate = False
    store = MemoryStore()
    queue = MemoryQueue(store)
    agents = {name: _agent(name, store) for name in ("polled", "hooked")}
    service = AgentService(agents=agents, store=store, queue=queue, event_bus=LocalEventBus())
    turns = LocalTurnRunner(service)
    listener = open_local_socket(0)
    channels = {
        name: _channel(service, name, served, build_socket_url(listener)) for name in agents
    }
    delivery = ReplyDelivery(
        queue, map_channel_senders(list(channels.items()), is_only_process=True)
    )
    queue.on_posted, queue.on_replies = turns.request_turn, delivery.wake
    server = uvicorn.Server(
        uvicorn.Config(
            Starlette(routes=list(channels["hooked"].routes)), log_level="error", lifespan="off"
        )
    )
    work = [
        asyncio.create_task(channels["polled"].run()),
        asyncio.create_task(delivery.run(poll_s=0.05)),
        asyncio.create_task(server.serve(sockets=[listener])),
    ]
    fuzz = Fuzz(service, turns, served, faults, Making(random.Random(seed)))  # noqa: S311 - no secret
    hook = HTTPConnection("127.0.0.1", urlsplit(build_socket_url(listener)).port, timeout=60)
    for begun in range(0, size, ROUND):
        progress(f"{begun:,} of {size:,} updates")
        await asyncio.to_thread(lambda: [fuzz.one(hook) for _ in range(ROUND)])
        await _settled(fuzz, queue, list(channels.values()), work)
        fuzz.look_out()
    await fuzz.look_in()
    server.should_exit = True
    for task in work[:2]:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    await turns.drain(5)
    for one in channels.values():
        await one.close()
    fuzz.counts["crashes"] += faults.found.total()
    for why, count in faults.found.most_common(10):
        print(f"{count} × {why}", file=sys.stderr)
    return fuzz.counts


async def _settled(
    fuzz: Fuzz, queue: MemoryQueue, channels: list[TelegramChannel], work: list[asyncio.Task[None]]
) -> None:
    """All that was sent is taken in, answered and gone out; raises what a task has raised."""
    ends = time.monotonic() + 120
    while time.monotonic() < ends:
        for task in work:
            if task.done():
                task.result()
        waits = fuzz.served.simulator.list_pending_updates() or fuzz.turns.running_count
        out = await queue.count_waiting_replies()
        # Looked at from inside, for nobody else needs to know.
        out += sum(bool(one._command_reply_sender._tasks) for one in channels)
        if not waits and not out:
            await fuzz.turns.wait_until_idle()
            return
        await asyncio.sleep(0.01)
    raise TimeoutError("what was sent was not answered within 120 s")


def _agent(name: str, store: MemoryStore) -> Agent:
    spec = AgentSpec.model_validate({"name": name, "model": {"name": MODEL}})
    return Agent(spec=spec, system="Help.", store=store, provider=Echo(), tools=(), environ={})


def _channel(
    service: AgentService, name: str, served: ServedTelegramSimulator, hook: str
) -> TelegramChannel:
    own: dict[str, Any] = {"webhook": f"{hook}/hook", "secret": SECRET} if name == "hooked" else {}
    told = {"token": served.simulator.token, "api": served.url, "allow": ALLOW, "deny": DENY}
    block = TelegramSpec.model_validate({**told, "rules": RULES}).model_copy(update=own)
    return TelegramChannel(service, name, block, min_interval_s=0.0, poll_timeout_s=5.0)


def main(size: int) -> Report:
    begun, api = time.monotonic(), TelegramSimulator(name=NAME)
    for number in (*PEOPLE, *STRANGERS, *GROUPS):
        api.get_or_add_chat(number, topics={5, 6} if number < 0 else set[int]())
    with serve_simulated_telegram(api) as served:
        counts = asyncio.run(lead(served, size, seed=9))
    zero = ("crashes", "wrong_chat", "replies_to_strangers", "lost", "doubled", "forged")
    return {
        "sample": f"{size:,} updates, {counts['kept']:,} messages kept, {counts['sent']:,} sent",
        **{name: counts[name] for name in zero},
        "seconds": round(time.monotonic() - begun, 1),
        "broken": [f"{name} is {counts[name]}" for name in zero if counts[name]],
    }


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--updates", type=int, help="another number of updates")
    asked = arguments.parse_args()
    size = asked.updates or UPDATES["quick" if asked.quick else "full"]
    report = {**head(("python-telegram-bot", "starlette", "httpx")), **main(size)}
    sys.exit(finish(report, as_json=asked.json))
