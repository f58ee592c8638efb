-- Statements of the schedules, by name. SQLite reads them as `queue/sqlite/transactions.py` says.

-- name: insert
INSERT INTO trimtab.schedules (id, session, agent, origin, body, next_run_at, paused)
VALUES ($1, $2, $3, CAST($4 AS text), CAST($5 AS text), $6, $7) ON CONFLICT (id) DO NOTHING;

-- name: change
UPDATE trimtab.schedules
SET session = $2, agent = $3, origin = CAST($4 AS text), body = CAST($5 AS text),
    next_run_at = $6, paused = $7
WHERE id = $1;

-- name: get
SELECT body, next_run_at FROM trimtab.schedules WHERE id = $1;

-- name: locked
SELECT body, next_run_at FROM trimtab.schedules WHERE id = $1 FOR UPDATE;

-- Two transactions that add to one tenant wait for each other, so that both counts are right.
-- name: adding
SELECT pg_advisory_xact_lock(hashtextextended('schedules of ' || $1, 0));

-- name: count
SELECT count(*) FROM trimtab.schedules WHERE session = $1 AND next_run_at IS NOT NULL;

-- The ids of a tenant's sessions begin with its name and a slash, which comes before 0.
-- name: count_tenant
SELECT count(*) FROM (
    SELECT 1 FROM trimtab.schedules
    WHERE session > $1 AND session < $2 AND next_run_at IS NOT NULL LIMIT $3) AS counted;

-- name: old
DELETE FROM trimtab.schedules
WHERE session = $1 AND origin = 'tool' AND next_run_at IS NULL AND last_run_at < $2;

-- name: remove
DELETE FROM trimtab.schedules WHERE id = $1;

-- name: forget
DELETE FROM trimtab.schedules WHERE session = $1 AND origin = 'tool';

-- name: find
SELECT body, next_run_at FROM trimtab.schedules
WHERE (CAST($1 AS text) IS NULL OR session = $1) AND (CAST($2 AS text) IS NULL OR agent = $2)
ORDER BY id LIMIT $3;

-- name: runs
SELECT CAST(schedule AS text), due, at, CAST(why AS text), until FROM trimtab.schedule_runs
WHERE CAST($1 AS text) IS NULL OR schedule = $1 ORDER BY number DESC LIMIT $2;

-- name: next_due
SELECT next_run_at FROM trimtab.schedules
WHERE next_run_at IS NOT NULL AND NOT paused
    AND agent = ANY ($1::text[]) AND id <> ALL ($2::text[])
ORDER BY next_run_at LIMIT 1;

-- Skips a schedule that another worker is running.
-- name: claim
SELECT body, next_run_at FROM trimtab.schedules
WHERE next_run_at <= $1 AND NOT paused
    AND agent = ANY ($2::text[]) AND id <> ALL ($3::text[])
ORDER BY next_run_at, id LIMIT 1
FOR UPDATE SKIP LOCKED;

-- name: has_key
SELECT 1 FROM trimtab.api_keys
WHERE tenant = CAST($1 AS text) AND role IN ('talk', 'admin')
    AND (agents IS NULL OR CAST($2 AS text) = ANY (agents))
    AND (expires_at IS NULL OR expires_at > $3)
LIMIT 1;

-- name: move
UPDATE trimtab.schedules SET next_run_at = $2, last_run_at = $3 WHERE id = $1;

-- name: log
INSERT INTO trimtab.schedule_runs (schedule, due, at, why, until) VALUES ($1, $2, $3, $4, $5);

-- name: shorten
DELETE FROM trimtab.schedule_runs WHERE schedule = $1 AND number <= (
    SELECT number FROM trimtab.schedule_runs WHERE schedule = $1
    ORDER BY number DESC LIMIT 1 OFFSET $2);
