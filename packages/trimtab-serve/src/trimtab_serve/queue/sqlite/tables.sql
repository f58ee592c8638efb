-- Waiting messages, outgoing replies, dead letters and schedules: the tables of PostgreSQL, for one
-- machine.
--
-- Names and keys are UTF-8 bytes. They can store any Python text, in the order of code points.
-- Times are seconds since the epoch. Numbers are never reused.

CREATE TABLE inbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    session BLOB NOT NULL,
    key BLOB NOT NULL,
    -- JSON.
    body TEXT NOT NULL,
    UNIQUE (session, key)
);

-- SQLite adds the row's number to each index entry, so the entries are also ordered by number.
CREATE INDEX inbox_session ON inbox (session);

CREATE TABLE outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    session BLOB NOT NULL,
    -- Stays for a while after the delivery, so that the reply is sent once.
    key BLOB NOT NULL UNIQUE,
    channel BLOB NOT NULL,
    body TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'refused')),
    attempts INTEGER NOT NULL DEFAULT 0,
    -- Not due before this time. Null while an earlier reply of its session waits for the same
    -- channel. For a delivered or undeliverable reply, the time of that.
    due REAL,
    -- Whether it is not due because a process is sending it. A process that ended sends no more.
    lent INTEGER NOT NULL DEFAULT 0,
    why BLOB
);

-- Finds due replies without reading all that wait, and replies that wait for another.
CREATE INDEX outbox_due ON outbox (channel, due) WHERE state = 'waiting' AND due IS NOT NULL;
CREATE INDEX outbox_waiting ON outbox (session) WHERE state = 'waiting';
CREATE INDEX outbox_refused ON outbox (session) WHERE state = 'refused';

CREATE TABLE dead (
    session BLOB PRIMARY KEY,
    why BLOB NOT NULL,
    at REAL NOT NULL
) WITHOUT ROWID;

-- How often in a row the process vanished while a turn of this session ran. Deleted when a turn ends
-- in an ordinary way.
CREATE TABLE interruptions (
    session BLOB PRIMARY KEY,
    times INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE schedules (
    id BLOB PRIMARY KEY,
    session BLOB NOT NULL,
    agent BLOB NOT NULL,
    -- `file` or `tool`.
    origin TEXT NOT NULL,
    -- JSON of the schedule without the next time.
    body TEXT NOT NULL,
    -- Null if it is finished.
    next_run_at REAL,
    paused INTEGER NOT NULL,
    -- When it was last run or skipped.
    last_run_at REAL
) WITHOUT ROWID;

CREATE INDEX schedules_due ON schedules (next_run_at) WHERE next_run_at IS NOT NULL AND NOT paused;
CREATE INDEX schedules_session ON schedules (session);

CREATE TABLE schedule_runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    schedule BLOB NOT NULL REFERENCES schedules ON DELETE CASCADE,
    due REAL NOT NULL,
    at REAL NOT NULL,
    -- Empty if it ran.
    why BLOB NOT NULL,
    -- If it was skipped, so were all runs that were due before this time.
    until REAL
);

CREATE INDEX schedule_runs_schedule ON schedule_runs (schedule);

CREATE TABLE api_keys (
    sha256 BLOB PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    -- A JSON list. Null for all agents.
    agents TEXT,
    role TEXT NOT NULL,
    created_at REAL NOT NULL,
    -- Null for never.
    expires_at REAL,
    last_used_at REAL
) WITHOUT ROWID;

CREATE INDEX api_keys_tenant ON api_keys (tenant);
CREATE INDEX api_keys_expiry ON api_keys (expires_at) WHERE expires_at IS NOT NULL;

-- What tenants store. Triggers keep the totals of each tenant.

CREATE TABLE session_usage (
    session TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    bytes INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX session_usage_bytes ON session_usage (bytes);

CREATE TABLE tenant_usage (
    tenant TEXT PRIMARY KEY,
    sessions INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TRIGGER count_new_session AFTER INSERT ON session_usage BEGIN
    INSERT INTO tenant_usage (tenant) VALUES (new.tenant) ON CONFLICT DO NOTHING;
    UPDATE tenant_usage SET sessions = sessions + 1, bytes = bytes + new.bytes
    WHERE tenant = new.tenant;
END;

CREATE TRIGGER count_changed_session AFTER UPDATE ON session_usage BEGIN
    UPDATE tenant_usage SET bytes = bytes + new.bytes - old.bytes WHERE tenant = new.tenant;
END;

CREATE TRIGGER count_deleted_session AFTER DELETE ON session_usage BEGIN
    UPDATE tenant_usage SET sessions = sessions - 1, bytes = bytes - old.bytes
    WHERE tenant = old.tenant;
END;
