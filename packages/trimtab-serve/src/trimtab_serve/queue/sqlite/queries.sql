-- Queries of the queue and the counters, by name. They follow PostgreSQL's if possible.

-- name: post
INSERT INTO inbox (session, key, body) VALUES (?1, ?2, ?3)
ON CONFLICT (session, key) DO NOTHING;

-- name: revive_session
DELETE FROM dead WHERE session = ?1;

-- name: pending
SELECT number, body FROM inbox
WHERE session = ?1 AND number > ?2 ORDER BY number LIMIT ?3;

-- name: find_waiting
SELECT number, body FROM inbox WHERE session = ?1 AND key = ?2;

-- name: posted_since
SELECT DISTINCT session FROM inbox
WHERE number > ?1 AND NOT EXISTS (SELECT 1 FROM dead WHERE dead.session = inbox.session);

-- name: newest_number
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'inbox';

-- name: answered_keys
SELECT inbox.key FROM json_each(?2) AS one CROSS JOIN inbox ON inbox.number = one.value
WHERE inbox.session = ?1;

-- name: remove_answered
DELETE FROM inbox WHERE session = ?1 AND number IN (SELECT value FROM json_each(?2));

-- name: keep_reply
INSERT INTO outbox (session, key, channel, body, attempts, due)
SELECT ?1, ?2, ?3, ?4, ?5, CASE WHEN NOT EXISTS (
    SELECT 1 FROM outbox WHERE session = ?1 AND state = 'waiting' AND channel = ?3) THEN ?6 END
WHERE true
ON CONFLICT (key) DO NOTHING;

-- name: waiting
SELECT session FROM inbox
WHERE NOT EXISTS (SELECT 1 FROM dead WHERE dead.session = inbox.session)
GROUP BY session ORDER BY min(number);

-- name: measure_waiting
SELECT count(*), coalesce(sum(length(body)), 0) FROM inbox WHERE session = ?1;

-- name: search_waiting
SELECT DISTINCT session FROM inbox WHERE session BETWEEN ?1 AND ?2 AND instr(body, ?3) > 0;

-- name: depth
SELECT (SELECT count(*) FROM inbox WHERE session BETWEEN ?1 AND ?2) - (
    SELECT count(*) FROM dead CROSS JOIN inbox ON inbox.session = dead.session
    WHERE dead.session BETWEEN ?1 AND ?2);

-- name: waiting_replies
SELECT count(*) FROM outbox WHERE state = 'waiting';

-- name: oldest_waiting
SELECT number, body FROM inbox
WHERE NOT EXISTS (SELECT 1 FROM dead WHERE dead.session = inbox.session)
ORDER BY number LIMIT 1;

-- name: is_waiting
SELECT 1 FROM inbox WHERE session = ?1 AND number = ?2;

-- name: give_up
INSERT INTO dead (session, why, at) VALUES (?1, ?2, ?3)
ON CONFLICT (session) DO UPDATE SET why = excluded.why, at = excluded.at;

-- name: count_interruption
INSERT INTO interruptions (session, times) VALUES (?1, 1)
ON CONFLICT (session) DO UPDATE SET times = times + 1;

-- name: interruptions
SELECT session, times FROM interruptions;

-- name: end_interruptions
DELETE FROM interruptions WHERE session = ?1;

-- A session with dead letters, or with replies that will never arrive. The reason is that of its
-- messages or, if there are no dead letters, of the first of its replies.
-- name: dead
SELECT session, why, messages, at, replies FROM (
    SELECT session, why, at,
        (SELECT count(*) FROM inbox WHERE inbox.session = dead.session) AS messages,
        (SELECT count(*) FROM outbox
            WHERE outbox.session = dead.session AND state = 'refused') AS replies
    FROM dead
    UNION ALL
    SELECT session, why, min(due), 0, count(*) FROM (
        SELECT session, why, due FROM outbox AS refused
        WHERE state = 'refused'
            AND NOT EXISTS (SELECT 1 FROM dead WHERE dead.session = refused.session))
    GROUP BY session
)
WHERE session BETWEEN ?1 AND ?2 ORDER BY at DESC, session LIMIT ?3;

-- name: why_given_up
SELECT why FROM dead
WHERE session = ?1 AND EXISTS (SELECT 1 FROM inbox WHERE session = ?1);

-- name: has_messages
SELECT EXISTS (SELECT 1 FROM inbox WHERE session = ?1);

-- name: send_again
UPDATE outbox SET state = 'waiting' WHERE session = ?1 AND state = 'refused';

-- Makes the first waiting reply of a session due for each channel.
-- name: begin_with_first
UPDATE outbox SET lent = 0, due = CASE WHEN NOT EXISTS (
    SELECT 1 FROM outbox AS earlier
    WHERE earlier.session = outbox.session AND earlier.state = 'waiting'
        AND earlier.channel = outbox.channel AND earlier.number < outbox.number) THEN 0.0 END
WHERE session = ?1 AND state = 'waiting';

-- name: outgoing
SELECT number, body, attempts FROM outbox
WHERE state = 'waiting' AND due <= ?2
    AND channel IN (SELECT CAST(value AS BLOB) FROM json_each(?1))
ORDER BY due, number LIMIT ?3;

-- name: lend
UPDATE outbox SET due = ?2, lent = 1, attempts = attempts + 1 WHERE number = ?1;

-- name: end_loans
UPDATE outbox SET due = 0.0, lent = 0 WHERE state = 'waiting' AND lent;

-- Makes the next reply due after one that no longer waits.
-- name: let_next_go
UPDATE outbox SET due = ?2 WHERE due IS NULL AND number = (
    SELECT later.number FROM outbox AS gone
    CROSS JOIN outbox AS later ON later.session = gone.session AND later.state = 'waiting'
    WHERE gone.number = ?1 AND later.channel = gone.channel
    ORDER BY later.number LIMIT 1);

-- The content is not stored twice, because the log has it.
-- name: delivered
UPDATE outbox SET state = 'sent', body = '', why = NULL, due = ?2
WHERE number = ?1 AND state = 'waiting';

-- name: put_off
UPDATE outbox SET due = ?2, lent = 0, why = ?3, attempts = max(0, attempts - ?4)
WHERE number = ?1 AND state = 'waiting' AND due IS NOT NULL;

-- name: refused
UPDATE outbox SET state = 'refused', why = ?2, due = ?3
WHERE number = ?1 AND state = 'waiting';

-- All except the newest of a state.
-- name: shorten_outbox
DELETE FROM outbox WHERE state = ?1 AND number <= (
    SELECT number FROM outbox WHERE state = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2);

-- name: forget_inbox
DELETE FROM inbox WHERE session = ?1;

-- Delivered replies are also removed: a new session of the same name starts with no known keys.
-- name: forget_outbox
DELETE FROM outbox WHERE session = ?1;

-- name: said_in_messages
SELECT number, body FROM inbox
WHERE session = ?1 AND key IN (SELECT CAST(value AS BLOB) FROM json_each(?2));

-- name: rewrite_message
UPDATE inbox SET body = ?2 WHERE number = ?1;

-- name: said_in_replies
SELECT number, body, why FROM outbox WHERE session = ?1;

-- Its key stays known for a while, so that a turn that runs again does not send it again.
-- name: erase_reply
UPDATE outbox SET state = 'sent', body = '', why = NULL WHERE number = ?1;

-- name: rewrite_why
UPDATE outbox SET why = ?2 WHERE number = ?1;

-- name: said_of_dead
SELECT why FROM dead WHERE session = ?1;

-- name: rewrite_dead
UPDATE dead SET why = ?2 WHERE session = ?1;

-- name: save_session_usage
INSERT INTO session_usage (session, tenant, bytes) VALUES (?, ?, ?)
ON CONFLICT (session) DO UPDATE SET bytes = excluded.bytes;

-- name: add_session_usage
INSERT INTO session_usage (session, tenant, bytes) VALUES (?, ?, ?)
ON CONFLICT (session) DO UPDATE SET bytes = bytes + excluded.bytes;

-- name: tenant_totals
SELECT tenant, sessions, bytes FROM tenant_usage WHERE tenant = ?;

-- name: forget_session_usage
DELETE FROM session_usage WHERE session = ?;

-- name: counted_sessions
SELECT session FROM session_usage;

-- name: full_sessions
SELECT session, bytes FROM session_usage WHERE bytes >= ?;

-- name: full_tenants
SELECT tenant, sessions, bytes FROM tenant_usage WHERE sessions >= ? OR bytes >= ?;
