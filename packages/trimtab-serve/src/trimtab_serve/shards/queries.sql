-- Queries of a move, by name. Tables without a schema are Procrastinate's.

-- Held until the connection ends: who has it moves the session, and nobody else.
-- name: lock_move
SELECT pg_try_advisory_lock($1);

-- name: unlock_move
SELECT pg_advisory_unlock($1);

-- The tables that have a column `session`, with what is copied of each row. A number that the
-- database gives is not copied: the copy gets new ones in the same order.
-- name: session_tables
SELECT pg_class.relname, bool_or(attname = 'session' AND atttypid = 'uuid'::regtype),
    array_agg(attname ORDER BY attnum) FILTER (WHERE attidentity = '' AND attgenerated = ''),
    min(attname) FILTER (WHERE attidentity <> '')
FROM pg_class
JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
WHERE relnamespace = 'trimtab'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
GROUP BY pg_class.oid ORDER BY pg_class.relname;

-- name: state
SELECT state, shard, epoch FROM trimtab.moves WHERE id = $1;

-- name: epoch
SELECT epoch FROM trimtab.sessions WHERE id = $1 FOR UPDATE;

-- name: close
INSERT INTO trimtab.sessions (id, name, epoch, active_at)
VALUES ($1, $2, 9223372036854775807, 0)
ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch;

-- name: waits
SELECT EXISTS (SELECT FROM trimtab.inbox WHERE session = $1);

-- name: is_turn_running
SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE lock = $1 AND status = 'doing');

-- name: set_state
INSERT INTO trimtab.moves (id, state, shard, epoch) VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO UPDATE SET state = excluded.state, shard = excluded.shard,
    epoch = excluded.epoch;

-- name: open
WITH arrived AS (
    DELETE FROM trimtab.moves WHERE id = $1 AND state = 'arriving' RETURNING epoch
)
UPDATE trimtab.sessions SET epoch = arrived.epoch FROM arrived WHERE id = $1;

-- name: needs_turn
SELECT EXISTS (SELECT FROM trimtab.inbox WHERE session = $1)
    AND NOT EXISTS (SELECT FROM trimtab.dead WHERE session = $1);

-- name: drop_jobs
DELETE FROM procrastinate_jobs WHERE lock = ANY ($1::text[]);

-- name: has_configured_schedule
SELECT EXISTS (SELECT FROM trimtab.schedules WHERE session = $1 AND origin = 'file');

-- The sessions of a tenant that are here, or whose move was not finished.
-- name: sessions_of_tenant
SELECT name FROM trimtab.sessions LEFT JOIN trimtab.moves USING (id)
WHERE name >= $1 AND ($2::text IS NULL OR name < $2) AND state IS DISTINCT FROM $3
ORDER BY name;

-- name: arriving_of_tenant
SELECT name FROM trimtab.sessions JOIN trimtab.moves USING (id)
WHERE name >= $1 AND ($2::text IS NULL OR name < $2) AND state = 'arriving'
ORDER BY name;

-- name: drop_state
DELETE FROM trimtab.moves WHERE id = $1;

-- name: keys_of_tenant
SELECT sha256, name, tenant, agents, role, created_at, expires_at, last_used_at
FROM trimtab.api_keys WHERE tenant = $1 AND role <> 'metrics' ORDER BY name;

-- Returns nothing if the name belongs to another key there.
-- name: copy_key
INSERT INTO trimtab.api_keys AS stored
    (sha256, name, tenant, agents, role, created_at, expires_at, last_used_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (name) DO UPDATE SET name = stored.name WHERE stored.sha256 = excluded.sha256
RETURNING name;
