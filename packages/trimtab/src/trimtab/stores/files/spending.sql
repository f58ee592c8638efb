-- What model calls cost, on one machine. Every reservation runs in a transaction that excludes all
-- others. PostgreSQL does the same in two procedures of its first migration.

-- name: create_per_day
CREATE TABLE IF NOT EXISTS spending_per_day (
    day TEXT NOT NULL,
    agent TEXT NOT NULL,
    micros INTEGER NOT NULL,
    PRIMARY KEY (day, agent)
) WITHOUT ROWID;

-- name: create_per_tenant
CREATE TABLE IF NOT EXISTS spending_per_tenant (
    day TEXT NOT NULL,
    tenant TEXT NOT NULL,
    micros INTEGER NOT NULL,
    PRIMARY KEY (day, tenant)
) WITHOUT ROWID;

-- name: create_per_session
CREATE TABLE IF NOT EXISTS spending_per_session (
    session TEXT PRIMARY KEY,
    micros INTEGER NOT NULL,
    micros_before_reset INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- Names each total that counts the call: the session and the tenant are null, and `counts_for_day`
-- is false, if there was no such ceiling.
-- name: create_reservations
CREATE TABLE IF NOT EXISTS spending_reservations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    day TEXT NOT NULL,
    agent TEXT NOT NULL,
    tenant TEXT,
    session TEXT,
    counts_for_day INTEGER NOT NULL,
    micros INTEGER NOT NULL,
    until REAL NOT NULL
);

-- name: create_reservations_of_session
CREATE INDEX IF NOT EXISTS spending_reservations_session
ON spending_reservations (session, until) WHERE session IS NOT NULL;

-- A log may know of a call that was never settled, and knows nothing of calls by sub-agents.
-- name: raise_session_to_log
INSERT INTO spending_per_session AS total (session, micros) VALUES (?1, ?2)
ON CONFLICT (session) DO UPDATE SET micros = max(total.micros, excluded.micros);

-- name: session_total
SELECT micros - micros_before_reset + (
    SELECT coalesce(sum(micros), 0) FROM spending_reservations WHERE session = ?1 AND until > ?2)
FROM spending_per_session WHERE session = ?1;

-- name: tenant_total
SELECT micros FROM spending_per_tenant WHERE day = ?1 AND tenant = ?2;

-- name: day_total
SELECT micros FROM spending_per_day WHERE day = ?1 AND agent = ?2;

-- name: add_to_session
UPDATE spending_per_session SET micros = micros + ?2 WHERE session = ?1;

-- name: reset_session
UPDATE spending_per_session SET micros_before_reset = micros WHERE session = ?1;

-- name: add_to_tenant
INSERT INTO spending_per_tenant AS total (day, tenant, micros) VALUES (?1, ?2, ?3)
ON CONFLICT DO UPDATE SET micros = total.micros + excluded.micros;

-- name: add_to_day
INSERT INTO spending_per_day AS total (day, agent, micros) VALUES (?1, ?2, ?3)
ON CONFLICT DO UPDATE SET micros = total.micros + excluded.micros;

-- name: reserve
INSERT INTO spending_reservations (day, agent, tenant, session, counts_for_day, micros, until)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) RETURNING id;

-- name: release
DELETE FROM spending_reservations WHERE id = ?1
RETURNING day, agent, tenant, session, counts_for_day, micros;

-- By the clock of this machine, so that a call with another time forgets nothing.
-- name: forget_days
DELETE FROM spending_per_day WHERE day < date('now', '-31 days');

-- name: forget_tenants
DELETE FROM spending_per_tenant WHERE day < date('now', '-31 days');

-- name: forget_reservations
DELETE FROM spending_reservations WHERE until < strftime('%s', 'now') - 86400;

-- name: forget_session
DELETE FROM spending_per_session WHERE session = ?1;

-- Its calls still count for their day and their tenant.
-- name: forget_reservations_of_session
UPDATE spending_reservations SET session = NULL WHERE session = ?1;
