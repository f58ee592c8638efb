-- What the PostgreSQL store asks, by name. Parameters are numbered as the server numbers them.

-- A single event that changes no row but its own. The primary key is the compare-and-swap. The
-- position before must be there, in the same snapshot as the session's epoch: whoever sees the
-- event of a claim sees its epoch as well, so no lock is needed between the two. The share of the
-- row's key holds back `delete` and `rewrite`, and nobody else.
-- `:events` and `:calls` are the session's own partitions: a plan over all sixteen takes a lock on
-- each.
-- name: append_one
INSERT INTO :events (session, at, seq, kind, key, body, subject)
SELECT id, $2, $3, $4, $5, $6, $9::int8 FROM trimtab.sessions
WHERE id = $1 AND epoch <= $7
    AND EXISTS (SELECT FROM :events WHERE session = $1 AND seq = $8)
FOR KEY SHARE OF sessions;

-- name: append_many
WITH owner AS (
    :owner
)
INSERT INTO :events (session, at, seq, kind, key, body, subject)
SELECT owner.id, new.at, new.seq, new.kind, new.key, new.body, new.subject
FROM owner, unnest($2::float8[], $3::int4[], $4::text[], $5::text[], $6::text[], $9::int8[])
    AS new (at, seq, kind, key, body, subject);

-- As many values as there are events: the server reads them in half the time of arrays.
-- name: append_few
WITH owner AS (
    :owner
)
INSERT INTO :events (session, at, seq, kind, key, body, subject)
SELECT owner.id, new.at, new.seq, new.kind, new.key, new.body, new.subject
FROM owner, (VALUES :values) AS new (at, seq, kind, key, body, subject);

-- Who may append, where the values stand behind all else.
-- name: owner_of_few
    SELECT id FROM trimtab.sessions
    WHERE id = $1 AND epoch <= $2
        AND EXISTS (SELECT FROM :events WHERE session = $1 AND seq = $3)
    FOR KEY SHARE OF sessions

-- Events with rows made from them. Every part hangs on `owner`: no owner, no rows.
-- name: append_rows
WITH owner AS (
    :owner
),
kept AS (
    INSERT INTO trimtab.blobs (session, digest, data)
    SELECT owner.id, new.digest, new.data
    FROM owner, unnest($9::bytea[], $10::bytea[]) AS new (digest, data)
    ON CONFLICT DO NOTHING
),
inherited AS (
    DELETE FROM :calls USING owner WHERE session = owner.id AND seq < $11
),
called AS (
    INSERT INTO :calls (
        session, seq, bytes, created_at, status,
        prompt_tokens, completion_tokens, cache_read_tokens, cache_write_tokens, model, purpose)
    SELECT
        owner.id, new.seq, new.bytes, to_timestamp(new.at), new.status,
        new.input, new.output, new.cache_read, new.cache_write,
        -- Where no settings are among the events, the session's from before.
        coalesce(new.model, (SELECT model FROM trimtab.sessions WHERE id = $1)), new.purpose
    FROM owner, unnest(
        $12::int4[], $13::int8[], $14::float8[], $15::text[],
        $16::int8[], $17::int8[], $18::int8[], $19::int8[], $20::text[], $21::text[]
    ) AS new (
        seq, bytes, at, status, input, output, cache_read, cache_write, model, purpose)
),
ended AS (
    UPDATE :calls AS calls
    SET status = new.status, prompt_tokens = new.input, completion_tokens = new.output,
        cache_read_tokens = new.cache_read, cache_write_tokens = new.cache_write
    FROM owner, unnest(
        $22::int4[], $23::text[], $24::int8[], $25::int8[], $26::int8[], $27::int8[]
    ) AS new (seq, status, input, output, cache_read, cache_write)
    WHERE calls.session = owner.id AND calls.seq = new.seq
)
INSERT INTO :events (session, at, seq, kind, key, body, subject)
SELECT owner.id, new.at, new.seq, new.kind, new.key, new.body, new.subject
FROM owner, unnest($2::float8[], $3::int4[], $4::text[], $5::text[], $6::text[], $28::int8[])
    AS new (at, seq, kind, key, body, subject);

-- Who may append: as in `append_one`.
-- name: owner_shares
    SELECT id FROM trimtab.sessions
    WHERE id = $1 AND epoch <= $7
        AND EXISTS (SELECT FROM :events WHERE session = $1 AND seq = $8)
    FOR KEY SHARE OF sessions

-- Who may append what the session's row must know: a claim, a summary, a parent, a model.
-- name: owner_claims
    UPDATE trimtab.sessions
    SET epoch = greatest(epoch, $29),
        summary = CASE WHEN $30 THEN $31 ELSE summary END,
        last_summarised_at = CASE WHEN $30 THEN to_timestamp($32) ELSE last_summarised_at END,
        -- An empty text is a fork of nothing.
        parent = nullif(coalesce($33, parent), ''),
        model = coalesce($34, model),
        -- Not each time: the row moves within its page if no indexed column has changed.
        active_at = CASE
            WHEN $35 - active_at BETWEEN 0 AND 10 THEN active_at ELSE coalesce($35, active_at) END
    WHERE id = $1 AND epoch <= $7
        AND EXISTS (SELECT FROM :events WHERE session = $1 AND seq = $8)
    RETURNING id

-- Who begins the session; nobody if it is there. $7 and $8 mean nothing yet.
-- name: owner_begins
    INSERT INTO trimtab.sessions (
        id, name, epoch, summary, last_summarised_at, parent, model, active_at, created_at)
    SELECT
        $1, $36, greatest(0, $29),
        CASE WHEN $30 THEN $31 END, CASE WHEN $30 THEN to_timestamp($32) END, nullif($33, ''),
        $34, $35, to_timestamp($37)
    WHERE $7::int8 IS NOT NULL AND $8::int4 IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING id

-- Why nothing could be appended.
-- name: standing
SELECT epoch, coalesce((
    SELECT seq FROM trimtab.events WHERE session = $1 ORDER BY seq DESC LIMIT 1), 0)
FROM trimtab.sessions WHERE id = $1;

-- name: keys
SELECT key, seq FROM trimtab.events WHERE session = $1 AND key = ANY ($2::text[]) ORDER BY seq;

-- The newest claim and the last position. Damage may have taken the row of the session.
-- name: position
SELECT (SELECT epoch FROM trimtab.sessions WHERE id = $1), seq FROM trimtab.events
WHERE session = $1 ORDER BY seq DESC LIMIT 1;

-- The lock of a turn belongs to the connection.
-- name: try_lock_turn
SELECT pg_try_advisory_lock($1);

-- name: unlock_turn
SELECT pg_advisory_unlock($1);

-- A machine that is gone without a word holds its turns for 11 seconds, not for two hours.
-- name: notice_lost_clients
SELECT set_config('tcp_keepalives_idle', '5', false),
    set_config('tcp_keepalives_interval', '2', false),
    set_config('tcp_keepalives_count', '3', false);

-- Bounded spans, so that a page is as large as the reader asked for.
-- name: events
SELECT found.body
FROM unnest($2::int4[], $3::int4[]) AS span (first, last)
-- The limit is what there is anyway: it keeps the planner from reading the whole session instead.
CROSS JOIN LATERAL (
    SELECT seq, body FROM trimtab.events
    WHERE session = $1 AND seq BETWEEN span.first AND span.last
    ORDER BY seq LIMIT span.last - span.first + 1
) AS found
ORDER BY found.seq;

-- name: blobs
SELECT digest, data FROM trimtab.blobs WHERE session = $1 AND digest = ANY ($2::bytea[]);

-- name: snapshot
SELECT body FROM trimtab.snapshots
WHERE session = $1 AND seq <= $2 ORDER BY seq DESC LIMIT 1;

-- name: lock_for_checkpoint
SELECT checkpoint, coalesce((
    SELECT seq FROM trimtab.events WHERE session = $1 ORDER BY seq DESC LIMIT 1), 0)
FROM trimtab.sessions WHERE id = $1 AND epoch < 9223372036854775807 FOR NO KEY UPDATE;

-- name: lock
SELECT checkpoint FROM trimtab.sessions
WHERE id = $1 AND epoch < 9223372036854775807 FOR UPDATE;

-- name: keep_snapshot
INSERT INTO trimtab.snapshots (session, seq, body) VALUES ($1, $2, $3)
ON CONFLICT (session, seq) DO UPDATE SET body = excluded.body;

-- name: move_checkpoint
UPDATE trimtab.sessions SET checkpoint = $2, messages = messages + (
    SELECT count(*) FROM trimtab.events
    WHERE session = $1 AND seq > sessions.checkpoint AND seq <= $2 AND kind = 'message')
WHERE id = $1;

-- name: index_words
INSERT INTO trimtab.words (session, seq, chunk, words)
VALUES ($1, $2, $3, array_to_tsvector($4::text[]));

-- The indexed messages that answer most of the queries, the newest first.
-- name: search
SELECT words.seq, count(DISTINCT asked.number) AS hits
FROM unnest($2::text[]) WITH ORDINALITY AS asked (query, number)
JOIN trimtab.words
    ON words.session = $1 AND words.seq <= $4 AND words.words @@ asked.query::tsquery
GROUP BY words.seq ORDER BY hits DESC, words.seq DESC LIMIT $3;

-- name: checkpoint
SELECT checkpoint FROM trimtab.sessions WHERE id = $1;

-- name: rewrite_event
UPDATE trimtab.events SET at = $3, kind = $4, key = $5, body = $6, subject = $7
WHERE session = $1 AND seq = $2;

-- name: keep_blob
INSERT INTO trimtab.blobs (session, digest, data) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;

-- name: drop_blobs
DELETE FROM trimtab.blobs WHERE session = $1 AND digest = ANY ($2::bytea[]);

-- name: drop_words
DELETE FROM trimtab.words WHERE session = $1 AND seq = ANY ($2::int4[]);

-- name: rewrite_session
UPDATE trimtab.sessions SET summary = $2, last_summarised_at = to_timestamp($3),
    parent = nullif($4, '')
WHERE id = $1;

-- name: drop_calls
DELETE FROM trimtab.llm_calls WHERE session = $1 AND seq = ANY ($2::int4[]);

-- name: rewrite_call
UPDATE trimtab.llm_calls SET bytes = $3, created_at = to_timestamp($4)
WHERE session = $1 AND seq = $2;

-- name: end_call
UPDATE trimtab.llm_calls
SET status = $3, prompt_tokens = $4, completion_tokens = $5, cache_read_tokens = $6,
    cache_write_tokens = $7
WHERE session = $1 AND seq = $2;

-- name: delete_session
DELETE FROM trimtab.sessions WHERE id = $1 AND epoch < 9223372036854775807;

-- name: delete_events
DELETE FROM trimtab.events WHERE session = $1;

-- name: delete_blobs
DELETE FROM trimtab.blobs WHERE session = $1;

-- name: delete_words
DELETE FROM trimtab.words WHERE session = $1;

-- name: delete_snapshots
DELETE FROM trimtab.snapshots WHERE session = $1;

-- name: delete_calls
DELETE FROM trimtab.llm_calls WHERE session = $1;

-- name: delete_usage
DELETE FROM trimtab.session_usage WHERE session = $1;

-- name: forks
SELECT name FROM trimtab.sessions
WHERE parent = $1 AND EXISTS (SELECT FROM trimtab.sessions WHERE name = $1) ORDER BY name;

-- `:order` is one of the two that follow.
-- name: listed_sessions
SELECT s.name, last.seq, s.messages + (
        SELECT count(*) FROM trimtab.events
        WHERE session = s.id AND seq > s.checkpoint AND kind = 'message'),
    last.at, s.parent, s.active_at
FROM trimtab.sessions AS s
CROSS JOIN LATERAL (
    SELECT seq, at FROM trimtab.events WHERE session = s.id ORDER BY seq DESC LIMIT 1) AS last
:order;

-- name: by_name
WHERE s.name > $1 ORDER BY s.name LIMIT $2

-- name: by_recency
WHERE regexp_replace(s.name, '[^/]*$', '') = $1 AND (s.active_at, s.name) < ($3, $4)
ORDER BY s.active_at DESC, s.name DESC LIMIT $2

-- name: sessions_about
SELECT name FROM trimtab.sessions
WHERE id IN (SELECT session FROM trimtab.events WHERE subject = ANY ($1::int8[])) ORDER BY name;

-- The procedures are in the first migration.
-- name: reserve_spending
CALL trimtab.reserve_spending($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, NULL, NULL, NULL);

-- name: settle_spending
CALL trimtab.settle_spending($1, $2);

-- name: tenant_spending
SELECT micros FROM trimtab.spending_per_tenant WHERE day = $1 AND tenant = $2;

-- name: reset_spending
INSERT INTO trimtab.spending_per_session AS total (session, micros, micros_before_reset)
VALUES ($1, $2, $2)
ON CONFLICT (session) DO UPDATE
SET micros = greatest(total.micros, excluded.micros),
    micros_before_reset = greatest(total.micros, excluded.micros);

-- By the clock of the database, so that a process whose clock is ahead forgets nothing.
-- name: forget_days
DELETE FROM trimtab.spending_per_day WHERE day < (now() AT TIME ZONE 'utc')::date - 31;

-- name: forget_tenants
DELETE FROM trimtab.spending_per_tenant WHERE day < (now() AT TIME ZONE 'utc')::date - 31;

-- name: forget_reservations
DELETE FROM trimtab.spending_reservations WHERE until < extract(epoch FROM now()) - 86400;

-- One migration at a time in a database.
-- name: lock_migrations
SELECT pg_advisory_xact_lock($1);

-- name: begin_migrations
CREATE SCHEMA IF NOT EXISTS trimtab;
CREATE TABLE IF NOT EXISTS trimtab.migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    -- The version that a release must know to run on these tables; 0 if every release can.
    needed_version integer NOT NULL DEFAULT 0,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- name: record_migration
INSERT INTO trimtab.migrations (version, name, checksum, needed_version) VALUES ($1, $2, $3, $4);

-- name: applied
SELECT version, name, checksum, needed_version FROM trimtab.migrations ORDER BY version;
