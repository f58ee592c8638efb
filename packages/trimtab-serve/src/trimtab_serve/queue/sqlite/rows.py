"""Statements for messages and replies. The caller owns the transaction."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from sqlite3 import Connection

from trimtab.engine.log.edits import erase_message_payload
from trimtab_serve.queue.messages import InboundMessage, OutboundMessage
from trimtab_serve.queue.protocol import erase_failure_details
from trimtab_serve.queue.rows import (
    encode_inbound_body,
    encode_outbound_body,
    inbound_from_row,
    outbound_from_row,
)
from trimtab_serve.queue.sqlite.queries import SQLITE_QUERIES, decode_name, encode_list, encode_name


def insert_message(connection: Connection, inbound: InboundMessage) -> int | None:
    """Store a message and revive its session. Return its number, or None if its key is waiting."""
    session = encode_name(inbound.session)
    values = [session, encode_name(inbound.key), encode_inbound_body(inbound)]
    cursor = connection.execute(SQLITE_QUERIES["post"], values)
    if not cursor.rowcount:
        return None
    connection.execute(SQLITE_QUERIES["revive_session"], [session])
    return cursor.lastrowid


def remove_messages(connection: Connection, session: str, numbers: Collection[int]) -> list[str]:
    """Remove answered messages. Return their keys."""
    values = [encode_name(session), encode_list(numbers)]
    rows = connection.execute(SQLITE_QUERIES["answered_keys"], values).fetchall()
    connection.execute(SQLITE_QUERIES["remove_answered"], values)
    for query in ("revive_session", "end_interruptions"):
        connection.execute(SQLITE_QUERIES[query], values[:1])
    return [decode_name(key) for (key,) in rows]


def insert_reply(connection: Connection, reply: OutboundMessage, due: float) -> int | None:
    """Store a reply. Return its number, or None if its key is known."""
    names = [reply.session, reply.key, reply.route.channel]
    values = [*map(encode_name, names), encode_outbound_body(reply), reply.attempts, due]
    cursor = connection.execute(SQLITE_QUERIES["keep_reply"], values)
    return cursor.lastrowid if cursor.rowcount else None


def end_reply(connection: Connection, query_name: str, number: int, *values: object) -> None:
    """End a reply with the named query, so that the next one of its session can go."""
    connection.execute(SQLITE_QUERIES[query_name], [number, *values])
    connection.execute(SQLITE_QUERIES["let_next_go"], [number, 0.0])


def revive_session(connection: Connection, session: str) -> bool:
    """Revive dead letters and undeliverable replies. Return False if there are none."""
    name = [encode_name(session)]
    messages = connection.execute(SQLITE_QUERIES["revive_session"], name).rowcount
    connection.execute(SQLITE_QUERIES["end_interruptions"], name)
    replies = connection.execute(SQLITE_QUERIES["send_again"], name).rowcount
    if replies:
        connection.execute(SQLITE_QUERIES["begin_with_first"], name)
    return bool(messages or replies)


def give_up_session(connection: Connection, session: str, number: int, why: str, at: float) -> bool:
    """Turn a session's messages into dead letters because of one message. Return False if that is
    gone."""
    name = encode_name(session)
    if connection.execute(SQLITE_QUERIES["is_waiting"], [name, number]).fetchone() is None:
        return False
    connection.execute(SQLITE_QUERIES["give_up"], [name, encode_name(why), at])
    return True


def forget_session(connection: Connection, session: str) -> None:
    """Remove everything of a session."""
    for query in ("forget_inbox", "forget_outbox", "revive_session", "end_interruptions"):
        connection.execute(SQLITE_QUERIES[query], [encode_name(session)])


def erase_messages(
    connection: Connection, session: str, positions: Collection[int], keys: Collection[str]
) -> None:
    """Erase the content of messages, the replies at these positions, and error details."""
    name = encode_name(session)
    rows = connection.execute(SQLITE_QUERIES["said_in_messages"], [name, encode_list(keys)])
    for inbound in map(inbound_from_row, rows.fetchall()):
        blank = replace(inbound, message=erase_message_payload(inbound.message, None))
        values = [inbound.number, encode_inbound_body(blank)]
        connection.execute(SQLITE_QUERIES["rewrite_message"], values)
    for (why,) in connection.execute(SQLITE_QUERIES["said_of_dead"], [name]).fetchall():
        connection.execute(SQLITE_QUERIES["rewrite_dead"], [name, _redact_reason(why)])
    rows = connection.execute(SQLITE_QUERIES["said_in_replies"], [name])
    for number, body, why in rows.fetchall():
        if body and outbound_from_row((number, body, 0)).seq in positions:
            end_reply(connection, "erase_reply", number)
        elif why:
            connection.execute(SQLITE_QUERIES["rewrite_why"], [number, _redact_reason(why)])


def _redact_reason(stored: bytes) -> bytes:
    return encode_name(erase_failure_details(decode_name(stored)))
