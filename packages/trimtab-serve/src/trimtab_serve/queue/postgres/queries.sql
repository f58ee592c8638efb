-- Queries of the message queue and the jobs, by name. Tables without a schema are Procrastinate's,
-- found by the search path of the connection.

-- A post holds a shared lock of the session's gate until its commit. A turn's job takes the whole
-- gate after it has begun. So the job sees every message whose post relied on that job.
-- name: share_gate
SELECT pg_advisory_xact_lock_shared($1);

-- name: pass_gate
SELECT pg_advisory_xact_lock($1);

-- A message whose key waits, or is in the log because it was answered, is not stored again. Returns
-- whether it was stored. The job of its turn is queued with it, unless one is queued that will see
-- it. This is one statement. The lock of the gate comes first, because everything depends on it. A
-- conflict is found in the current table, not in an earlier snapshot. `:events` is the partition of
-- the session.
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
SELECT EXISTS (SELECT FROM kept) FROM gate;

-- Queues a job like Procrastinate, except that a queued job is left as it is. Procrastinate's own
-- function would raise an error and abort the transaction.
-- name: queue_job
INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args, scheduled_at)
SELECT $1, $2, $3, $3, $4::jsonb, CASE WHEN $5 > 0 THEN now() + make_interval(secs => $5) END
ON CONFLICT (queueing_lock) WHERE status = 'todo' DO NOTHING;

-- name: pending
SELECT number, body FROM trimtab.inbox
WHERE session = $1 AND number > $2 ORDER BY number LIMIT $3;

-- name: find_waiting
SELECT number, body FROM trimtab.inbox WHERE session = $1 AND key = $2;

-- The session's row is locked in share mode until the end, so a claim, which changes it, comes
-- before or after. Nothing is stored for a deleted session. The turn's job ends with it, unless
-- there are messages that the turn has not taken. Returns which of the two happened.
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
calm AS (
    DELETE FROM trimtab.interruptions USING newest WHERE newest.epoch <= $2 AND lock = $3
),
kept AS (
    INSERT INTO trimtab.outbox (session, key, channel, body)
    SELECT $3, new.key, new.channel, new.body
    FROM standing, unnest($5::text[], $6::text[], $7::text[])
        WITH ORDINALITY AS new (key, channel, body, place)
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

-- name: search_waiting
SELECT DISTINCT session FROM trimtab.inbox
WHERE session >= $1 AND ($2::text IS NULL OR session < $2) AND strpos(body, $3) > 0;

-- Messages without a job, as after a backup was restored without its job queue: those of a page, and
-- where the next page begins. The indexes of the jobs compare by the database's own collation.
-- name: stranded
WITH page AS MATERIALIZED (
    SELECT number, session COLLATE "default" AS session FROM trimtab.inbox
    WHERE number > $1 ORDER BY number LIMIT $2
),
lost AS (
    SELECT DISTINCT session FROM page
    WHERE NOT EXISTS (SELECT FROM trimtab.dead WHERE dead.session = page.session)
        AND NOT EXISTS (
            SELECT FROM procrastinate_jobs
            WHERE queueing_lock = page.session AND status = 'todo' OFFSET 0)
        AND NOT EXISTS (
            SELECT FROM procrastinate_jobs
            WHERE lock = page.session AND status = 'doing' OFFSET 0)
)
SELECT (SELECT CASE WHEN count(*) < $2 THEN 0 ELSE max(number) END FROM page),
    ARRAY(SELECT session FROM lost);

-- name: measure_waiting
SELECT count(*), coalesce(sum(octet_length(body)), 0)::bigint FROM trimtab.inbox WHERE session = $1;

-- Counts only up to a limit. The end of the range is one expression, so that the index knows it. A
-- dead letter has counted its messages, so no message is compared with the dead letters.
-- name: depth
WITH dead AS MATERIALIZED (
    SELECT coalesce(sum(messages), 0)::bigint AS messages FROM trimtab.dead
    WHERE session >= $1 AND session < coalesce($2::text, repeat(chr(1114111), 8))
)
SELECT (
    SELECT count(*) FROM (
        SELECT FROM trimtab.inbox
        WHERE session >= $1 AND session < coalesce($2::text, repeat(chr(1114111), 8))
        LIMIT $3::int8 + (SELECT messages FROM dead)) AS counted
) - messages FROM dead;

-- name: oldest_waiting
SELECT number, body FROM trimtab.inbox
WHERE NOT EXISTS (SELECT FROM trimtab.dead WHERE dead.session = inbox.session)
ORDER BY number LIMIT 1;

-- Does nothing if a newer turn has claimed the session, or if the message was answered meanwhile:
-- the transaction that removes it comes before or after.
-- name: give_up
WITH standing AS (
    SELECT epoch FROM trimtab.sessions WHERE id = $1 FOR SHARE
),
there AS (
    SELECT number FROM trimtab.inbox
    WHERE session = $3 AND number = $4
        AND NOT EXISTS (
            SELECT FROM standing WHERE epoch > coalesce($2::int8, 9223372036854775806))
    FOR KEY SHARE
),
resting AS (
    INSERT INTO trimtab.dead (session, why, at, messages)
    SELECT $3, $5, $6, (SELECT count(*) FROM trimtab.inbox WHERE session = $3) FROM there
    ON CONFLICT (session) DO UPDATE
    SET why = excluded.why, at = excluded.at, messages = excluded.messages
),
kept AS (
    INSERT INTO trimtab.outbox (session, key, channel, body)
    SELECT $3, new.key, new.channel, new.body
    FROM there, unnest($7::text[], $8::text[], $9::text[])
        WITH ORDINALITY AS new (key, channel, body, place)
    ORDER BY new.place
    ON CONFLICT (key) DO NOTHING
)
SELECT EXISTS (SELECT FROM there);

-- name: dead
SELECT session, coalesce(dead.why, refused.why), coalesce(dead.messages, 0),
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
calm AS (
    DELETE FROM trimtab.interruptions WHERE lock = $1
),
again AS (
    UPDATE trimtab.outbox SET state = 'waiting', due = now()
    WHERE session = $1 AND state = 'refused' RETURNING session
)
SELECT EXISTS (SELECT FROM dead UNION ALL SELECT FROM again),
    EXISTS (SELECT FROM trimtab.inbox WHERE session = $1);

-- The oldest of each session, if it is due and not leased. Returns the earlier attempts. A subquery
-- with `min` is looked up for each reply in order; the planner would join `NOT EXISTS` with all.
-- name: outgoing
WITH head AS (
    SELECT number FROM trimtab.outbox AS one
    WHERE state = 'waiting' AND due <= now() AND channel = ANY ($1::text[])
        AND number = (
            SELECT min(number) FROM trimtab.outbox AS earlier
            WHERE earlier.session = one.session AND earlier.state = 'waiting'
                AND earlier.channel = ANY ($1::text[]))
    ORDER BY number LIMIT $2
    FOR UPDATE SKIP LOCKED
)
UPDATE trimtab.outbox SET due = now() + make_interval(secs => $3), attempts = attempts + 1
FROM head WHERE outbox.number = head.number
RETURNING outbox.number, body, attempts - 1;

-- The content is not stored twice, because the log has it.
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

-- Delivered replies are also removed: a new session of the same name starts with no known keys.
-- name: forget_done
DELETE FROM trimtab.outbox WHERE session = $1 AND state <> 'waiting';

-- name: forget_dead
DELETE FROM trimtab.dead WHERE session = $1;

-- name: forget_interruptions
DELETE FROM trimtab.interruptions WHERE lock IN ($1, 'summary ' || $1);

-- Rows that may contain what is erased, locked against changes.
-- name: said_in_messages
SELECT number, body FROM trimtab.inbox WHERE session = $1 AND key = ANY ($2::text[]) FOR UPDATE;

-- name: rewrite_message
UPDATE trimtab.inbox SET body = $3 WHERE session = $1 AND number = $2;

-- name: said_in_waiting
SELECT number, body, why FROM trimtab.outbox WHERE session = $1 AND state = 'waiting' FOR UPDATE;

-- name: said_in_done
SELECT number, body, why FROM trimtab.outbox WHERE session = $1 AND state <> 'waiting' FOR UPDATE;

-- Its key stays known for a while, so that a turn that runs again does not send it again.
-- name: erase_reply
UPDATE trimtab.outbox SET state = 'sent', body = '', why = NULL, due = now() WHERE number = $1;

-- name: rewrite_why
UPDATE trimtab.outbox SET why = $2 WHERE number = $1;

-- name: said_of_dead
SELECT why FROM trimtab.dead WHERE session = $1 FOR UPDATE;

-- name: rewrite_dead
UPDATE trimtab.dead SET why = $2 WHERE session = $1;

-- A takeover deletes the job and queues another one. The process that still runs the first finds it
-- gone, so its late end frees no lock. Does nothing if the job has changed since it was read.
-- name: drop_job
DELETE FROM procrastinate_jobs
WHERE id = $1 AND status = 'doing' AND worker_id IS NOT DISTINCT FROM $2;

-- name: count_interruption
INSERT INTO trimtab.interruptions AS known (lock, times) VALUES ($1, 1)
ON CONFLICT (lock) DO UPDATE SET times = known.times + 1
RETURNING times;

-- name: end_interruptions
DELETE FROM trimtab.interruptions WHERE lock = $1;

-- The job that waits longest, except those of some tenants. Jobs that were interrupted are excluded
-- for more tenants, or for all with `$5`. A lock has at most one job that waits, so only a running
-- one can be in its way. `OFFSET 0` looks for that one in the index, instead of reading all that run.
-- The index `ready_jobs` is read twice, for jobs that were never put off and for those whose time has
-- come, so that none of the others is read. Its first columns are written as in the index.
-- name: fetch_job
WITH candidate AS (
    SELECT first.id FROM (VALUES (false), (true)) AS kind (is_put_off) CROSS JOIN LATERAL (
        SELECT id FROM procrastinate_jobs AS jobs
        WHERE status = 'todo' AND queue_name = $1
            AND (scheduled_at IS NOT NULL) = kind.is_put_off
            AND coalesce(scheduled_at, '-infinity') <= now()
            AND split_part(args->>'session', '/', 1) <> ALL ($3::text[])
            AND NOT EXISTS (
                SELECT FROM procrastinate_jobs AS running
                WHERE running.lock = jobs.lock AND running.status = 'doing' OFFSET 0)
            AND NOT (
                ($5 OR split_part(args->>'session', '/', 1) = ANY ($4::text[]))
                AND EXISTS (SELECT FROM trimtab.interruptions WHERE lock = jobs.lock))
        ORDER BY coalesce(scheduled_at, '-infinity'), id LIMIT 1
        FOR UPDATE OF jobs SKIP LOCKED) AS first
    ORDER BY first.id LIMIT 1
)
UPDATE procrastinate_jobs AS jobs SET status = 'doing', worker_id = $2
FROM candidate WHERE jobs.id = candidate.id
RETURNING jobs.id, status::text, priority, lock, queueing_lock, task_name,
    CASE WHEN EXISTS (SELECT FROM trimtab.interruptions AS known WHERE known.lock = jobs.lock)
        THEN args || '{"interrupted": true}' ELSE args END,
    scheduled_at, queue_name, attempts, worker_id;

-- name: beat
UPDATE procrastinate_workers SET last_heartbeat = now() WHERE id = ANY ($1::int8[]);

-- name: lower_memory
SELECT set_config('work_mem', $1, true);

-- A temporary file larger than the memory of the statement: on a full disk it is an error, and no
-- message could be stored either.
-- name: write_probe
SELECT count(*) FROM generate_series(1, 5000);

-- name: read_only
SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool;

-- Counts only up to a limit. A retry is put off, so the index `ready_jobs` finds it.
-- name: waiting_retries
SELECT count(*) FROM (
    SELECT FROM procrastinate_jobs
    WHERE queue_name = 'turns' AND status = 'todo' AND scheduled_at IS NOT NULL
        AND (args ? 'tries' OR args ? 'failing_since')
    LIMIT $1) AS counted;

-- name: drop_queued
DELETE FROM procrastinate_jobs WHERE queueing_lock = $1 AND status = 'todo';

-- Jobs that these workers of this process have begun, according to the queue.
-- name: begun
SELECT id, task_name, args, worker_id FROM procrastinate_jobs
WHERE status = 'doing' AND worker_id = ANY ($1::int8[]);

-- The first free slot of these. It is held until it is released or the connection ends.
-- name: take_slot
SELECT place FROM unnest($2::int4[]) AS place WHERE pg_try_advisory_lock($1, place) LIMIT 1;

-- name: leave_slot
SELECT pg_advisory_unlock($1, $2);

-- Procrastinate's tables, and which of its migrations they have.
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

-- Jobs of a queue that wait: first those that were never put off, by age, then the others, by time.
-- Every turn leaves dead rows. Vacuum depends on their number, not on the number of all rows.
-- name: tune_queue
CREATE INDEX ready_jobs ON procrastinate_jobs (
    queue_name, (scheduled_at IS NOT NULL), coalesce(scheduled_at, '-infinity'), id)
    WHERE status = 'todo';
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

-- name: save_erasure_job
INSERT INTO trimtab.erasure_jobs (id, tenant, body, finished_at, lease_until)
VALUES ($1, $2, $3, $4, now() + make_interval(secs => $5))
ON CONFLICT (id) DO UPDATE SET body = excluded.body, finished_at = excluded.finished_at,
    lease_until = excluded.lease_until
WHERE erasure_jobs.finished_at IS NULL;

-- name: lock_erasure_jobs
SELECT pg_advisory_xact_lock($1);

-- name: claim_erasure_job
UPDATE trimtab.erasure_jobs SET lease_until = now() + make_interval(secs => $2)
WHERE id = (
    SELECT id FROM trimtab.erasure_jobs AS job
    WHERE finished_at IS NULL AND ($1::text IS NULL OR id = $1) AND NOT EXISTS (
        SELECT FROM trimtab.erasure_jobs AS leased
        WHERE leased.tenant = job.tenant AND leased.finished_at IS NULL AND leased.lease_until > now())
    ORDER BY number LIMIT 1)
RETURNING body;

-- name: erasure_jobs
SELECT body FROM trimtab.erasure_jobs WHERE $1::text IS NULL OR tenant = $1 ORDER BY number;

-- name: forget_erasure_jobs
DELETE FROM trimtab.erasure_jobs
WHERE finished_at < extract(epoch FROM now()) - $1;

-- name: erasure_secret
SELECT secret FROM trimtab.erasure_secret;

-- One of many processes deletes old sessions. The lock is held until it is released or the
-- connection ends.
-- name: take_retention
SELECT pg_try_advisory_lock($1);

-- name: leave_retention
SELECT pg_advisory_unlock($1);
