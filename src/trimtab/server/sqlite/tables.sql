-- What came in and waits for its turn, what must go out, what was given up, and what is due at set
-- times: the tables of PostgreSQL, for one machine.
--
-- Names and keys are UTF-8 as bytes: that takes any text Python has, in the order of code points.
-- Times are seconds since the epoch. Numbers are never given twice.

CREATE TABLE inbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    session BLOB NOT NULL,
    key BLOB NOT NULL,
    -- JSON.
    body TEXT NOT NULL,
    UNIQUE (session, key)
);

-- A row's number stands behind each entry, so it is in the order of numbers as well.
CREATE INDEX inbox_session ON inbox (session);

CREATE TABLE outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    session BLOB NOT NULL,
    -- Stays for a while after the reply has left, so that it leaves once.
    key BLOB NOT NULL UNIQUE,
    channel BLOB NOT NULL,
    body TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'refused')),
    attempts INTEGER NOT NULL DEFAULT 0,
    -- Not before; null while an earlier one of its session waits for the same channel. For one
    -- that has left or never will, when that was.
    due REAL,
    -- Whether it is not due because somebody sends it: whose process has ended sends no more.
    lent INTEGER NOT NULL DEFAULT 0,
    why BLOB
);

-- What is due, without a look at all that waits; and what waits behind another.
CREATE INDEX outbox_due ON outbox (channel, due) WHERE state = 'waiting' AND due IS NOT NULL;
CREATE INDEX outbox_waiting ON outbox (session) WHERE state = 'waiting';
CREATE INDEX outbox_refused ON outbox (session) WHERE state = 'refused';

CREATE TABLE dead (
    session BLOB PRIMARY KEY,
    why BLOB NOT NULL,
    at REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE schedules (
    id BLOB PRIMARY KEY,
    session BLOB NOT NULL,
    agent BLOB NOT NULL,
    -- `file` or `tool`.
    origin TEXT NOT NULL,
    -- JSON, all of it but the next time.
    body TEXT NOT NULL,
    -- Null where it is done.
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
    -- Empty where it ran.
    why BLOB NOT NULL,
    -- Where it was skipped: so were all that were due before this.
    until REAL
);

CREATE INDEX schedule_runs_schedule ON schedule_runs (schedule);

-- Files of the previous release whose content is in here and which may still have to be removed.
CREATE TABLE taken_over (
    path TEXT PRIMARY KEY
) WITHOUT ROWID;
