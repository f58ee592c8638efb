-- What model calls cost. PostgreSQL and SQLite run the same statements; SQLite has no schema.

-- SQLite only: PostgreSQL has migrations.
-- name: create_per_day
CREATE TABLE IF NOT EXISTS trimtab.spending_per_day (
    agent TEXT NOT NULL,
    day TEXT NOT NULL,
    tenant TEXT NOT NULL,
    micros INTEGER NOT NULL,
    PRIMARY KEY (agent, day, tenant)
) WITHOUT ROWID;

-- name: create_per_session
CREATE TABLE IF NOT EXISTS trimtab.spending_per_session (
    session TEXT PRIMARY KEY,
    micros INTEGER NOT NULL
) WITHOUT ROWID;

-- name: create_reservations
CREATE TABLE IF NOT EXISTS trimtab.spending_reservations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    agent TEXT NOT NULL,
    day TEXT NOT NULL,
    tenant TEXT NOT NULL,
    session TEXT NOT NULL,
    micros INTEGER NOT NULL,
    until REAL NOT NULL
);

-- PostgreSQL only: one reservation at a time, over all processes.
-- name: lock
SELECT pg_advisory_xact_lock($1);

-- A log may know of a call that was never settled, and knows nothing of calls by sub-agents.
-- name: raise_session_to_log
INSERT INTO trimtab.spending_per_session AS kept (session, micros) VALUES ($1, $2)
ON CONFLICT (session) DO UPDATE SET micros = excluded.micros WHERE kept.micros < excluded.micros;

-- name: day_total
SELECT CAST(COALESCE(SUM(micros), 0) AS bigint) FROM (
    SELECT micros FROM trimtab.spending_per_day WHERE agent = $1 AND day = $2
    UNION ALL
    SELECT micros FROM trimtab.spending_reservations WHERE agent = $1 AND day = $2) AS counted;

-- name: tenant_total
SELECT CAST(COALESCE(SUM(micros), 0) AS bigint) FROM (
    SELECT micros FROM trimtab.spending_per_day WHERE agent = $1 AND day = $2 AND tenant = $3
    UNION ALL
    SELECT micros FROM trimtab.spending_reservations
    WHERE agent = $1 AND day = $2 AND tenant = $3) AS counted;

-- name: session_total
SELECT CAST(COALESCE(SUM(micros), 0) AS bigint) FROM (
    SELECT micros FROM trimtab.spending_per_session WHERE session = $1
    UNION ALL
    SELECT micros FROM trimtab.spending_reservations
    WHERE session = $1 AND until > $2) AS counted;

-- name: reserve
INSERT INTO trimtab.spending_reservations (agent, day, tenant, session, micros, until)
VALUES ($1, $2, $3, $4, $5, $6) RETURNING id;

-- name: release
DELETE FROM trimtab.spending_reservations WHERE id = $1 RETURNING agent, day, tenant, session;

-- name: add_to_day
INSERT INTO trimtab.spending_per_day AS kept (agent, day, tenant, micros) VALUES ($1, $2, $3, $4)
ON CONFLICT (agent, day, tenant) DO UPDATE SET micros = kept.micros + excluded.micros;

-- name: add_to_session
UPDATE trimtab.spending_per_session SET micros = micros + $2 WHERE session = $1;

-- name: forget_days
DELETE FROM trimtab.spending_per_day WHERE day < $1;

-- name: forget_reservations
DELETE FROM trimtab.spending_reservations WHERE day < $1;

-- SQLite only: PostgreSQL's row goes with its session.
-- name: forget_session
DELETE FROM trimtab.spending_per_session WHERE session = $1;

-- name: forget_session_reservations
DELETE FROM trimtab.spending_reservations WHERE session = $1;
