-- What the message queue and the fleet ask, by name. Tables without a schema are Procrastinate's own,
-- which are found by the search path of the connection.

-- Whoever posts holds a share of the session's gate until it has committed; a turn's job, once it
-- has begun, passes the whole gate. So whoever relied on a job that was still queued is heard by it.
-- name: share_gate
SELECT pg_advisory_xact_lock_shared($1);

-- name: pass_gate
SELECT pg_advisory_xact_lock($1);

-- A letter whose key waits, or is in the log because it was answered, is not kept again. Says
-- whether it was kept. Its turn's job is queued with it, unless one is queued that will see it. One
-- statement: the share of the gate comes first, for all else hangs on it, and a conflict is found in
-- what stands in the table by then, not in an earlier snapshot. `:events` is the session's own
-- partition.
-- name: post
WITH gate AS MATERIALIZED (
    SELECT pg_advisory_xact_lock_shared($5)
),
kept AS (
    INSERT INTO trimtab.inbox (session, key, body)
    SELECT $1, $2, $3 FROM gate
    WHERE NOT EXISTS (SELECT FROM :events WHERE session = $4 AND key = $2)
    ON CONFLICT (session, key) DO NOTHING
    RETURNING number
),
awake AS (
    DELETE FROM trimtab.dead WHERE session = $1 AND EXISTS (SELECT FROM kept)
),
due AS (
    INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
    SELECT $6, $7, $8, $8, $9::jsonb FROM kept
    ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING
)
SELECT EXISTS (SELECT FROM kept);

-- As Procrastinate queues a job, but for one that is queued already: that is left as it is, where
-- its own function would raise an error and take the transaction with it.
-- name: queue_job
INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args, scheduled_at)
SELECT $1, $2, $3, $3, $4::jsonb, CASE WHEN $5 > 0 THEN now() + make_interval(secs => $5) END
ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING;

-- name: pending
SELECT number, body FROM trimtab.inbox
WHERE session = $1 AND number > $2 ORDER BY number LIMIT $3;

-- The session's row is shared until the end: a claim, which changes it, comes before or after. Of a
-- session that is gone nothing is said any more. The turn's job ends with it, unless there is more
-- that the turn has not taken: says which of the two.
-- name: finish
WITH standing AS (
    SELECT epoch FROM trimtab.sessions WHERE id = $1 FOR SHARE
),
newest AS (
    SELECT coalesce(max(epoch), 0) AS epoch FROM standing
),
gone AS (
    DELETE FROM trimtab.inbox USING newest
    WHERE newest.epoch <= $2 AND session = $3 AND number = ANY ($4::int8[])
),
awake AS (
    DELETE FROM trimtab.dead USING newest WHERE newest.epoch <= $2 AND session = $3
),
kept AS (
    INSERT INTO trimtab.outbox (session, key, door, body)
    SELECT $3, new.key, new.door, new.body
    FROM standing, unnest($5::text[], $6::text[], $7::text[])
        WITH ORDINALITY AS new (key, door, body, place)
    WHERE standing.epoch <= $2
    ORDER BY new.place
    ON CONFLICT (key) DO NOTHING
),
ended AS (
    DELETE FROM procrastinate_jobs USING newest
    WHERE newest.epoch <= $2 AND id = $8 AND status = 'doing' AND lock = $3
        AND NOT EXISTS (
            SELECT FROM trimtab.inbox WHERE session = $3 AND number <> ALL ($4::int8[]))
    RETURNING id
)
SELECT epoch, EXISTS (SELECT FROM ended) FROM newest;

-- name: waiting
SELECT session FROM trimtab.inbox
WHERE NOT EXISTS (SELECT FROM trimtab.dead WHERE dead.session = inbox.session)
GROUP BY session ORDER BY min(number);

-- Letters for which no turn is due, as after a backup was restored without its queue.
-- name: stranded
SELECT DISTINCT session FROM trimtab.inbox
WHERE NOT EXISTS (SELECT FROM trimtab.dead WHERE dead.session = inbox.session)
    AND NOT EXISTS (
        SELECT FROM procrastinate_jobs
        WHERE lock = inbox.session AND status IN ('todo', 'doing'))
LIMIT $1;

-- As many as are worth counting.
-- name: depth
SELECT count(*) FROM (
    SELECT FROM trimtab.inbox
    WHERE session >= $1 AND ($2::text IS NULL OR session < $2)
        AND NOT EXISTS (SELECT FROM trimtab.dead WHERE dead.session = inbox.session)
    LIMIT $3) AS counted;

-- name: oldest_waiting
SELECT number, body FROM trimtab.inbox
WHERE NOT EXISTS (SELECT FROM trimtab.dead WHERE dead.session = inbox.session)
ORDER BY number LIMIT 1;

-- Nothing where a newer turn has claimed the session, or the letter was answered meanwhile: whoever
-- removes it comes before or after.
-- name: give_up
WITH standing AS (
    SELECT epoch FROM trimtab.sessions WHERE id = $1 FOR SHARE
),
there AS (
    SELECT number FROM trimtab.inbox
    WHERE session = $3 AND number = $4
        AND NOT EXISTS (SELECT FROM standing WHERE epoch > $2::int8)
    FOR KEY SHARE
),
resting AS (
    INSERT INTO trimtab.dead (session, why, at)
    SELECT $3, $5, $6 FROM there
    ON CONFLICT (session) DO UPDATE SET why = excluded.why, at = excluded.at
),
kept AS (
    INSERT INTO trimtab.outbox (session, key, door, body)
    SELECT $3, new.key, new.door, new.body
    FROM there, unnest($7::text[], $8::text[], $9::text[])
        WITH ORDINALITY AS new (key, door, body, place)
    ORDER BY new.place
    ON CONFLICT (key) DO NOTHING
)
SELECT EXISTS (SELECT FROM there);

-- name: dead
SELECT session, coalesce(dead.why, refused.why), CASE WHEN dead.session IS NULL THEN 0 ELSE (
        SELECT count(*) FROM trimtab.inbox WHERE inbox.session = dead.session) END,
    coalesce(dead.at, refused.at) AS at, coalesce(refused.replies, 0)
FROM (
    SELECT * FROM trimtab.dead WHERE session >= $1 AND ($2::text IS NULL OR session < $2)
) AS dead FULL JOIN (
    SELECT session, count(*) AS replies, (array_agg(why ORDER BY number))[1] AS why,
        extract(epoch FROM min(due))::float8 AS at
    FROM trimtab.outbox
    WHERE state = 'refused' AND session >= $1 AND ($2::text IS NULL OR session < $2)
    GROUP BY session
) AS refused USING (session)
ORDER BY at DESC, session LIMIT $3;

-- name: why_given_up
SELECT why FROM trimtab.dead
WHERE session = $1 AND EXISTS (SELECT FROM trimtab.inbox WHERE session = $1);

-- name: revive
WITH dead AS (
    DELETE FROM trimtab.dead WHERE session = $1 RETURNING session
),
again AS (
    UPDATE trimtab.outbox SET state = 'waiting', due = now()
    WHERE session = $1 AND state = 'refused' RETURNING session
)
SELECT EXISTS (SELECT FROM dead UNION ALL SELECT FROM again),
    EXISTS (SELECT FROM trimtab.inbox WHERE session = $1);

-- The oldest of each session, if it is due and nobody else has it. Returns the attempts made before.
-- name: outgoing
WITH head AS (
    SELECT number FROM trimtab.outbox AS one
    WHERE state = 'waiting' AND due <= now() AND door = ANY ($1::text[])
        AND NOT EXISTS (
            SELECT FROM trimtab.outbox AS earlier
            WHERE earlier.session = one.session AND earlier.state = 'waiting'
                AND earlier.number < one.number AND earlier.door = ANY ($1::text[]))
    ORDER BY number LIMIT $2
    FOR UPDATE SKIP LOCKED
)
UPDATE trimtab.outbox SET due = now() + make_interval(secs => $3), attempts = attempts + 1
FROM head WHERE outbox.number = head.number
RETURNING outbox.number, body, attempts - 1;

-- What was said is not kept twice: the log has it.
-- name: delivered
UPDATE trimtab.outbox SET state = 'sent', body = '', due = now()
WHERE number = $1 AND state = 'waiting';

-- name: put_off
UPDATE trimtab.outbox
SET due = now() + make_interval(secs => $2), why = $3, attempts = attempts - $4::int4
WHERE number = $1 AND state = 'waiting';

-- name: refused
UPDATE trimtab.outbox SET state = 'refused', why = $2, due = now()
WHERE number = $1 AND state = 'waiting';

-- name: tidy
DELETE FROM trimtab.outbox WHERE number IN (
    SELECT number FROM trimtab.outbox
    WHERE state = $1 AND due < now() - make_interval(secs => $2) LIMIT $3);

-- name: forget_inbox
DELETE FROM trimtab.inbox WHERE session = $1;

-- name: forget_waiting
DELETE FROM trimtab.outbox WHERE session = $1 AND state = 'waiting';

-- What has left goes as well: a session of the same name begins anew, and so do its keys.
-- name: forget_done
DELETE FROM trimtab.outbox WHERE session = $1 AND state <> 'waiting';

-- name: forget_dead
DELETE FROM trimtab.dead WHERE session = $1;

-- What may say something that is erased, locked against whoever would change it meanwhile.
-- name: said_in_letters
SELECT number, body FROM trimtab.inbox WHERE session = $1 AND key = ANY ($2::text[]) FOR UPDATE;

-- name: rewrite_letter
UPDATE trimtab.inbox SET body = $3 WHERE session = $1 AND number = $2;

-- name: said_in_waiting
SELECT number, body, why FROM trimtab.outbox WHERE session = $1 AND state = 'waiting' FOR UPDATE;

-- name: said_in_done
SELECT number, body, why FROM trimtab.outbox WHERE session = $1 AND state <> 'waiting' FOR UPDATE;

-- Its key stays known for a while: a turn that is done again does not send it again.
-- name: erase_reply
UPDATE trimtab.outbox SET state = 'sent', body = '', why = NULL, due = now() WHERE number = $1;

-- name: rewrite_why
UPDATE trimtab.outbox SET why = $2 WHERE number = $1;

-- name: said_of_dead
SELECT why FROM trimtab.dead WHERE session = $1 FOR UPDATE;

-- name: rewrite_dead
UPDATE trimtab.dead SET why = $2 WHERE session = $1;

-- A job goes away and another takes its place: whoever still runs the first finds it gone, so its
-- late end frees no lock. Nothing where the job has moved on since it was looked at.
-- name: drop_job
DELETE FROM procrastinate_jobs
WHERE id = $1 AND status = 'doing' AND worker_id IS NOT DISTINCT FROM $2;

-- name: read_only
SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool;

-- name: waiting_retries
SELECT count(*) FROM procrastinate_jobs
WHERE queue_name = 'turns' AND status = 'todo' AND (args ? 'tries' OR args ? 'failing_since');

-- name: drop_queued
DELETE FROM procrastinate_jobs WHERE queueing_lock = $1 AND status = 'todo';

-- Jobs that a worker of this process has begun, by its own account and by the queue's.
-- name: begun
SELECT id, task_name, args, worker_id FROM procrastinate_jobs
WHERE status = 'doing' AND worker_id = ANY ($1::int8[]);

-- The first free place of these; held until it is given back or the connection ends.
-- name: take_slot
SELECT place FROM unnest($2::int4[]) AS place WHERE pg_try_advisory_lock($1, place) LIMIT 1;

-- name: leave_slot
SELECT pg_advisory_unlock($1, $2);

-- Procrastinate's own tables, and which of its migrations they have.
-- name: begin_queue
CREATE SCHEMA IF NOT EXISTS trimtab_queue;
CREATE TABLE IF NOT EXISTS trimtab_queue.migrations (
    name text PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- name: queue_migrations
SELECT name FROM trimtab_queue.migrations;

-- name: record_queue
INSERT INTO trimtab_queue.migrations (name) SELECT unnest($1::text[]);

-- name: enter_queue
SET LOCAL search_path = trimtab_queue;

-- Every turn leaves dead rows behind: vacuumed by how many those are, not by how many there are.
-- name: tune_queue
ALTER TABLE procrastinate_jobs SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0);
ALTER TABLE procrastinate_events SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0);

-- name: record_erasure
INSERT INTO trimtab.erasures (tenant, target, body) VALUES ($1, $2, $3);

-- name: newest_erasures
SELECT body FROM trimtab.erasures
WHERE ($1::text IS NULL OR tenant = $1) AND ($2::text IS NULL OR target = $2) ORDER BY number DESC LIMIT $3;

-- name: erasure_secret
SELECT secret FROM trimtab.erasure_secret;

-- One process of many deletes what is too old; held until it is given back or the connection ends.
-- name: take_retention
SELECT pg_try_advisory_lock($1);

-- name: leave_retention
SELECT pg_advisory_unlock($1);
