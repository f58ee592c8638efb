-- What the PostgreSQL store asks, by name. Parameters are numbered as the server numbers them.

-- A single event that changes no row but its own. The primary key is the compare-and-swap. The
-- position before must be there, in the same snapshot as the session's epoch: whoever sees the
-- event of a claim sees its epoch as well, so no lock is needed between the two. The share of the
-- row's key holds back `delete` and `rewrite`, and nobody else.
-- `:events` is the session's own partition: a plan over all sixteen takes a lock on each.
-- name: append_one
INSERT INTO :events (session, at, seq, kind, key, body)
SELECT id, $2, $3, $4, $5, $6 FROM trimtab.sessions
WHERE id = $1 AND epoch <= $7
    AND EXISTS (SELECT FROM :events WHERE session = $1 AND seq = $8)
FOR KEY SHARE OF sessions;

-- name: append_many
WITH owner AS (
    :owner
)
INSERT INTO :events (session, at, seq, kind, key, body)
SELECT owner.id, new.at, new.seq, new.kind, new.key, new.body
FROM owner, unnest($2::float8[], $3::int4[], $4::text[], $5::text[], $6::text[])
    AS new (at, seq, kind, key, body);

-- As many values as there are events: the server reads them in half the time of arrays.
-- name: append_few
WITH owner AS (
    :owner
)
INSERT INTO :events (session, at, seq, kind, key, body)
SELECT owner.id, new.at, new.seq, new.kind, new.key, new.body
FROM owner, (VALUES :values) AS new (at, seq, kind, key, body);

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
    DELETE FROM trimtab.llm_calls USING owner WHERE session = owner.id AND seq < $11
),
called AS (
    INSERT INTO trimtab.llm_calls (
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
    UPDATE trimtab.llm_calls
    SET status = new.status, prompt_tokens = new.input, completion_tokens = new.output,
        cache_read_tokens = new.cache_read, cache_write_tokens = new.cache_write
    FROM owner, unnest(
        $22::int4[], $23::text[], $24::int8[], $25::int8[], $26::int8[], $27::int8[]
    ) AS new (seq, status, input, output, cache_read, cache_write)
    WHERE llm_calls.session = owner.id AND llm_calls.seq = new.seq
)
INSERT INTO :events (session, at, seq, kind, key, body)
SELECT owner.id, new.at, new.seq, new.kind, new.key, new.body
FROM owner, unnest($2::float8[], $3::int4[], $4::text[], $5::text[], $6::text[])
    AS new (at, seq, kind, key, body);

-- Who may append: as in `append_one`.
-- name: owner_shares
    SELECT id FROM trimtab.sessions
    WHERE id = $1 AND epoch <= $7
        AND EXISTS (SELECT FROM :events WHERE session = $1 AND seq = $8)
    FOR KEY SHARE OF sessions

-- Who may append what the session's row must know: a claim, a summary, a parent, a model.
-- name: owner_claims
    UPDATE trimtab.sessions
    SET epoch = greatest(epoch, $28),
        summary = CASE WHEN $29 THEN $30 ELSE summary END,
        last_summarised_at = CASE WHEN $29 THEN to_timestamp($31) ELSE last_summarised_at END,
        -- An empty text is a fork of nothing.
        parent = nullif(coalesce($32, parent), ''),
        model = coalesce($33, model)
    WHERE id = $1 AND epoch <= $7
        AND EXISTS (SELECT FROM :events WHERE session = $1 AND seq = $8)
    RETURNING id

-- Who begins the session; nobody if it is there. $7 and $8 mean nothing yet.
-- name: owner_begins
    INSERT INTO trimtab.sessions (
        id, name, epoch, summary, last_summarised_at, parent, model, created_at)
    SELECT
        $1, $34, greatest(0, $28),
        CASE WHEN $29 THEN $30 END, CASE WHEN $29 THEN to_timestamp($31) END, nullif($32, ''),
        $33, to_timestamp($35)
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

-- name: position
SELECT seq FROM trimtab.events WHERE session = $1 ORDER BY seq DESC LIMIT 1;

-- name: exists
SELECT FROM trimtab.sessions WHERE id = $1;

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
FROM trimtab.sessions WHERE id = $1 FOR NO KEY UPDATE;

-- name: lock
SELECT checkpoint FROM trimtab.sessions WHERE id = $1 FOR UPDATE;

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
UPDATE trimtab.events SET at = $3, kind = $4, key = $5, body = $6 WHERE session = $1 AND seq = $2;

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
DELETE FROM trimtab.sessions WHERE id = $1;

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

-- name: forks
SELECT name FROM trimtab.sessions
WHERE parent = $1 AND EXISTS (SELECT FROM trimtab.sessions WHERE name = $1) ORDER BY name;

-- name: sessions
SELECT s.name, last.seq, s.messages + (
        SELECT count(*) FROM trimtab.events
        WHERE session = s.id AND seq > s.checkpoint AND kind = 'message'),
    last.at, s.parent
FROM trimtab.sessions AS s
CROSS JOIN LATERAL (
    SELECT seq, at FROM trimtab.events WHERE session = s.id ORDER BY seq DESC LIMIT 1) AS last
WHERE s.name > $1 ORDER BY s.name LIMIT $2;

-- One migration at a time in a database.
-- name: lock_migrations
SELECT pg_advisory_xact_lock($1);

-- name: begin_migrations
CREATE SCHEMA IF NOT EXISTS trimtab;
CREATE TABLE IF NOT EXISTS trimtab.migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- name: record_migration
INSERT INTO trimtab.migrations (version, name, checksum) VALUES ($1, $2, $3);

-- name: applied
SELECT version, name, checksum FROM trimtab.migrations ORDER BY version;
